//! Decision on the one retry of a run that ran out of memory: with the memory that its trace shows it to need, and not if memory
//! was growing, since it would run out again.

use std::path::Path;

use super::with_margin;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::MemoryKind;
use xrun_core::printable;
use xrun_core::units::Bytes;
use xrun_results::format::{Outcome, Peaks, SamplePoint};
use xrun_results::read;
use xrun_results::verdict::{Verdict, VerdictWord};
use xrun_run::killed;
use xrun_verdict::{Recent, RecentGrowth};

/// A trace that is too short for a verdict shows growth from this fraction of what was held, as its inverse, and from this
/// number of bytes.
const GREW_FRACTION: u64 = 20;
const GREW_MIN: u64 = 4 << 20;

/// It is tried with three fifths more at least: a forecast that was 30 % too low is then high enough, and a run leaves a
/// twentieth of its container's limit free.
const LEAST_PARTS: u64 = 5;
/// A run is never tried with more than this multiple of what it had.
const TIMES_MAX: u64 = 4;

/// Decision on a retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// The run is tried once more with this number of bytes.
    Retry(u64),
    /// It was growing: a message with what grew and who holds it.
    Growing(String),
}

/// Returns whether a limit of the host's memory that no key sets ended the run: more memory helps.
pub fn met_container_limit(run: &Path, outcome: Outcome) -> bool {
    let of_container = || read::post_mortem(run).ok().flatten().filter(|died| died.limit_key.is_none());
    outcome == Outcome::MemoryLimit && of_container().is_some_and(|died| died.place == MemoryKind::Host)
}

/// Returns whether the run's newest process held more than this number of bytes, by its own trace: a cluster that kills it for
/// that may not name memory as the reason.
pub fn held_more(run: &Path, bytes: u64) -> bool {
    Trace::read(run).peak > bytes
}

/// Decides by the run's directory. `had` is the number of bytes that it was given; 0 where that is not known.
pub fn decide(run: &Path, had: u64) -> RetryDecision {
    by_trace(killed::verdict_on(run), &Trace::read(run), had)
}

/// The trace of a run's newest process, in constant memory.
#[derive(Default)]
struct Trace {
    /// Peak of its memory, in bytes.
    peak: u64,
    /// Growth of the RSS without buffers that have a cap.
    growth: Option<RecentGrowth>,
}

impl Trace {
    fn read(run: &Path) -> Self {
        let owners = read::plan(run).map_or_else(|_| Vec::new(), |plan| plan.owners);
        let is_capped = |name: &str| owners.iter().any(|owner| owner.name == name && owner.policy != Policy::Leak);
        let (mut segment, mut peaks, mut beyond_caps) = (0, Peaks::default(), Recent::default());
        for line in read::memory(run).into_iter().flatten().map_while(Result::ok) {
            if line.segment != segment {
                (segment, peaks, beyond_caps) = (line.segment, Peaks::default(), Recent::default());
            }
            peaks.add(&line);
            if line.point == SamplePoint::Step {
                let capped = line.owners.iter().filter(|(name, _)| is_capped(name));
                let capped = capped.fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
                let rss = line.host.rss.unwrap_or(line.host.heap);
                beyond_caps.add(line.step, rss.saturating_sub(capped) as f64);
            }
        }
        Self { peak: peaks.heap.max(peaks.rss.unwrap_or_default()), growth: beyond_caps.growth() }
    }
}

fn by_trace(verdict: Option<Verdict>, &Trace { peak, growth }: &Trace, had: u64) -> RetryDecision {
    if let Some(verdict) = verdict.as_ref().filter(|verdict| verdict.verdict >= VerdictWord::Slowing) {
        return RetryDecision::Growing(printable::line(&verdict.message, 400));
    }
    // The verdict may say that memory is flat, or that its growth ends; otherwise the trace may be too short for one.
    let flat = verdict.is_some_and(|verdict| (VerdictWord::Bounded..VerdictWord::Suspect).contains(&verdict.verdict));
    let least = GREW_MIN.max(peak / GREW_FRACTION);
    if let Some(grown) = growth.filter(|growth| growth.steady && !flat && growth.growth as u64 >= least) {
        let (bytes, steps) = (Bytes(grown.growth as u64), grown.steps);
        let why = format!("RSS beyond buffers with a cap rose by {bytes} in its last {steps} steps");
        return RetryDecision::Growing(why);
    }
    // Without a number, the run had what its trace shows.
    let had = if had > 0 { had } else { peak };
    let least = had.saturating_add(had / LEAST_PARTS * 3);
    let most = had.saturating_mul(TIMES_MAX).max(least);
    RetryDecision::Retry(with_margin(peak).clamp(least, most).checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_verdict::{Context, MemoryJudge};

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_run_that_does_not_grow_gets_its_peak_and_clearly_more_than_it_had() {
        let trace = |peak: u64| Trace { peak: peak * MIB, growth: None };
        let decided = |peak: u64, had: u64| match by_trace(None, &trace(peak), had * MIB) {
            RetryDecision::Retry(bytes) => bytes / MIB,
            growing => panic!("{growing:?}"),
        };
        assert_eq!(decided(300, 310), 556, "300 and 256");
        assert_eq!(decided(300, 0), 556, "the trace counts without a known size");
        assert_eq!(decided(3000, 2000), 3750);
        assert_eq!(decided(20, 2000), 3200, "killed before a sample was taken");
        assert_eq!(decided(30_000, 100), 400, "never more than four times");
    }

    #[test]
    fn a_run_that_grew_is_not_retried() {
        let message = || "memory is growing: `cache` holds 96 %".to_owned();
        let empty = MemoryJudge::new(Context::default()).verdict();
        let verdict = |word| Verdict { verdict: word, message: message(), ..empty.clone() };
        let flat = Trace { peak: 300 * MIB, growth: None };
        let grew = RetryDecision::Growing(message());
        assert_eq!(by_trace(Some(verdict(VerdictWord::Growing)), &flat, 310 * MIB), grew);
        let mut recent = Recent::default();
        (0..60).for_each(|step| recent.add(step, ((100 + 3 * step) * MIB) as f64));
        let leak = Trace { peak: 277 * MIB, growth: recent.growth() };
        let decided = |word| by_trace(Some(verdict(word)), &leak, 310 * MIB);
        assert!(matches!(decided(VerdictWord::Filling), RetryDecision::Retry(_)));
        let RetryDecision::Growing(why) = decided(VerdictWord::Inconclusive) else { panic!("it grew") };
        assert_eq!(why, "RSS beyond buffers with a cap rose by 72.0 MiB in its last 24 steps");
    }
}
