//! `dev leaks`: verifies on this machine that each leak is detected, and that its control run is judged bounded.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::{Args, ValueHint};
use serde::Serialize;

use xrun_core::experiment::leaks::{ExpectedGrowth, GrowingMemory};
use xrun_core::printable;
use xrun_core::units::{Bytes, seconds};
use xrun_results::read;
use xrun_results::report::formatting::bytes;
use xrun_results::report::width::table;
use xrun_results::verdict::{OWNER_PREFIX, Verdict, VerdictWord};

use crate::Result;
use crate::leak_runs::{Judged, LeakRuns};

#[derive(Debug, Args)]
pub struct LeaksArguments {
    /// Leaks to test. Default: all.
    names: Vec<String>,
    /// Directory of the <name>.leaky.toml and <name>.bounded.toml files.
    #[arg(long = "dir", value_name = "DIR", default_value = "experiments/leaks", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
    /// Program that runs the experiments. Default: `xrun` beside this one.
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    program: Option<PathBuf>,
    /// Device: cpu, cuda, cuda:N or vulkan.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Pairs tested at once; a run uses about one core.
    #[arg(short, long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs all pairs and returns the table of their results, and whether all are as expected.
pub fn run(arguments: &LeaksArguments) -> Result<(String, bool)> {
    let leaky = leaky_files(&arguments.directory, &arguments.names)?;
    let program = match &arguments.program {
        Some(program) => std::path::absolute(program)?,
        None => std::env::current_exe()?.with_file_name("xrun"),
    };
    if !program.is_file() {
        return Err(format!("there is no program {}: cargo build --release", program.display()).into());
    }
    let runs = LeakRuns::new(program, arguments.device.clone())?;
    let device = match arguments.device.split(':').next() {
        Some("cpu") => LeakDevice::Cpu,
        Some("cuda") => LeakDevice::Cuda,
        Some("vulkan") => LeakDevice::Pool,
        _ => return Err(format!("--device {}: expected cpu, cuda, cuda:N or vulkan", arguments.device).into()),
    };
    let (next, count) = (AtomicUsize::new(0), leaky.len());
    // Checks the next leak until there is none left.
    let work = || -> Result<Vec<(usize, LeakCheck)>> {
        let mut checks = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((name, file)) = leaky.get(at) else { return Ok(checks) };
            let expected = runs.expected(file)?;
            let Some(growth) = DeviceGrowth::new(&expected, device) else {
                checks.push((at, LeakCheck::skipped(name, required_device(expected.grows))));
                continue;
            };
            // On a slow machine a pair takes minutes.
            crate::note(&format!("{} of {count}: {name}, leaky run and control run", at + 1));
            let check =
                pair(name, file, &growth, &runs).unwrap_or_else(|error| LeakCheck::failed(name, error.to_string()));
            // No failure: allocations are sampled at random, few of them where a leak is small or rare.
            if let Some(difference) = function_mismatch(&growth, check.allocated_in.as_deref()) {
                crate::note(&format!("{name}: {difference}"));
            }
            checks.push((at, check));
        }
    };
    let joined = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.collect::<Result<Vec<_>>>()
    });
    let mut checks: Vec<(usize, LeakCheck)> = joined?.into_iter().flatten().collect();
    checks.sort_by_key(|(at, _)| *at);
    let all: Vec<LeakCheck> = checks.into_iter().map(|(_, check)| check).collect();
    let text = if arguments.json { serde_json::to_string_pretty(&all)? } else { leak_table(&all) };
    Ok((text, all.iter().all(|pair| pair.wrong.is_empty())))
}

/// Suffixes of the two files of a pair.
const LEAKY: &str = ".leaky.toml";
const CONTROL: &str = ".bounded.toml";

/// Finds the files `<name>.leaky.toml` in a directory, all or those named; sorted by name.
fn leaky_files(directory: &Path, names: &[String]) -> Result<Vec<(String, PathBuf)>> {
    let entries = std::fs::read_dir(directory)
        .map_err(|error| format!("{}: {error}; use --dir for another directory", directory.display()))?;
    let mut found: Vec<(String, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.strip_suffix(LEAKY)?.to_owned(), entry.path())))
        .collect();
    found.sort();
    // A name may be given as the path of either file.
    let named = |path: &String| {
        let file = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path);
        file.strip_suffix(LEAKY).or_else(|| file.strip_suffix(CONTROL)).map_or_else(|| path.clone(), str::to_owned)
    };
    let names: Vec<String> = names.iter().map(named).collect();
    if let Some(unknown) = names.iter().find(|name| found.iter().all(|(known, _)| known != *name)) {
        let known: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        return Err(format!("unknown leak `{unknown}` (known: {})", known.join(", ")).into());
    }
    found.retain(|(name, _)| names.is_empty() || names.contains(name));
    match found.is_empty() {
        true => Err(format!("{} has no file *{LEAKY}", directory.display()).into()),
        false => Ok(found),
    }
}

/// Reason why a pair is not run on this device.
fn required_device(grows: GrowingMemory) -> &'static str {
    match grows {
        GrowingMemory::Pool | GrowingMemory::PerThreadPools => {
            "needs a device with a memory pool: `--device cuda` or `--device vulkan`"
        }
        GrowingMemory::Heap | GrowingMemory::Tensors => "needs the CPU, because it leaks on the heap: `--device cpu`",
    }
}

/// Growth that must be detected on this device.
struct DeviceGrowth {
    series: String,
    /// Series of the bytes of the owner.
    owner_series: String,
    bytes_per_step: f64,
    /// Final bytes of the owner, for growth that ends on its own.
    total_bytes: Option<f64>,
    tolerance: f64,
    owner: String,
    /// Ends of the paths of functions, of which one must be named; empty on a device whose tensors are not on the heap.
    allocated_in: Vec<String>,
}

/// Device that a leak is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeakDevice {
    /// CPU, whose tensors are on the heap.
    Cpu,
    /// A device with a memory pool.
    Pool,
    /// CUDA, whose pool rounds sizes up.
    Cuda,
}

impl DeviceGrowth {
    /// Growth of memory of a device; `None` if the leak does not grow that, or if the test on the CPU already covers it.
    fn new(expected: &ExpectedGrowth, device: LeakDevice) -> Option<Self> {
        let owner_series = format!("{OWNER_PREFIX}{}", expected.owner);
        let on_cuda = expected.bytes_per_step_on_cuda.filter(|_| device == LeakDevice::Cuda);
        let in_pool = on_cuda.or(expected.bytes_per_step_in_pool).unwrap_or(expected.bytes_per_step);
        let (series, bytes_per_step) = match (expected.grows, device) {
            (GrowingMemory::Heap | GrowingMemory::Tensors, LeakDevice::Cpu) => {
                ("heap".to_owned(), expected.bytes_per_step)
            }
            (GrowingMemory::Tensors | GrowingMemory::Pool, LeakDevice::Pool | LeakDevice::Cuda) => {
                ("device_in_use".to_owned(), in_pool)
            }
            (GrowingMemory::PerThreadPools, LeakDevice::Pool | LeakDevice::Cuda) => (owner_series.clone(), in_pool),
            (GrowingMemory::Heap, _) | (GrowingMemory::Pool | GrowingMemory::PerThreadPools, LeakDevice::Cpu) => {
                return None;
            }
        };
        let functions = expected.allocated_in.iter().filter(|_| device == LeakDevice::Cpu);
        Some(Self {
            series,
            owner_series,
            bytes_per_step,
            total_bytes: expected.total_bytes,
            tolerance: expected.tolerance,
            owner: expected.owner.clone(),
            allocated_in: functions.cloned().collect(),
        })
    }
}

/// Runs a leaky experiment and its control.
fn pair(name: &str, file: &Path, expected: &DeviceGrowth, runs: &LeakRuns) -> Result<LeakCheck> {
    let start_time = Instant::now();
    let Judged { verdict: leaky, run, suspected_at } = runs.run(file)?;
    let bounded = runs.control(&file.with_file_name(format!("{name}{CONTROL}")))?.verdict;
    let series = leaky.series.iter().find(|one| one.name == expected.series);
    let slope = series.and_then(|one| one.findings.slope);
    let held = leaky.series.iter().find(|one| one.name == expected.owner_series).map(|one| one.last);
    let ends = expected.total_bytes.is_some();
    let measured = if ends { held } else { slope };
    let allocations = read::allocations(&run)?;
    Ok(LeakCheck {
        name: name.to_owned(),
        leaky: leaky.verdict,
        bounded: bounded.verdict,
        slope_expected: expected.total_bytes.unwrap_or(expected.bytes_per_step),
        slope_measured: measured,
        ends,
        owner_named: leaky.owner.clone(),
        suspected_at: suspected_at.get(&expected.series).copied(),
        allocated_in: allocations.as_ref().and_then(|record| Some(record.function()?.0.to_owned())),
        wrong: mismatches(expected, &leaky, &bounded, measured),
        series: expected.series.clone(),
        owner_expected: expected.owner.clone(),
        seconds: start_time.elapsed().as_secs_f64(),
        left_out: None,
    })
}

/// Mismatches of the verdicts on a leak, of which `measured` bytes were seen: a step, or in all of one that ends.
fn mismatches(expected: &DeviceGrowth, leaky: &Verdict, bounded: &Verdict, measured: Option<f64>) -> Vec<String> {
    use VerdictWord::{Filling, GrewThenFlat, Growing, Stepped};
    let (ends, mut mismatches) = (expected.total_bytes.is_some(), Vec::new());
    let rightly: &[VerdictWord] = if ends { &[GrewThenFlat, Stepped, Filling] } else { &[Growing] };
    if !rightly.contains(&leaky.verdict) {
        mismatches.push(format!("the leak is judged {}", leaky.verdict.words()));
    }
    let unplanned = leaky.beyond_plan.as_ref().and_then(|beyond| beyond.owner.as_deref());
    let of_rest = || owner_mismatch(expected, unplanned).filter(|_| ends);
    mismatches.extend(owner_mismatch(expected, leaky.owner.as_deref()).or_else(of_rest));
    if let Some(beyond) = bounded.beyond_plan.as_ref().filter(|_| ends) {
        mismatches.push(format!("the control run holds {} beyond its plan", Bytes(beyond.bytes)));
    }
    match measured.map(|measured| measured / expected.total_bytes.unwrap_or(expected.bytes_per_step) - 1.0) {
        Some(error) if error.abs() <= expected.tolerance => {}
        Some(error) => mismatches.push(format!("its growth is off by {:.0} %", error * 100.0)),
        None => mismatches.push(format!("there is no series `{}`", expected.series)),
    }
    mismatches.extend(control_mismatch(bounded));
    mismatches
}

fn owner_mismatch(expected: &DeviceGrowth, named: Option<&str>) -> Option<String> {
    let is_named = named.unwrap_or_default() == expected.owner;
    (!is_named).then(|| format!("the named owner is {}", named.unwrap_or("none")))
}

/// Difference of the function that the samples of allocations name.
fn function_mismatch(expected: &DeviceGrowth, named: Option<&str>) -> Option<String> {
    let is_named = expected.allocated_in.iter().any(|end| named.is_some_and(|named| named.ends_with(end)));
    (!expected.allocated_in.is_empty() && !is_named).then(|| {
        format!("the named function is {}, not {}", named.unwrap_or("none"), expected.allocated_in.join(" or "))
    })
}

fn control_mismatch(bounded: &Verdict) -> Option<String> {
    let is_wrong = bounded.verdict >= VerdictWord::Suspect || bounded.verdict == VerdictWord::Inconclusive;
    is_wrong.then(|| format!("the control run is judged {}", bounded.verdict.words()))
}

/// Result of one leak: the leaking run and its control run.
#[derive(Clone, Debug, Serialize)]
pub struct LeakCheck {
    /// Name of the leak.
    pub name: String,
    /// Verdict on the leaking run.
    pub leaky: VerdictWord,
    /// Verdict on the control run.
    pub bounded: VerdictWord,
    /// Name of the judged series.
    pub series: String,
    /// Expected slope of the leaking run in bytes per step; total bytes if `ends`.
    pub slope_expected: f64,
    /// Slope measured in the leaking run, in the unit of `slope_expected`.
    pub slope_measured: Option<f64>,
    /// The growth of this leak ends; both slopes are total bytes.
    pub ends: bool,
    /// Owner that the verdict should name.
    pub owner_expected: String,
    /// Owner that the verdict names.
    pub owner_named: Option<String>,
    /// Step at which the leaking run was first suspected.
    pub suspected_at: Option<u64>,
    /// Function whose allocations stayed alive, found by sampling.
    pub allocated_in: Option<String>,
    /// Duration of both runs in seconds; near 0 for the second use of a control run.
    pub seconds: f64,
    /// Deviations from the expectation; empty if there are none.
    pub wrong: Vec<String>,
    /// Reason why the leak was not run on this device; all other fields are meaningless then.
    pub left_out: Option<&'static str>,
}

impl LeakCheck {
    /// A pair whose runs gave no verdict.
    fn failed(name: &str, why: String) -> Self {
        Self {
            name: name.to_owned(),
            leaky: VerdictWord::Inconclusive,
            bounded: VerdictWord::Inconclusive,
            series: String::new(),
            slope_expected: 0.0,
            slope_measured: None,
            ends: false,
            owner_expected: String::new(),
            owner_named: None,
            suspected_at: None,
            allocated_in: None,
            seconds: 0.0,
            wrong: vec![why],
            left_out: None,
        }
    }

    /// A pair that cannot be run on this device.
    fn skipped(name: &str, why: &'static str) -> Self {
        Self { wrong: Vec::new(), left_out: Some(why), ..Self::failed(name, String::new()) }
    }
}

/// Table of the results, and the leaks left out.
fn leak_table(all: &[LeakCheck]) -> String {
    let header =
        ["leak", "verdict", ">expected", ">measured", "owner", ">suspected at", "control run", ">time", "result"];
    let (left_out, run): (Vec<&LeakCheck>, Vec<&LeakCheck>) = all.iter().partition(|pair| pair.left_out.is_some());
    let rows: Vec<Vec<String>> = run
        .into_iter()
        .map(|pair| {
            let per = if pair.ends { " in total" } else { "/step" };
            vec![
                pair.name.clone(),
                pair.leaky.words().to_owned(),
                format!("{}{per}", bytes(pair.slope_expected)),
                pair.slope_measured.map_or_else(|| "-".into(), |slope| format!("{}{per}", bytes(slope.max(0.0)))),
                pair.owner_named.clone().unwrap_or_else(|| "-".into()),
                pair.suspected_at.map_or_else(|| "-".into(), |step| format!("step {step}")),
                pair.bounded.words().to_owned(),
                seconds(pair.seconds),
                if pair.wrong.is_empty() { "as expected".to_owned() } else { pair.wrong.join("; ") },
            ]
        })
        .collect();
    let left_out = left_out.iter().filter_map(|pair| Some(format!("skipped: {} {}\n", pair.name, pair.left_out?)));
    let table = if rows.is_empty() { String::new() } else { table(&header, &rows, None) };
    let lines: Vec<String> = std::iter::once(table).filter(|table| !table.is_empty()).chain(left_out).collect();
    printable::lines(&lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_expected_on_the_devices_that_show_it() {
        let expected = |grows| ExpectedGrowth {
            grows,
            bytes_per_step: 10.0,
            owner: "leak_it".into(),
            ..ExpectedGrowth::default()
        };
        let on = |expected: &ExpectedGrowth, device| {
            DeviceGrowth::new(expected, device).map(|growth| (growth.series, growth.bytes_per_step))
        };
        let shown = |expected: &ExpectedGrowth| [LeakDevice::Cpu, LeakDevice::Pool].map(|device| on(expected, device));
        let series = |name: &str, bytes| Some((name.to_owned(), bytes));
        assert_eq!(shown(&expected(GrowingMemory::Heap)), [series("heap", 10.0), None]);
        assert_eq!(shown(&expected(GrowingMemory::Tensors)), [series("heap", 10.0), series("device_in_use", 10.0)]);
        assert_eq!(shown(&expected(GrowingMemory::Pool)), [None, series("device_in_use", 10.0)]);
        assert_eq!(shown(&expected(GrowingMemory::PerThreadPools)), [None, series("owner:leak_it", 10.0)]);
        let other = ExpectedGrowth { bytes_per_step_in_pool: Some(12.0), ..expected(GrowingMemory::Tensors) };
        assert_eq!(shown(&other), [series("heap", 10.0), series("device_in_use", 12.0)]);
        assert_eq!(on(&other, LeakDevice::Cuda), series("device_in_use", 12.0));
        let rounded = ExpectedGrowth { bytes_per_step_on_cuda: Some(14.0), ..other };
        assert_eq!(
            (on(&rounded, LeakDevice::Cuda), on(&rounded, LeakDevice::Pool)),
            (series("device_in_use", 14.0), series("device_in_use", 12.0))
        );
    }
}
