//! Generated sets are always the same, and valid.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::super::library::Library;
use super::super::open::open_generated;
use super::super::settings::SoundClips;
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

/// All bytes, as the list of their digests has them.
fn sums(directory: &Path) -> String {
    digest_of_file(&directory.join(digest_cache::SUMS)).unwrap()
}

#[test]
fn generated_bytes_are_reproducible() {
    let two = tempfile::tempdir().unwrap();
    let pending = set(&small(0)).missing(two.path()).unwrap();
    let again = generate_in(&small(0), two.path()).unwrap();
    assert_eq!((pending, set(&small(0)).missing(two.path())), (again.clone(), None));
    assert_eq!(std::fs::read_dir(again.join(AUDIO)).unwrap().count(), clips(&small(0)));
    // A change here changes every result on generated sounds.
    assert_eq!(sums(&again), "f92b9b32fae2a2fb00f8a4c7ed296d4f17169b7467afba67f2134dd8443c2731");
    let other = write_recording(&small(1), &Job { target: 0, recording: 0, takes: 1 }, &again);
    assert!(other.is_err(), "no file is written over");
    assert_ne!(sums(&generate_in(&small(1), two.path()).unwrap()), sums(&again), "another seed");
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
