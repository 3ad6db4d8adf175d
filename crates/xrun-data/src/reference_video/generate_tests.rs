//! Is what is generated the same each time, sound, and whole after an interruption?

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};

use super::super::open::open;
use super::super::settings::{Settings, Source};
use super::*;
use crate::boxes::library::{Library, Split};
use crate::reading::broken::OnBroken;
use xrun_core::dataset::digest::digest;

fn small(seed: u32) -> Generated {
    Generated {
        train_classes: 4,
        validation_classes: 3,
        videos_per_class: 2,
        frames_per_video: 6,
        references_per_class: 2,
        seed,
        ..Generated::default()
    }
}

/// Digest of each file below a folder, by its name.
fn digests(folder: &Path) -> BTreeMap<PathBuf, String> {
    let (mut all, mut folders) = (BTreeMap::new(), vec![folder.to_path_buf()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let bytes = std::fs::read(&path).unwrap();
                    all.insert(path.strip_prefix(folder).unwrap().to_path_buf(), digest(&bytes));
                }
            }
        }
    }
    all
}

fn library(place: &Path) -> Library {
    let path = Some(place.display().to_string());
    open(&Settings { source: Source::Folder, path, ..Settings::default() }).unwrap()
}

/// Folders in the cache, hidden ones included.
fn folders(cache: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(cache).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    // What is known of the files of data sets.
    names.retain(|name| name != "digests");
    names.sort();
    names
}

#[test]
fn what_is_to_be_generated_is_told_until_it_is_there() {
    let cache = tempfile::tempdir().unwrap();
    let pending = pending_in(&small(1), cache.path()).unwrap();
    assert_eq!((pending.frames, pending.references), (7 * 2 * 6, 7 * 2));
    let place = generate_in(&small(1), cache.path()).unwrap();
    assert_eq!(pending.folder, place);
    let written = |folder: &str| std::fs::read_dir(place.join(folder)).unwrap().flatten().count();
    assert_eq!(pending_in(&small(1), cache.path()), None);
    assert!(digests(&place.join("frames")).len() == pending.frames && written("references") > 0);
    assert_eq!(digests(&place.join("references")).len(), pending.references);
}

#[test]
fn the_same_settings_give_the_same_files_and_another_seed_gives_others() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = generate_in(&small(1), one.path()).unwrap();
    let second = generate_in(&small(1), two.path()).unwrap();
    let other = generate_in(&small(2), two.path()).unwrap();
    assert_eq!(first.file_name(), second.file_name());
    assert_ne!(second, other);
    let all = digests(&first);
    assert_eq!(all.len(), 7 * 2 * 6 + 7 * 2 + 2, "and two lists");
    assert_eq!(all, digests(&second));
    let pictures: BTreeSet<String> = all.into_values().collect();
    let others: BTreeSet<String> = digests(&other).into_values().collect();
    assert!(pictures.is_disjoint(&others), "no picture is the same with another seed");
}

#[test]
fn every_setting_that_changes_the_data_has_a_folder_of_its_own() {
    let cache = tempfile::tempdir().unwrap();
    let base = Generated { videos_per_class: 1, ..small(1) };
    let others = [
        Generated { train_classes: 5, ..base.clone() },
        Generated { frames_per_video: 5, ..base.clone() },
        Generated { references_per_class: 3, ..base.clone() },
        Generated { frame_size: 48, ..base.clone() },
        base,
    ];
    let places: BTreeSet<PathBuf> = others.iter().map(|one| generate_in(one, cache.path()).unwrap()).collect();
    assert_eq!(places.len(), 5);
}

#[test]
fn held_out_classes_are_in_no_training_video_and_every_box_is_inside_its_frame() {
    let cache = tempfile::tempdir().unwrap();
    let library = library(&generate_in(&small(3), cache.path()).unwrap());
    let names = |split| library.classes.iter().filter(move |class| class.split == split).map(|class| &class.name);
    let (train, held_out): (BTreeSet<_>, BTreeSet<_>) =
        (names(Split::Train).collect(), names(Split::Validation).collect());
    assert_eq!((train.len(), held_out.len()), (4, 3));
    assert!(train.is_disjoint(&held_out));
    let mut boxes = 0;
    for video in &library.videos {
        assert!(video.sequence && video.frames.len() == 6);
        let objects = video.frames.iter().flat_map(|frame| &frame.objects);
        let splits: BTreeSet<Split> = objects.map(|object| library.classes[object.class].split).collect();
        assert!(splits.len() <= 1, "{} shows classes of both splits", video.name);
        for frame in &video.frames {
            for object in &frame.objects {
                let place = object.rectangle;
                assert!(place.left >= 0.0 && place.right <= frame.width as f32 && place.area() > 0.0);
                assert!(place.top >= 0.0 && place.bottom <= frame.height as f32);
                boxes += 1;
            }
        }
    }
    assert!(boxes > 40, "{boxes} boxes in 84 frames");
}

/// What the picture itself says, not the code that wrote the box: the two colours of the class, as its name tells them,
/// are seen inside the box of a reference picture, and hardly outside.
#[test]
fn boxes_are_around_the_object_that_can_be_seen() {
    use super::super::paint::COLOURS;
    let cache = tempfile::tempdir().unwrap();
    let library = library(&generate_in(&Generated { references_per_class: 4, ..small(4) }, cache.path()).unwrap());
    let (mut inside, mut outside, mut touched, mut sides) = (0, 0, 0, 0);
    for class in &library.classes {
        let colours: Vec<[f32; 3]> = COLOURS
            .iter()
            .filter(|(name, _)| class.name.split('-').any(|part| part == *name))
            .map(|(_, c)| *c)
            .collect();
        assert_eq!(colours.len(), 2, "{}", class.name);
        for reference in &class.references {
            let picture = image::open(library.root.join(&reference.path)).unwrap().into_rgb8();
            let place = reference.rectangle.unwrap();
            let mut seen = [f32::MAX, f32::MAX, 0.0, 0.0];
            for (x, y, pixel) in picture.enumerate_pixels() {
                // Brightness varies by a quarter: compare after scaling, with room for JPEG and noise.
                let like = |colour: &[f32; 3]| {
                    (16..24).any(|scale| {
                        (0..3)
                            .all(|c| (f32::from(pixel[c]) - (colour[c] * scale as f32 / 20.0).min(255.0)).abs() < 22.0)
                    })
                };
                if !colours.iter().any(like) {
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
fn what_a_killed_run_left_is_removed_and_the_set_is_generated() {
    let cache = tempfile::tempdir().unwrap();
    let place = generate_in(&small(5), cache.path()).unwrap();
    let whole = digests(&place);
    let name = place.file_name().unwrap().to_string_lossy().into_owned();
    let left = cache.path().join(format!(".generating-{name}-xyz"));
    let of_another = cache.path().join(".generating-generated-0123456789abcdef-xyz");
    std::fs::rename(&place, &left).unwrap();
    std::fs::remove_file(left.join("annotations.json")).unwrap();
    std::fs::create_dir(&of_another).unwrap();
    assert_eq!(digests(&generate_in(&small(5), cache.path()).unwrap()), whole);
    let expected = [of_another.file_name().unwrap().to_string_lossy().into_owned(), name];
    assert_eq!(folders(cache.path()), expected, "another set may be at work at this moment");
}

#[test]
fn a_damaged_set_is_reported_with_what_to_do_whatever_the_policy() {
    let refused = |settings: &Settings, cache: &Path, word: &str| {
        let said = in_process(cache, settings).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        for part in ["generated-", word] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        assert!(!said.contains("on_broken"), "leaving a part out is no advice: {said}");
    };
    for on_broken in [OnBroken::Fail, OnBroken::Skip] {
        let cache = tempfile::tempdir().unwrap();
        let settings = Settings { generated: small(6), on_broken, ..Settings::default() };
        let place = generate_in(&small(6), cache.path()).unwrap();
        let path = place.join("frames/video_0003/0002.jpg");
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        write::replace(&path, &bytes).unwrap();
        refused(&settings, cache.path(), "frames/video_0003/0002.jpg");
        std::fs::remove_file(path).unwrap();
        refused(&settings, cache.path(), "frames/video_0003/0002.jpg");
        write::replace(&place.join("annotations.json"), b"{").unwrap();
        refused(&settings, cache.path(), "annotations.json");
        std::fs::remove_file(place.join("annotations.json")).unwrap();
        refused(&settings, cache.path(), "annotations.json");
    }
}

#[test]
fn a_cache_that_cannot_be_written_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("file");
    write::replace(&cache, b"").unwrap();
    for cache in [cache.as_path(), Path::new("/proc/xrun-cache"), Path::new("/dev/null/cache")] {
        let said = generate_in(&small(1), cache).unwrap_err().to_string();
        assert!(said.starts_with(&cache.display().to_string()), "{said}");
        assert!(said.contains("cannot be generated") && said.contains("XRUN_CACHE"), "{said}");
    }
}

#[test]
fn several_processes_at_once_make_one_whole_set() {
    let cache = tempfile::tempdir().unwrap();
    let settings = Settings { generated: small(7), ..Settings::default() };
    let processes: Vec<Child> = (0..4).map(|_| in_process(cache.path(), &settings)).collect();
    let said: BTreeSet<String> = processes
        .into_iter()
        .map(|process| {
            let said = String::from_utf8_lossy(&process.wait_with_output().unwrap().stdout).into_owned();
            said.lines().find(|line| line.contains("digest ")).unwrap_or_else(|| panic!("{said}")).to_owned()
        })
        .collect();
    assert_eq!(said.len(), 1, "all see the same data: {said:?}");
    assert_eq!(folders(cache.path()).len(), 1, "nothing is left over");
    let alone = tempfile::tempdir().unwrap();
    let place = cache.path().join(&folders(cache.path())[0]);
    assert_eq!(digests(&place), digests(&generate_in(&small(7), alone.path()).unwrap()));
}

#[test]
fn a_killed_process_stops_nobody() {
    let cache = tempfile::tempdir().unwrap();
    let generated = Generated { videos_per_class: 12, ..small(8) };
    let settings = Settings { generated: generated.clone(), ..Settings::default() };
    let mut process = in_process(cache.path(), &settings);
    while !cache.path().exists() || !folders(cache.path()).iter().any(|name| name.starts_with(".generating-")) {
        assert!(process.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::yield_now();
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let place = generate_in(&generated, cache.path()).unwrap();
    assert_eq!(library(&place).videos.len(), 7 * 12);
    assert_eq!(folders(cache.path()).len(), 1, "what it left is gone");
}

/// Runs [`the_other_process`] with its cache folder in `XRUN_CACHE`, which a test must not set for itself: others run
/// beside it.
fn in_process(cache: &Path, settings: &Settings) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "reference_video::generate::tests::the_other_process", "--nocapture"])
        .env("XRUN_TEST_SETTINGS", serde_json::to_string(settings).unwrap())
        .env("XRUN_CACHE", cache)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// No test by itself: what another process does for the tests above.
#[test]
fn the_other_process() {
    let Ok(settings) = std::env::var("XRUN_TEST_SETTINGS") else { return };
    let settings: Settings = serde_json::from_str(&settings).unwrap();
    let said = match open(&settings) {
        Ok(library) => format!("\ndigest {}\n", library.digest),
        Err(error) => format!("\nerror {error}\n"),
    };
    io::Write::write_all(&mut io::stdout(), said.as_bytes()).unwrap();
}

/// `XRUN_CONTACT_SHEET=/tmp/sheet.png cargo test contact_sheet` paints what a person should look at.
#[test]
fn contact_sheet() {
    let Some(place) = std::env::var_os("XRUN_CONTACT_SHEET") else { return };
    let library = open(&Settings::default()).unwrap();
    let mut sheet = image::RgbImage::new(12 * 100, 10 * 100);
    for (row, video) in library.videos.iter().step_by(13).take(10).enumerate() {
        for (column, frame) in video.frames.iter().take(12).enumerate() {
            let mut picture = image::open(library.root.join(&frame.path)).unwrap().into_rgb8();
            for object in &frame.objects {
                let place = object.rectangle;
                for x in place.left as u32..place.right as u32 {
                    picture.put_pixel(x, place.top as u32, image::Rgb([0, 255, 0]));
                }
                for y in place.top as u32..place.bottom as u32 {
                    picture.put_pixel(place.left as u32, y, image::Rgb([0, 255, 0]));
                }
            }
            image::imageops::replace(&mut sheet, &picture, column as i64 * 100, row as i64 * 100);
        }
    }
    sheet.save(place).unwrap();
}
