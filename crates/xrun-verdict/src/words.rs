//! Verdicts as sentences.

use crate::axis::Axis;
use crate::context::NO_CAP;
use crate::findings::{Findings, Judgement, ProcessOfRun, SeriesVerdict, Verdict};
use crate::names::{
    DRIVER_BEYOND, GPU, HELD, LIBRARIES, ON_GPUS, OWNER, PRIVATE, RESERVED_BEYOND, RESIDENT_BEYOND, SHARED, UNMAPPED,
};
use crate::units::{bytes, interval};

/// The run that a sentence is about, besides its series.
#[derive(Clone, Copy, Debug)]
pub struct RunInWords {
    pub axis: Axis,
    /// Places in a window: by these rates are said.
    pub window: u64,
    /// Steps of the run as planned.
    pub steps: u64,
    /// Steps of an epoch; 0 where that is not known.
    pub epoch: u64,
    /// The end of the warm-up.
    pub warm: f64,
    /// The newest step.
    pub last: f64,
}

/// The least growth that is worth a word when it is sure, in bytes.
const TOLD_MIN: f64 = 1024.0 * 1024.0;

/// The holder of what grows, as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holder<'a> {
    pub owner: Option<&'a str>,
    /// Its share of the growth.
    pub share: Option<f64>,
    /// Steps until it has all that there is for it to hold.
    pub full_in: Option<f64>,
}

/// One sentence: what is judged, how fast it grows and since when, who holds it, and the bound that a reader needs.
pub fn sentence(
    run: RunInWords,
    verdict: Judgement,
    series: &[SeriesVerdict],
    Holder { owner, share, full_in }: Holder<'_>,
) -> String {
    let of = |wanted: &str| series.iter().find(|one| one.name == wanted && one.findings.verdict == verdict);
    let total = ["device_in_use", "heap", HELD, ON_GPUS].iter().find_map(|name| of(name));
    let commanded = series.iter().any(|one| one.name == HELD);
    // Of a command the group of processes says more than the sum of all.
    let group = owner.filter(|_| commanded && share.is_some()).and_then(|owner| of(&format!("{OWNER}{owner}")));
    let beyond = || BEYOND.iter().find_map(|(name, _)| of(name));
    let owners = || series.iter().find(|one| one.name.starts_with(OWNER) && one.findings.verdict == verdict);
    let any = || series.iter().find(|one| one.findings.verdict == verdict);
    let about = match verdict {
        Judgement::Retained => beyond(),
        _ => group.or(total).or_else(owners).or_else(any),
    };
    let Some(about) = about else { return "no samples to judge".into() };
    let name = match about.name.strip_prefix(OWNER) {
        Some(owner) if commanded => spoken_owner(owner),
        _ => spoken(&about.name),
    };
    let held = match (owner, share) {
        (Some(_), Some(share)) if group.is_some() => format!("; it is {:.0} % of the growth", share * 100.0),
        (Some(owner), share) if commanded => {
            let share = share.map_or_else(String::new, |share| format!(" {:.0} % of", share * 100.0));
            format!("; {} is{share} the growth", spoken_owner(owner))
        }
        (None, _) if commanded => "; no single group of processes explains it".into(),
        (Some(owner), Some(share)) => format!("; `{owner}` holds {:.0} % of the growth", share * 100.0),
        (Some(owner), None) => format!("; it is `{owner}`"),
        (None, _) if verdict == Judgement::Filling => "; buffers that are below their caps hold the growth".into(),
        // A table of another tool has no buffers.
        (None, _) if !series.iter().any(|one| one.name.starts_with(OWNER)) => String::new(),
        (None, _) => "; no buffer in the ledger explains it".into(),
    };
    // Of what grows no more there need be no such owner.
    let holds = if owner.is_some() { held.as_str() } else { "" };
    let findings = &about.findings;
    let more = findings.more_steps.map_or_else(String::new, |steps| run.axis.more(steps as f64));
    let speed = speed(run, about);
    match verdict {
        Judgement::Growing => {
            let first = if owner.is_none() { within_first_epoch(run) } else { String::new() };
            format!("memory is growing: {name} by {speed}{}{}{held}{first}", since(run, about), until(run, about))
        }
        Judgement::Slowing => {
            let now =
                findings.late_slope.map_or_else(String::new, |late| format!(", lately by {}", rate(run, about, late)));
            format!("memory still rises, slower than before: {name} by {speed}{}{now}{held}", since(run, about))
        }
        Judgement::Filling => {
            let end = full_in.map_or_else(String::new, |steps| full(run, steps));
            format!("memory fills up to what was declared: {name} by {speed}{}{held}{end}", until(run, about))
        }
        Judgement::Exceeded => {
            let cap = about.cap.map_or_else(String::new, |cap| format!(", cap {}", bytes(cap)));
            format!("a buffer passed its cap: {name}, peak {}{cap}", bytes(about.peak as u64))
        }
        Judgement::Suspect => {
            format!("memory may be growing: {name} by {speed}; {more} would tell")
        }
        Judgement::Retained => {
            let means = BEYOND.iter().find(|(beyond, _)| *beyond == about.name).map_or("", |(_, means)| means);
            format!(
                "memory is not given back: {name} grows by {speed}{}{}; {means}",
                since(run, about),
                until(run, about)
            )
        }
        Judgement::GrewThenFlat => {
            let late = at_most(run, about, findings.late_slope_high, run.last - (run.last - run.warm) / 3.0);
            let (now, rest) = (amount(about, about.last), at_rest(run, about));
            format!("memory grew and came to rest{rest}: {name}, now {now}{holds}; its last third{late}")
        }
        Judgement::Stepped => {
            let (now, rest) = (amount(about, about.last), at_rest(run, about));
            format!("memory rose at once{rest} and stayed: {name}, now {now}{holds}")
        }
        Judgement::Bounded if surely_rises(about) => format!(
            "memory rises, by too little to be called growing: {name} by {speed}, {} since {}",
            amount(about, findings.growth),
            run.axis.place(run.warm)
        ),
        Judgement::Bounded => {
            format!("memory is bounded: {name}{}", at_most(run, about, findings.slope_high, run.warm))
        }
        Judgement::Inconclusive => {
            let so_far = owner.zip(share).map_or_else(String::new, |(owner, share)| match commanded {
                true => format!("; so far {} is {:.0} % of the growth", spoken_owner(owner), share * 100.0),
                false => so_far(series, owner, share),
            });
            format!("too short for a verdict: {more} would make one possible{so_far}")
        }
    }
}

/// Series of what is kept and not in use, and the meaning of their growth.
const BEYOND: &[(&str, &str)] = &[
    (
        DRIVER_BEYOND,
        "the pool of the training thread does not hold it: pools of other threads, contexts, or a library on the device",
    ),
    (RESERVED_BEYOND, "tensors do not hold it: the pool is fragmented, or gives no pages back"),
    (
        RESIDENT_BEYOND,
        "what the program asked for does not grow: a C library, memory of threads, or free pages that are not given back",
    ),
];

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

/// The owner of most of the growth of a run that is too short for more: a cache that fills up looks like a leak at
/// first.
fn so_far(series: &[SeriesVerdict], owner: &str, share: f64) -> String {
    let of = series.iter().find(|one| one.name.strip_prefix(OWNER) == Some(owner));
    let cap = of.and_then(|one| one.cap).filter(|cap| *cap < NO_CAP);
    let holds = of.map_or_else(String::new, |one| match cap {
        Some(cap) => format!(", {} of its cap of {}", amount(one, one.last), bytes(cap)),
        None => format!(", {} and without a cap", amount(one, one.last)),
    });
    format!("; so far `{owner}` holds {:.0} % of the growth{holds}", share * 100.0)
}

/// The verdict on the newest process, of a run that was resumed.
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
fn speed(run: RunInWords, one: &SeriesVerdict) -> String {
    let findings = &one.findings;
    let per = run.axis.per(run.window);
    let (low, high) = (findings.slope_low.unwrap_or_default(), findings.slope_high.unwrap_or_default());
    let between = match one.unit.as_str() {
        "bytes" => interval(low * per.places, high * per.places),
        unit => format!("{:.1} to {:.1} {unit}", low * per.places, high * per.places),
    };
    let step = format!("{} ({between})", rate(run, one, findings.slope.unwrap_or_default()));
    match one.slope_per_epoch.filter(|slope| *slope > 0.0) {
        Some(slope) => format!("{step}, {} an epoch", amount(one, slope)),
        None => step,
    }
}

/// `1.0 MiB a step`.
fn rate(run: RunInWords, one: &SeriesVerdict, slope: f64) -> String {
    let per = run.axis.per(run.window);
    format!("{} {}", amount(one, slope * per.places), per.words)
}

/// ` since step 300`.
fn since(run: RunInWords, one: &SeriesVerdict) -> String {
    one.findings.since.map_or_else(String::new, |since| format!(" since {}", run.axis.place(since as f64)))
}

/// ` at step 100`.
fn at_rest(run: RunInWords, one: &SeriesVerdict) -> String {
    one.findings.at_rest.map_or_else(String::new, |step| format!(" at {}", run.axis.place(step as f64)))
}

/// The place at which what fills up has all that there is. Before that nobody can see that it ends.
fn full(run: RunInWords, steps: f64) -> String {
    let end = format!(
        " and has all that there is {}",
        if steps < 1.0 { "now".into() } else { format!("after {}", run.axis.more(steps)) }
    );
    match run.steps > 0 && run.last + steps > run.steps as f64 {
        true => format!("{end}, when this run is over: whether it ends there cannot be told yet"),
        false => end,
    }
}

/// A reservation, of growth that no buffer explains, where each example was seen at most once.
fn within_first_epoch(run: RunInWords) -> String {
    match run.last < run.epoch as f64 {
        true => format!(
            "; all of it within the first epoch, of {}: what is filled once by each example, as pictures are that are decoded at \
             their first use, looks the same until it ends",
            run.axis.length(run.epoch as f64)
        ),
        false => String::new(),
    }
}

/// Returns whether the lower end of its slope says that it became more, by what is worth a word.
fn surely_rises(one: &SeriesVerdict) -> bool {
    let Findings { growth, slope, slope_low, .. } = one.findings;
    let steps = slope.filter(|slope| *slope > 0.0).map_or(0.0, |slope| growth / slope);
    one.unit == "bytes" && slope_low.unwrap_or_default() * steps >= TOLD_MIN
}

/// The most by which it has grown since `from`, by the upper end of its slope there.
fn at_most(run: RunInWords, one: &SeriesVerdict, slope: Option<f64>, from: f64) -> String {
    match slope {
        Some(slope) if slope > 0.0 => {
            let (rate, whole) = (rate(run, one, slope), amount(one, slope * (run.last - from).max(0.0)));
            let (from, to) = (run.axis.place(from.round()), run.axis.place(run.last));
            format!(" grows by at most {rate} after {from}, by at most {whole} up to {to}")
        }
        _ => " does not grow".into(),
    }
}

/// The time until the limit is reached at this speed.
fn until(run: RunInWords, one: &SeriesVerdict) -> String {
    let Some((cap, steps)) = one.cap.zip(one.steps_to_limit) else { return String::new() };
    let what = if one.name.starts_with(OWNER) && !one.name.contains('/') { "its cap" } else { "the limit" };
    match steps < 1.0 {
        true => format!(", {what} of {} is reached", bytes(cap)),
        false => format!(", {what} of {} is reached in {}", bytes(cap), run.axis.more(steps)),
    }
}

fn amount(one: &SeriesVerdict, value: f64) -> String {
    match one.unit.as_str() {
        "bytes" if value < 0.0 => format!("-{}", bytes(-value as u64)),
        "bytes" => bytes(value as u64),
        unit => format!("{value:.1} {unit}"),
    }
}

/// The name of a series in a sentence.
fn spoken(name: &str) -> String {
    match name {
        "heap" => "heap in use".into(),
        HELD => "memory of all processes".into(),
        ON_GPUS => "GPU memory of all processes".into(),
        "files" => "memory of mapped files".into(),
        "open_files" => "open files".into(),
        "processes" | "threads" => name.into(),
        "device_in_use" => "device memory in use".into(),
        "device_allocations" => "allocations on the device".into(),
        "device_reserved" => "memory reserved on the device".into(),
        "resident" => "resident memory".into(),
        "anonymous" => "resident memory that is no file".into(),
        LIBRARIES => "memory of C libraries".into(),
        RESIDENT_BEYOND => "resident memory beyond the heap".into(),
        RESERVED_BEYOND => "memory reserved on the device beyond what is in use".into(),
        DRIVER_BEYOND => "memory by the driver beyond the pool".into(),
        "driver_process" => "memory by the driver, of this process".into(),
        "driver_device" => "memory by the driver, of the whole device".into(),
        "container" => "memory of the whole container, other processes included".into(),
        other => match other.strip_prefix(OWNER) {
            Some(owner) => format!("buffer `{owner}`"),
            None => format!("`{other}`"),
        },
    }
}

/// `private memory of workers`.
fn spoken_owner(owner: &str) -> String {
    if owner == UNMAPPED {
        return "files in /dev/shm that no process has mapped".into();
    }
    if let Some(group) = owner.strip_suffix(GPU) {
        return format!("GPU memory of `{group}`");
    }
    match (owner.strip_suffix(PRIVATE), owner.strip_suffix(SHARED)) {
        (Some(group), _) => format!("private memory of `{group}`"),
        (_, Some(group)) => format!("shared memory of `{group}`"),
        _ => format!("`{owner}`"),
    }
}
