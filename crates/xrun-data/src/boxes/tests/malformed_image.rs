//! Images that are missing, cut off, or not what they claim to be; one row a case.

use super::*;

/// Name and constructor.
type Image = (&'static str, fn(&Path));

/// Images that cannot be used; each is a further file, and is left out under the reason on request.
const IMAGES: [Image; 20] = [
    ("no file", |_| {}),
    ("a directory", |at| std::fs::create_dir(at).unwrap()),
    ("a link to nothing", |at| std::os::unix::fs::symlink("nothing", at).unwrap()),
    ("a link to itself", |at| std::os::unix::fs::symlink("extra.png", at).unwrap()),
    ("a pipe without a writer", pipe),
    ("an empty file", |at| write(at, b"")),
    ("a text file", |at| write(at, b"no image at all, but long enough to be one")),
    ("a GIF", |at| write(at, b"GIF89a\x20\0\x18\0\x80\0\0\0\0\0\xff\xff\xff;")),
    ("an HTML page, as servers send it", |at| write(at, b"<!DOCTYPE html><html>404</html>")),
    ("only a JPEG's first bytes", |at| write(at, b"\xff\xd8\xff\xe0")),
    ("a JPEG cut off in its headers", |at| cut(at, "jpg", 0.3)),
    ("a JPEG cut off in its middle", |at| cut(at, "jpg", 0.95)),
    ("a JPEG without its last bytes", |at| cut(at, "jpg", 0.99)),
    ("a JPEG cut off, with a whole thumbnail", thumbnail),
    ("a PNG cut off in its middle", |at| cut(at, "png", 0.5)),
    ("a PNG that declares 4 gigapixels", |at| declared(at, 65_535, 65_535)),
    ("a PNG that declares 2^31 x 2^31", |at| declared(at, 0x7fff_ffff, 0x7fff_ffff)),
    ("a PNG of no width", |at| declared(at, 0, 24)),
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

/// A PNG of one row of data whose header, with the right checksum, says something else.
fn declared(at: &Path, width: u32, height: u32) {
    let crc = |bytes: &[u8]| {
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
        })
    };
    let mut header = b"IHDR".to_vec();
    header.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
    header.extend([8, 2, 0, 0, 0]);
    let checksum = crc(&header).to_be_bytes();
    let data = b"\0\0\0\x0bIDAT\x78\x9c\x63\0\0\0\x01\0\x01\0\0\0\0\0\0\0\0\0\0IEND\xae\x42\x60\x82";
    let start = b"\x89PNG\r\n\x1a\n\0\0\0\x0d";
    write(at, [start.as_slice(), &header, &checksum, data].concat());
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
