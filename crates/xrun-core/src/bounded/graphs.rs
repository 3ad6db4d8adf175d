//! Buffer of captured steps.

use super::buffer::Buffer;
use super::ledger::{Cap, NO_CAP, Policy};
use crate::experiment::Experiment;
use crate::settings::sections::{Graphs, Limits};

/// Name of the buffer.
pub const NAME: &str = "graphs";
/// Maximum number of graphs of passes, and of updates. Others are launched operation by operation.
pub const GRAPHS_MAX: usize = 8;

/// Pages of the device's pool that belong to captured graphs: only their replays use them. `what` says what is captured.
pub fn buffer(limits: &Limits, what: &str) -> Buffer {
    let bytes = limits.device_memory.map_or(NO_CAP.bytes, |limit| limit.0);
    Buffer::new(NAME, Policy::Refuse, Cap { items: 2 * GRAPHS_MAX as u64, bytes })
        .key("device.graphs")
        .because(format!("graphs on the device: {what}; nothing else can use their pages"))
}

/// Returns whether steps of an experiment are captured on a device that can: leaks keep tensors of a step, and a pretrained backbone
/// makes constants in each pass.
pub fn are_wanted(experiment: &Experiment) -> bool {
    experiment.device.graphs == Graphs::Auto
        && experiment.active_leaks().next().is_none()
        && experiment.backbone.is_none()
}
