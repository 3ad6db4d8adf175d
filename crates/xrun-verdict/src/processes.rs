//! Verdicts on the processes of a resumed run, each of which is judged by itself, and the one that speaks for the run.

use crate::findings::{ProcessOfRun, ProcessVerdict, Verdict, VerdictWord};
use crate::message::process_label;

/// Cap on the ended processes that are listed; the oldest ones beyond it are dropped.
const PROCESSES_MAX: usize = 32;

/// Verdicts on the ended processes of a run.
#[derive(Clone, Debug, Default)]
pub struct ProcessVerdicts {
    /// Verdict of the ended process that speaks for the run.
    chosen: Option<Box<Verdict>>,
    ended: Vec<ProcessVerdict>,
}

impl ProcessVerdicts {
    /// Adds the verdict on a process that has ended.
    pub fn end(&mut self, verdict: Verdict) {
        let Some(brief) = brief(&verdict) else { return };
        if self.ended.len() == PROCESSES_MAX {
            self.ended.remove(0);
        }
        self.ended.push(brief);
        if self.chosen.as_ref().is_none_or(|chosen| weight(&verdict) >= weight(chosen)) {
            self.chosen = Some(Box::new(verdict));
        }
    }

    /// Verdict on the run, with that on its newest process: the worst one that shows growth, or else that on the longest
    /// process. Its message has all of them.
    pub fn with_newest(&self, newest: Verdict) -> Verdict {
        let Some(last) = newest.process.filter(|process| process.segment > 0) else { return newest };
        let chosen = self.chosen.as_deref().filter(|chosen| weight(chosen) > weight(&newest)).unwrap_or(&newest);
        let all = self.ended.iter().copied().chain(brief(&newest));
        let Some(process) = chosen.process else { return newest };
        let is_newest = process.segment == last.segment;
        let process =
            ProcessOfRun { newest_segment: last.segment, newest: (!is_newest).then_some(newest.verdict), ..process };
        let label = |of: ProcessVerdict| {
            let ProcessVerdict { segment, first_step, last_step, .. } = of;
            process_label(ProcessOfRun { segment, first_step, last_step, ..process })
        };
        let others = all.clone().filter(|one| one.segment != process.segment);
        let others = others.map(|one| match one.segment == last.segment {
            true => format!("; {}: {}", label(one), newest.message),
            false => format!("; {}: {}", label(one), one.verdict.words()),
        });
        let message = format!("{}: {}{}", process_label(process), chosen.message, others.collect::<String>());
        Verdict { message, process: Some(process), processes: all.collect(), ..chosen.clone() }
    }
}

fn brief(verdict: &Verdict) -> Option<ProcessVerdict> {
    let ProcessOfRun { segment, first_step, last_step, .. } = verdict.process?;
    Some(ProcessVerdict { segment, first_step, last_step, verdict: verdict.verdict })
}

/// Weight of a verdict among those of a run: growth first, the worst most; then what has a verdict at all, and the longest.
fn weight(verdict: &Verdict) -> (Option<VerdictWord>, bool, u64) {
    let steps = verdict.process.map_or(0, |process| process.last_step.saturating_sub(process.first_step));
    // The beginning of any process may look suspect.
    let grows = Some(verdict.verdict).filter(|verdict| *verdict > VerdictWord::Suspect);
    (grows, verdict.verdict != VerdictWord::Inconclusive, steps)
}
