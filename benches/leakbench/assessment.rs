//! Judges a synthetic run with `xrun::verdict`.
//!
//! The only file that depends on the interface of the verdict.

use xrun::verdict::{BYTES, Context, MemoryJudge, Sample, SeriesKind, VerdictWord};

use super::series::{Run, Truth};

/// Verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assessment {
    pub judgement: VerdictWord,
    /// First step of the growth, if the verdict reports growth.
    pub since: Option<u64>,
    /// Fraction of the run after which growth was first reported; judged after each tenth.
    pub reported: Option<f64>,
}

/// Returns whether a judgement reports growth.
pub fn reports_growth(judgement: VerdictWord) -> bool {
    matches!(judgement, VerdictWord::Slowing | VerdictWord::Growing | VerdictWord::Retained)
}

/// Returns whether a judgement says that memory is at rest.
pub fn reports_rest(judgement: VerdictWord) -> bool {
    VerdictWord::AT_REST.contains(&judgement)
}

impl Assessment {
    /// Returns the error of the first step of a leak, as a fraction of the last process; `None` if the run does not leak or no step is
    /// reported.
    pub fn date_error(&self, run: &Run) -> Option<f64> {
        let (Truth::Growing { since, visible_from, .. } | Truth::Slowing { since, visible_from, .. }) = run.truth
        else {
            return None;
        };
        let reported = self.since?;
        let error = if reported < since { since - reported } else { reported.saturating_sub(visible_from) };
        Some(error as f64 / run.span().max(1) as f64)
    }
}

/// Judges a run as the program does: as one series, or by process if it was restarted.
pub fn judge(run: &Run) -> Assessment {
    let context =
        Context { steps: run.steps, steps_per_epoch: run.steps_per_epoch, settled: run.settled, ..Context::default() };
    let mut judge = MemoryJudge::new(context);
    let count = run.samples.len();
    let mut reported = None;
    for (at, sample) in run.samples.iter().enumerate() {
        let tenth = (at + 1) * 10 / count;
        if tenth < 10 && tenth > at * 10 / count && reported.is_none() && reports_growth(judgement(run, &judge).0) {
            reported = Some(tenth as f64 / 10.0);
        }
        if run.restarts.is_empty() {
            judge.add_value(sample.step, "memory", sample.bytes as u64, SeriesKind::InUse, BYTES);
        } else {
            let segment = run.restarts.iter().filter(|start| sample.step >= **start).count() as u32;
            judge.add(&Sample { segment, step: sample.step, heap: sample.bytes as u64, ..Sample::default() });
        }
    }
    let (judgement, since) = judgement(run, &judge);
    let grows = reports_growth(judgement);
    Assessment { judgement, since, reported: reported.or(Some(1.0)).filter(|_| grows) }
}

/// Returns the judgement so far, and the first step of the growth.
fn judgement(run: &Run, judge: &MemoryJudge) -> (VerdictWord, Option<u64>) {
    let verdict = judge.verdict();
    // The program reports the worst verdict of all processes, and of all series of one.
    let judgement = verdict.verdict;
    let since = verdict.series.iter().find(|one| one.findings.verdict == judgement).and_then(|one| one.findings.since);
    let start = run.restarts.last().copied().unwrap_or_default();
    (judgement, since.filter(|since| reports_growth(judgement) && *since >= start))
}
