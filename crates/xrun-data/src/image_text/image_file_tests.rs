//! Images are bounded, rotated, laid on white and scaled.

use image::{GrayAlphaImage, ImageFormat, LumaA, RgbaImage};
use proptest::prelude::*;

use super::*;

pub fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// A PNG of this size whose pixels are not there: only its beginning is right.
pub fn claimed(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = encoded(image::GrayImage::new(1, 1), ImageFormat::Png);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc32fast::hash(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A JPEG with this EXIF orientation.
pub fn turned(image: RgbImage, orientation: u8) -> Vec<u8> {
    let jpeg = encoded(image, ImageFormat::Jpeg);
    let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    let mut bytes = jpeg[..2].to_vec();
    bytes.extend([0xff, 0xe1]);
    bytes.extend((exif.len() as u16 + 2).to_be_bytes());
    bytes.extend(exif);
    bytes.extend(&jpeg[2..]);
    bytes
}

fn image(width: usize, height: usize, rgb: &[u8]) -> HostImage {
    assert_eq!(rgb.len(), width * height * 3);
    HostImage { width, height, rgb: rgb.into() }
}

#[test]
fn transparent_pixels_are_blended_with_white() {
    let [clear, half, full] = [[200, 0, 0, 0], [200, 0, 0, 128], [200, 0, 0, 255]].map(image::Rgba);
    let three = RgbaImage::from_fn(3, 1, |x, _| [clear, half, full][x as usize]);
    // 200 and 0 by 128 of 255, 255 by 127 of 255.
    assert_eq!(
        &*decode(&encoded(three, ImageFormat::Png), u64::MAX).unwrap().rgb,
        [255, 255, 255, 227, 127, 127, 200, 0, 0]
    );
    let grey = GrayAlphaImage::from_pixel(1, 1, LumaA([10, 0]));
    assert_eq!(&*decode(&encoded(grey, ImageFormat::Png), u64::MAX).unwrap().rgb, [255; 3]);
}

#[test]
fn invalid_base64_is_refused() {
    let bytes = b"\x89PNG\0\xff";
    let url = format!("data:image/png;base64,{}", STANDARD.encode(bytes));
    assert_eq!(inline(&url).unwrap(), bytes);
    for (url, said) in [
        ("data:image/png;base64,A A=", "is no valid base64"),
        ("data:image/png;base64,AAA", "is no valid base64"),
        ("data:,abc", "a data URL begins with"),
        ("data:image/png;base64", "a data URL begins with"),
    ] {
        let (reason, message) = inline(url).unwrap_err();
        assert!(reason == "wrong_base64" && message.contains(said), "{url}: {message}");
    }
}

/// By hand: each new pixel is the mean of what it covers.
#[test]
fn downscaling_takes_means() {
    let grey = |values: &[u8]| values.iter().flat_map(|value| [*value; 3]).collect::<Vec<u8>>();
    let four = image(4, 2, &grey(&[0, 10, 20, 30, 100, 110, 120, 131]));
    // (0 + 10 + 100 + 110) / 4 and (20 + 30 + 120 + 131) / 4 = 75.25, a row each of the lower and the upper.
    let two = scaled(&four, 2);
    assert_eq!(&*two.rgb, grey(&[5, 25, 105, 126]));
    // A third of the middle pixel belongs to no one alone: (2 * 0 + 30) / 3 and (30 + 2 * 60) / 3.
    let three = image(3, 1, &grey(&[0, 30, 60]));
    assert_eq!(&*scaled(&three, 2).rgb, grey(&[10, 50, 10, 50]));
    // Larger: pixels are repeated.
    assert_eq!(&*scaled(&image(1, 2, &grey(&[7, 9])), 4).rgb, grey(&[[7; 8], [9; 8]].concat()));
    let same = image(2, 2, &grey(&[1, 2, 3, 4]));
    assert_eq!(scaled(&same, 2), same);
}

proptest! {
    #[test]
    fn scaling_keeps_constant_images_and_the_range_of_values(
        width in 1usize..40, height in 1usize..40, side in 1usize..40, low: u8, high: u8, seed: u8,
    ) {
        let (low, high) = (low.min(high), low.max(high));
        let value = |at: usize| if (at * 31 + usize::from(seed)) % 5 < 2 { low } else { high };
        let rgb: Vec<u8> = (0..width * height * 3).map(value).collect();
        let scaled = scaled(&image(width, height, &rgb), side);
        prop_assert_eq!(scaled.rgb.len(), side * side * 3);
        prop_assert!(scaled.rgb.iter().all(|value| (low..=high).contains(value)));
    }
}
