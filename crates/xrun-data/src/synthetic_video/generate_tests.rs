//! Generated sets are the same each time, valid, and whole after an interruption.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::super::open_in;
use super::*;
use crate::boxes::library::Library;
use xrun_core::dataset::split::Split;

fn small(seed: u32) -> SyntheticVideo {
    SyntheticVideo {
        train_classes: 4,
        validation_classes: 3,
        videos_per_class: 2,
        frames_per_video: 6,
        references_per_class: 2,
        seed,
        ..SyntheticVideo::default()
    }
}

/// A cache that all tests of the process read, with the set of `small(1)`.
fn shared() -> &'static Path {
    static SHARED: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        let cache = tempfile::tempdir().unwrap();
        generate_in(&small(1), cache.path()).unwrap();
        cache
    });
    SHARED.path()
}

/// Digest and name of each file of a set, which reading it compares.
fn sums(directory: &Path) -> BTreeSet<String> {
    let list = std::fs::read_to_string(directory.join(digest_cache::SUMS)).unwrap();
    list.lines().map(str::to_owned).collect()
}

fn library(settings: &SyntheticVideo, cache: &Path) -> Library {
    open_in(settings, cache).unwrap()
}

/// Directories in the cache, hidden ones included.
fn directories(cache: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(cache).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    // What is known of the files of data sets.
    names.retain(|name| name != "digests");
    names.sort();
    names
}

#[test]
fn the_same_settings_give_the_same_files_and_another_seed_gives_others() {
    let two = tempfile::tempdir().unwrap();
    let first = generate_in(&small(1), shared()).unwrap();
    let second = generate_in(&small(1), two.path()).unwrap();
    let other = generate_in(&small(2), two.path()).unwrap();
    assert_eq!(first.file_name(), second.file_name());
    assert_ne!(second, other);
    let all = sums(&first);
    assert_eq!(all.len(), counts(&small(1)).iter().sum::<usize>() + 1, "and the annotations");
    assert_eq!((counts(&small(1)), set(&small(1)).missing(shared())), ([7 * 2 * 6, 7 * 2], None));
    assert_eq!(set(&small(3)).missing(shared()), Some(set(&small(3)).directory(shared())));
    assert_eq!(all, sums(&second));
    assert!(all.is_disjoint(&sums(&other)), "no image is the same with another seed");
}

#[test]
fn held_out_classes_are_in_no_training_video() {
    let library = library(&small(1), shared());
    let names = |split| library.classes.iter().filter(move |class| class.split == Some(split)).map(|class| &class.name);
    let (train, held_out): (BTreeSet<_>, BTreeSet<_>) =
        (names(Split::Train).collect(), names(Split::Validation).collect());
    assert_eq!((train.len(), held_out.len()), (4, 3));
    assert!(train.is_disjoint(&held_out));
    let mut boxes = 0;
    for video in &library.videos {
        assert!(video.sequence && video.frames.len() == 6);
        let objects = video.frames.iter().flat_map(|frame| &frame.objects);
        let splits: BTreeSet<Option<Split>> = objects.map(|object| library.classes[object.class].split).collect();
        assert!(splits.len() <= 1, "{} shows classes of both splits", video.name);
        boxes += video.frames.iter().map(|frame| frame.objects.len()).sum::<usize>();
    }
    assert!(boxes > 40, "{boxes} boxes in 84 frames");
}

/// Checks the image and not the code that wrote the box: the two colours of the class are inside the box of a reference image
/// and hardly outside.
#[test]
fn boxes_enclose_the_visible_object() {
    use super::super::paint::COLOURS;
    let library = library(&small(1), shared());
    let (mut inside, mut outside, mut touched, mut sides) = (0, 0, 0, 0);
    for class in &library.classes {
        let is_named = |name: &str| class.name.split('-').any(|part| part == name);
        let colours: Vec<[f32; 3]> = COLOURS.iter().filter(|(name, _)| is_named(name)).map(|(_, c)| *c).collect();
        assert_eq!(colours.len(), 2, "{}", class.name);
        for reference in &class.references {
            let image = image::open(library.root.join(&reference.path)).unwrap().into_rgb8();
            let place = reference.rectangle.unwrap();
            let mut seen = [f32::MAX, f32::MAX, 0.0, 0.0];
            for (x, y, pixel) in image.enumerate_pixels() {
                // Brightness varies by a quarter: compare after scaling, with room for JPEG and noise.
                let is_near = |colour: &[f32; 3], scale: i32| {
                    let expected = colour.map(|channel| (channel * scale as f32 / 20.0).min(255.0));
                    pixel.0.iter().zip(expected).all(|(found, expected)| (f32::from(*found) - expected).abs() < 22.0)
                };
                if !colours.iter().any(|colour| (16..24).any(|scale| is_near(colour, scale))) {
                    continue;
                }
                let (x, y) = (x as f32, y as f32);
                match x >= place.left && x < place.right && y >= place.top && y < place.bottom {
                    true => inside += 1,
                    false => outside += 1,
                }
                seen = [seen[0].min(x), seen[1].min(y), seen[2].max(x + 1.0), seen[3].max(y + 1.0)];
            }
            let edges = [place.left, place.top, place.right, place.bottom];
            touched += seen.iter().zip(edges).filter(|(seen, edge)| (*seen - edge).abs() <= 3.0).count();
            sides += 4;
        }
    }
    assert!(inside > 15 * outside, "{inside} pixels of the object's colours inside the boxes, {outside} outside");
    assert!(touched * 10 > sides * 8, "only {touched} of {sides} sides of boxes are at the edge of what is seen");
}

#[test]
fn leftovers_of_a_killed_run_are_removed() {
    let cache = tempfile::tempdir().unwrap();
    let place = generate_in(&small(1), cache.path()).unwrap();
    let whole = sums(&place);
    let name = place.file_name().unwrap().to_string_lossy().into_owned();
    let left = cache.path().join(format!(".generating-{name}-xyz"));
    let of_another = cache.path().join(".generating-generated-0123456789abcdef-xyz");
    std::fs::rename(&place, &left).unwrap();
    std::fs::remove_file(left.join("annotations.json")).unwrap();
    std::fs::create_dir(&of_another).unwrap();
    assert_eq!(sums(&generate_in(&small(1), cache.path()).unwrap()), whole);
    library(&small(1), cache.path());
    let expected = [of_another.file_name().unwrap().to_string_lossy().into_owned(), name];
    assert_eq!(directories(cache.path()), expected, "another set may be at work at this moment");
}

#[test]
fn a_read_only_cache_is_named_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("file");
    write::replace(&cache, b"").unwrap();
    for cache in [cache.as_path(), Path::new("/proc/xrun-cache"), Path::new("/dev/null/cache")] {
        let message = generate_in(&small(1), cache).unwrap_err().to_string();
        assert!(message.starts_with(&cache.display().to_string()), "{message}");
        assert!(message.contains("cannot be generated") && message.contains("XRUN_CACHE"), "{message}");
    }
}

#[test]
fn concurrent_generation_gives_one_complete_set() {
    let cache = tempfile::tempdir().unwrap();
    let settings = small(1);
    let digests_seen: BTreeSet<String> = std::thread::scope(|scope| {
        let open = || open_in(&settings, cache.path()).unwrap().digest;
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(digests_seen.len(), 1, "all see the same data: {digests_seen:?}");
    assert_eq!(directories(cache.path()).len(), 1, "nothing is left over");
}
