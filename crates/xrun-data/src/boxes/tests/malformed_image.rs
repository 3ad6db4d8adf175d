//! Images that are missing, cut off, or not what they claim to be; one row a case.

use super::*;
use crate::image_text::image_file::tests::claimed;

/// Name and constructor.
type Image = (&'static str, fn(&Path));

/// Images that cannot be used; each is a further file, and is left out under the reason on request.
const IMAGES: [Image; 14] = [
    ("no file", |_| {}),
    ("a link to nothing", |at| std::os::unix::fs::symlink("nothing", at).unwrap()),
    ("a pipe without a writer", pipe),
    ("an empty file", |at| write(at, b"")),
    ("a TIFF", |at| write(at, b"II*\0\x08\0\0\0\0\0\0\0\0\0")),
    ("a WebP cut off in its middle", |at| cut(at, "webp", 0.5)),
    ("a GIF cut off in its middle", |at| cut(at, "gif", 0.5)),
    ("a JPEG cut off in its middle", |at| cut(at, "jpg", 0.95)),
    ("a JPEG cut off, with a whole thumbnail", thumbnail),
    ("a PNG cut off in its middle", |at| cut(at, "png", 0.5)),
    ("a PNG that declares 4 gigapixels", |at| write(at, claimed(65_535, 65_535))),
    ("a PNG of no width", |at| write(at, claimed(0, 24))),
    ("an image that is smaller than annotated", |at| image::RgbImage::new(9, 9).save(at).unwrap()),
    ("a file of 3 gigabytes", sparse),
];

fn cut(at: &Path, kind: &str, share: f64) {
    let whole = at.with_extension(format!("whole.{kind}"));
    painted().save(&whole).unwrap();
    let bytes = std::fs::read(&whole).unwrap();
    write(at, &bytes[..(bytes.len() as f64 * share) as usize]);
}

/// The thumbnail in the headers is a JPEG of its own, with an end of its own.
fn thumbnail(at: &Path) {
    cut(at, "jpg", 0.95);
    let bytes = std::fs::read(at).unwrap();
    let small = b"\xff\xe1\0\x08\xff\xd8\xff\xd9\0\0";
    write(at, [&bytes[..2], small, &bytes[2..]].concat());
}

fn pipe(at: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(at).status().unwrap().success());
}

/// Takes no room on the disk.
fn sparse(at: &Path) {
    painted().save(at).unwrap();
    std::fs::OpenOptions::new().write(true).open(at).unwrap().set_len(3 << 30).unwrap();
}

#[test]
fn invalid_images_are_refused_or_skipped_with_a_reason() {
    let cases = IMAGES.iter().map(|(case, make)| {
        let (directory, mut text) = Directory::coco();
        make(&directory.root.join("images/extra.png"));
        let image = json!({ "id": 99, "file_name": "images/extra.png", "width": WIDTH, "height": HEIGHT });
        text["images"].as_array_mut().unwrap().push(image);
        directory.annotate(&text);
        (*case, outcome(&directory, Format::Coco, &|_| {}))
    });
    insta::assert_snapshot!(outcomes(cases));
}
