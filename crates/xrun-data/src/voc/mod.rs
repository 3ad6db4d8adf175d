//! Images with boxes in Pascal VOC's XML, one file an image.

pub mod read;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::boxes::format::Format;
use crate::boxes::open::ReaderInput;
use crate::boxes::raw::Raw;
use crate::directory_settings;
use xrun_core::dataset::error::DataError;

directory_settings! {
    /// Images with boxes in Pascal VOC's XML: `annotations/*.xml` with the images in `images/`, or `Annotations` and
    /// `JPEGImages`; or files next to the images, in the directory itself or in `train/` and `valid/`.
    Voc {
        /// Origin and extent of the corners of a box.
        corners: Corners = Corners::OneBased,
    }
}

/// Origin and extent of the corners of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Corners {
    /// VOC's own: pixels are counted from 1, and both corners belong to the box. 1, 1 to width, height is the whole
    /// image.
    OneBased,
    /// Pixels are counted from 0, and both corners belong to the box. 0, 0 to width - 1, height - 1 is the whole image.
    ZeroBased,
    /// Distances from the left and the upper edge, as LabelImg writes them. 0, 0 to width, height is the whole image.
    Edges,
}

impl Format for Voc {
    const NAME: &'static str = "voc";
    const SECTION: &'static str = "dataset.voc";
    const ADVICE: &'static str = "name the directory that holds the annotations and the images";

    fn read(&self, input: ReaderInput<'_>) -> Result<Raw, DataError> {
        read::read(self.corners, input)
    }
}
