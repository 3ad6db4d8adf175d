//! Images with boxes in YOLO's text files, one an image.

pub mod names;
pub mod read;

use crate::boxes::format::Format;
use crate::boxes::open::ReaderInput;
use crate::boxes::raw::Raw;
use crate::directory_settings;
use xrun_core::dataset::error::DataError;

directory_settings! {
    /// Images in `images/` with boxes in text files of the same names in `labels/`, as YOLO reads them.
    Yolo {}
}

impl Format for Yolo {
    const NAME: &'static str = "yolo";
    const SECTION: &'static str = "dataset.yolo";
    const ADVICE: &'static str = "name the directory that holds `images` and `labels`";

    fn read(&self, input: ReaderInput<'_>) -> Result<Raw, DataError> {
        read::read(input)
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
