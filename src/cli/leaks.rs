//! `xrun leaks`: verify that each leak is detected on this machine, and that its control run is judged bounded.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::LeaksArguments;
use super::leak_runs::{LeakRun, LeakRuns};
use super::terminal::{Failure, Terminal};
use crate::device::{self, DeviceKind};
use crate::exit::exit_code;
use crate::experiment::leaks::{ExpectedGrowth, GrowingMemory, GrowingSeries, LeakDevice};
use crate::experiment::read;
use crate::files::write;
use crate::judge;
use crate::report::junit::junit;
use crate::report::verdict::{LeakCheck, leak_table};
use crate::results::format::Outcome;
use crate::results::read as results_read;
use crate::results::verdict::{OWNER_PREFIX, Verdict, VerdictWord};
use crate::units::Bytes;

pub fn run(arguments: &LeaksArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let leaky = leaky_files(&arguments.directory, &arguments.names)?;
    let runs = LeakRuns::new(&arguments.overrides)?;
    let next = AtomicUsize::new(0);
    let count = leaky.len();
    // Checks the next leak until there is none left, or a signal stops a run.
    let work = || -> Result<Option<Vec<(usize, LeakCheck)>>, Failure> {
        let mut checks = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((name, file)) = leaky.get(at) else { return Ok(Some(checks)) };
            let (expected, device) = expected(file, arguments)?;
            let Some(growth) = DeviceGrowth::new(&expected, device) else {
                checks.push((at, LeakCheck::skipped(name, required_device(expected.grows))));
                continue;
            };
            // On a slow machine a pair takes minutes.
            terminal.info(&format!("{} of {count}: {name}, leaky run and control run", at + 1));
            let check = match pair(name, file, &growth, &runs) {
                Err(Failure::Failed(message)) => LeakCheck::failed(name, message),
                Ok(None) => return Ok(None),
                Ok(Some(pair)) => {
                    // No failure: allocations are sampled at random, few of them where a leak is small or rare.
                    if let Some(difference) = function_mismatch(&growth, pair.allocated_in.as_deref()) {
                        terminal.info(&format!("{name}: {difference}"));
                    }
                    pair
                }
                Err(other) => return Err(other),
            };
            checks.push((at, check));
        }
    };
    let joined = std::thread::scope(|scope| {
        let work = || {
            let checks = work();
            if !matches!(checks, Ok(Some(_))) {
                // The other workers begin no further leak.
                next.store(count, Ordering::Relaxed);
            }
            checks
        };
        let workers: Vec<_> = (0..arguments.jobs).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.collect::<Result<Option<Vec<_>>, Failure>>()
    });
    let Some(checks) = joined? else { return Ok(exit_code(Outcome::Interrupted)) };
    let mut checks: Vec<(usize, LeakCheck)> = checks.into_iter().flatten().collect();
    checks.sort_by_key(|(at, _)| *at);
    let all: Vec<LeakCheck> = checks.into_iter().map(|(_, check)| check).collect();
    match arguments.json {
        true => terminal.json(&all),
        false => terminal.print(&leak_table(&all, terminal.width())),
    }
    if let Some(path) = &arguments.junit {
        write::replace(path, junit(&all).as_bytes()).map_err(Failure::failed)?;
    }
    let wrong = all.iter().any(|pair| !pair.wrong.is_empty());
    Ok(if wrong { exit_code(Outcome::Failed) } else { 0 })
}

/// Suffixes of the two files of a pair.
const LEAKY: &str = ".leaky.toml";
const CONTROL: &str = ".bounded.toml";

/// Finds the files `<name>.leaky.toml` in a directory, all or those named; sorted by name.
fn leaky_files(directory: &Path, names: &[String]) -> Result<Vec<(String, PathBuf)>, Failure> {
    let entries = std::fs::read_dir(directory).map_err(|error| {
        Failure::Usage(format!("{}: {error}; use --dir for another directory", directory.display()))
    })?;
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
        return Err(Failure::Usage(format!("unknown leak `{unknown}` (known: {})", known.join(", "))));
    }
    found.retain(|(name, _)| names.is_empty() || names.contains(name));
    match found.is_empty() {
        true => Err(Failure::Usage(format!("{} has no file *{LEAKY}", directory.display()))),
        false => Ok(found),
    }
}

/// Expectations of the file, and the kind of device on which it will run.
fn expected(file: &Path, arguments: &LeaksArguments) -> Result<(ExpectedGrowth, LeakDevice), Failure> {
    let experiment = read::read(file, &arguments.overrides.all(), super::environment())?.experiment;
    let Some(expected) = experiment.leaks.expected else {
        return Err(Failure::Usage(format!("{} has no [leaks.expected] with the expected growth", file.display())));
    };
    let chosen = device::select(&experiment.experiment.device).map_err(Failure::failed)?;
    let device = match chosen.kind {
        DeviceKind::Cpu => LeakDevice::Cpu,
        DeviceKind::Cuda(_) => LeakDevice::Cuda,
        DeviceKind::Vulkan(_) => LeakDevice::Pool,
    };
    Ok((expected, device))
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

impl DeviceGrowth {
    fn new(expected: &ExpectedGrowth, device: LeakDevice) -> Option<Self> {
        let (series, bytes_per_step) = expected.on(device)?;
        let owner_series = format!("{OWNER_PREFIX}{}", expected.owner);
        let series = match series {
            GrowingSeries::Total(name) => name.to_owned(),
            GrowingSeries::Owner => owner_series.clone(),
        };
        let ExpectedGrowth { total_bytes, tolerance, .. } = *expected;
        let functions = expected.allocated_in.iter().filter(|_| device == LeakDevice::Cpu);
        let allocated_in = functions.cloned().collect();
        Some(Self {
            series,
            owner_series,
            bytes_per_step,
            total_bytes,
            tolerance,
            owner: expected.owner.clone(),
            allocated_in,
        })
    }
}

/// Runs a leaky experiment and its control; `None` if a signal stopped one of them.
fn pair(name: &str, file: &Path, expected: &DeviceGrowth, runs: &LeakRuns) -> Result<Option<LeakCheck>, Failure> {
    let start_time = Instant::now();
    let LeakRun::Judged(leaky, leaky_run) = runs.leaky(file)? else { return Ok(None) };
    let control = file.with_file_name(format!("{name}{CONTROL}"));
    let LeakRun::Judged(bounded, _) = runs.control(&control)? else { return Ok(None) };
    let series = leaky.series.iter().find(|one| one.name == expected.series);
    let slope = series.and_then(|one| one.findings.slope);
    let held = leaky.series.iter().find(|one| one.name == expected.owner_series).map(|one| one.last);
    let ends = expected.total_bytes.is_some();
    let suspected_at = judge::suspected_at(&leaky_run, &expected.series).map_err(Failure::failed)?;
    let allocations = results_read::allocations(&leaky_run).map_err(Failure::failed)?;
    Ok(Some(LeakCheck {
        name: name.to_owned(),
        leaky: leaky.verdict,
        bounded: bounded.verdict,
        slope_expected: expected.total_bytes.unwrap_or(expected.bytes_per_step),
        slope_measured: if ends { held } else { slope },
        ends,
        owner_named: leaky.owner.clone(),
        suspected_at,
        allocated_in: allocations.as_ref().and_then(|record| Some(record.function()?.0.to_owned())),
        wrong: match expected.total_bytes {
            Some(bytes) => filling_mismatches(bytes, expected, &leaky, &bounded, held),
            None => leak_mismatches(expected, &leaky, &bounded, slope),
        },
        series: expected.series.clone(),
        owner_expected: expected.owner.clone(),
        seconds: start_time.elapsed().as_secs_f64(),
        left_out: None,
    }))
}

/// Differences from an unbounded leak: its verdict, its owner and its slope.
fn leak_mismatches(expected: &DeviceGrowth, leaky: &Verdict, bounded: &Verdict, slope: Option<f64>) -> Vec<String> {
    let mut mismatches = Vec::new();
    if leaky.verdict != VerdictWord::Growing {
        mismatches.push(format!("the leak is judged {}", leaky.verdict.words()));
    }
    mismatches.extend(owner_mismatch(expected, leaky.owner.as_deref()));
    let error = slope.map(|slope| slope / expected.bytes_per_step - 1.0);
    match error {
        Some(error) if error.abs() <= expected.tolerance => {}
        Some(error) => mismatches.push(format!("the slope is off by {:.0} %", error * 100.0)),
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

/// Differences from growth that ends on its own: it must not be judged a leak, its owner must hold the expected bytes, and
/// the verdicts must name it in the leaky run alone.
fn filling_mismatches(
    bytes: f64,
    expected: &DeviceGrowth,
    leaky: &Verdict,
    bounded: &Verdict,
    held: Option<f64>,
) -> Vec<String> {
    let mut mismatches = Vec::new();
    if !matches!(leaky.verdict, VerdictWord::GrewThenFlat | VerdictWord::Stepped | VerdictWord::Filling) {
        mismatches.push(format!("growth that ends on its own is judged {}", leaky.verdict.words()));
    }
    let beyond = leaky.beyond_plan.as_ref().and_then(|beyond| beyond.owner.as_deref());
    mismatches.extend(owner_mismatch(expected, leaky.owner.as_deref()).or_else(|| owner_mismatch(expected, beyond)));
    if let Some(beyond) = &bounded.beyond_plan {
        mismatches.push(format!("the control run holds {} beyond its plan", Bytes(beyond.bytes)));
    }
    match held.map(|held| held / bytes - 1.0) {
        Some(error) if error.abs() <= expected.tolerance => {}
        Some(error) => mismatches.push(format!("its final size is off by {:.0} %", error * 100.0)),
        None => mismatches.push(format!("there is no owner `{}`", expected.owner)),
    }
    mismatches.extend(control_mismatch(bounded));
    mismatches
}
