//! Decision on the one retry of a run that ran out of memory: with the memory that its trace shows it to need, and not if memory
//! was growing, since it would run out again.

use std::path::Path;

use super::with_margin;
use xrun_core::bounded::planned::MemoryKind;
use xrun_results::format::{Outcome, Peaks};
use xrun_results::read;
use xrun_results::verdict::Verdict;
use xrun_run::growth::GrowthBeyondCaps;
use xrun_run::killed;

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

/// Returns whether a limit of the host's memory that no key sets ended the run, or parked it: more memory helps.
pub fn met_container_limit(run: &Path, outcome: Outcome) -> bool {
    let of_container = || read::post_mortem(run).ok().flatten().filter(|died| died.limit_key.is_none());
    let by_memory = matches!(outcome, Outcome::MemoryLimit | Outcome::Parked);
    by_memory && of_container().is_some_and(|died| died.place == MemoryKind::Host)
}

/// Returns whether the run's newest process held more than this number of bytes, by its own trace: a cluster that kills it for
/// that may not name memory as the reason.
pub fn held_more(run: &Path, bytes: u64) -> bool {
    Trace::read(run).peak > bytes
}

/// Decides by the run's directory. `had` is the number of bytes that it was given; 0 where that is not known.
pub fn decide(run: &Path, had: u64) -> RetryDecision {
    by_trace(killed::verdict_on(run).as_ref(), &Trace::read(run), had)
}

/// The trace of a run's newest process, in constant memory.
#[derive(Default)]
struct Trace {
    /// Peak of its memory, in bytes.
    peak: u64,
    growth: GrowthBeyondCaps,
}

impl Trace {
    fn read(run: &Path) -> Self {
        let owners = read::plan(run).map_or_else(|_| Vec::new(), |plan| plan.owners);
        let (mut segment, mut peaks, mut growth) = (0, Peaks::default(), GrowthBeyondCaps::new(&owners));
        for line in read::memory(run).into_iter().flatten().map_while(Result::ok) {
            if line.segment != segment {
                (segment, peaks) = (line.segment, Peaks::default());
                growth.restart();
            }
            peaks.add(&line);
            growth.add(&line, line.host.rss.unwrap_or(line.host.heap));
        }
        Self { peak: peaks.heap.max(peaks.rss.unwrap_or_default()), growth }
    }
}

fn by_trace(verdict: Option<&Verdict>, trace: &Trace, had: u64) -> RetryDecision {
    let peak = trace.peak;
    if let Some(why) = trace.growth.growing(verdict, peak) {
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
    use xrun_results::format::MemoryLine;
    use xrun_results::verdict::VerdictWord;
    use xrun_verdict::{Context, MemoryJudge};

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_run_that_does_not_grow_gets_its_peak_and_clearly_more_than_it_had() {
        let trace = |peak: u64| Trace { peak: peak * MIB, growth: GrowthBeyondCaps::default() };
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
        let flat = Trace { peak: 300 * MIB, growth: GrowthBeyondCaps::default() };
        let grew = RetryDecision::Growing(message());
        assert_eq!(by_trace(Some(&verdict(VerdictWord::Growing)), &flat, 310 * MIB), grew);
        let mut growth = GrowthBeyondCaps::default();
        for step in 0..60 {
            growth.add(&MemoryLine { step, ..MemoryLine::default() }, (100 + 3 * step) * MIB);
        }
        let leak = Trace { peak: 277 * MIB, growth };
        let decided = |word| by_trace(Some(&verdict(word)), &leak, 310 * MIB);
        assert!(matches!(decided(VerdictWord::Filling), RetryDecision::Retry(_)));
        let RetryDecision::Growing(why) = decided(VerdictWord::Inconclusive) else { panic!("it grew") };
        assert_eq!(why, "memory beyond buffers with a cap rose by 72.0 MiB in its last 24 steps");
    }
}
