//! Phase in which memory grows, by the lines that a training prints: what its processes grow by between two of them.
//!
//! Lines tell little: what is printed after a phase does not say when it began, and a bar shows its state late. Growth between two lines
//! that enclose a phase is in it, growth between one and a step "in it or beside it". A phase first uses what `malloc` has free, which
//! cannot be seen from outside: less than that counts for what follows.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex_lite::Regex;

use super::step_formats::compiled;
use xrun_core::units::Bytes;
use xrun_run::memory::processes::{Status, descendants};

/// Ratio of the pause between measurements at lines that say the same to the time of one, and the cap on it.
const PAUSE: u32 = 100;
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Fraction of the growth from which on it is that of a phase, and up to which it is no more than what was given back.
const SHARE: std::ops::RangeInclusive<f64> = 0.7..=1.3;
/// Fraction of the time up to which a phase is not the training itself.
const TIME_MAX: f64 = 0.5;
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

/// Statement of a line about the work around it.
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

/// Line that says something, with its time and the bytes of all processes.
#[derive(Clone, Copy, Debug)]
struct Moment {
    said: Said,
    at: Instant,
    held: i64,
}

/// Phase, and whether lines enclose it.
type Phase = (&'static str, bool);

/// Times of a phase, and the bytes by which memory was larger at their ends.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    count: u64,
    total: Duration,
    grown: i64,
    /// Largest growth between two lines.
    largest: i64,
}

/// Phases between the lines so far.
#[derive(Debug, Default)]
pub struct PrintedPhases {
    first: Option<Moment>,
    newest: Option<Moment>,
    /// Time until which lines that say the same are not measured.
    pause_until: Option<Instant>,
    /// Phase before the newest line; `None` for the training.
    phase: Option<Phase>,
    /// Sums of at most two phases.
    times: BTreeMap<Phase, Times>,
}

impl PrintedPhases {
    /// Reads a line of output. Those before the first step belong to the start of the program.
    pub fn read(&mut self, line: &str, is_step: bool) {
        let at = Instant::now();
        let said = if is_step { Some(Said::Step) } else { self.newest.and_then(|_| Said::of(line)) };
        let Some(said) = said else { return };
        let is_same = self.newest.is_some_and(|before| before.said == said);
        if is_same && self.pause_until.is_some_and(|until| at < until) {
            return;
        }
        let members = descendants(std::process::id());
        let held = members.iter().filter_map(|member| Status::read(member.id)).map(|status| status.footprint_max());
        self.add(Moment { said, at, held: held.sum::<u64>() as i64 });
        self.pause_until = Some(at + PAUSE_MAX.min(PAUSE * at.elapsed()));
    }

    fn add(&mut self, now: Moment) {
        self.first.get_or_insert(now);
        // Two streams are read at the same time: one phase may begin before it is seen that the other one has ended. And the last lines are
        // read when the processes end.
        let is_ignored = |before: Moment| match (before.said, now.said) {
            (Said::GoesOn(begun), Said::Ended(ended)) if begun != ended => now.at - before.at < PAUSE_MAX,
            _ => 2 * now.held < before.held,
        };
        if self.newest.is_some_and(is_ignored) {
            return;
        }
        let Some(before) = self.newest.replace(now) else { return };
        let phase = match (before.said, now.said) {
            (Said::GoesOn(begun), Said::Ended(ended)) => (begun == ended).then_some((ended, true)),
            (Said::GoesOn(phase), _) | (Said::Step, Said::Ended(phase)) => Some((phase, false)),
            _ => None,
        };
        let begins = std::mem::replace(&mut self.phase, phase) != phase;
        if let Some(phase) = phase {
            let times = self.times.entry(phase).or_default();
            times.count += u64::from(begins);
            times.total += now.at - before.at;
            times.grown += now.held - before.held;
            times.largest = times.largest.max(now.held - before.held);
        }
    }

    /// Phase in which memory grows, with the bytes of each time, given the growth by the verdict; `None` where none is seen to account for
    /// most of it, grows more than once, keeps it, and takes less than half of the time.
    pub fn growing(&self, growth: f64) -> Option<String> {
        let (first, newest) = (self.first?, self.newest?);
        let (grown, elapsed) = ((newest.held - first.held) as f64, (newest.at - first.at).as_secs_f64());
        let mut found = self.times.iter().filter(|(_, times)| {
            let share = times.grown as f64 / grown;
            let is_most = SHARE.contains(&share) && times.grown as f64 >= SHARE.start() * growth;
            is_most && 2 * times.largest <= times.grown && times.total.as_secs_f64() <= TIME_MAX * elapsed
        });
        let ((name, encloses), times) = found.next()?;
        let beside = if *encloses { "" } else { " or beside it" };
        let each = Bytes(u64::try_from(times.grown).ok()? / times.count.max(1));
        Some(format!("it grows in *{name}*{beside}, {each} each time"))
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

    /// Message after `times` times these lines, each with the seconds and MiB since the one before.
    fn growing(times: usize, lines: &[(Said, u64, i64)]) -> Option<String> {
        let mut phases = PrintedPhases::default();
        let (mut at, mut held) = (Instant::now(), 100 << 20);
        for (said, seconds, grown) in lines.iter().cycle().take(times * lines.len()) {
            (at, held) = (at + Duration::from_secs(*seconds), held + (grown << 20));
            phases.add(Moment { said: *said, at, held });
        }
        phases.growing(0.0)
    }

    #[test]
    fn growth_is_that_of_the_phase_that_two_lines_enclose() {
        let steps = [(Said::Step, 9, 0), (Said::Step, 9, 0)];
        let with = |lines: &[(Said, u64, i64)]| growing(20, &[&steps[..], lines].concat());
        let said = |phase: &str| Some(format!("it grows in {phase}, 4.0 MiB each time"));
        let (saves, saved) = (Said::GoesOn(SAVE), Said::Ended(SAVE));
        assert_eq!(with(&[(saves, 0, 0), (saved, 2, 4)]), said("*save*"));
        assert_eq!(with(&[(saves, 0, 0), (Said::Step, 2, 4)]), said("*save* or beside it"));
        let ending =
            [&[(Said::Step, 9, 0), (saves, 0, 0), (saved, 2, 4)].repeat(20)[..], &[(Said::Step, 9, -179)]].concat();
        assert_eq!(growing(1, &ending), said("*save*"), "the processes end");
        assert_eq!(with(&[(Said::Ended(VALIDATION), 3, 4)]), said("*validation* or beside it"));
        assert_eq!(with(&[(saves, 0, 0), (Said::Ended(VALIDATION), 0, 0), (saved, 2, 4)]), said("*save*"));
        assert_eq!(growing(1, &[&steps[..], &[(saves, 0, 0), (saved, 2, 4)]].concat()), None);
        // In the training, in both, in neither for sure, given back, and in most of the time.
        assert_eq!(with(&[(saves, 9, 4), (saved, 2, 0)]), None);
        assert_eq!(with(&[(saves, 9, 4), (saved, 2, 4)]), None);
        assert_eq!(with(&[(saves, 0, 0), (Said::Ended(VALIDATION), 2, 4)]), None);
        assert_eq!(with(&[(saves, 0, 1), (saved, 2, 90), (Said::Step, 9, -90)]), None);
        assert_eq!(with(&[(saves, 0, 0), (saved, 90, 4)]), None);
    }
}
