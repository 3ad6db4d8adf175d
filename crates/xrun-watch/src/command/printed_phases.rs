//! Phases of a training by the lines that it prints: what its processes grow by between two of them is the growth of a phase.
//!
//! A phase first uses what `malloc` has free, which cannot be seen from outside: less than that counts for the phase that follows. The
//! training is therefore not named, and other phases only where they account for most of the growth.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex_lite::Regex;

use super::reports::Times;
use super::step_formats::compiled;
use xrun_run::memory::processes::{Status, descendants};

/// Ratio of the pause between measurements at lines that say the same to the time of one, and the cap on it.
const PAUSE: u32 = 100;
const PAUSE_MAX: Duration = Duration::from_millis(200);
const SAVE: &str = "save";
const VALIDATION: &str = "validation";

/// Words of a checkpoint that is written, and of a validation.
static SAVING: LazyLock<Regex> = LazyLock::new(|| compiled(r"(?:^|[^a-z])(?:sav(?:ing|ed)|checkpoint (?:written|to))"));
static VALIDATING: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r"(?:^|[^a-z])(?:val(?:id|idation|idating|idate)?|eval(?:uation|uating|uate)?)(?:[^a-z]|$)")
});
/// Words of work that begins or goes on, and bars.
static GOES_ON: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(?:saving|idating|uating)(?:[^a-z]|$)|running|start|begin|\d%|it/s"));

/// What a line says of the work around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// A step of the training has ended.
    Step,
    /// A phase begins or goes on.
    GoesOn(&'static str),
    /// A phase has ended.
    Ended(&'static str),
}

impl Said {
    fn of(line: &str) -> Option<Self> {
        let lower = line.to_ascii_lowercase();
        // Expressions are slow.
        if !["sav", "val", "checkpoint"].iter().any(|part| lower.contains(part)) {
            return None;
        }
        let phase = match () {
            () if SAVING.is_match(&lower) => SAVE,
            () if VALIDATING.is_match(&lower) => VALIDATION,
            () => return None,
        };
        Some(if GOES_ON.is_match(&lower) { Self::GoesOn(phase) } else { Self::Ended(phase) })
    }
}

/// Phases between the lines so far.
#[derive(Debug, Default)]
pub struct PrintedPhases {
    /// Newest line with its time and the bytes of all processes.
    newest: Option<(Said, Instant, u64)>,
    /// Time until which lines that say the same are not measured.
    pause_until: Option<Instant>,
    /// Phase of the newest line; `None` for the training.
    phase: Option<&'static str>,
    /// Times since they were taken, of two phases at most.
    times: BTreeMap<&'static str, Times>,
}

impl PrintedPhases {
    /// Reads a line of output. Those before the first step belong to the start of the program.
    pub fn read(&mut self, line: &str, is_step: bool) {
        let begun = Instant::now();
        let said = if is_step { Some(Said::Step) } else { self.newest.and_then(|_| Said::of(line)) };
        let Some(said) = said else { return };
        let is_same = self.newest.is_some_and(|(before, ..)| before == said);
        if is_same && self.pause_until.is_some_and(|until| begun < until) {
            return;
        }
        let members = descendants(std::process::id());
        let held = members.iter().filter_map(|member| Status::read(member.id)).map(|status| status.footprint_max());
        self.add(said, begun, held.sum());
        self.pause_until = Some(begun + PAUSE_MAX.min(PAUSE * begun.elapsed()));
    }

    fn add(&mut self, said: Said, now: Instant, held: u64) {
        let Some((before, at, held_before)) = self.newest.replace((said, now, held)) else { return };
        let phase = match (before, said) {
            (_, Said::Ended(phase)) | (Said::GoesOn(phase), _) => Some(phase),
            _ => None,
        };
        let begins = std::mem::replace(&mut self.phase, phase) != phase;
        if let Some(phase) = phase {
            let times = self.times.entry(phase).or_default();
            times.count += u64::from(begins);
            let took = u64::try_from((now - at).as_micros()).unwrap_or(u64::MAX);
            (times.total_us, times.longest_us) = (times.total_us + took, times.longest_us.max(took));
            times.grown += held as i64 - held_before as i64;
        }
    }

    /// Takes the times so far.
    pub fn take(&mut self) -> BTreeMap<&'static str, Times> {
        std::mem::take(&mut self.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_begins_and_what_has_ended() {
        for (line, said) in [
            ("Saving model checkpoint to out/checkpoint-10", Some(Said::GoesOn(SAVE))),
            ("Model weights saved in out/model.safetensors", Some(Said::Ended(SAVE))),
            ("***** Running Evaluation *****", Some(Said::GoesOn(VALIDATION))),
            ("Validation DataLoader 0:  50%|#####     | 5/10", Some(Said::GoesOn(VALIDATION))),
            ("{'eval_loss': 0.5, 'eval_runtime': 2.1}", Some(Said::Ended(VALIDATION))),
            ("epoch 3: val_acc 0.71", Some(Said::Ended(VALIDATION))),
            ("an invalid value, an interval, retrieval", None),
            ("Loaded the model from a checkpoint", None),
        ] {
            assert_eq!(Said::of(line), said, "{line}");
        }
    }

    #[test]
    fn growth_is_that_of_the_phase_between_two_lines() {
        let mut phases = PrintedPhases::default();
        let begun = Instant::now();
        let add = |phases: &mut PrintedPhases, seconds, said, held| {
            phases.add(said, begun + Duration::from_secs(seconds), held);
        };
        add(&mut phases, 0, Said::Step, 100);
        add(&mut phases, 1, Said::Step, 101);
        assert!(phases.take().is_empty(), "a training alone");
        add(&mut phases, 2, Said::GoesOn(SAVE), 103);
        add(&mut phases, 4, Said::Step, 123);
        add(&mut phases, 7, Said::Ended(VALIDATION), 122);
        add(&mut phases, 8, Said::Step, 123);
        let grown: Vec<_> = phases.take().into_iter().map(|(name, one)| (name, one.count, one.grown)).collect();
        assert_eq!(grown, [(SAVE, 1, 20), (VALIDATION, 1, -1)]);
    }
}
