//! `xrun sweep FILE`: run an experiment once for each of many values, and compare.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use super::programs::Programs;
use super::sweep_jobs::{self, Jobs};
use super::terminal::{Failure, Terminal};
use super::{Overrides, Progress, Results, sweep_search, sweep_slurm};
use crate::directory::RunDirectory;
use crate::experiment::launcher::Launcher;
use crate::experiment::read_sweep::{self, Family};
use crate::experiment::sweep::Mode;
use crate::files::layout;
use crate::invocation;
use crate::plan::shorten;
use crate::results::format::Outcome;
use crate::results::named;
use crate::results::trust;
use crate::stop::{StopSignal, exit_code};
use crate::sweep::conduct::{Conduct, Conducted, Event, conduct};
use crate::sweep::plan::{self, Planned};
use crate::sweep::points::{RunId, masked, words};
use crate::sweep::records::sweep::{Process, Record};
use crate::sweep::slurm::watch::Watched;
use crate::sweep::{record, search, table, text};
use crate::units::{Bytes, counted, seconds};

/// Of more runs than this, not every one gets a line.
const LINES_MAX: usize = 100;
const LINE_EVERY: Duration = Duration::from_secs(2);

pub const HELP: &str = "\
Values of a key:
    -s cleanup.every_steps=0,1,5,10             a list
    -s optimizer.adamw.learning_rate=1e-4..1e-2:5:log
                                                a range: from..to:steps, linear or :log
    -s limits.workers=2                         one value: set for all points

Exit codes:
    0  all runs finished
    1  some did not: the table says which and why
    2  the file, a value or the command line is wrong; nothing was run
    8  stopped by a signal, or (--collect) not all are done yet; --resume DIR continues";

#[derive(Clone, Debug, Args)]
pub struct SweepArguments {
    /// The experiment; its [sweep] says what is swept, and so does -s.
    #[arg(required_unless_present_any = ["resume", "collect"], conflicts_with_all = ["resume", "collect"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// How values of several keys are put together; in place of `sweep.mode`.
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Mode>,
    /// How many points the modes random, asha and tpe draw; in place of `sweep.samples`.
    #[arg(long, value_name = "COUNT")]
    samples: Option<u64>,
    /// How often each point is run, with another seed each time; in place of `sweep.repeats`.
    #[arg(long, value_name = "COUNT")]
    repeats: Option<u64>,
    /// Names the folder below the results in place of `experiment.name`.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A short run of each point in which everything happens once, as `xrun --steps` makes one.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["resume", "collect"])]
    steps: Option<u64>,
    /// The same with 20 steps and small validations, to see that every point works.
    #[arg(long, conflicts_with_all = ["steps", "resume", "collect"])]
    smoke: bool,
    /// Runs at the same time: a number, or `auto` for as many as fit by their forecasts of memory, at most one a processor.
    /// They share the machine, so speeds of more than one are not those of one alone.
    #[arg(long, value_name = "COUNT", default_value = "1")]
    pub(super) jobs: Jobs,
    /// Check and list every point; run nothing, write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do what a sweep that was stopped or killed has not done, and write its table again. DIR is its folder, or
    /// `experiment/sweeps/latest` below the results.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["set", "device", "mode", "samples", "repeats", "name", "dry_run"])]
    resume: Option<PathBuf>,
    /// Where the runs are started; a sweep that is resumed goes on where it was.
    #[arg(long, value_enum, value_name = "WHERE")]
    launcher: Option<Where>,
    /// Write the table of what there is, also while runs go on; start nothing.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "set", "device", "mode", "samples", "repeats", "name", "dry_run", "launcher", "fail_fast"])]
    collect: Option<PathBuf>,
    /// Become the run at this place of the order: what a task of a job array does.
    #[arg(long, value_name = "PLACE", hide = true, requires = "resume")]
    task: Option<usize>,
    /// With --task: the run stops after this step, a rung of a search.
    #[arg(long, value_name = "STEP", hide = true, requires = "task")]
    until: Option<u64>,
    /// With --resume: start the programs that the sweep names, also where this user did not create its folder.
    #[arg(long, requires = "resume")]
    allow_command: bool,
    /// With --resume: go on with runs that failed, too.
    #[arg(long, requires = "resume")]
    pub(super) retry_failed: bool,
    /// After the first run that does not finish, start no other.
    #[arg(long)]
    pub(super) fail_fast: bool,
    #[command(flatten)]
    results: Results,
    /// Print the table (with --dry-run the points) as JSON on standard output.
    #[arg(long)]
    pub(super) json: bool,
    /// How progress is shown: a line a run, or with json an event a run.
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub(super) progress: Progress,
    /// Say only what is wrong.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Say every run, also of many.
    #[arg(short, long)]
    verbose: bool,
}

/// Where the runs of a sweep are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Where {
    /// Processes on this machine.
    Local,
    /// Jobs on a Slurm cluster, as arrays or, of a search, one by one; [launcher.slurm] says what is asked for.
    Slurm,
}

pub fn run(arguments: &SweepArguments) -> Result<u8, Failure> {
    let quiet = arguments.quiet || arguments.progress == Progress::None;
    let events = arguments.progress == Progress::Json;
    let terminal = Terminal { quiet, verbose: arguments.verbose, events };
    if let Some(folder) = &arguments.collect {
        return sweep_slurm::collect(&meant(arguments, folder)?, arguments.json, false, terminal);
    }
    if let (Some(place), Some(folder)) = (arguments.task, &arguments.resume) {
        return sweep_slurm::become_run(
            folder,
            place,
            arguments.until,
            (arguments.retry_failed, arguments.allow_command),
        );
    }
    let begun = match (&arguments.resume, &arguments.file) {
        (Some(folder), _) => {
            let folder = meant(arguments, folder)?;
            let handed = if folder.join(layout::SLURM).is_file() { Where::Slurm } else { Where::Local };
            let place = arguments.launcher.unwrap_or(handed);
            if place == Where::Slurm {
                sweep_slurm::check(arguments)?;
            }
            if place == Where::Local && handed == Where::Slurm {
                sweep_slurm::check_idle(&folder)?;
            }
            let (folder, record) = Record::open(&folder).map_err(Failure::failed)?;
            Programs::of_sweep(&folder.path, &record)?.check(arguments.allow_command)?;
            Begun { folder, record, place, launcher: None, allowed: arguments.allow_command }
        }
        (None, Some(file)) => {
            let family = family(file, arguments, terminal)?;
            let planned = plan::plan(&family)?;
            if arguments.dry_run {
                list(&family, &planned, arguments.json, terminal);
                return Ok(0);
            }
            let place = arguments.launcher.unwrap_or(Where::Local);
            if place == Where::Slurm {
                sweep_slurm::check(arguments)?;
            }
            let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            let record = Record::new(&family, &planned, command);
            let folder = record.create(&arguments.results.folder, &family).map_err(Failure::failed)?;
            if let (Err(why), true) = (record::sign(&folder.path), family.base.command().is_some()) {
                terminal.say(&trust::unsigned(&why));
            }
            // The user named the file of these programs just now.
            Begun { folder, record, place, launcher: family.launcher, allowed: true }
        }
        (None, None) => return Err(Failure::Usage(format!("which file? {} sweep FILE", invocation::program()))),
    };
    let stop = StopSignal::listen().map_err(Failure::failed)?;
    let mut begun = begun;
    let path = begun.folder.path.clone();
    let record = &begun.record;
    // So that a drift of the machine is not taken for the effect of a value.
    let drawn =
        if record.order.is_sorted() { String::new() } else { format!(", in random order (seed {})", record.seed) };
    let how = match &record.search {
        Some(search) => sweep_search::words(search),
        None => {
            let points = counted(record.points.len() as u64, "point");
            format!("{points}, {}{drawn}", counted(record.order.len() as u64, "run"))
        }
    };
    terminal.say(&format!("{}: {how}, in {}", record.experiment, path.display()));
    match begun.place {
        Where::Local => on_this_machine(&path, &mut begun.record, begun.allowed, arguments, &stop, terminal),
        Where::Slurm => on_slurm(&begun, arguments, &stop, terminal),
    }
}

/// A sweep that this process holds.
struct Begun {
    folder: RunDirectory,
    record: Record,
    place: Where,
    launcher: Option<Launcher>,
    /// Runs start the programs that their folders name, whoever created these.
    allowed: bool,
}

/// The folder of the sweep that was named. Reading it says so when it is not a sweep.
fn meant(arguments: &SweepArguments, text: &Path) -> Result<PathBuf, Failure> {
    let results = &arguments.results.folder;
    let there = || std::fs::canonicalize(text).ok();
    named::sweep(results, text).or_else(there).ok_or_else(|| {
        let (text, results) = (text.display(), results.display());
        Failure::Usage(format!(
            "no sweep is called \"{text}\", here or in {results}; its name is EXPERIMENT/sweeps/SWEEP"
        ))
    })
}

fn on_slurm(begun: &Begun, arguments: &SweepArguments, stop: &StopSignal, terminal: Terminal) -> Result<u8, Failure> {
    let record = &begun.record;
    // The nodes start elsewhere.
    let path = std::path::absolute(&begun.folder.path).map_err(Failure::failed)?;
    let settings = begun.launcher.clone().map(|Launcher::Slurm(settings)| settings);
    let (planned, settings) = sweep_search::for_slurm(record, settings);
    let watched = sweep_slurm::conduct(&path, &planned, settings, begun.allowed, arguments, stop, terminal)?;
    let told = watched != Watched::AllDone;
    let collected = sweep_slurm::collect(&path, arguments.json, told, terminal)?;
    let told = sweep_slurm::tell(&watched, &path, record, terminal);
    // All tasks have ended: what is not finished failed.
    let ended = if collected == 0 { 0 } else { exit_code(Outcome::Failed) };
    Ok(told.unwrap_or(ended))
}

fn on_this_machine(
    path: &Path,
    record: &mut Record,
    allowed: bool,
    arguments: &SweepArguments,
    stop: &StopSignal,
    terminal: Terminal,
) -> Result<u8, Failure> {
    let how = Conduct { fail_fast: arguments.fail_fast, retry_failed: arguments.retry_failed, allowed };
    let mut launcher = sweep_jobs::launcher(path, record, arguments.jobs, terminal)?;
    let mut lines = Lines::new(record, terminal);
    let conducted = conduct(path, record, how, launcher.as_mut(), stop, &mut |event| lines.event(event));
    let table = table::write(path, record, &BTreeMap::new());
    let conducted = conducted.map_err(|error| Failure::Failed(format!("{error}; {}", how_to_go_on(path))))?;
    let table = table.map_err(Failure::failed)?;
    match arguments.json {
        true => terminal.json(&table),
        false if !arguments.quiet => terminal.answer(&text::text(&table, terminal.width())),
        false => {}
    }
    terminal.say(&format!("report: {}", path.join(layout::REPORT).display()));
    let well = table.rows.iter().flat_map(|row| &row.runs).filter(|run| run.finished || run.at_rung).count();
    match conducted {
        Conducted::Stopped { left } => {
            terminal.error(&format!("stopped by a signal: {left} of {} runs are not done", record.runs_at_most()));
            terminal.say(&how_to_go_on(path));
            Ok(exit_code(Outcome::Interrupted))
        }
        Conducted::FailedFast { left } => {
            terminal.error(&format!("a run failed, and --fail-fast was given: {left} runs were not started"));
            terminal.say(&how_to_go_on(path));
            Ok(exit_code(Outcome::Failed))
        }
        Conducted::AllDone if well < record.order.len() => {
            terminal.error(&format!("{} of {} runs did not finish", record.order.len() - well, record.order.len()));
            if !arguments.retry_failed {
                terminal.say(&format!(
                    "to try them again: {} sweep --resume {} --retry-failed; without it, runs that failed stay as they are",
                    invocation::program(),
                    path.display()
                ));
            }
            Ok(exit_code(Outcome::Failed))
        }
        Conducted::AllDone => Ok(0),
    }
}

pub fn how_to_go_on(sweep: &Path) -> String {
    format!("to continue: {} sweep --resume {}", invocation::program(), sweep.display())
}

/// The experiment and what is swept, short where that is asked for.
fn family(file: &Path, arguments: &SweepArguments, terminal: Terminal) -> Result<Family, Failure> {
    let mut overrides = overrides(arguments);
    let family = read_sweep::read(file, &overrides, super::environment())?;
    let Some(steps) = arguments.steps.or(arguments.smoke.then_some(shorten::SMOKE_STEPS)) else { return Ok(family) };
    let (mut set, whole) = plan::shortened(&family, steps, arguments.smoke)?;
    let words = if set.is_empty() { "it is as short already".to_owned() } else { set.join(", ") };
    terminal.say(&format!("{steps} of {whole} steps: {words}"));
    if arguments.name.is_none() {
        set.push(shorten::name(&family.base));
    }
    set.extend(sweep_search::shortened(&family.sweep, whole, steps));
    overrides.extend(set);
    Ok(read_sweep::read(file, &overrides, super::environment())?)
}

fn overrides(arguments: &SweepArguments) -> Vec<String> {
    let mut all = arguments.overrides.all();
    all.extend(arguments.name.iter().map(|name| format!("--name={name}")));
    all.extend(arguments.mode.iter().map(|mode| format!("--mode={}", mode.word())));
    all.extend(arguments.samples.iter().map(|samples| format!("--samples={samples}")));
    all.extend(arguments.repeats.iter().map(|repeats| format!("--repeats={repeats}")));
    all
}

fn list(family: &Family, planned: &Planned, json: bool, terminal: Terminal) {
    let points = planned.points.as_slice();
    let keys: Vec<&str> = family.axes.iter().map(|axis| axis.key.as_str()).collect();
    if json {
        let points: Vec<serde_json::Value> = points
            .iter()
            .enumerate()
            .map(|(at, point)| {
                let values = keys.iter().zip(&point.values).map(|(key, value)| masked(key, value));
                let values: Vec<serde_json::Value> = values.collect();
                serde_json::json!({
                    "point": at + 1, "values": values, "steps": point.steps, "buffer_bytes": point.buffer_bytes,
                })
            })
            .collect();
        let mut all = serde_json::json!({ "keys": keys, "repeats": family.sweep.repeats, "points": points });
        if let (Some(all), false) = (all.as_object_mut(), planned.rungs.is_empty()) {
            all.insert("rungs".into(), planned.rungs.clone().into());
        }
        terminal.json(&all);
        return;
    }
    let search = search::of(family, &planned.rungs)
        .map_or_else(String::new, |search| format!("{}\n", sweep_search::words(&search)));
    terminal.answer(&format!("{}{search}", text::plan(&keys, points, family.sweep.repeats, terminal.width())));
}

/// Says how it goes.
pub struct Lines {
    keys: Vec<String>,
    /// How many runs there will be is not known: it follows from results.
    searches: bool,
    terminal: Terminal,
    begun: Instant,
    last: Option<Instant>,
    /// Ended since this process began.
    ended: usize,
    all: usize,
}

impl Lines {
    pub fn new(record: &Record, terminal: Terminal) -> Self {
        let (keys, searches) = (record.keys.clone(), record.search.is_some());
        Self { keys, searches, terminal, begun: Instant::now(), last: None, ended: 0, all: record.runs_at_most() }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Begins { done: 0, .. } => {}
            Event::Begins { left, done } => {
                let is = if done == 1 { "is" } else { "are" };
                self.terminal.say(&format!("{} {is} done, {left} to do", counted(done as u64, "run")));
            }
            Event::Waits { run } => self.waits(run),
            Event::Again { run, process, bytes } => {
                let why = process.message.as_deref().unwrap_or("it had too little memory beside others");
                let needs = format!("it needs about {}", Bytes(bytes));
                self.terminal.say(&format!("{run}: {why}; {needs}, and is tried once more by itself"));
            }
            Event::Stops { running } => {
                let runs = counted(running as u64, "run");
                self.terminal.say(&format!("stopping: {runs} to write a checkpoint"));
            }
            Event::Ended { run, values, process, until, left } => self.ended((run, until), values, process, left),
        }
    }

    /// A process that is none of ours works on a run.
    pub fn waits(&self, run: RunId) {
        self.terminal.say(&format!("{run}: a process of before still works on it; waiting for it to stop"));
    }

    /// A job of a cluster was submitted for a run, which stops after a step or goes to its end.
    pub fn sent(&self, job: u64, run: RunId, until: Option<u64>) {
        if self.all <= LINES_MAX || self.terminal.verbose {
            let far = until.map_or_else(|| "its end".to_owned(), |step| format!("step {step}"));
            self.terminal.say(&format!("job {job}: {run} to {far}"));
        }
    }

    /// A process ended: which run, the step that it was to stop after if it was, and the values of its point.
    pub fn ended(
        &mut self,
        (run, until): (RunId, Option<u64>),
        values: &[serde_json::Value],
        process: &Process,
        left: usize,
    ) {
        self.ended += 1;
        if self.terminal.events {
            let values: BTreeMap<&str, &serde_json::Value> = self.keys.iter().map(String::as_str).zip(values).collect();
            return self.terminal.event(&serde_json::json!({
                "event": "run", "run": run.to_string(), "done": self.all - left, "of": self.all, "values": values,
                "exit_code": process.exit_code, "until": until, "signal": process.signal, "seconds": process.seconds,
                "message": process.message,
            }));
        }
        let good = process.exit_code == Some(0);
        let due = self.last.is_none_or(|last| last.elapsed() >= LINE_EVERY);
        if good && left > 0 && self.all > LINES_MAX && !due && !self.terminal.verbose {
            return;
        }
        self.last = Some(Instant::now());
        let how = match (process.exit_code, process.signal) {
            (Some(0), _) => {
                let came = until.map_or_else(|| "finished".to_owned(), |step| format!("at the rung of step {step}"));
                format!("{came} in {}", seconds(process.seconds))
            }
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "gone".into(),
        };
        let why = process.message.as_ref().filter(|_| !good).map_or_else(String::new, |why| format!(": {why}"));
        let time = self.begun.elapsed().as_secs_f64() / self.ended as f64 * left as f64;
        let time = if left > 0 && !self.searches { format!(" · about {} left", seconds(time)) } else { String::new() };
        let values = words(self.keys.iter().map(String::as_str), values.iter());
        self.terminal.say(&format!("{}/{} · {run} · {values} · {how}{why}{time}", self.all - left, self.all));
    }
}
