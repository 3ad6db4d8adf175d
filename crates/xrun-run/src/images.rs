//! Images of a validation, as PNG files with an index.

use std::path::Path;

use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::task::ValidationReport;
use xrun_results::format::{ImageEntry, ImageIndex, VERSION};

/// Writes the images into the directory `images` of a run or an evaluation, replacing those of an earlier validation. Does
/// nothing without images.
///
/// # Errors
/// A file cannot be written.
pub fn write(report: &ValidationReport, directory: &Path) -> Result<(), WriteError> {
    if report.images.is_empty() {
        return Ok(());
    }
    let directory = directory.join(layout::IMAGES);
    write::create_directory(&directory)?;
    let mut entries = Vec::with_capacity(report.images.len());
    for (number, (image, caption)) in report.images.iter().enumerate() {
        let file = format!("{number:02}.png");
        let path = directory.join(&file);
        write::replace(&path, &write::with_path(&path, image.to_png())?)?;
        entries.push(ImageEntry { file, caption: caption.clone() });
    }
    let count = entries.len();
    let index = ImageIndex { version: VERSION, images: entries };
    write::replace_json(&directory.join(layout::IMAGES_INDEX), &index)?;
    // An earlier validation may have had more.
    for number in count.. {
        let path = directory.join(format!("{number:02}.png"));
        if !path.exists() {
            break;
        }
        write::with_path(&path, std::fs::remove_file(&path))?;
    }
    Ok(())
}
