//! What may be set of a data set of videos, boxes and reference pictures?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::broken::OnBroken;
use crate::reading::orientation::ExifOrientation;

/// Frames with boxes, and reference pictures by class: a folder with COCO JSON or Pascal VOC annotations, or a
/// generated set of the same format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where the data comes from. `generated` needs nothing.
    pub source: Source,
    /// The folder, for `source = "folder"`. Relative to this file. `${NAME}` and `${NAME:-default}` stand for
    /// environment variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How the folder is annotated.
    pub format: Format,
    /// The annotation file below `path`, for `format = "coco"`. Default: `annotations.json`, the only JSON file of
    /// `annotations/`, or its `instances_train*.json`. Pictures are looked for below `path` as the file names them, and else
    /// in `train2017/` (for `instances_train2017.json`), in `images/`, and beside the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1000))]
    pub annotations: Option<String>,
    /// A second annotation file, whose pictures are validated on and never trained on. Held-out classes are then drawn from
    /// it alone, and classes to train on from the first. Default: `annotations/instances_val*.json` where
    /// `instances_train*.json` is the first; otherwise none, and only classes are held out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1000))]
    pub validation_annotations: Option<String>,
    /// How the corners of a box are counted in Pascal VOC's XML, for `format = "voc"`.
    pub voc_corners: VocCorners,
    /// What to do with the orientation that a picture states in EXIF, as phones write it. Boxes and sizes in the
    /// annotations are those of the resulting picture.
    pub exif_orientation: ExifOrientation,
    /// Names of the classes held out for validation: never trained on, not even as background. Pictures that show them are
    /// not used in training, as long as a training class has two others. Default: the categories whose `supercategory`
    /// is `novel`.
    #[schemars(length(max = 10_000))]
    pub validation_classes: Vec<String>,
    /// Names of the classes to train on. Default: all that are not held out.
    #[schemars(length(max = 10_000))]
    pub train_classes: Vec<String>,
    /// What to do with broken pictures, annotations that cannot be read, boxes outside the picture, boxes that a picture has
    /// twice and unknown categories. A picture that is complete
    /// but cannot be decoded is found only when it is used; it ends the run in either case.
    pub on_broken: OnBroken,
    /// What to generate, for `source = "generated"`.
    pub generated: Generated,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            source: Source::Generated,
            path: None,
            format: Format::Coco,
            annotations: None,
            validation_annotations: None,
            voc_corners: VocCorners::OneBased,
            exif_orientation: ExifOrientation::Apply,
            validation_classes: Vec::new(),
            train_classes: Vec::new(),
            on_broken: OnBroken::Fail,
            generated: Generated::default(),
        }
    }
}

/// Where data comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Written once to the cache directory, the same bytes for the same settings and seed.
    Generated,
    /// Read from `path`.
    Folder,
}

/// How a folder is annotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// JSON in COCO's form, one file or one to train on and one to validate on; images may have `video_id` and `frame_index`.
    Coco,
    /// `annotations/*.xml` in Pascal VOC's form, one a picture in `images/`.
    Voc,
}

/// How the corners of a box are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VocCorners {
    /// As VOC has it: pixels are counted from 1, and both corners belong to the box. 1, 1 to width, height is the whole
    /// picture.
    OneBased,
    /// Pixels are counted from 0, and both corners belong to the box. 0, 0 to width - 1, height - 1 is the whole picture.
    ZeroBased,
    /// Distances from the left and the upper edge, as LabelImg writes them. 0, 0 to width, height is the whole picture.
    Edges,
}

/// A generated set: textured objects of several classes that move over cluttered moving backgrounds, change size and
/// pass behind one another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Generated {
    /// Classes to train on.
    #[schemars(range(min = 2, max = 1000))]
    pub train_classes: usize,
    /// Classes held out; no class is both.
    #[schemars(range(min = 2, max = 1000))]
    pub validation_classes: usize,
    /// Videos of each class.
    #[schemars(range(min = 1, max = 10_000))]
    pub videos_per_class: usize,
    /// Frames of each video.
    #[schemars(range(min = 1, max = 10_000))]
    pub frames_per_video: usize,
    /// Reference pictures of each class.
    #[schemars(range(min = 2, max = 10_000))]
    pub references_per_class: usize,
    /// The side of a frame, in pixels.
    #[schemars(range(min = 32, max = 2048))]
    pub frame_size: usize,
    /// Seed of the generated set; the experiment's seed does not change it, so that runs with several seeds see the
    /// same data.
    pub seed: u32,
}

impl Default for Generated {
    fn default() -> Self {
        Self {
            train_classes: 24,
            validation_classes: 8,
            videos_per_class: 4,
            frames_per_video: 12,
            references_per_class: 6,
            frame_size: 96,
            seed: 0,
        }
    }
}
