//! The plan as text, for `--dry-run`.

use std::fmt::Write;

use super::Plan;
use crate::bounded::ledger::Policy;
use crate::results::format::{Basis, Forecast, Place, PoolPage};
use crate::units::Bytes;

/// As many items fit into no cache: its bytes are reached first.
const ITEMS_WITHOUT_MEANING: u64 = 1_000_000;

/// A table of the buffers with caps and reasons, and what will be done. Ends with a line break.
pub fn describe(plan: &Plan, parameters: u64, device: &str) -> String {
    let experiment = &plan.experiment;
    let mut text = String::new();
    let mut line = |content: String| {
        text.push_str(&content);
        text.push('\n');
    };
    line(format!("experiment  {}", experiment.experiment.name));
    line(format!("pipeline    {}", experiment.pipeline.name()));
    line(format!("device      {device}"));
    let trained = plan.facts.trained_parameters.map(|trained| format!(", {trained} trained at a time"));
    line(format!("parameters  {parameters}{}", trained.unwrap_or_default()));
    line(format!("steps       {}", plan.steps_words()));
    for smaller in &plan.facts.smaller {
        line(format!("smaller     {smaller}"));
    }
    line(String::new());
    line(format!("{:<24} {:<7} {:<7} {:>10} {:>12}  {}", "buffer", "place", "policy", "items", "bytes", "because"));
    for owner in &plan.owners {
        let place = word(owner.place);
        let policy = format!("{:?}", owner.policy).to_lowercase();
        let (items, bytes) = match owner.policy {
            Policy::Leak => ("no cap".into(), "no cap".into()),
            // Of a cache bounded by its bytes, the number of items is no bound that anybody meets.
            Policy::Evict if owner.items >= ITEMS_WITHOUT_MEANING => ("-".into(), Bytes(owner.bytes).to_string()),
            _ => (owner.items.to_string(), Bytes(owner.bytes).to_string()),
        };
        line(format!("{:<24} {place:<7} {policy:<7} {items:>10} {bytes:>12}  {}", owner.name, owner.because));
    }
    let (leaks, capped): (Vec<_>, Vec<_>) = plan.owners.iter().partition(|owner| owner.policy == Policy::Leak);
    let total = Bytes(capped.iter().fold(0, |sum: u64, owner| sum.saturating_add(owner.bytes)));
    let besides = if leaks.is_empty() { "" } else { ", and what leaks" };
    let _ = writeln!(text, "\nall buffers together hold at most {total}, besides weights and activations{besides}");
    if !plan.pool_pages.is_empty() {
        let page = |page: &PoolPage| format!("{} (to {})", Bytes(page.bytes), Bytes(page.tensor_max));
        let pages: Vec<String> = plan.pool_pages.iter().map(page).collect();
        let _ = writeln!(text, "the device's pool takes pages of (for tensors up to) {}", pages.join(", "));
    }
    text
}

/// What the run is expected to need, part by part. Ends with a line break.
pub fn forecast(forecast: &Forecast) -> String {
    let mut text = format!("\n{:<28} {:<7} {:>12}  {:<8}  {}\n", "memory", "place", "bytes", "basis", "what it is");
    for row in &forecast.rows {
        let basis = match row.basis {
            Basis::Sizes => "sizes",
            Basis::Cap => "its cap",
            Basis::Probe => "measured",
            Basis::Growth => "growth",
        };
        let bytes = Bytes(row.bytes).to_string();
        let _ = writeln!(text, "{:<28} {:<7} {bytes:>12}  {basis:<8}  {}", row.name, word(row.place), row.about);
    }
    text.push('\n');
    let totals = [
        ("peak of heap in use", Some(forecast.heap_peak)),
        ("peak of resident memory", forecast.resident_peak),
        ("device memory in use at rest", forecast.device_in_use_peak),
        ("peak of the device's pool", forecast.device_reserved_peak),
        ("peak of the process on the device", forecast.device_peak),
    ];
    for (name, bytes) in totals {
        if let Some(bytes) = bytes {
            let _ = writeln!(text, "expected {name:<34} {:>12}", Bytes(bytes).to_string());
        }
    }
    let _ = writeln!(text, "measured in a probe of {} steps", forecast.probe_steps);
    text
}

fn word(place: Place) -> &'static str {
    match place {
        Place::Host => "host",
        Place::Device => "device",
    }
}
