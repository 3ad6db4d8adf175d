//! Images of the last validation, embedded in the page.

use std::path::{Component, Path};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use maud::{Markup, html};

use crate::read;
use crate::view::RunView;
use xrun_core::files::{file, layout};
use xrun_core::printable;
use xrun_core::units::pluralize;

/// Maximum number of images, so that the page opens quickly.
const IMAGES_MAX: usize = 48;
/// Maximum size of one image file.
const IMAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum size of all images together.
const ALL_BYTES_MAX: usize = 24 * 1024 * 1024;
/// Maximum length of a caption.
const CAPTION_CHARACTERS_MAX: usize = 600;
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Section with the images; empty if there are none. Files that are not PNG files in the directory itself are left
/// out.
pub fn section(report: &RunView) -> Markup {
    let directory = report.path.join(layout::IMAGES);
    let mut bytes_left = ALL_BYTES_MAX;
    let mut shown = Vec::new();
    let mut left_out = 0;
    // Read errors are listed in a section of their own.
    for entry in read::images(&report.path).unwrap_or_default() {
        match read_image(&directory, &entry.file).filter(|bytes| bytes.len() <= bytes_left && shown.len() < IMAGES_MAX)
        {
            Some(bytes) => {
                bytes_left -= bytes.len();
                shown.push((
                    format!("data:image/png;base64,{}", BASE64.encode(&bytes)),
                    printable::line(&entry.caption, CAPTION_CHARACTERS_MAX),
                ));
            }
            None => left_out += 1,
        }
    }
    let legend = report.plan().map_or("", |plan| plan.images.as_str());
    html! {
        @if !shown.is_empty() || left_out > 0 {
            h2 { "Images of the last validation" }
            @if !legend.is_empty() { p.note { (printable::line(legend, 600)) } }
            div.images {
                @for (source, caption) in &shown {
                    figure { img src=(source) alt=(caption); figcaption { (caption) } }
                }
            }
            @if left_out > 0 { p.note { (pluralize(left_out, "image")) " not shown: missing, too large or too many." } }
        }
    }
}

/// Reads an image in the directory itself: an index from elsewhere must not embed other files of this machine.
fn read_image(directory: &Path, file: &str) -> Option<Vec<u8>> {
    let mut parts = Path::new(file).components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else { return None };
    let path = directory.join(name);
    // No symlink: it may lead to another file of this machine.
    let is_file = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
    is_file.then(|| file::bytes(&path, IMAGE_BYTES_MAX).ok())?.filter(|bytes| bytes.starts_with(PNG))
}
