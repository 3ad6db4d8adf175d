//! Generated sets are always the same, and valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::super::library::Library;
use super::super::open::open_generated;
use super::super::settings::SoundClips;
use super::super::sound;
use super::*;
use xrun_core::dataset::digest::digest_of_file;
use xrun_core::dataset::open_dataset::OpenDataset;
use xrun_core::dataset::split::Split;

fn small(seed: u32) -> Generated {
    Generated { classes: 5, clips_per_class: 7, other_clips_per_class: 5, seed }
}

/// A cache that all tests of the process read, with the set of `small(0)`.
fn shared() -> PathBuf {
    static SHARED: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
    generate_in(&small(0), SHARED.path()).unwrap()
}

fn library(directory: &Path) -> Library {
    open_generated(&SoundClips::default(), directory.to_owned()).unwrap()
}

/// All files below a directory with their digests.
fn digests(directory: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for part in ["", AUDIO, "meta"] {
        for entry in std::fs::read_dir(directory.join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.strip_prefix(directory).unwrap().display().to_string();
                all.insert(name, digest_of_file(&path).unwrap());
            }
        }
    }
    all
}

#[test]
fn generated_bytes_are_reproducible() {
    let two = tempfile::tempdir().unwrap();
    let pending = set(&small(0)).missing(two.path()).unwrap();
    assert_eq!(clips(&small(0)), 5 * 7 + 15 * 5);
    let of = digests(&shared());
    assert_eq!(of.len(), clips(&small(0)) + 2);
    let again = generate_in(&small(0), two.path()).unwrap();
    assert_eq!((pending, set(&small(0)).missing(two.path())), (again.clone(), None));
    assert_eq!(digests(&again), of);
    let other = write_recording(&small(1), &Job { target: 0, recording: 0, takes: 1 }, &again);
    assert!(other.is_err(), "no file is written over");
    std::fs::remove_file(again.join(AUDIO).join("1-0000000-A-0.wav")).unwrap();
    write_recording(&small(1), &Job { target: 0, recording: 0, takes: 1 }, &again).unwrap();
    assert_ne!(digests(&again), of, "another seed");
    // A steady flute, a bell and a breath. A change here changes every result on generated sounds.
    let names = ["1-0000000-A-0.wav", "2-1200001-A-12.wav", "5-2400004-A-24.wav"];
    let found = names.map(|name| of[&format!("{AUDIO}/{name}")].as_str());
    let expected = [
        "8ba3ce4dfe7edf4dd395bb3eaeb074a9823ba9ca80c3a11bb7f0cdfb41dd736a",
        "e8dd99e6b461d78ac39e54c4312abc2b0f61f5a3018395f0f43e9911a2e64da5",
        "d21d2a5ea68ac8e93d90812c90269ffedd0ef8f2c086fe03e10ff49ba3d9f0d6",
    ];
    assert_eq!(found, expected);
}

#[test]
fn each_combination_belongs_to_one_split() {
    let kinds: BTreeSet<String> = (0..25).map(|target| format!("{:?}", kind(target))).collect();
    assert_eq!(kinds.len(), 25);
    for remainder in 0..5 {
        let of: Vec<_> = (0..5).map(|timbre| kind(remainder * 5 + timbre)).collect();
        for (at, (timbre, modulation)) in of.iter().enumerate() {
            let place = |wanted: &Modulation| Modulation::ALL.iter().position(|other| other == wanted).unwrap();
            assert_eq!((at + 2 * place(modulation)) % 5, remainder as usize, "{timbre:?} {modulation:?}");
        }
        let modulations: BTreeSet<String> = of.iter().map(|(_, modulation)| format!("{modulation:?}")).collect();
        assert_eq!(modulations.len(), 5, "each once");
    }
    let splits: Vec<ClassSplit> = (0..25).map(split).collect();
    let count = |split| splits.iter().filter(|other| **other == split).count();
    assert_eq!([ClassSplit::Federated, ClassSplit::Pretraining, ClassSplit::Unseen].map(count), [10, 10, 5]);
}

#[test]
fn generated_data_is_read_with_splits_folds_and_recordings() {
    let library = library(&shared());
    assert_eq!(library.classes.len(), 20);
    assert_eq!(
        [ClassSplit::Federated, ClassSplit::Pretraining, ClassSplit::Unseen].map(|split| library.classes_of(split)),
        [0..5, 5..15, 15..20]
    );
    assert_eq!(library.all_of(ClassSplit::Pretraining).len(), 50);
    assert!(library.classes.iter().all(|class| class.words.len() == 2));
    let (train, held_out) = (
        library.clips_of(ClassSplit::Federated, Split::Train),
        library.clips_of(ClassSplit::Federated, Split::Validation),
    );
    assert_eq!((train.len(), held_out.len()), (30, 5), "a fold is held out");
    let recording = library.column("src_file").unwrap();
    let mut folds = BTreeMap::new();
    for (clip, source) in library.clips.iter().zip(&recording.of_clip) {
        assert_eq!(*folds.entry(source).or_insert((clip.fold, clip.class)), (clip.fold, clip.class));
    }
    let seen = library.summary();
    assert_eq!((seen.train, seen.held_out), (vec![6; 5], vec![1; 5]));
}

#[test]
fn clips_are_one_second_audible_and_distinct() {
    let directory = shared();
    let mut seen = BTreeSet::new();
    for clip in library(&directory).clips {
        let bytes = std::fs::read(directory.join(AUDIO).join(&clip.file)).unwrap();
        assert!(seen.insert(digest(&bytes)), "{}", clip.file);
        let sound = sound::read(&bytes, u64::MAX).unwrap();
        assert_eq!((sound.rate, sound.samples.len()), (16_000, 16_000));
        let loudest = sound.samples.iter().fold(0.0_f32, |most, sample| most.max(sample.abs()));
        assert!((0.05..=1.0).contains(&loudest), "{}: {loudest}", clip.file);
    }
}
