//! Launch of a run: what it needs, and its inputs as they are written before the first step.

use std::path::Path;
use std::time::Instant;

use crate::directory::RunDirectory;
use crate::memory::sources::GpuInUse;
use crate::plan::Plan;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::files::checksum;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_results::format::{LoopState, Manifest};
use xrun_results::resolved;

/// Run that is ready to be trained.
pub struct Launch<'a> {
    /// Plan of the run.
    pub plan: &'a Plan,
    /// Ledger of the task's buffers.
    pub ledger: &'a Ledger,
    /// Directory of the run.
    pub directory: &'a RunDirectory,
    /// Contents of `manifest.json`.
    pub manifest: &'a Manifest,
    /// State of the loop: all zero, or that of the checkpoint that was loaded.
    pub state: LoopState,
    /// Number of processes that wrote to the directory before this one.
    pub segment: u32,
    /// GPU in use, if its driver reports its memory.
    pub gpu: Option<GpuInUse>,
    /// Start of the program, from which `training.time_limit` counts.
    pub started: Instant,
    /// Extent of the training.
    pub extent: Extent,
}

/// Extent of the training of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// All steps of the plan.
    #[default]
    Whole,
    /// Up to this step, where the run stops with a checkpoint. When it is resumed, its numbers are those of a run that never
    /// stopped.
    Until(u64),
    /// This many steps, which only measure what the experiment needs; the plan has all steps.
    Probe(u64),
}

impl Extent {
    /// Extent up to `step`, or of all steps.
    pub fn until(step: Option<u64>) -> Self {
        step.map_or(Self::Whole, Self::Until)
    }

    /// Step after which the training ends early; `None` for all steps.
    pub fn last_step(self) -> Option<u64> {
        match self {
            Self::Whole => None,
            Self::Until(step) | Self::Probe(step) => Some(step),
        }
    }
}

/// Writes what is known before the first step: the experiment file, the resolved experiment, the plan and the manifest.
pub fn write_inputs(
    run: &Path,
    text: &[u8],
    resolved_text: &str,
    manifest: &Manifest,
    plan: &Plan,
    parameters: u64,
) -> Result<(), WriteError> {
    resolved::write(&run.join(layout::EXPERIMENT), text)?;
    resolved::write(&run.join(layout::RESOLVED), &checksum::text(resolved_text))?;
    write::replace_json(&run.join(layout::PLAN), &plan.to_file(parameters))?;
    write::replace_json(&run.join(layout::MANIFEST), manifest)
}
