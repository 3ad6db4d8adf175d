//! Transforms keep sizes, colours and boxes.

use super::*;
use proptest::prelude::*;
use xrun_core::seed::generator;

fn painted(width: usize, height: usize, paint: impl Fn(usize, usize) -> [u8; 3]) -> HostImage {
    let rgb: Vec<u8> =
        (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).flat_map(|(x, y)| paint(x, y)).collect();
    HostImage { width, height, rgb: rgb.into() }
}

fn pixel(image: &HostImage, x: usize, y: usize) -> [u8; 3] {
    let at = (y * image.width + x) * 3;
    [image.rgb[at], image.rgb[at + 1], image.rgb[at + 2]]
}

#[test]
fn scaling_equals_that_of_pillow() {
    // Pillow 13.0.0: im = Image.new("L", (6, 1)); im.putdata([...]); im.resize((n, 1), Image.BILINEAR).getdata()
    let row = painted(6, 1, |x, _| [[0, 80, 160, 240, 100, 20][x]; 3]);
    let reds = |width| resize(&row, width, 1).rgb.iter().step_by(3).copied().collect::<Vec<u8>>();
    assert_eq!(reds(3), [57, 173, 86]);
    assert_eq!(reds(4), [30, 142, 184, 50]);
    assert_eq!(reds(9), [0, 40, 93, 147, 200, 217, 123, 60, 20]);
}

#[test]
fn a_wide_image_is_padded_above_and_below() {
    let (square, mapping) = letterbox(&painted(40, 20, |_, _| [200, 10, 20]), 80);
    assert_eq!((square.width, square.height), (80, 80));
    assert_eq!(mapping, Mapping { scale_x: 2.0, scale_y: 2.0, left: 0.0, top: 20.0 });
    assert_eq!(pixel(&square, 0, 19), [PADDING; 3]);
    assert_eq!(pixel(&square, 0, 20), [200, 10, 20]);
    assert_eq!(pixel(&square, 79, 59), [200, 10, 20]);
    assert_eq!(pixel(&square, 79, 60), [PADDING; 3]);
}

#[test]
fn a_crop_has_its_margin_and_stays_in_the_image() {
    let image = painted(20, 10, |x, y| [x as u8, y as u8, 0]);
    let object = BoundingBox { left: 4.0, top: 2.0, right: 8.0, bottom: 6.0 };
    let cut = crop(&image, &object, 0.5);
    assert_eq!((cut.width, cut.height, pixel(&cut, 0, 0)), (8, 8, [2, 0, 0]));
    let beyond = BoundingBox { left: 50.0, top: -9.0, right: 60.0, bottom: -3.0 };
    assert_eq!((crop(&image, &beyond, 0.0).width, crop(&image, &beyond, 0.0).height), (1, 1));
}

#[test]
fn colour_jitter_follows_its_parameters() {
    let image = painted(2, 1, |x, _| if x == 0 { [100, 100, 100] } else { [200, 100, 0] });
    let same = Colour { brightness: 1.0, contrast: 1.0, saturation: 1.0 };
    assert_eq!(recolour(&image, same), image);
    let dark = recolour(&image, Colour { brightness: 0.5, ..same });
    assert_eq!((pixel(&dark, 0, 0), pixel(&dark, 1, 0)), ([50; 3], [100, 50, 0]));
    let grey = recolour(&image, Colour { saturation: 0.0, ..same });
    assert_eq!(pixel(&grey, 1, 0), [119; 3], "0.299 * 200 + 0.587 * 100 = 118.5");
}

#[test]
fn augmentation_maps_boxes_with_their_objects() {
    // A white square on black; its box must hold white in its middle and black beside it, flipped or not.
    let object = BoundingBox { left: 20.0, top: 30.0, right: 40.0, bottom: 50.0 };
    let image = painted(100, 80, |x, y| [if (20..40).contains(&x) && (30..50).contains(&y) { 255 } else { 0 }; 3]);
    let mut flips = 0;
    for number in 0..40 {
        let (square, mapping) = augment_query(&image, 96, &mut generator(0, "test", number));
        flips += usize::from(mapping.scale_x < 0.0);
        let mapped = mapping.forth(&object);
        let bright = |x: f32, y: f32| pixel(&square, x as usize, y as usize)[0] > 100;
        let (x, y) = ((mapped.left + mapped.right) / 2.0, (mapped.top + mapped.bottom) / 2.0);
        assert!(bright(x, y), "{number}: {mapped:?}");
        assert!(bright(mapped.left + 2.0, y) && bright(mapped.right - 2.0, y), "{number}: {mapped:?}");
        assert!(!bright(mapped.left - 3.0, y) && !bright(mapped.right + 3.0, y), "{number}: {mapped:?}");
        assert!(bright(x, mapped.top + 2.0) && !bright(x, mapped.top - 3.0), "{number}: {mapped:?}");
    }
    assert!((10..=30).contains(&flips), "{flips} of 40 were flipped");
}

#[test]
fn views_of_a_reference_differ_and_hold_the_object() {
    let image =
        painted(64, 64, |x, y| if (16..48).contains(&x) && (16..48).contains(&y) { [250, 0, 0] } else { [0; 3] });
    let object = BoundingBox { left: 16.0, top: 16.0, right: 48.0, bottom: 48.0 };
    let views: Vec<HostImage> =
        (0..5).map(|number| augment_reference(&image, Some(&object), 32, &mut generator(0, "test", number))).collect();
    for (index, view) in views.iter().enumerate() {
        assert!(pixel(view, 16, 16)[0] > 100, "view {index} shows the object in its middle");
        assert!(views[..index].iter().all(|other| other != view), "view {index} is new");
    }
}

fn any_image() -> impl Strategy<Value = HostImage> {
    (1usize..40, 1usize..40, 0u8..3).prop_map(|(width, height, stretch)| {
        let (width, height) = match stretch {
            0 => (width * 40, 1),
            1 => (1, height * 40),
            _ => (width, height),
        };
        painted(width, height, |x, y| [(x * 7) as u8, (y * 11) as u8, (x ^ y) as u8])
    })
}

fn any_rectangle() -> impl Strategy<Value = BoundingBox> {
    (-50.0f32..500.0, -50.0f32..500.0, 0.1f32..400.0, 0.1f32..400.0)
        .prop_map(|(left, top, width, height)| BoundingBox { left, top, right: left + width, bottom: top + height })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn box_mapping_round_trips(image in any_image(), rectangle in any_rectangle(), number in any::<u64>()) {
        let (plain, letterboxed) = letterbox(&image, 48);
        let (augmented, random) = augment_query(&image, 48, &mut generator(0, "test", number));
        prop_assert_eq!((plain.rgb.len(), augmented.rgb.len()), (48 * 48 * 3, 48 * 48 * 3));
        for mapping in [letterboxed, random] {
            let forth = mapping.forth(&rectangle);
            prop_assert!(forth.left < forth.right && forth.top < forth.bottom);
            let back = mapping.back(&forth);
            for (found, expected) in [
                (back.left, rectangle.left),
                (back.top, rectangle.top),
                (back.right, rectangle.right),
                (back.bottom, rectangle.bottom),
            ] {
                prop_assert!((found - expected).abs() < 0.05 + expected.abs() * 1e-3, "{back:?} for {rectangle:?}");
            }
        }
    }

    #[test]
    fn output_sizes_hold_for_any_image_and_box(
        image in any_image(), rectangle in any_rectangle(), side in 1usize..40, number in any::<u64>(),
    ) {
        let scaled = resize(&image, side, side * 2);
        prop_assert_eq!(scaled.rgb.len(), side * side * 2 * 3);
        for object in [None, Some(&rectangle)] {
            let view = augment_reference(&image, object, side, &mut generator(0, "test", number));
            prop_assert_eq!(view.rgb.len(), side * side * 3);
            prop_assert_eq!(reference(&image, object, side).rgb.len(), side * side * 3);
        }
        prop_assert_eq!(flip(&flip(&image)), image);
    }
}
