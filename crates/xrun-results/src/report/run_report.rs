//! Facts for the reports on a run.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::ReportError;
use crate::format::{PlannedAndActual, PostMortem, Suggestion};
use crate::read::ReadError;
use crate::run_state::RunState;
use crate::verdict::VerdictWord;
use crate::view::RunView;
use xrun_core::bounded::ledger::Policy;
use xrun_core::units::Bytes;

/// Relative error from which a forecast needs an explanation.
const FAR_OFF: f64 = 0.1;

/// Cap and peak of a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BufferUsage {
    /// Name of the owner in the ledger.
    pub name: String,
    /// Policy at the cap.
    pub policy: Option<Policy>,
    /// Cap in bytes.
    pub cap_bytes: Option<u64>,
    /// Peak in bytes; `None` if it was never measured.
    pub peak_bytes: Option<u64>,
    /// Reason for the cap, such as the key that sets it.
    #[serde(skip)]
    pub because: String,
}

impl BufferUsage {
    /// Returns `true` if the buffer has no cap: an injected leak.
    pub fn is_leak(&self) -> bool {
        self.policy == Some(Policy::Leak)
    }

    /// Peak as a fraction of the cap.
    pub fn fraction_of_cap(&self) -> Option<f64> {
        let cap = self.cap_bytes.filter(|&cap| cap > 0 && !self.is_leak())?;
        Some(self.peak_bytes? as f64 / cap as f64)
    }
}

/// Describes the effect of a suggestion of a post-mortem.
pub fn suggestion_effect(post_mortem: &PostMortem, suggestion: &Suggestion) -> String {
    match suggestion.frees {
        0 if post_mortem.limit_key.as_deref() == Some(&suggestion.key) => {
            "would suffice unless memory keeps growing".to_owned()
        }
        0 => "would reduce the memory of a step (by how much was not measured)".to_owned(),
        bytes => format!("would free {}", Bytes(bytes)),
    }
}

/// View of a run for a report. Damaged files are skipped and listed in its `damage`.
///
/// # Errors
/// The directory has neither manifest nor summary, or a newer xrun wrote them.
pub fn open(run: &Path) -> Result<RunView, ReportError> {
    let view = RunView::open(run);
    match view.manifest_error().filter(|_| view.summary().is_none()) {
        None => Ok(view),
        // A newer format gets its own message.
        Some(ReadError::Newer { path, found }) => Err(ReadError::Newer { path: path.clone(), found: *found }.into()),
        Some(_) => Err(ReportError::NotARun { path: run.display().to_string() }),
    }
}

impl RunView {
    /// Why the run ended, or that it has not ended, for people.
    pub fn message(&self) -> String {
        match self.state() {
            RunState::Running => "the run has not ended; these are the results so far".into(),
            RunState::Killed => "the process disappeared (kill -9, out of memory, or reboot)".into(),
            RunState::Unreadable(why) => format!("a record is damaged: {why}"),
            RunState::Ended(_) => self.summary().map_or(String::new(), |summary| summary.message.clone()),
        }
    }

    /// All buffers, the largest first.
    pub fn buffers(&self) -> Vec<BufferUsage> {
        let mut buffers: BTreeMap<&str, BufferUsage> = BTreeMap::new();
        for owner in self.plan().into_iter().flat_map(|plan| &plan.owners) {
            let buffer = buffers.entry(&owner.name).or_default();
            (buffer.policy, buffer.cap_bytes) = (Some(owner.policy), Some(owner.bytes));
            buffer.because.clone_from(&owner.because);
        }
        for owner in self.summary().into_iter().flat_map(|summary| &summary.owners) {
            let buffer = buffers.entry(&owner.name).or_default();
            (buffer.policy, buffer.cap_bytes) = (Some(owner.policy), Some(owner.cap_bytes));
            buffer.peak_bytes = Some(owner.peak_bytes);
        }
        // A killed run has only samples, taken between steps: a buffer that was empty in all of them may have held
        // something in between.
        for (name, &peak) in self.trace().owner_names.iter().zip(&self.trace().owner_peaks) {
            let buffer = buffers.entry(name).or_default();
            buffer.peak_bytes = buffer.peak_bytes.max(Some(peak).filter(|peak| *peak > 0));
        }
        let named = |(name, buffer): (&str, BufferUsage)| BufferUsage { name: name.to_owned(), ..buffer };
        let mut buffers: Vec<BufferUsage> = buffers.into_iter().map(named).collect();
        buffers.sort_by_key(|buffer| std::cmp::Reverse(buffer.peak_bytes));
        buffers
    }

    /// Suffix ` (last process)` for values that a summary has only of the last process of a resumed run.
    pub fn last_process_suffix(&self) -> &'static str {
        if self.processes() > 1 { " (last process)" } else { "" }
    }

    /// Number of samples of all processes and the seconds they took; from the summary if there is no trace.
    pub fn samples(&self) -> (u64, f64) {
        let memory = match self.trace().peaks.samples {
            0 => self.memory(),
            _ => &self.trace().peaks,
        };
        (memory.samples, memory.trace_seconds)
    }

    /// Seconds of each part of the loop, the slowest first. A summary covers only the last process, so those of a resumed run
    /// come from its trace, if there is one.
    pub fn phases(&self) -> Vec<(String, f64)> {
        let from_trace = self.processes() > 1 && !self.trace().phases.is_empty();
        let mut phases: Vec<(String, f64)> = match self.final_summary().filter(|_| !from_trace) {
            Some(summary) if !summary.phases.is_empty() => {
                summary.phases.iter().map(|phase| (phase.name.clone(), phase.seconds)).collect()
            }
            _ => self.trace().phases.clone().into_iter().collect(),
        };
        phases.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        phases
    }

    /// Explanation of a forecast that was far too low, if the verdict has it: a forecast covers buffers, and the
    /// growth is in none.
    pub fn forecast_error_reason(&self) -> Option<&'static str> {
        let verdict = self.verdict()?;
        let grew = (VerdictWord::Suspect..=VerdictWord::Growing).contains(&verdict.verdict) && verdict.owner.is_none();
        let too_low = |pair: &PlannedAndActual| pair.error.is_some_and(|error| error < -FAR_OFF);
        let far_off = self.final_summary()?.plan_and_actual.iter().any(too_low);
        (grew && far_off).then_some("the forecast does not cover growth outside the ledger: no planned buffer holds it")
    }

    /// Label of the heap series: for a watched command it is the memory footprint of its processes.
    pub fn heap_label(&self) -> &'static str {
        if self.watched().is_some() { "footprint" } else { "heap" }
    }

    /// Returns `true` if `xrun resume` can continue the run. After an error in the data it cannot: corrected data are
    /// other data.
    pub fn resumable(&self) -> bool {
        if self.final_summary().is_some_and(|summary| summary.is_data_error) {
            return false;
        }
        if self.watched().is_some() {
            return false;
        }
        let ended_so = match self.state() {
            RunState::Ended(outcome) => outcome.is_resumable(),
            RunState::Killed => true,
            RunState::Running | RunState::Unreadable(_) => false,
        };
        // Without a checkpoint the run starts again in the same directory.
        ended_so && self.manifest().is_some()
    }
}
