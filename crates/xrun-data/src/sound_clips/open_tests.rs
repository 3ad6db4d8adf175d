//! Valid directories are read, and invalid ones refused or left out in part.

use super::super::ClipCounts;
use super::*;
use crate::sound_clips::store::{ClipStore, LogMel};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::kind::DatasetKind;
use xrun_core::files::write;
use xrun_core::settings::sections::Limits;
use xrun_core::units::Bytes;

fn saw(step: usize, count: usize) -> Vec<i16> {
    (0..count).map(|at| ((at * step) % 20_000) as i16 - 10_000).collect()
}

/// Two classes in two folds, and one clip of silence.
fn written(place: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("audio")).unwrap();
    std::fs::create_dir_all(directory.path().join("meta")).unwrap();
    let mut table = "filename,fold,target,category,src_file\n".to_owned();
    for (number, (fold, target, name)) in
        [(1, 4, "dog"), (2, 4, "dog"), (1, 9, "rain"), (2, 9, "rain"), (1, 4, "dog")].into_iter().enumerate()
    {
        table += &format!("{number}.wav,{fold},{target},{name},{number}\n");
        let samples = if number == 4 { vec![0; 16_000] } else { saw(100 + 70 * number, 8000 + 12_000 * number) };
        write::replace(&directory.path().join(format!("audio/{number}.wav")), &generate::wav(&samples).unwrap())
            .unwrap();
    }
    write::replace(&directory.path().join(place), table.as_bytes()).unwrap();
    directory
}

fn settings(directory: &Path, on_invalid: OnInvalid) -> SoundClips {
    let path = Some(directory.display().to_string());
    SoundClips { source: Source::Directory, path, validation_fold: 2, on_invalid, ..SoundClips::default() }
}

#[test]
fn a_directory_is_read_as_classes_clips_folds_and_columns() {
    for place in table::PLACES {
        let directory = written(place);
        let library = open(&settings(directory.path(), OnInvalid::Fail)).unwrap();
        let classes: Vec<_> = library.classes.iter().map(|class| (class.name.as_str(), class.target)).collect();
        assert_eq!(classes, [("dog", 4), ("rain", 9)]);
        assert_eq!(library.clips_of(ClassSplit::Federated, Split::Train), [0, 2, 4]);
        assert_eq!(library.clips_of(ClassSplit::Federated, Split::Validation), [1, 3]);
        assert_eq!(library.classes_of(ClassSplit::Federated), 0..2);
        assert!(library.all_of(ClassSplit::Pretraining).is_empty());
        assert_eq!(library.clips[2], Clip { file: "2.wav".into(), class: 1, fold: 1 });
        assert_eq!(library.column("src_file").unwrap().of_clip, [0, 1, 2, 3, 4]);
        assert_eq!(library.column("category").unwrap().values, ["dog", "rain"]);
        let (inspected, _) = settings(directory.path(), OnInvalid::Fail).inspect().unwrap();
        let summary: ClipCounts = serde_json::from_value(inspected.summary).unwrap();
        assert_eq!((summary.train, summary.held_out, summary.silent), (vec![2, 1], vec![1, 1], 1));
        assert_eq!(summary.columns, ["fold", "target", "category", "src_file"]);
        insta::allow_duplicates! {
            insta::assert_snapshot!(inspected.description.lines.join("\n"), @r"
            5 clips of 2 classes: 3 to train on, 2 held out (fold 2)
            classes: dog 3, rain 2
            ");
            insta::assert_snapshot!(inspected.description.warnings.join("\n"), @"silent clips: 1 of 5");
        }
    }
}

#[test]
fn the_digest_changes_with_a_sample_and_with_a_line() {
    let directory = written("meta.csv");
    let of = || open(&settings(directory.path(), OnInvalid::Fail)).unwrap().digest;
    let first = of();
    assert_eq!(of(), first);
    let path = directory.path().join("audio/2.wav");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    write::replace(&path, &bytes).unwrap();
    let second = of();
    assert_ne!(second, first);
    let table = directory.path().join("meta.csv");
    let text = std::fs::read_to_string(&table).unwrap().replace("4.wav,1", "4.wav,2");
    write::replace(&table, text.as_bytes()).unwrap();
    assert_ne!(of(), second);
}

#[test]
fn invalid_clips_are_named_with_their_line_or_skipped_and_counted() {
    let directory = written("meta.csv");
    let audio = directory.path().join("audio");
    write::replace(&audio.join("3.wav"), b"OggS").unwrap();
    std::fs::remove_file(audio.join("4.wav")).unwrap();
    let message = open(&settings(directory.path(), OnInvalid::Fail)).unwrap_err().to_string();
    for part in ["does not begin as", "audio/3.wav is in line 5 of the table", "line 6", "4.wav is not there", "skip"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let library = open(&settings(directory.path(), OnInvalid::Skip)).unwrap();
    assert_eq!(library.skipped.by_reason(), "missing_clip 1, no_wav_file 1");
    assert_eq!(library.clips.len(), 3);
    assert_eq!(library.columns[3].of_clip, [0, 1, 2], "columns stay beside their clips");
}

#[test]
fn sounds_in_directories_of_classes_are_in_folds_by_their_speakers() {
    let directory = tempfile::tempdir().unwrap();
    let names = [
        "no/b_nohash_0.wav",
        "no/b_nohash_1.wav",
        "yes/a_nohash_0.wav",
        "yes/b_nohash_0.wav",
        "_noise/hum.wav",
        "no/a.txt",
    ];
    for name in names {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write::replace(&path, &generate::wav(&saw(100, 8000)).unwrap()).unwrap();
    }
    write::replace(&directory.path().join("no/c_nohash_0.wav"), &generate::wav(&saw(100, 8000)).unwrap()).unwrap();
    let library = open(&settings(directory.path(), OnInvalid::Fail)).unwrap();
    let clips: Vec<_> = library.clips.iter().map(|clip| (clip.file.as_str(), clip.class, clip.fold)).collect();
    let expected = [
        ("no/b_nohash_0.wav", 0, 2),
        ("no/b_nohash_1.wav", 0, 2),
        ("no/c_nohash_0.wav", 0, 3),
        ("yes/a_nohash_0.wav", 1, 1),
        ("yes/b_nohash_0.wav", 1, 2),
    ];
    assert_eq!(clips, expected);
    assert_eq!(library.directory, directory.path().canonicalize().unwrap());
    write::replace(&directory.path().join("no/d.wav"), b"no sound").unwrap();
    let message = open(&settings(directory.path(), OnInvalid::Fail)).unwrap_err().to_string();
    assert!(message.contains("no/d.wav") && !message.contains("line"), "{message}");
}

#[cfg(unix)]
#[test]
fn a_symlink_out_of_the_directory_is_not_followed() {
    let (directory, other) = (written("meta.csv"), written("meta.csv"));
    let place = directory.path().join("audio/4.wav");
    std::fs::remove_file(&place).unwrap();
    std::os::unix::fs::symlink(other.path().join("audio/4.wav"), &place).unwrap();
    let message = open(&settings(directory.path(), OnInvalid::Fail)).unwrap_err().to_string();
    assert!(message.contains("line 6") && message.contains("behind a symlink"), "{message}");
    assert_eq!(open(&settings(directory.path(), OnInvalid::Skip)).unwrap().clips.len(), 4);
}

#[test]
fn data_without_trainable_classes_is_refused() {
    let directory = written("meta.csv");
    let with = |fold| open(&SoundClips { validation_fold: fold, ..settings(directory.path(), OnInvalid::Fail) });
    let message = with(7).unwrap_err().to_string();
    assert!(message.contains("no clip is in fold 7") && message.contains("the folds are 1, 2"), "{message}");
    let table = directory.path().join("meta.csv");
    let text = std::fs::read_to_string(&table).unwrap();
    write::replace(&table, text.replace(",1,9,", ",2,9,").as_bytes()).unwrap();
    let message = with(2).unwrap_err().to_string();
    assert!(message.contains("all clips of the class \"rain\" are in fold 2"), "{message}");
    assert!(with(1).is_ok());
    write::replace(&table, b"filename,fold,target,category\n0.wav,1,4,dog\n1.wav,2,4,dog\n").unwrap();
    assert!(with(2).unwrap_err().to_string().contains("at least 2 are needed"));
    std::fs::remove_file(&table).unwrap();
    assert!(with(2).unwrap_err().to_string().contains("neither meta/esc50.csv nor meta.csv"));
    let gone = settings(&directory.path().join("none"), OnInvalid::Fail);
    assert!(open(&gone).unwrap_err().to_string().contains("cannot be read"));
}

fn store(settings: &SoundClips, shape: [usize; 2], ledger: &Ledger) -> ClipStore {
    let library = open(settings).unwrap();
    ClipStore::new(library, &settings.loader_settings(), &Limits::default(), shape, ledger).unwrap()
}

#[test]
fn the_cache_respects_its_cap_and_changes_no_result() {
    let directory = written("meta.csv");
    let (bands, frames) = (16, 40);
    let bytes = (bands * frames * 4) as u64;
    let of = |cache: u64| {
        let settings = SoundClips { clip_cache: Bytes(cache), ..settings(directory.path(), OnInvalid::Fail) };
        let ledger = Ledger::default();
        let store = store(&settings, [bands, frames], &ledger);
        let order = [0, 1, 2, 3, 4, 0, 4, 3, 2, 1, 0];
        let found: Vec<LogMel> = order.iter().map(|clip| store.log_mel(*clip).unwrap()).collect();
        let held = ledger.read().into_iter().find(|reading| reading.name == "clip_cache").unwrap();
        assert!(held.bytes <= cache, "{} of {cache}", held.bytes);
        assert_eq!(store.buffers.cache.working_set_bytes, Some(5 * bytes));
        assert!(store.log_mel(5).is_err());
        store.cache.evict_to_fraction(0.0);
        (found, held.bytes, store.cache.counters().hits)
    };
    let (all, two) = (of(1 << 20), of(2 * bytes));
    assert_eq!((all.1, two.1, all.2), (5 * bytes, 2 * bytes, 6));
    assert!(all.0 == two.0 && all.0.iter().all(|log_mel| log_mel.len() == bands * frames));
}

#[test]
fn clips_have_the_length_of_the_settings() {
    let directory = written("meta.csv");
    let settings = SoundClips { clip_seconds: 2.0, ..settings(directory.path(), OnInvalid::Fail) };
    let store = store(&settings, [8, 8], &Ledger::default());
    let (short, long) = (store.samples(0).unwrap(), store.samples(3).unwrap());
    assert_eq!((short.len(), long.len()), (32_000, 32_000));
    assert!(short[8000..].iter().all(|sample| *sample == 0.0) && short[..8000].iter().any(|sample| *sample != 0.0));
    assert!(long[31_000..].iter().any(|sample| *sample != 0.0));
    std::fs::remove_file(directory.path().join("audio/3.wav")).unwrap();
    let message = store.log_mel(3).unwrap_err().to_string();
    assert!(message.contains("3.wav") && message.contains("changed during the run"), "{message}");
}
