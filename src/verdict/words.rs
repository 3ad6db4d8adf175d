//! What does a verdict say to a person?

use crate::results::axis::Axis;
use crate::results::verdict::{Judgement, OWNER, ProcessOfRun, SeriesVerdict, Verdict};
use crate::units::{Bytes, interval};

/// What places count, and how many of them a window has: by these rates are said.
pub type Ruler = (Axis, u64);

/// One sentence: what is judged, how fast it grows, who holds it.
pub fn sentence(
    ruler: Ruler,
    verdict: Judgement,
    series: &[SeriesVerdict],
    owner: Option<&str>,
    share: Option<f64>,
) -> String {
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
        // A table of another tool has no buffers.
        (None, _) if !series.iter().any(|one| one.name.starts_with(OWNER)) => String::new(),
        (None, _) => "; no buffer in the ledger explains it".into(),
    };
    match verdict {
        Judgement::Growing => {
            format!("memory is growing: {name} by {}{}{held}", speed(ruler, about), until(ruler, about))
        }
        Judgement::Filling => {
            format!(
                "memory fills up to what was declared: {name} by {}{}{held}",
                speed(ruler, about),
                until(ruler, about)
            )
        }
        Judgement::Exceeded => {
            let cap = about.cap.map_or_else(String::new, |cap| format!(", cap {}", Bytes(cap)));
            format!("a buffer passed its cap: {name}, peak {}{cap}", Bytes(about.peak as u64))
        }
        Judgement::Suspect => {
            format!(
                "memory may be growing: {name} by {}; too few windows for a verdict, run longer",
                speed(ruler, about)
            )
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

/// The verdict on a process that was worse than the newest one.
pub fn of_earlier(kept: &Verdict, newest: &Verdict) -> Verdict {
    let process = kept.process.zip(newest.process).map(|(process, last)| ProcessOfRun {
        newest_segment: last.segment,
        newest: Some(newest.verdict),
        ..process
    });
    let after =
        newest.process.map_or_else(String::new, |last| format!("; {}: {}", spoken_process(last), newest.message));
    let where_it_was = process.map_or_else(String::new, |process| format!("{}: ", spoken_process(process)));
    Verdict { message: format!("{where_it_was}{}{after}", kept.message), process, ..kept.clone() }
}

/// The verdict on the newest process, of a run in which one before it grew.
pub fn of_newest(newest: Verdict) -> Verdict {
    let Some(process) = newest.process else { return newest };
    Verdict { message: format!("{}: {}", spoken_process(process), newest.message), ..newest }
}

/// `process 1 of 2 (steps 0 to 150)`.
fn spoken_process(process: ProcessOfRun) -> String {
    let ProcessOfRun { segment, first_step, last_step, newest_segment, .. } = process;
    let number = u64::from(segment) + 1;
    format!("process {number} of {} (steps {first_step} to {last_step})", u64::from(newest_segment) + 1)
}

/// `1.0 MiB a step (0.9 to 1.1 MiB), 40.0 MiB an epoch`.
fn speed((axis, window): Ruler, one: &SeriesVerdict) -> String {
    let findings = &one.findings;
    let per = axis.per(window);
    let rate = |value: Option<f64>| value.unwrap_or_default() * per.places;
    let (low, high) = (rate(findings.slope_low), rate(findings.slope_high));
    let between = match one.unit.as_str() {
        "bytes" => interval(low, high),
        unit => format!("{low:.1} to {high:.1} {unit}"),
    };
    let step = format!("{} {} ({between})", amount(one, rate(findings.slope)), per.words);
    match one.slope_per_epoch.filter(|slope| *slope > 0.0) {
        Some(slope) => format!("{step}, {} an epoch", amount(one, slope)),
        None => step,
    }
}

/// When the limit is reached at this speed.
fn until((axis, _): Ruler, one: &SeriesVerdict) -> String {
    let Some((cap, steps)) = one.cap.zip(one.steps_to_limit) else { return String::new() };
    let what = if one.name.starts_with(OWNER) { "its cap" } else { "the limit" };
    match steps < 1.0 {
        true => format!(", {what} of {} is reached", Bytes(cap)),
        false => format!(", {what} of {} is reached in {}", Bytes(cap), axis.more(steps)),
    }
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
