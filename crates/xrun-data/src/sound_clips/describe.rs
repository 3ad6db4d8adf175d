//! Description of a data set of sounds for `xrun check`.

use super::library::{ClassSplit, Library};
use super::resample::RATE;
use super::sound::Sound;
use crate::describe::{counts, similar_names, single, splits};
use xrun_core::dataset::description::Description;
use xrun_core::dataset::split::Split;
use xrun_core::units::pluralize;

/// Lengths and sample rates of the clips that were read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// Length of a clip that a model sees, in seconds.
    clip_seconds: f64,
    /// Seconds of the shortest and the longest clip; `None` without clips.
    seconds: Option<(f64, f64)>,
    /// Clips that fill at most half of what a model sees.
    half_empty: u64,
    /// Clips whose end a model does not see.
    cut: u64,
    /// Clips of another sample rate than a model hears.
    resampled: u64,
}

impl Heard {
    /// Makes an empty summary for models that see clips of this length.
    pub fn new(clip_seconds: f64) -> Self {
        Self { clip_seconds, ..Self::default() }
    }

    /// Adds a clip.
    pub fn add(&mut self, sound: &Sound) {
        let seconds = sound.samples.len() as f64 / f64::from(sound.rate.max(1));
        let (least, most) = self.seconds.unwrap_or((seconds, seconds));
        self.seconds = Some((least.min(seconds), most.max(seconds)));
        self.half_empty += u64::from(seconds <= self.clip_seconds / 2.0);
        self.cut += u64::from(seconds > self.clip_seconds);
        self.resampled += u64::from(sound.rate != RATE);
    }
}

/// Clips, classes, splits and lengths.
pub(super) fn describe(library: &Library) -> Description {
    let mut clips = vec![0_u64; library.classes.len()];
    library.clips.iter().for_each(|clip| clips[clip.class as usize] += 1);
    let classes = || library.classes.iter().zip(&clips).map(|(class, count)| (class.name.as_str(), *count));
    let of = |split| library.clips_of(ClassSplit::Federated, split).len() as u64;
    let parts = splits(of(Split::Train), of(Split::Validation));
    let all = pluralize(library.clips.len() as u64, "clip");
    let mut lines = vec![
        format!("{all} of {} classes: {parts} (fold {})", library.classes.len(), library.validation_fold),
        format!("classes: {}", counts(classes())),
    ];
    let Heard { clip_seconds, seconds, half_empty, cut, resampled } = &library.heard;
    if let Some((least, most)) = seconds {
        lines.push(format!("clips of {least:.2} to {most:.2} s"));
    }
    let mut warnings: Vec<String> = similar_names(classes().map(|(name, _)| name)).into_iter().collect();
    warnings.extend(single(classes(), "clip"));
    let total: u64 = clips.iter().sum();
    for (count, what) in [
        (*half_empty, format!("clips of at most half of `clip_seconds = {clip_seconds:?}`, padded with zeros")),
        (*cut, format!("clips longer than `clip_seconds = {clip_seconds:?}`, whose end is not used")),
        (*resampled, format!("clips resampled to {RATE} Hz")),
        (library.silent, "silent clips".to_owned()),
    ] {
        if count > 0 {
            warnings.push(format!("{what}: {count} of {total}"));
        }
    }
    Description { lines, warnings }
}

#[cfg(test)]
#[path = "describe_tests.rs"]
mod tests;
