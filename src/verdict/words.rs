//! What does a verdict say to a person?

use crate::results::verdict::{Judgement, OWNER, SeriesVerdict};
use crate::units::Bytes;

/// One sentence: what is judged, how fast it grows, who holds it.
pub fn sentence(verdict: Judgement, series: &[SeriesVerdict], owner: Option<&str>, share: Option<f64>) -> String {
    let total = ["device_in_use", "heap"]
        .iter()
        .find_map(|name| series.iter().find(|one| one.name == *name && one.findings.verdict == verdict));
    let about = total.or_else(|| series.iter().find(|one| one.findings.verdict == verdict));
    let Some(about) = about else { return "no samples to judge".into() };
    let name = spoken(&about.name);
    let held = match (owner, share) {
        (Some(owner), Some(share)) => format!("; `{owner}` holds {:.0} % of the growth", share * 100.0),
        (Some(owner), None) => format!("; it is `{owner}`"),
        (None, _) if verdict == Judgement::Filling => "; buffers that are below their caps hold the growth".into(),
        (None, _) => "; no buffer in the ledger explains it".into(),
    };
    match verdict {
        Judgement::Growing => format!("memory is growing: {name} by {}{}{held}", speed(about), until(about)),
        Judgement::Filling => {
            format!("memory fills up to what was declared: {name} by {}{}{held}", speed(about), until(about))
        }
        Judgement::Exceeded => {
            let cap = about.cap.map_or_else(String::new, |cap| format!(", cap {}", Bytes(cap)));
            format!("a buffer passed its cap: {name}, peak {}{cap}", Bytes(about.peak as u64))
        }
        Judgement::Suspect => {
            format!("memory may be growing: {name} by {}; too few windows for a verdict, run longer", speed(about))
        }
        Judgement::Retained => format!("{name} rose and is kept, which is not growth of what is in use"),
        Judgement::GrewThenFlat => format!("memory grew and came to rest: {name}, now {}", amount(about, about.last)),
        Judgement::Stepped => format!("memory rose at once and stayed: {name}, now {}", amount(about, about.last)),
        Judgement::Bounded => format!(
            "memory is bounded: {name} moved by {} in {} windows",
            amount(about, about.findings.growth),
            about.findings.floors
        ),
        Judgement::Inconclusive => format!(
            "too short for a verdict: {} windows after the warm-up, {} are needed",
            about.findings.floors,
            super::judge::FLOORS_NEEDED
        ),
    }
}

/// `1.0 MiB a step (0.9 MiB to 1.1 MiB), 40.0 MiB an epoch`.
fn speed(one: &SeriesVerdict) -> String {
    let findings = &one.findings;
    let bytes = |value: Option<f64>| amount(one, value.unwrap_or_default());
    let step =
        format!("{} a step ({} to {})", bytes(findings.slope), bytes(findings.slope_low), bytes(findings.slope_high));
    match one.slope_per_epoch.filter(|slope| *slope > 0.0) {
        Some(slope) => format!("{step}, {} an epoch", amount(one, slope)),
        None => step,
    }
}

/// When the limit is reached at this speed.
fn until(one: &SeriesVerdict) -> String {
    let limit = one.cap.zip(one.steps_to_limit).filter(|(cap, _)| *cap < 1 << 60);
    limit.map_or_else(String::new, |(cap, steps)| format!(", {} in {steps:.0} more steps", Bytes(cap)))
}

fn amount(one: &SeriesVerdict, value: f64) -> String {
    match one.unit.as_str() {
        "bytes" if value < 0.0 => format!("-{}", Bytes(-value as u64)),
        "bytes" => Bytes(value as u64).to_string(),
        unit => format!("{value:.1} {unit}"),
    }
}

/// The name of a series in a sentence.
fn spoken(name: &str) -> String {
    match name {
        "heap" => "heap in use".into(),
        "device_in_use" => "device memory in use".into(),
        "device_allocations" => "allocations on the device".into(),
        "device_reserved" => "memory reserved on the device".into(),
        "resident" => "resident memory".into(),
        "anonymous" => "resident memory that is no file".into(),
        "driver_process" => "memory by the driver, of this process".into(),
        "driver_device" => "memory by the driver, of the whole device".into(),
        "container" => "memory of the container".into(),
        other => match other.strip_prefix(OWNER) {
            Some(owner) => format!("buffer `{owner}`"),
            None => format!("`{other}`"),
        },
    }
}
