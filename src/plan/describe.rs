//! The plan as text, for `--dry-run`.

use std::fmt::Write;

use super::Plan;
use crate::results::format::Place;
use crate::units::Bytes;

/// A table of the buffers with caps and reasons, and what will be done. Ends with a line break.
pub fn describe(plan: &Plan, parameters: u64, device: &str) -> String {
    let experiment = &plan.experiment;
    let mut text = String::new();
    let mut line = |content: String| {
        text.push_str(&content);
        text.push('\n');
    };
    line(format!("experiment  {}", experiment.experiment.name));
    line(format!("pipeline    {}", experiment.pipeline.kind()));
    line(format!("device      {device}"));
    line(format!("parameters  {parameters}"));
    line(format!("steps       {} ({} epochs of {})", plan.steps, experiment.training.epochs, plan.steps_per_epoch));
    line(String::new());
    line(format!("{:<24} {:<7} {:<7} {:>10} {:>12}  {}", "buffer", "place", "policy", "items", "bytes", "because"));
    for owner in &plan.owners {
        let place = match owner.place {
            Place::Host => "host",
            Place::Device => "device",
        };
        let policy = format!("{:?}", owner.policy).to_lowercase();
        let bytes = Bytes(owner.bytes).to_string();
        line(format!("{:<24} {place:<7} {policy:<7} {:>10} {bytes:>12}  {}", owner.name, owner.items, owner.because));
    }
    let total = Bytes(plan.owners.iter().map(|owner| owner.bytes).sum());
    let _ = writeln!(text, "\nall buffers together hold at most {total}, besides weights and activations");
    text
}
