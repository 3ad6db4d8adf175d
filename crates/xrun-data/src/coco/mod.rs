//! Images with boxes in COCO's JSON: one annotation file, or one to train on and one to validate on.

pub mod files;
pub mod read;

use std::path::{Component, Path};

use crate::boxes::format::Format;
use crate::boxes::open::ReaderInput;
use crate::boxes::raw::{Raw, Unit};
use crate::directory_settings;
use xrun_core::dataset::error::DataError;
use xrun_core::problem::{Problem, Problems};

directory_settings! {
    /// Images with boxes in COCO's JSON; images may have `video_id` and `frame_index`. Categories whose `supercategory` is
    /// `novel` are held out where `validation_classes` names none.
    Coco {
        /// The annotation file below `path`. Default: `annotations.json`, the only JSON file of `annotations/`, its file of the
        /// training split (`instances_train*.json`, `person_keypoints_train*.json`), or `train/_annotations.coco.json`. Images are
        /// looked for below `path` as the file names them, and else in a directory that the file is named after (`train2017/` for
        /// `instances_minitrain2017.json`), in `images/`, and in the directory of the file.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(length(min = 1, max = 1000))]
        annotations: Option<String> = None,
        /// A second annotation file, whose images are validated on and never trained on. Held-out classes are then drawn from
        /// it alone, and classes to train on from the first. Default: the file of the validation split next to that of the
        /// training split (`instances_val*.json`, `valid/_annotations.coco.json`); otherwise none, and only classes are held out.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(length(min = 1, max = 1000))]
        validation_annotations: Option<String> = None,
        /// Unit of `bbox`.
        box_units: Unit = Unit::Pixels,
    }
}

impl Format for Coco {
    const NAME: &'static str = "coco";
    const SECTION: &'static str = "dataset.coco";
    const ADVICE: &'static str = "name the directory that holds the annotations and the images";

    fn check_keys(&self, problems: &mut Problems) {
        let key = |name: &str| format!("{}.{name}", Self::SECTION);
        let files = [("annotations", &self.annotations), ("validation_annotations", &self.validation_annotations)];
        let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        for (name, file) in files.iter().filter_map(|(name, file)| Some((*name, file.as_ref()?))) {
            if Path::new(file).components().all(plain) {
                continue;
            }
            let problem = Problem::new(key(name), format!("\"{file}\" leads out of the data set's directory"));
            problems.add(problem.help("name a file below `path`, such as \"annotations/instances_train2017.json\""));
        }
        if self.annotations.is_some() && self.annotations == self.validation_annotations {
            let problem = Problem::new(key("validation_annotations"), "is the file that is trained on");
            problems.add(problem.help("name another file").related(key("annotations")));
        }
    }

    fn read(&self, input: ReaderInput<'_>) -> Result<Raw, DataError> {
        files::read(self, input)
    }
}
