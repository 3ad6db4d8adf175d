//! Judges a synthetic run with `xrun::verdict`, and compares the verdict with the truth.
//!
//! The only file that depends on the interface of the verdict.

use xrun::verdict::{BYTES, Context, Judgement, Sample, SeriesKind, Thresholds, Watch};

use super::series::{Run, Truth};

/// Verdict word of a series. Words that need a buffer's cap cannot occur here and are `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictWord {
    Inconclusive,
    Bounded,
    Stepped,
    GrewThenFlat,
    Suspect,
    Slowing,
    Growing,
    Other,
}

impl VerdictWord {
    pub const ALL: [Self; 8] = [
        Self::Inconclusive,
        Self::Bounded,
        Self::Stepped,
        Self::GrewThenFlat,
        Self::Suspect,
        Self::Slowing,
        Self::Growing,
        Self::Other,
    ];

    /// Returns the word in `verdict.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inconclusive => "inconclusive",
            Self::Bounded => "bounded",
            Self::Stepped => "stepped",
            Self::GrewThenFlat => "grew_then_flat",
            Self::Suspect => "suspect",
            Self::Slowing => "slowing",
            Self::Growing => "growing",
            Self::Other => "other",
        }
    }

    /// Returns `true` for verdicts that report ongoing growth.
    pub fn reports_growth(self) -> bool {
        matches!(self, Self::Slowing | Self::Growing)
    }

    fn from_judgement(judgement: Judgement) -> Self {
        match judgement {
            Judgement::Inconclusive => Self::Inconclusive,
            Judgement::Bounded => Self::Bounded,
            Judgement::Stepped => Self::Stepped,
            Judgement::GrewThenFlat => Self::GrewThenFlat,
            Judgement::Suspect => Self::Suspect,
            Judgement::Slowing => Self::Slowing,
            Judgement::Growing => Self::Growing,
            _ => Self::Other,
        }
    }
}

/// Verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assessment {
    pub verdict: VerdictWord,
    /// First step of the growth, if the verdict reports growth.
    pub since: Option<u64>,
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
pub fn judge(run: &Run, growth_min: f64) -> Assessment {
    let thresholds = Thresholds { growth_min, move_min: growth_min / 32.0 };
    let context = Context {
        steps: run.steps,
        steps_per_epoch: run.steps_per_epoch,
        settled: run.settled,
        thresholds: (thresholds != BYTES).then_some(thresholds),
        ..Context::default()
    };
    let mut watch = Watch::new(context);
    if run.restarts.is_empty() {
        for sample in &run.samples {
            watch.add_value(sample.step, "memory", sample.bytes as u64, SeriesKind::InUse, thresholds);
        }
    } else {
        add_processes(run, &mut watch);
    }
    let verdict = watch.verdict();
    let findings = verdict.series.first().map(|series| &series.findings);
    let judgement = match findings {
        Some(findings) if run.restarts.is_empty() => findings.verdict,
        // The program reports the worst verdict of all processes.
        _ => verdict.verdict,
    };
    let word = VerdictWord::from_judgement(judgement);
    let start = run.restarts.last().copied().unwrap_or_default();
    let since = findings.and_then(|findings| findings.since).filter(|since| word.reports_growth() && *since >= start);
    Assessment { verdict: word, since }
}

fn add_processes(run: &Run, watch: &mut Watch) {
    for sample in &run.samples {
        let segment = run.restarts.iter().filter(|start| sample.step >= **start).count() as u32;
        watch.add(&Sample { segment, step: sample.step, heap: sample.bytes as u64, ..Sample::default() });
    }
}
