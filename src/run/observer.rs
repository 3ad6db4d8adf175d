//! What happens during a run, for whoever watches it?

use std::path::Path;

use super::prepare::Listener;
use super::start::Teller;
use super::stop::Ending;
use crate::plan::Plan;
use crate::results::format::MemoryLine;
use crate::results::verdict::Verdict;
use crate::task::StepReport;

/// Something that happened. Observers show it; they cannot change the run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Training begins, at `step` steps done.
    Started {
        run: &'a Path,
        plan: &'a Plan,
        device: &'a str,
        step: u64,
    },
    /// A step is done. `memory` is the newest sample, `suspects` the series that look as if they grew.
    Step {
        step: u64,
        epoch: u64,
        report: &'a StepReport,
        learning_rate: f64,
        norm: Option<f64>,
        memory: Option<&'a MemoryLine>,
        suspects: &'a [String],
    },
    /// Memory grows, by the verdict on what was seen so far. Told once in a process, where the experiment has a hook for it.
    Growing {
        step: u64,
        verdict: &'a Verdict,
    },
    Validating {
        step: u64,
    },
    Validated {
        step: u64,
        metrics: &'a [(String, Option<f64>)],
    },
    Saved {
        step: u64,
        best: bool,
    },
    Ended {
        ending: &'a Ending,
        step: u64,
    },
}

/// Receives every event, on the training thread, and so must return quickly.
pub trait Observer {
    fn event(&mut self, event: Event<'_>);

    /// What shows the compiling of kernels, on a thread of its own; `None` shows nothing.
    fn aside(&self) -> Option<Teller> {
        None
    }
}

/// Sees nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: Event<'_>) {}
}

impl Listener for Silent {
    fn say(&self, _: &str) {}
}
