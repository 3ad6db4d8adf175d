//! What does the watcher say of a run?
//!
//! The only file that touches what is judged: everything that depends on its interface stands here.

use xrun::verdict::{BYTES, Context, Findings, Judgement, Sample, SeriesKind, Thresholds, Watch};

use super::series::{Run, Truth};

/// What is said of a series. Answers that cannot be given of a series without a cap are `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    Inconclusive,
    Bounded,
    Stepped,
    GrewThenFlat,
    Suspect,
    Slowing,
    Growing,
    Other,
}

impl Answer {
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

    /// As `verdict.json` has it.
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

    /// Whether it says that memory is still rising.
    pub fn rises(self) -> bool {
        matches!(self, Self::Slowing | Self::Growing)
    }

    fn of(judgement: Judgement) -> Self {
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

/// The first step of the growth, where it is said.
fn since(findings: &Findings) -> Option<u64> {
    findings.since
}

/// What was said of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub answer: Answer,
    /// Only where the answer is that it rises.
    pub since: Option<u64>,
}

impl Outcome {
    /// How far the said begin of a leak is from the true one, as a share of the newest process.
    pub fn date_error(&self, run: &Run) -> Option<f64> {
        let (Truth::Growing { since, seen, .. } | Truth::Slowing { since, seen, .. }) = run.truth else { return None };
        let said = self.since?;
        let away = if said < since { since - said } else { said.saturating_sub(seen) };
        Some(away as f64 / run.span().max(1) as f64)
    }
}

/// Judges a run as the program does: as one series, or as processes where it has restarts.
pub fn judge(run: &Run, growth_min: f64) -> Outcome {
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
        // What a user reads, who is told the worst of all processes.
        _ => verdict.verdict,
    };
    let answer = Answer::of(judgement);
    let begins = run.restarts.last().copied().unwrap_or_default();
    let since = findings.and_then(since).filter(|since| answer.rises() && *since >= begins);
    Outcome { answer, since }
}

fn add_processes(run: &Run, watch: &mut Watch) {
    for sample in &run.samples {
        let segment = run.restarts.iter().filter(|begins| sample.step >= **begins).count() as u32;
        watch.add(&Sample { segment, step: sample.step, heap: sample.bytes as u64, ..Sample::default() });
    }
}
