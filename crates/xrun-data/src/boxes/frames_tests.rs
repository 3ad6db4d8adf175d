//! The store keeps to its cap, and counts hits and misses.

use super::*;
use crate::reading::decoding::{Largest, decoding_bytes, fits};
use xrun_core::bounded::cache::CacheCounters;
use xrun_core::bounded::ledger::OwnerSnapshot;

/// Images `0.png`, `1.png` … of the sides given.
fn images(sides: &[u32]) -> (tempfile::TempDir, Library) {
    let directory = tempfile::tempdir().unwrap();
    for (number, side) in sides.iter().enumerate() {
        let image = image::RgbImage::from_pixel(*side, 2, image::Rgb([number as u8, 1, 2]));
        image.save(directory.path().join(format!("{number}.png"))).unwrap();
    }
    let library = Library {
        section: "dataset.coco",
        root: directory.path().to_path_buf(),
        exif_orientation: ExifOrientation::Apply,
        classes: Vec::new(),
        videos: Vec::new(),
        notes: Vec::new(),
        digest: String::new(),
        skipped: xrun_core::dataset::error::InvalidItems::default(),
        largest: None,
        opening_bytes: 0,
    };
    (directory, library)
}

/// Buffers with a cache of this many bytes, and a decoding budget for one image.
fn buffers(library: &Library, cache: u64) -> Buffers {
    Buffers::new(library, &sections::Limits { frame_cache: Bytes(cache), ..sections::Limits::default() }, 100)
}

fn store(library: &Library, ledger: &Ledger, cache: u64) -> FrameStore {
    FrameStore::new(library, ledger, &buffers(library, cache))
}

fn name(number: usize) -> PathBuf {
    PathBuf::from(format!("{number}.png"))
}

fn cache(ledger: &Ledger) -> OwnerSnapshot {
    ledger.read().into_iter().find(|owner| owner.name == "frame_cache").unwrap()
}

/// Bytes of a decoded image of two rows.
fn bytes(side: u32) -> u64 {
    u64::from(side) * 2 * 3 + size_of::<HostImage>() as u64
}

#[test]
fn hits_misses_and_evictions_are_counted() {
    let (_directory, library) = images(&[10, 10, 10, 1_000]);
    let ledger = Ledger::default();
    let store = store(&library, &ledger, 2 * bytes(10));
    for number in [0, 1, 0, 2, 0, 1, 3] {
        let image = store.image(&name(number)).unwrap();
        assert_eq!((image.rgb[0], image.height), (number as u8, 2));
    }
    // 0 and 1 are read; 0 is there; 2 drives out 1; 0 is there; 1 drives out 2; 3 is larger than the cache.
    assert_eq!(store.cache.counters(), CacheCounters { hits: 2, misses: 5, evictions: 2, too_large: 1 });
    assert_eq!(cache(&ledger).bytes, 2 * bytes(10));
    assert_eq!(store.cache.evict_to_fraction(0.5), bytes(10));
    assert_eq!(store.cache.evict_to_fraction(0.0), bytes(10));
    assert_eq!(cache(&ledger).bytes, 0);
}

#[test]
fn an_image_that_became_invalid_is_named() {
    let (directory, library) = images(&[10, 10]);
    let store = store(&library, &Ledger::default(), 10_000);
    let at = directory.path().join("0.png");
    std::fs::OpenOptions::new().write(true).open(&at).unwrap().set_len(50).unwrap();
    let message = store.image(&name(0)).unwrap_err().to_string();
    assert!(message.starts_with("0.png: the image cannot be decoded") && message.contains("repair it"), "{message}");
    std::fs::remove_file(&at).unwrap();
    assert!(store.image(&name(0)).unwrap_err().to_string().starts_with("0.png: cannot be read"));
    assert_eq!(store.image(&name(1)).unwrap().width, 10, "the others are served");
}

#[test]
fn grey_and_transparent_images_become_rgb() {
    let (directory, library) = images(&[]);
    image::GrayImage::from_pixel(3, 2, image::Luma([77])).save(directory.path().join("0.png")).unwrap();
    let see_through = image::RgbaImage::from_pixel(3, 2, image::Rgba([1, 2, 3, 0]));
    see_through.save(directory.path().join("1.png")).unwrap();
    let store = store(&library, &Ledger::default(), 10_000);
    assert_eq!(store.image(&name(0)).unwrap().rgb[..3], [77, 77, 77]);
    assert_eq!(store.image(&name(1)).unwrap().rgb[..3], [1, 2, 3]);
}

#[test]
fn concurrent_decoding_is_bounded_and_an_image_that_never_fits_is_named() {
    let (_directory, mut library) = images(&[300, 10]);
    let largest = decoding_bytes(300, 2, 100);
    library.largest = Some(Largest { path: name(0), width: 300, height: 2, bytes: largest });
    let limits =
        |decoding| sections::Limits { workers: 4, decode_memory: Bytes(decoding), ..sections::Limits::default() };
    let buffers = |decoding| Buffers::new(&library, &limits(decoding), 0);
    assert_eq!(buffers(u64::MAX).decoding.cap.bytes, 5 * largest, "no more than there is to decode");
    assert_eq!(buffers(2 * largest).decoding.cap, Cap { items: 5, bytes: 2 * largest });
    assert!(fits(library.largest.as_ref(), &limits(largest)).is_ok());
    let message = fits(library.largest.as_ref(), &limits(largest - 1)).unwrap_err().to_string();
    assert!(
        message.contains("0.png") && message.contains("300 x 2") && message.contains("limits.decode_memory"),
        "{message}"
    );
    let ledger = Ledger::default();
    let store = FrameStore::new(&library, &ledger, &buffers(2 * largest));
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(|| (0..20).for_each(|at| drop(store.image(&name(at % 2)).unwrap())))));
    });
    let room = ledger.read().into_iter().find(|owner| owner.name == "decoding").unwrap();
    assert!(room.peak_bytes > 0 && !room.exceeds_cap() && room.bytes == 0, "{room:?}");
    // A larger one that took its place after the run began.
    let small = FrameStore::new(&library, &Ledger::default(), &buffers(largest / 2));
    let message = small.image(&name(0)).unwrap_err().to_string();
    assert!(message.contains("0.png") && message.contains("the plan has"), "{message}");
}
