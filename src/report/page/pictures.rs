//! Pictures of the last validation, inside the page.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use maud::{Markup, html};

use crate::report::base64;
use crate::report::material::Material;
use crate::results::format::PictureEntry;
use crate::results::{layout, printable};

/// More pictures than this make a page that does not open.
const PICTURES_MAX: usize = 48;
/// Of one picture's file.
const PICTURE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Of all of them together.
const ALL_BYTES_MAX: usize = 24 * 1024 * 1024;
const INDEX_BYTES_MAX: u64 = 1024 * 1024;
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Nothing when there are none; what is not a PNG file of the folder itself is left out.
pub fn section(material: &Material) -> Markup {
    let folder = material.run.join(layout::PICTURES);
    let mut room = ALL_BYTES_MAX;
    let mut shown = Vec::new();
    let mut left_out = 0;
    for entry in entries(&folder) {
        match picture(&folder, &entry.file).filter(|bytes| bytes.len() <= room && shown.len() < PICTURES_MAX) {
            Some(bytes) => {
                room -= bytes.len();
                shown.push((
                    format!("data:image/png;base64,{}", base64::encode(&bytes)),
                    printable::line(&entry.caption, 300),
                ));
            }
            None => left_out += 1,
        }
    }
    html! {
        @if !shown.is_empty() || left_out > 0 {
            h2 { "Pictures of the last validation" }
            div.pictures {
                @for (address, caption) in &shown {
                    figure { img src=(address) alt=(caption); figcaption { (caption) } }
                }
            }
            @if left_out > 0 { p.note { (left_out) " pictures are missing, too large or too many." } }
        }
    }
}

fn entries(folder: &Path) -> Vec<PictureEntry> {
    let bytes = bytes(&folder.join(layout::PICTURES_INDEX), INDEX_BYTES_MAX).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// A file of this very folder: an index that came from elsewhere must not show other files of this machine.
fn picture(folder: &Path, file: &str) -> Option<Vec<u8>> {
    let mut parts = Path::new(file).components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else { return None };
    bytes(&folder.join(name), PICTURE_BYTES_MAX).filter(|bytes| bytes.starts_with(PNG))
}

fn bytes(path: &Path, most: u64) -> Option<Vec<u8>> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > most {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
