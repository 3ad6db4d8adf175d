//! Reader of an image file that the user names and that is in no data set.

use std::io::Cursor;
use std::path::Path;

use super::decoding::decoding_bytes;
use super::whole::check_whole;
use crate::image_text::image_file;
use xrun_core::files::file;
use xrun_core::units::Bytes;

/// The bytes of a PNG or JPEG file of which decoding takes at most `most` bytes.
///
/// # Errors
/// Message without the name: the file cannot be read, is not an image, is cut off, or too large.
pub fn read_image_file(path: &Path, most: Bytes) -> Result<Vec<u8>, String> {
    let bytes = file::bytes(path, image_file::BOUNDS.file_bytes).map_err(|error| format!("cannot be read: {error}"))?;
    let head = image_file::head(Cursor::new(&bytes)).map_err(|(_, message)| message)?;
    let needed = decoding_bytes(head.width.into(), head.height.into(), bytes.len() as u64);
    if needed > most.0 {
        return Err(format!(
            "is {} x {} pixels, and decoding it takes up to {}, more than `limits.decode_memory` = {most}; make the image \
             smaller, or raise the limit with -s",
            head.width,
            head.height,
            Bytes(needed)
        ));
    }
    check_whole(Cursor::new(&bytes), head.format).map_err(|(_, message)| message)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::dataset::sample::HostImage;
    use xrun_core::files::write;

    #[test]
    fn what_is_no_whole_image_of_a_size_that_may_be_decoded_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            write::replace(&path, bytes).unwrap();
            path
        };
        let png = HostImage { width: 3, height: 2, rgb: vec![7; 18].into() }.to_png().unwrap();
        let most = Bytes(1 << 20);
        assert_eq!(read_image_file(&at("whole.png", &png), most).unwrap(), png);
        for (path, most, words) in [
            (at("cut.png", &png[..png.len() - 12]), most, "cut off"),
            (at("text.png", b"no image"), most, "none of PNG, JPEG, WebP and GIF"),
            (at("large.png", &png), Bytes(1000), "`limits.decode_memory` = 1000 B"),
            (directory.path().to_path_buf(), most, "not a regular file"),
            (directory.path().join("nowhere.png"), most, "cannot be read: "),
        ] {
            let error = read_image_file(&path, most).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
