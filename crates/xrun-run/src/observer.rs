//! Events of a run and the trait of their receivers.

use std::path::Path;

use super::prepare::ProgressListener;
use crate::plan::Plan;
use crate::stop::Ending;
use xrun_core::task::StepReport;
use xrun_results::format::{MemoryLine, RungTaken};
use xrun_results::verdict::{TrainingVerdict, Verdict};

/// Event of a run. Observers show it; they cannot change the run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Training starts or resumes.
    Started {
        /// Directory of the run.
        run: &'a Path,
        /// Plan of the run.
        plan: &'a Plan,
        /// Name of the device.
        device: &'a str,
        /// Optimiser steps done: 0, or those of the checkpoint that was loaded.
        step: u64,
    },
    /// A step is done.
    Step {
        /// Number of the step, from 1.
        step: u64,
        /// Epoch of the step, from 1.
        epoch: u64,
        /// Report of the task.
        report: &'a StepReport,
        /// Learning rate of the step.
        learning_rate: f64,
        /// Median of the gradient norms over `limits.gradient_norm_window` steps.
        norm: Option<f64>,
        /// Newest memory sample; `None` before the first.
        memory: Option<&'a MemoryLine>,
        /// Names of the series that seem to grow.
        suspects: &'a [String],
        /// Remaining seconds of the run; `None` while unknown.
        left: Option<f64>,
    },
    /// Memory grows, by the verdict so far. Sent once in a process.
    Growing {
        /// Optimiser steps done.
        step: u64,
        /// Verdict so far.
        verdict: &'a Verdict,
    },
    /// Memory was short and a rung of `limits.on_pressure` was taken, or there is room and one was climbed back.
    Rung {
        /// The rung, with its step and reason.
        taken: &'a RungTaken,
    },
    /// Training diverges, by the verdict so far. Sent once in a process, after a validation.
    Diverging {
        /// Optimiser steps done.
        step: u64,
        /// Verdict so far.
        verdict: &'a TrainingVerdict,
    },
    /// A validation starts.
    Validating {
        /// Optimiser steps done.
        step: u64,
        /// Remaining seconds of the run; `None` while unknown.
        left: Option<f64>,
    },
    /// A batch of a validation is done.
    BatchValidated {
        /// Optimiser steps done.
        step: u64,
        /// Number of batches done.
        done: u64,
        /// Number of batches of the validation.
        all: u64,
        /// Remaining seconds of the run; `None` while unknown.
        left: Option<f64>,
    },
    /// A validation has ended.
    Validated {
        /// Optimiser steps done.
        step: u64,
        /// Metrics by name; `None` for one that cannot be measured on this data.
        metrics: &'a [(String, Option<f64>)],
    },
    /// A checkpoint was written.
    Saved {
        /// Optimiser steps done.
        step: u64,
        /// True if its validation is the best so far.
        best: bool,
    },
    /// The run has ended, and its summary is written.
    Ended {
        /// Ending of the run.
        ending: &'a Ending,
        /// Optimiser steps done.
        step: u64,
    },
}

/// Receiver of events. It is called on the training thread and must return quickly.
pub trait Observer {
    /// Handles an event.
    fn event(&mut self, event: Event<'_>);
}

/// Observer and progress listener that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: Event<'_>) {}
}

impl ProgressListener for Silent {
    fn info(&self, _: &str) {}
}
