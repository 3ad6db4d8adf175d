//! Message of a verdict, for people.

use crate::axis::Axis;
use crate::context::NO_CAP;
use crate::findings::{BeyondPlan, Findings, ProcessOfRun, SeriesVerdict, VerdictWord};
use crate::names::{
    ALL_PROCESSES, DRIVER_BEYOND, FOOTPRINT, GPU_FOOTPRINT, GPU_SUFFIX, LIBRARIES, OWNER_PREFIX, PEAKS_SUFFIX,
    PRIVATE_SUFFIX, RESERVED_BEYOND, RSS_BEYOND, SHARED_SUFFIX, UNMAPPED_SHM,
};
use crate::thresholds::WINDOWS_NEEDED;
use crate::units::{bytes, with_interval};

/// Length of a run and of its windows, for the positions and rates of a message.
#[derive(Clone, Copy, Debug)]
pub struct RunSpan {
    /// True of a command, whose owners share a limit.
    pub is_command: bool,
    pub axis: Axis,
    /// Length of a window, which selects the unit of rates.
    pub window: u64,
    /// Planned steps of the run; 0 where unknown.
    pub steps: u64,
    /// Steps in an epoch; 0 where unknown.
    pub epoch: u64,
    /// End of the warm-up.
    pub warm_up_end: f64,
    /// Newest step.
    pub last: f64,
}

/// Smallest significant growth of a bounded series that is mentioned, in bytes.
const MENTIONED_MIN: f64 = 1024.0 * 1024.0;

/// Owner that explains the growth, as far as known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attribution<'a> {
    pub owner: Option<&'a str>,
    /// Fraction of the growth that it explains.
    pub fraction: Option<f64>,
    /// Steps until it is full.
    pub full_in: Option<f64>,
    pub beyond_plan: Option<&'a BeyondPlan>,
}

/// Returns the message of a verdict: the judgement, then the series with its rate and onset, the owner, and the bound
/// that the judgement implies.
pub fn message(
    run: RunSpan,
    verdict: VerdictWord,
    series: &[SeriesVerdict],
    Attribution { owner, fraction, full_in, beyond_plan }: Attribution<'_>,
) -> String {
    let has_verdict = |one: &&SeriesVerdict| one.findings.verdict == verdict;
    let named = |name: &str| series.iter().filter(has_verdict).find(|one| one.name == name);
    let total = ["device_in_use", "heap", FOOTPRINT, GPU_FOOTPRINT].into_iter().find_map(named);
    let is_command = run.is_command;
    // For a command the group of processes says more than the sum of all.
    let group =
        owner.filter(|_| is_command && fraction.is_some()).and_then(|owner| named(&format!("{OWNER_PREFIX}{owner}")));
    let any_owner = || series.iter().filter(has_verdict).find(|one| one.name.starts_with(OWNER_PREFIX));
    // A size says more than a percentage, and a process more than all of them.
    let any_column =
        || series.iter().filter(has_verdict).min_by_key(|one| (one.unit != "bytes", one.name.ends_with(ALL_PROCESSES)));
    let subject = match verdict {
        VerdictWord::Retained => OVERHEADS.iter().find_map(|(name, _)| named(name)),
        _ => group.or(total).or_else(any_owner).or_else(any_column),
    };
    let Some(subject) = subject else { return "no samples to judge".into() };
    let name = match subject.name.strip_prefix(OWNER_PREFIX) {
        Some(owner) if is_command => owner_label(owner),
        _ => series_label(&subject.name),
    };
    let percent = |fraction: f64| format!("{:.0} %", fraction * 100.0);
    let explanation = match (owner, fraction) {
        (Some(_), Some(fraction)) if group.is_some() => format!("; it is {} of the growth", percent(fraction)),
        (Some(owner), Some(fraction)) if is_command => {
            format!("; {} is {} of the growth", owner_label(owner), percent(fraction))
        }
        (Some(owner), None) if is_command => format!("; the growth is in {}", owner_label(owner)),
        (None, _) if is_command => "; no single group of processes explains it".into(),
        (Some(owner), Some(fraction)) => format!("; `{owner}` holds {} of the growth", percent(fraction)),
        (Some(owner), None) => format!("; the growth is in `{owner}`"),
        (None, _) if verdict == VerdictWord::Filling => "; buffers below their caps hold the growth".into(),
        // A table of another tool has no buffers.
        (None, _) if !series.iter().any(|one| one.name.starts_with(OWNER_PREFIX)) => String::new(),
        (None, _) => "; no buffer in the ledger explains it".into(),
    };
    // Growth that has ended needs no explanation.
    let beyond = beyond_plan.map_or_else(String::new, |found| beyond(run, found));
    let is_told = owner.is_none() || beyond_plan.is_some_and(|found| found.owner.as_deref() == owner);
    let holder = if is_told { "" } else { explanation.as_str() };
    let findings = &subject.findings;
    let more = findings.more_steps.map_or_else(String::new, |steps| run.axis.more(steps as f64));
    let speed = speed(run, subject);
    let sentence = match verdict {
        VerdictWord::Growing => {
            let caveat = if owner.is_none() { first_epoch_caveat(run) } else { String::new() };
            format!(
                "memory is growing: {name} by {speed}{}{}{explanation}{caveat}",
                since(run, subject),
                until(run, subject)
            )
        }
        VerdictWord::Slowing => {
            let earlier = findings.earlier_slope.zip(findings.late_slope).map_or_else(
                || speed.clone(),
                |(earlier, late)| {
                    format!("{} before, {} in the last third", rate(run, subject, earlier), rate(run, subject, late))
                },
            );
            format!("memory still rises, slower than before: {name} by {earlier}{}{explanation}", since(run, subject))
        }
        VerdictWord::Filling => {
            let end = full_in.map_or_else(String::new, |steps| full(run, steps));
            format!("memory is filling a declared buffer: {name} by {speed}{}{explanation}{end}", until(run, subject))
        }
        VerdictWord::Exceeded => {
            let cap = subject.cap.map_or_else(String::new, |cap| format!(", cap {}", bytes(cap)));
            format!("a buffer exceeded its cap: {name}, peak {}{cap}", bytes(subject.peak as u64))
        }
        VerdictWord::Suspect if findings.flat_since.is_some() => format!(
            "memory grew and may have come to rest{}: {name}, now {}{holder}; {more} needed to decide",
            level_since(run, subject),
            now(subject)
        ),
        VerdictWord::Suspect => format!("memory may be growing: {name} by {speed}; {more} needed to decide"),
        VerdictWord::Retained => {
            let meaning = OVERHEADS.iter().find(|(name, _)| *name == subject.name).map_or("", |(_, meaning)| meaning);
            format!(
                "memory is not returned: {name} by {speed}{}{}; {meaning}",
                since(run, subject),
                until(run, subject)
            )
        }
        VerdictWord::GrewThenFlat => {
            let third = run.last - (run.last - run.warm_up_end) / 3.0;
            let bound = growth_bound(run, subject, findings.late_slope_high, third);
            format!(
                "memory grew, then stayed flat{}: {name}, now {}{holder}; {bound}",
                flat_from(run, subject),
                now(subject)
            )
        }
        VerdictWord::Stepped => {
            format!("memory jumped, then stayed flat{}: {name}, now {}{holder}", flat_from(run, subject), now(subject))
        }
        VerdictWord::Bounded if rises_significantly(subject) => format!(
            "memory is bounded: {name} rose by {} since {}, too little to count as growing; by {speed}",
            amount(subject, findings.growth),
            run.axis.position(run.warm_up_end)
        ),
        VerdictWord::Bounded => format!("memory is bounded: {name} {}", growth_up_to(run, subject)),
        VerdictWord::NoGrowthFound => {
            let unseen = findings.growth_max.map_or_else(String::new, |growth| {
                format!("; growth of up to {} up to {} would have gone unseen", amount(subject, growth), end(run))
            });
            format!("no growth of {name} found{unseen}")
        }
        VerdictWord::Inconclusive => {
            let holder = owner.zip(fraction).map_or_else(String::new, |(owner, fraction)| match is_command {
                true => format!("; until now {} is {} of the growth", owner_label(owner), percent(fraction)),
                false => {
                    format!("; until now `{owner}` holds {} of the growth{}", percent(fraction), level(series, owner))
                }
            });
            // The distance of samples is not known from one of them.
            let samples = matches!(run.axis, Axis::Clock | Axis::Samples) && findings.windows < 2;
            match samples {
                true => format!(
                    "too short for a verdict: at least {} more samples needed",
                    WINDOWS_NEEDED - findings.windows
                ),
                false => format!("too short for a verdict: {more} needed{holder}"),
            }
        }
    };
    let replays = if verdict == VerdictWord::Bounded { replays(series) } else { String::new() };
    sentence + &beyond + &left_out(run, subject) + &replays
}

/// `; training steps replay graphs of 12.0 MiB, which allocates nothing on the device`, if they do.
fn replays(series: &[SeriesVerdict]) -> String {
    let graphs = series.iter().find(|one| one.name.strip_prefix(OWNER_PREFIX) == Some("graphs") && one.last > 0.0);
    graphs.map_or_else(String::new, |graphs| {
        format!(
            "; training steps replay graphs of {}, which allocates nothing on the device, so that a step cannot make it grow",
            bytes(graphs.last as u64)
        )
    })
}

/// Series of memory beyond what is in use, with the meaning of their growth.
const OVERHEADS: &[(&str, &str)] = &[
    (
        DRIVER_BEYOND,
        "it is outside of the training thread's pool: pools of other threads, contexts, or a library on the device",
    ),
    (RESERVED_BEYOND, "no tensors hold it: the pool is fragmented, or returns no pages"),
    (
        RSS_BEYOND,
        "the program did not allocate it: memory of a C library or of threads, or free pages that are not returned",
    ),
];

/// Bytes of an owner and its cap, for a run that is too short for a verdict: a cache that fills up looks like a leak at
/// first. `, 300.0 KiB of its cap of 64.0 MiB`.
fn level(series: &[SeriesVerdict], owner: &str) -> String {
    let Some(one) = series.iter().find(|one| one.name.strip_prefix(OWNER_PREFIX) == Some(owner)) else {
        return String::new();
    };
    match one.cap.filter(|cap| *cap < NO_CAP) {
        Some(cap) => format!(", {} of its cap of {}", now(one), bytes(cap)),
        None => format!(", {} without a cap", now(one)),
    }
}

/// `process 1 of 2 (steps 0 to 150)`.
pub fn process_label(process: ProcessOfRun) -> String {
    let ProcessOfRun { segment, first_step, last_step, newest_segment, .. } = process;
    let number = u64::from(segment) + 1;
    format!("process {number} of {} (steps {first_step} to {last_step})", u64::from(newest_segment) + 1)
}

/// `1.0 MiB a step (0.9 to 1.1 MiB), 40.0 MiB an epoch`.
fn speed(run: RunSpan, one: &SeriesVerdict) -> String {
    let per = run.axis.rate_unit(run.window);
    let of = |slope: Option<f64>| slope.unwrap_or_default() * per.length;
    let (slope, low, high) = (of(one.findings.slope), of(one.findings.slope_low), of(one.findings.slope_high));
    let step = match one.unit.as_str() {
        "bytes" => with_interval(slope, (low, high), per.text),
        "unknown" | "percent" => format!("{} {} ({} to {})", amount(one, slope), per.text, plain(low), plain(high)),
        unit => format!("{} {} ({low:.1} to {high:.1} {unit})", amount(one, slope), per.text),
    };
    match one.slope_per_epoch.filter(|slope| *slope > 0.0) {
        Some(slope) => format!("{step}, {} an epoch", amount(one, slope)),
        None => step,
    }
}

/// `1.0 MiB a step`.
fn rate(run: RunSpan, one: &SeriesVerdict, slope: f64) -> String {
    let per = run.axis.rate_unit(run.window);
    format!("{} {}", amount(one, slope * per.length), per.text)
}

/// ` since step 300`.
fn since(run: RunSpan, one: &SeriesVerdict) -> String {
    one.findings.since.map_or_else(String::new, |since| format!(" since {}", run.axis.position(since as f64)))
}

/// ` from step 100 on`.
fn flat_from(run: RunSpan, one: &SeriesVerdict) -> String {
    one.findings.flat_since.map_or_else(String::new, |step| format!(" from {} on", run.axis.position(step as f64)))
}

/// Step at which a filling buffer is full, with a caveat where the run ends before: only a full buffer confirms the
/// verdict.
fn full(run: RunSpan, steps: f64) -> String {
    let end = match steps < 1.0 {
        true => " and is full now".into(),
        false => format!(" and should be full after {}", run.axis.more(steps)),
    };
    match run.steps > 0 && run.last + steps > run.steps as f64 {
        true => format!("{end}; this run ends before that and cannot confirm it"),
        false => end,
    }
}

/// Caveat on growth without an owner within the first epoch, where each example was used at most once.
fn first_epoch_caveat(run: RunSpan) -> String {
    match run.last < run.epoch as f64 {
        true => format!(
            "; all of it within the first epoch ({}): a cache that each example fills at its first use, such as decoded \
             images, looks the same until the epoch ends",
            run.axis.length(run.epoch as f64)
        ),
        false => String::new(),
    }
}

/// Returns whether the lower end of the slope's interval shows a growth that is large enough to mention.
fn rises_significantly(one: &SeriesVerdict) -> bool {
    let Findings { growth, slope, slope_low, .. } = one.findings;
    let steps = slope.filter(|slope| *slope > 0.0).map_or(0.0, |slope| growth / slope);
    one.unit == "bytes" && slope_low.unwrap_or_default() * steps >= MENTIONED_MIN
}

/// Upper bound of the growth over the run as planned: `grows by at most 1.3 MiB up to step 300`.
fn growth_up_to(run: RunSpan, one: &SeriesVerdict) -> String {
    match one.findings.growth_max.filter(|growth| *growth > 0.0) {
        Some(growth) => format!("grows by at most {} up to {}", amount(one, growth), end(run)),
        None => "does not grow".into(),
    }
}

/// End of the run as planned, or so far. The plan is in steps.
fn end(run: RunSpan) -> String {
    let planned = if run.axis == Axis::Steps { run.steps as f64 } else { 0.0 };
    run.axis.position(run.last.max(planned))
}

/// Upper bound of the growth since `from`, by the upper end of the slope's interval there.
fn growth_bound(run: RunSpan, one: &SeriesVerdict, slope: Option<f64>, from: f64) -> String {
    let after = run.axis.position(from.round());
    match slope.filter(|slope| *slope > 0.0) {
        Some(slope) => {
            let (rate, whole) = (rate(run, one, slope), amount(one, slope * (run.last - from).max(0.0)));
            format!("no growth found after {after} (at most {rate}, {whole} up to {})", run.axis.position(run.last))
        }
        None => format!("no growth after {after}"),
    }
}

/// `; beyond the plan 50.7 MiB in leak_dataset_on_device, which has no cap, at rest since step 103`.
fn beyond(run: RunSpan, found: &BeyondPlan) -> String {
    let since = found.since.map_or_else(String::new, |step| format!(" since {}", run.axis.position(step as f64)));
    let place = match &found.owner {
        Some(owner) => format!("`{owner}`, which has no cap"),
        None => "no buffer".into(),
    };
    format!("; beyond the plan {} in {place}, at rest{since}", bytes(found.bytes))
}

/// ` at step 300, for 40 steps`.
fn level_since(run: RunSpan, one: &SeriesVerdict) -> String {
    one.findings.flat_since.map_or_else(String::new, |step| {
        let length = (run.last - step as f64).max(0.0);
        format!(" at {}, for {}", run.axis.position(step as f64), run.axis.length(length))
    })
}

/// Readings that were left out: `; 12 readings near 0 left out`.
fn left_out(run: RunSpan, one: &SeriesVerdict) -> String {
    let readings = match one.left_out {
        0 => String::new(),
        1 => "; 1 low reading left out".into(),
        count => format!("; {count} low readings left out"),
    };
    let ended = one.ended.map_or_else(String::new, |step| {
        format!("; judged up to {}, after which the process had ended", run.axis.position(step as f64))
    });
    let wraps = if one.wraps > 0 { "; the 32-bit counter that began again at 4 GiB was continued" } else { "" };
    format!("{readings}{ended}{wraps}")
}

/// Steps until the cap or the limit is reached at this speed: `, the limit of 1.0 GiB is reached in 626 more steps`.
fn until(run: RunSpan, one: &SeriesVerdict) -> String {
    let Some((cap, steps)) = one.cap.zip(one.steps_to_limit) else { return String::new() };
    // Owners of a command have no caps of their own.
    let what = if one.name.starts_with(OWNER_PREFIX) && !run.is_command { "its cap" } else { "the limit" };
    match steps < 1.0 {
        true => format!(", {what} of {} is reached", bytes(cap)),
        false => format!(", {what} of {} is reached in {}", bytes(cap), run.axis.more(steps)),
    }
}

/// Newest value of a series.
fn now(one: &SeriesVerdict) -> String {
    amount(one, one.last)
}

/// Value in the unit of a series.
fn amount(one: &SeriesVerdict, value: f64) -> String {
    match one.unit.as_str() {
        "bytes" if value < 0.0 => format!("-{}", bytes(-value as u64)),
        "bytes" => bytes(value as u64),
        "unknown" => plain(value),
        "percent" => format!("{} %", plain(value)),
        unit => format!("{value:.1} {unit}"),
    }
}

/// Number with three significant digits.
fn plain(value: f64) -> String {
    let before = value.abs().max(1e-6).log10().floor() as i32;
    format!("{value:.*}", (2 - before).clamp(0, 6) as usize)
}

/// Name of a series in a message.
fn series_label(name: &str) -> String {
    if let Some(floor) = name.strip_suffix(PEAKS_SUFFIX) {
        return format!("the peaks of {}", series_label(floor));
    }
    match name {
        "heap" => "heap in use".into(),
        FOOTPRINT => "memory of all processes".into(),
        GPU_FOOTPRINT => "GPU memory of all processes".into(),
        "files" => "memory of mapped files".into(),
        "open_files" => "open files".into(),
        "processes" | "threads" => name.into(),
        "device_in_use" => "device memory in use".into(),
        "device_allocations" => "allocations on the device".into(),
        "device_reserved" => "memory reserved on the device".into(),
        "rss" => "RSS".into(),
        "anonymous" => "RSS without files".into(),
        LIBRARIES => "memory of C libraries".into(),
        RSS_BEYOND => "RSS beyond the heap".into(),
        RESERVED_BEYOND => "memory reserved on the device beyond what is in use".into(),
        DRIVER_BEYOND => "device memory beyond the pool".into(),
        "driver_process" => "device memory of this process (driver)".into(),
        "driver_device" => "device memory of all processes (driver)".into(),
        "container" => "memory of the whole container".into(),
        other => match other.strip_prefix(OWNER_PREFIX) {
            Some(owner) => format!("buffer `{owner}`"),
            None => format!("`{other}`"),
        },
    }
}

/// Name of a group of processes in a message: `private memory of workers`.
fn owner_label(owner: &str) -> String {
    if owner == UNMAPPED_SHM {
        return "files in memory that no process has mapped (/dev/shm, tmpfs, memfd)".into();
    }
    let kinds = [(GPU_SUFFIX, "GPU"), (PRIVATE_SUFFIX, "private"), (SHARED_SUFFIX, "shared")];
    let kind = kinds.into_iter().find_map(|(suffix, kind)| Some((kind, owner.strip_suffix(suffix)?)));
    kind.map_or_else(|| format!("`{owner}`"), |(kind, group)| format!("{kind} memory of `{group}`"))
}
