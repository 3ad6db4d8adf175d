//! Summary and warnings of a small data set, by hand.

use super::super::library::{Class, Clip};
use super::*;

#[test]
fn clips_classes_splits_lengths_and_rates_are_told_with_what_is_odd() {
    let mut heard = Heard::new(2.0);
    for (rate, seconds) in [(16_000, 1), (16_000, 2), (44_100, 3)] {
        heard.add(&Sound { rate, samples: vec![0.5; rate as usize * seconds] });
    }
    let class =
        |name: &str, target| Class { name: name.into(), target, split: ClassSplit::Federated, words: Vec::new() };
    let clip = |class, fold| Clip { file: "a.wav".into(), class, fold };
    let library = Library {
        directory: "audio".into(),
        classes: vec![class("Rain", 0), class("rain", 1)],
        clips: vec![clip(0, 1), clip(1, 1), clip(1, 5)],
        columns: Vec::new(),
        validation_fold: 5,
        silent: 1,
        heard,
        digest: String::new(),
        skipped: Default::default(),
        decoding_bytes: 0,
        opening_bytes: 0,
    };
    let Description { lines, warnings } = describe(&library);
    insta::assert_snapshot!(lines.join("\n"), @r#"
    3 clips of 2 classes: 2 to train on, 1 held out (fold 5)
    classes: Rain 1, rain 2
    clips of 1.00 to 3.00 s
    "#);
    insta::assert_snapshot!(warnings.join("\n"), @r#"
    classes whose names differ only in case or spaces: ("Rain", "rain"); is one a typing mistake?
    classes with a single clip: "Rain"
    clips of at most half of `clip_seconds = 2.0`, padded with zeros: 1 of 3
    clips longer than `clip_seconds = 2.0`, whose end is not used: 1 of 3
    clips resampled to 16000 Hz: 1 of 3
    silent clips: 1 of 3
    "#);
}
