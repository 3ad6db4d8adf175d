//! What happens during a run, for whoever watches it?

use std::path::Path;

use super::prepare::Listener;
use crate::plan::Plan;
use xrun_core::task::StepReport;
use xrun_results::format::MemoryLine;
use xrun_results::verdict::Verdict;
use xrun_watch::stop::Ending;

/// Something that happened. Observers show it; they cannot change the run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Training begins, at `step` steps done.
    Started {
        /// The run's folder.
        run: &'a Path,
        /// What is to be done.
        plan: &'a Plan,
        /// What the device calls itself.
        device: &'a str,
        /// Optimiser steps done: 0, or those of the checkpoint that was loaded.
        step: u64,
    },
    /// A step is done. `memory` is the newest sample, `suspects` the series that look as if they grew.
    Step {
        /// Which step it was, from 1.
        step: u64,
        /// The epoch that it falls in, from 1.
        epoch: u64,
        /// What the task says of it.
        report: &'a StepReport,
        /// The learning rate that it was done with.
        learning_rate: f64,
        /// The median of the gradients' norms over `limits.gradient_norm_window` steps.
        norm: Option<f64>,
        /// The newest sample of memory; `None` before the first.
        memory: Option<&'a MemoryLine>,
        /// Names of series.
        suspects: &'a [String],
    },
    /// Memory grows, by the verdict on what was seen so far. Told once in a process, where the experiment has a hook for it.
    Growing {
        /// Optimiser steps done.
        step: u64,
        /// The verdict so far.
        verdict: &'a Verdict,
    },
    /// A validation begins.
    Validating {
        /// Optimiser steps done.
        step: u64,
    },
    /// A validation has ended.
    Validated {
        /// Optimiser steps done.
        step: u64,
        /// Each metric by its name; `None` where it cannot be measured on this data.
        metrics: &'a [(String, Option<f64>)],
    },
    /// A checkpoint was written.
    Saved {
        /// Optimiser steps done.
        step: u64,
        /// Whether its validation is the best so far.
        best: bool,
    },
    /// The run has ended, and its summary is written.
    Ended {
        /// How it ended.
        ending: &'a Ending,
        /// Optimiser steps done.
        step: u64,
    },
}

/// Receives every event, on the training thread, and so must return quickly.
pub trait Observer {
    /// Takes in what happened. What is lent lives until it returns.
    fn event(&mut self, event: Event<'_>);
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
