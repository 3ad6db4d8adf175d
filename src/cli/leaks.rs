//! `xrun leaks`: does the instrument find each leak on this machine, and none where there is none?

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::LeaksArguments;
use super::leaks_runs::{Ran, Runs};
use super::terminal::{Failure, Terminal};
use crate::device::{self, Kind};
use crate::experiment::leaks::{Expected, Grows, On};
use crate::experiment::read;
use crate::files::write;
use crate::judge;
use crate::report::junit::junit;
use crate::report::verdict::{Pair, pairs};
use crate::results::format::Outcome;
use crate::results::verdict::{Judgement, OWNER_PREFIX, Verdict};
use crate::stop::exit_code;

pub fn run(arguments: &LeaksArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let leaky = leaky_files(&arguments.folder, &arguments.names)?;
    let mut runs = Runs::new(&arguments.overrides)?;
    let mut all = Vec::with_capacity(leaky.len());
    let count = leaky.len();
    for (at, (name, file)) in leaky.into_iter().enumerate() {
        let (expected, place) = expected(&file, arguments)?;
        let Some(looked_for) = LookedFor::new(&expected, place) else {
            all.push(Pair::left_out(&name, elsewhere(expected.grows)));
            continue;
        };
        // On a slow machine a pair takes minutes.
        terminal.say(&format!("{} of {count}: {name}, with the leak and without", at + 1));
        all.push(match pair(&name, &file, &looked_for, &mut runs) {
            Err(Failure::Failed(message)) => Pair::failed(&name, message),
            Ok(None) => return Ok(exit_code(Outcome::Interrupted)),
            Ok(Some(pair)) => pair,
            Err(other) => return Err(other),
        });
    }
    match arguments.json {
        true => terminal.json(&all),
        false => terminal.answer(&pairs(&all, terminal.width())),
    }
    if let Some(path) = &arguments.junit {
        write::replace(path, junit(&all).as_bytes()).map_err(Failure::failed)?;
    }
    let wrong = all.iter().any(|pair| !pair.wrong.is_empty());
    Ok(if wrong { exit_code(Outcome::Failed) } else { 0 })
}

/// What the files of a pair end in.
const ENDING: &str = ".leaky.toml";
const TWIN: &str = ".bounded.toml";

/// `<name>.leaky.toml` in the folder, by name; those named, or all.
fn leaky_files(folder: &Path, names: &[String]) -> Result<Vec<(String, PathBuf)>, Failure> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| Failure::Usage(format!("{}: {error}; name another folder with --folder", folder.display())))?;
    let mut found: Vec<(String, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.strip_suffix(ENDING)?.to_owned(), entry.path())))
        .collect();
    found.sort();
    // A path of one of the two files is as good as the name.
    let named = |path: &String| {
        let file = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path);
        file.strip_suffix(ENDING).or_else(|| file.strip_suffix(TWIN)).map_or_else(|| path.clone(), str::to_owned)
    };
    let names: Vec<String> = names.iter().map(named).collect();
    if let Some(unknown) = names.iter().find(|name| found.iter().all(|(known, _)| known != *name)) {
        let known: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Failure::Usage(format!("there is no leak `{unknown}` (known: {})", known.join(", "))));
    }
    found.retain(|(name, _)| names.is_empty() || names.contains(name));
    match found.is_empty() {
        true => Err(Failure::Usage(format!("{} has no files that end in {ENDING}", folder.display()))),
        false => Ok(found),
    }
}

/// What the file expects, and what the device that it will run on has of a memory pool.
fn expected(file: &Path, arguments: &LeaksArguments) -> Result<(Expected, On), Failure> {
    let experiment = read::read(file, &arguments.overrides.all(), super::environment())?.experiment;
    let Some(expected) = experiment.leaks.expected else {
        return Err(Failure::Usage(format!(
            "{} has no [leaks.expected], which says what is to be seen",
            file.display()
        )));
    };
    let chosen = device::choose(&experiment.experiment.device).map_err(Failure::failed)?;
    let place = match chosen.kind {
        Kind::Cpu => On::Cpu,
        Kind::Cuda(_) => On::Cuda,
        Kind::Vulkan(_) => On::Pool,
    };
    Ok((expected, place))
}

/// Why a pair is not run on this device.
fn elsewhere(grows: Grows) -> &'static str {
    match grows {
        Grows::Pool | Grows::PoolsOfThreads => {
            "needs a device with a memory pool, which the CPU is not: `--device cuda` or `vulkan`"
        }
        Grows::Heap | Grows::Tensors => "is of the heap, whatever the device: `--device cpu`",
    }
}

/// What must be seen on this device.
struct LookedFor {
    series: String,
    bytes_per_step: f64,
    /// Bytes that the owner comes to hold, of growth that ends by itself.
    bytes_in_all: Option<f64>,
    tolerance: f64,
    owner: String,
}

impl LookedFor {
    fn new(expected: &Expected, place: On) -> Option<Self> {
        let (series, bytes_per_step) = expected.on(place)?;
        let Expected { bytes_in_all, tolerance, .. } = *expected;
        Some(Self { series, bytes_per_step, bytes_in_all, tolerance, owner: expected.owner.clone() })
    }
}

/// Runs both twins; nothing when a signal stopped one of them.
fn pair(name: &str, file: &Path, expected: &LookedFor, runs: &mut Runs) -> Result<Option<Pair>, Failure> {
    let began = Instant::now();
    let Ran::Judged(leaky, leaky_run) = runs.leaky(file)? else { return Ok(None) };
    let twin = file.with_file_name(format!("{name}{TWIN}"));
    let Ran::Judged(bounded, _) = runs.bounded(&twin)? else { return Ok(None) };
    let series = leaky.series.iter().find(|one| one.name == expected.series);
    let slope = series.and_then(|one| one.findings.slope);
    let of_owner = format!("{OWNER_PREFIX}{}", expected.owner);
    let held = leaky.series.iter().find(|one| one.name == of_owner).map(|one| one.last);
    let ends = expected.bytes_in_all.is_some();
    let suspected_at = judge::suspected_at(&leaky_run, &expected.series).map_err(Failure::failed)?;
    Ok(Some(Pair {
        name: name.to_owned(),
        leaky: leaky.verdict,
        bounded: bounded.verdict,
        slope_expected: expected.bytes_in_all.unwrap_or(expected.bytes_per_step),
        slope_measured: if ends { held } else { slope },
        ends,
        owner_named: leaky.owner.clone(),
        suspected_at,
        wrong: match expected.bytes_in_all {
            Some(bytes) => wrong_of_one_that_ends(bytes, expected, &leaky, &bounded, held),
            None => wrong(expected, &leaky, &bounded, slope),
        },
        series: expected.series.clone(),
        owner_expected: expected.owner.clone(),
        seconds: began.elapsed().as_secs_f64(),
        left_out: None,
    }))
}

fn wrong(expected: &LookedFor, leaky: &Verdict, bounded: &Verdict, slope: Option<f64>) -> Vec<String> {
    let mut wrong = Vec::new();
    if leaky.verdict != Judgement::Growing {
        wrong.push(format!("the leak is called {}", leaky.verdict.words()));
    }
    if leaky.owner.as_deref().unwrap_or_default() != expected.owner {
        wrong.push(format!("{} is named", leaky.owner.as_deref().unwrap_or("nobody")));
    }
    let off = slope.map(|slope| slope / expected.bytes_per_step - 1.0);
    match off {
        Some(off) if off.abs() <= expected.tolerance => {}
        Some(off) => wrong.push(format!("the slope is off by {:.0} %", off * 100.0)),
        None => wrong.push(format!("there is no series `{}`", expected.series)),
    }
    wrong.extend(wrong_of_twin(bounded));
    wrong
}

fn wrong_of_twin(bounded: &Verdict) -> Option<String> {
    let is_wrong = bounded.verdict >= Judgement::Suspect || bounded.verdict == Judgement::Inconclusive;
    is_wrong.then(|| format!("the bounded twin is called {}", bounded.verdict.words()))
}

/// What fills memory once and then stops must not be called a leak that goes on, and its owner must have come to hold what
/// was predicted.
fn wrong_of_one_that_ends(
    bytes: f64,
    expected: &LookedFor,
    leaky: &Verdict,
    bounded: &Verdict,
    held: Option<f64>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    if !matches!(leaky.verdict, Judgement::GrewThenFlat | Judgement::Stepped | Judgement::Filling) {
        wrong.push(format!("what ends by itself is called {}", leaky.verdict.words()));
    }
    match held.map(|held| held / bytes - 1.0) {
        Some(off) if off.abs() <= expected.tolerance => {}
        Some(off) => wrong.push(format!("what it holds is off by {:.0} %", off * 100.0)),
        None => wrong.push(format!("there is no owner `{}`", expected.owner)),
    }
    wrong.extend(wrong_of_twin(bounded));
    wrong
}
