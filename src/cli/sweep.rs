//! `xrun sweep FILE`: run an experiment once for each of many values, and compare.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use super::programs::Programs;
use super::sweep_jobs::{self, JobLimit};
use super::terminal::{Failure, Terminal};
use super::{Overrides, Progress, Results, choice, sweep_search, sweep_slurm};
use crate::directory::RunDirectory;
use crate::exit::exit_code;
use crate::experiment::launcher::LauncherSettings;
use crate::experiment::read_sweep::{self, SweepFile};
use crate::experiment::sweep::SweepMethod;
use crate::files::layout;
use crate::invocation;
use crate::results::format::Outcome;
use crate::results::trust;
use crate::stop::StopSignal;
use crate::sweep::journal::{Histories, Journal};
use crate::sweep::launcher::Launcher;
use crate::sweep::plan::{self, SweepPlan};
use crate::sweep::records::search::{Search, SearchMethod};
use crate::sweep::records::sweep::{Process, SweepRecord, Table};
use crate::sweep::schedule::{Event, Options, Scheduled, schedule};
use crate::sweep::scheduler::{Job, Scheduler};
use crate::sweep::slurm::SlurmError;
use crate::sweep::slurm::launcher::{queued, under_way};
use crate::sweep::slurm::queue::{self, QueuedTask};
use crate::sweep::trials::{masked, words};
use crate::sweep::{kubernetes, listing, record, search, table_files, text};
use crate::units::{Bytes, pluralize, seconds};

/// Largest number of runs that are reported one by one.
const LINES_MAX: usize = 100;
/// Shortest time between two lines of more runs.
const LINE_EVERY: Duration = Duration::from_secs(2);

pub const HELP: &str = "\
Values of a key:
    -s cleanup.every_steps=0,1,5,10             a list
    -s optimizer.adamw.learning_rate=1e-4..1e-2:5:log
                                                a range: from..to:steps, linear or :log
    -s limits.workers=2                         one value: set for all trials

Exit codes:
    0  all runs finished
    1  some did not: the table has the reasons
    2  the file, a value or the command line is wrong; nothing was run
    8  stopped by a signal, or (--collect) not all are done yet; --resume DIR continues";

#[derive(Clone, Debug, Args)]
pub struct SweepArguments {
    /// The experiment. Keys are swept by its [sweep] and by -s.
    #[arg(required_unless_present_any = ["resume", "collect"], conflicts_with_all = ["resume", "collect"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Combination of the values of several keys, in place of `sweep.method`.
    #[arg(long, value_parser = choice::parser(SweepMethod::as_str), value_name = "METHOD")]
    method: Option<SweepMethod>,
    /// Number of trials of the methods random, asha and tpe, in place of `sweep.trials`.
    #[arg(long, value_name = "COUNT")]
    trials: Option<u64>,
    /// Number of runs of each trial, with another seed each time, in place of `sweep.repeats`.
    #[arg(long, value_name = "COUNT")]
    repeats: Option<u64>,
    /// Name of the directory below the results, in place of `experiment.name`.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Number of runs at the same time, or `auto`: as many as fit by their memory forecasts, at most one per processor.
    /// Runs that share the machine are slower than one alone.
    #[arg(long, value_name = "COUNT", default_value = "1")]
    pub(super) jobs: JobLimit,
    /// Check and list every trial, with the job of a cluster if --launcher names one; run nothing, write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Continue a sweep that was stopped or killed, and write its table again. DIR is its directory,
    /// `experiment/sweeps/sweep` below the results, or for the newest `experiment` or `latest`.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["set", "device", "method", "trials", "repeats", "name", "dry_run"])]
    resume: Option<PathBuf>,
    /// Launcher of the runs. A resumed sweep keeps its launcher.
    #[arg(long, value_enum, value_name = "WHERE")]
    launcher: Option<LauncherKind>,
    /// Write the table of the results so far, also while runs are active; start nothing.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "set", "device", "method", "trials", "repeats", "name", "dry_run", "launcher", "fail_fast"])]
    collect: Option<PathBuf>,
    /// Run the trial at this index of the order, as a task of a job array.
    #[arg(long, value_name = "PLACE", hide = true, requires = "resume")]
    task: Option<usize>,
    /// With --task: the run stops after this step, a rung of a search.
    #[arg(long, value_name = "STEP", hide = true, requires = "task")]
    until: Option<u64>,
    /// With --resume: start the programs that the sweep names, also where this user did not create its directory.
    #[arg(long, requires = "resume")]
    allow_command: bool,
    /// With --resume: continue runs that failed, too.
    #[arg(long, requires = "resume")]
    pub(super) retry_failed: bool,
    /// Start no run after the first one that does not finish.
    #[arg(long)]
    pub(super) fail_fast: bool,
    #[command(flatten)]
    results: Results,
    /// Print the table (with --dry-run the trials) as JSON on standard output.
    #[arg(long)]
    pub(super) json: bool,
    /// Progress: a line for each run, or with json an event for each run.
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    pub(super) progress: Progress,
    /// Report errors only.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Report every run, also of many.
    #[arg(short, long)]
    verbose: bool,
}

/// Launcher of the runs of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LauncherKind {
    /// Processes on this machine.
    Local,
    /// Jobs on a Slurm cluster, with the settings of [launcher.slurm].
    Slurm,
    /// With --dry-run only: prints an Indexed Job for `kubectl apply -f -`.
    Kubernetes,
}

impl LauncherKind {
    /// Refuses a launcher that cannot start these runs.
    fn check(self, arguments: &SweepArguments) -> Result<(), Failure> {
        let no_client = "--launcher kubernetes needs --dry-run: it prints the job, and `kubectl apply -f -` starts it";
        match self {
            Self::Local => Ok(()),
            Self::Slurm => sweep_slurm::check(arguments),
            Self::Kubernetes => Err(Failure::Usage(no_client.into())),
        }
    }
}

pub fn run(arguments: &SweepArguments) -> Result<u8, Failure> {
    let quiet = arguments.quiet || arguments.progress == Progress::None;
    let events = arguments.progress == Progress::Json;
    let terminal = Terminal { quiet, verbose: arguments.verbose, events };
    if let Some(directory) = &arguments.collect {
        return collect(&sweep_directory(arguments, directory)?, arguments, terminal);
    }
    if let (Some(place), Some(directory)) = (arguments.task, &arguments.resume) {
        return sweep_slurm::become_run(
            directory,
            place,
            arguments.until,
            (arguments.retry_failed, arguments.allow_command),
        );
    }
    let mut open = match (&arguments.resume, &arguments.file) {
        (Some(directory), _) => {
            let directory = sweep_directory(arguments, directory)?;
            let handed =
                if directory.join(layout::SLURM).is_file() { LauncherKind::Slurm } else { LauncherKind::Local };
            let launcher_kind = arguments.launcher.unwrap_or(handed);
            launcher_kind.check(arguments)?;
            if launcher_kind == LauncherKind::Local && handed == LauncherKind::Slurm {
                sweep_slurm::check_idle(&directory)?;
            }
            let (directory, record) = SweepRecord::open(&directory).map_err(Failure::failed)?;
            Programs::for_sweep(&directory.path, &record)?.check(arguments.allow_command)?;
            OpenSweep { directory, record, launcher_kind, launcher: None, allowed: arguments.allow_command }
        }
        (None, Some(file)) => {
            let sweep_file = read_sweep::read(file, &overrides(arguments), super::environment())?;
            let planned = plan::plan(&sweep_file)?;
            planned.warning.iter().for_each(|warning| terminal.info(&format!("warning: {warning}")));
            let launcher_kind = arguments.launcher.unwrap_or(LauncherKind::Local);
            if arguments.dry_run {
                let job = dry_job(launcher_kind, &sweep_file, &planned, arguments)?;
                print_plan(&sweep_file, &planned, job, arguments.json, terminal);
                return Ok(0);
            }
            launcher_kind.check(arguments)?;
            let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            let record = SweepRecord::new(&sweep_file, &planned, command);
            let directory = record.create(&arguments.results.directory, &sweep_file).map_err(Failure::failed)?;
            if let (Err(why), true) = (record::sign(&directory.path), sweep_file.base.command().is_some()) {
                terminal.info(&trust::unsigned_message(&why));
            }
            // The user named the file with these programs.
            OpenSweep { directory, record, launcher_kind, launcher: sweep_file.launcher, allowed: true }
        }
        (None, None) => return Err(Failure::Usage(format!("no file was given: {} sweep FILE", invocation::program()))),
    };
    let stop = StopSignal::listen().map_err(Failure::failed)?;
    let path = open.directory.path.clone();
    let record = &open.record;
    // A random order keeps a drift of the machine from looking like the effect of a value.
    let drawn =
        if record.order.is_sorted() { String::new() } else { format!(", in random order (seed {})", record.seed) };
    let how = match &record.search {
        Some(search) => sweep_search::description(search),
        None => {
            let trials = pluralize(record.trials.len() as u64, "trial");
            format!("{trials}, {}{drawn}", pluralize(record.order.len() as u64, "run"))
        }
    };
    terminal.info(&format!("{}: {how}, in {}", record.experiment, path.display()));
    run_sweep(&mut open, arguments, &stop, terminal)
}

/// A sweep whose directory this process has locked.
struct OpenSweep {
    directory: RunDirectory,
    record: SweepRecord,
    launcher_kind: LauncherKind,
    launcher: Option<LauncherSettings>,
    /// Trust programs that the sweep's directory names, whoever owns it.
    allowed: bool,
}

/// The directory of the sweep with this name or path.
fn sweep_directory(arguments: &SweepArguments, text: &Path) -> Result<PathBuf, Failure> {
    let results = &arguments.results.directory;
    let there = || std::fs::canonicalize(text).ok();
    listing::find(results, &text.to_string_lossy()).or_else(there).ok_or_else(|| {
        let (text, results) = (text.display(), results.display());
        Failure::Usage(format!(
            "no sweep is called \"{text}\", here or in {results}; its name is EXPERIMENT/sweeps/SWEEP, or EXPERIMENT or latest for the newest"
        ))
    })
}

/// Runs what is not done of a sweep, shows its table, and returns the exit code.
fn run_sweep(
    open: &mut OpenSweep,
    arguments: &SweepArguments,
    stop: &StopSignal,
    terminal: Terminal,
) -> Result<u8, Failure> {
    let OpenSweep { directory, record, launcher_kind, launcher, allowed } = open;
    let options = Options { fail_fast: arguments.fail_fast, retry_failed: arguments.retry_failed, allowed: *allowed };
    let on_slurm = *launcher_kind == LauncherKind::Slurm;
    // The nodes of a cluster start in another directory.
    let path =
        if on_slurm { std::path::absolute(&directory.path).map_err(Failure::failed)? } else { directory.path.clone() };
    let mut launcher: Box<dyn Launcher> = match launcher_kind {
        LauncherKind::Local => sweep_jobs::launcher(&path, record, options, arguments.jobs, terminal)?,
        LauncherKind::Slurm | LauncherKind::Kubernetes => {
            let settings = launcher.take().map(|LauncherSettings::Slurm(settings)| settings);
            sweep_slurm::launcher(&path, record, settings, options, terminal)?
        }
    };
    let mut lines = Lines::new(record, on_slurm.then(|| path.join(layout::SLURM_SCRIPT)), terminal);
    let mut journal = Journal::open(&path, record).map_err(Failure::failed)?;
    let scheduled =
        schedule(&path, record, &mut journal, options, launcher.as_mut(), stop, &mut |event| lines.event(event));
    let tasks = if on_slurm { sweep_slurm::tasks_of_sweep(&path, record, terminal) } else { Vec::new() };
    let progress = show_table(&path, record, &mut journal.histories, &tasks, arguments, terminal);
    let scheduled = scheduled.map_err(|error| Failure::Failed(format!("{error}\n{}", resume_hint(&path))))?;
    let progress = progress?;
    if on_slurm {
        terminal.info(&progress.words(&tasks));
    }
    let all = record.runs_at_most();
    let unfinished = progress.runs - progress.finished;
    let (message, code) = match &scheduled {
        Scheduled::AllDone if unfinished == 0 && !progress.due => return Ok(0),
        Scheduled::AllDone => {
            terminal.error(&match unfinished {
                0 => "a promoted run was not resumed".to_owned(),
                _ => format!("{unfinished} of {} runs did not finish", record.order.len()),
            });
            if !arguments.retry_failed {
                terminal.info(&format!(
                    "to retry them: {} sweep --resume {} --retry-failed; without it, failed runs stay as they are",
                    invocation::program(),
                    path.display()
                ));
            }
            return Ok(exit_code(Outcome::Failed));
        }
        Scheduled::FailedFast { left } => (
            format!("a run failed, and --fail-fast was given: {} not started", pluralize(*left as u64, "run")),
            Outcome::Failed,
        ),
        Scheduled::Stopped { left } => {
            (format!("stopped by a signal: unfinished runs: {left} of {all}"), Outcome::Interrupted)
        }
        Scheduled::Cancelled { left } => {
            (format!("jobs were cancelled: unfinished runs: {left} of {all}"), Outcome::Interrupted)
        }
        Scheduled::Left { jobs, left } => (sweep_slurm::left_message(record, jobs, *left), Outcome::Interrupted),
    };
    terminal.error(&message);
    if let Scheduled::Left { jobs, .. } = &scheduled {
        sweep_slurm::print_job_hints(&path, jobs, terminal);
    }
    terminal.info(&resume_hint(&path));
    Ok(exit_code(code))
}

/// Writes the table of a sweep, shows it, and returns how many runs it has.
fn show_table(
    sweep: &Path,
    record: &SweepRecord,
    histories: &mut Histories,
    tasks: &[QueuedTask],
    arguments: &SweepArguments,
    terminal: Terminal,
) -> Result<RunCounts, Failure> {
    let table = table_files::write(sweep, record, histories, &queued(record, tasks)).map_err(Failure::failed)?;
    match arguments.json {
        true => terminal.json(&table),
        false if !terminal.quiet => terminal.print(&text::text(&table, terminal.width())),
        false => {}
    }
    terminal.info(&format!("report: {}", sweep.join(layout::REPORT).display()));
    RunCounts::new(sweep, record, histories, &table, tasks)
}

/// `xrun sweep --collect DIR`: the table of the results so far, whether processes work on the sweep or not.
fn collect(sweep: &Path, arguments: &SweepArguments, terminal: Terminal) -> Result<u8, Failure> {
    let record = SweepRecord::read(sweep).map_err(Failure::failed)?;
    let tasks = sweep_slurm::tasks_of_sweep(sweep, &record, terminal);
    let mut histories = Histories::read(sweep, &record);
    let counts = show_table(sweep, &record, &mut histories, &tasks, arguments, terminal)?;
    terminal.info(&counts.words(&tasks));
    let (running, waiting) = queue::counts(&tasks);
    if counts.open > running + waiting {
        terminal.info(&resume_hint(sweep));
    }
    Ok(counts.exit_code())
}

/// Numbers of runs in a sweep's table.
struct RunCounts {
    /// Largest number of runs of the sweep.
    all: usize,
    /// Number of runs of the trials so far.
    runs: usize,
    /// Number of runs that finished, or wait at a rung.
    finished: usize,
    /// Number of runs that are to start or continue.
    open: usize,
    /// `true` if a promoted run has not been resumed.
    due: bool,
}

impl RunCounts {
    fn new(
        sweep: &Path,
        record: &SweepRecord,
        histories: &Histories,
        table: &Table,
        tasks: &[QueuedTask],
    ) -> Result<Self, Failure> {
        let runs = || table.rows.iter().flat_map(|row| &row.runs);
        let finished = runs().filter(|run| run.finished || run.at_rung).count();
        let open = ["running", "waiting", "not run", "killed", Outcome::Interrupted.label()];
        let open = runs().filter(|run| open.contains(&run.outcome.as_str())).count();
        let (all, runs) = (record.runs_at_most(), record.order.len());
        // Trials of asha that wait at a rung are done only when none of them is to continue.
        let due = match &record.search {
            Some(Search { method: SearchMethod::Asha { .. }, .. }) => {
                let mut scheduler = Scheduler::new(sweep, record, histories, false);
                under_way(record, tasks).into_iter().for_each(|job| scheduler.adopt(job));
                scheduler.next(&mut record.clone()).map_err(Failure::failed)?.is_some()
            }
            _ => false,
        };
        // A search has trials that are not chosen yet.
        let open = open + (all - runs) + usize::from(due);
        Ok(Self { all, runs, finished, open, due })
    }

    /// `3 of 4 runs finished, 1 running, 0 waiting`
    fn words(&self, tasks: &[QueuedTask]) -> String {
        let (running, waiting) = queue::counts(tasks);
        format!("{} of {} runs finished, {running} running, {waiting} waiting", self.finished, self.all)
    }

    fn exit_code(&self) -> u8 {
        match (self.finished == self.all && !self.due, self.open > 0) {
            (true, _) => 0,
            (_, true) => exit_code(Outcome::Interrupted),
            _ => exit_code(Outcome::Failed),
        }
    }
}

fn resume_hint(sweep: &Path) -> String {
    format!("to continue: {} sweep --resume {}", invocation::program(), sweep.display())
}

fn overrides(arguments: &SweepArguments) -> Vec<String> {
    let mut all = arguments.overrides.all();
    all.extend(arguments.name.iter().map(|name| format!("--name={name}")));
    all.extend(arguments.method.iter().map(|method| format!("--method={}", method.as_str())));
    all.extend(arguments.trials.iter().map(|trials| format!("--trials={trials}")));
    all.extend(arguments.repeats.iter().map(|repeats| format!("--repeats={repeats}")));
    all
}

/// The job that a launcher would submit, and a sentence about it.
fn dry_job(
    launcher: LauncherKind,
    sweep_file: &SweepFile,
    planned: &SweepPlan,
    arguments: &SweepArguments,
) -> Result<Option<(String, String)>, Failure> {
    let record = SweepRecord::new(sweep_file, planned, Vec::new());
    let results = std::path::absolute(&arguments.results.directory).map_err(Failure::failed)?;
    let sweep = results.join(&record.experiment).join(layout::SWEEPS).join("SWEEP");
    Ok(match launcher {
        LauncherKind::Local => None,
        LauncherKind::Slurm => {
            let settings = sweep_file.launcher.clone().map(|LauncherSettings::Slurm(settings)| settings);
            let device = &sweep_file.base.experiment.device;
            Some(sweep_slurm::dry_script(arguments, &sweep, &record, settings, device)?)
        }
        LauncherKind::Kubernetes => Some(kubernetes::job(sweep_file, &record).map_err(Failure::Usage)?),
    })
}

fn print_plan(
    sweep_file: &SweepFile,
    planned: &SweepPlan,
    job: Option<(String, String)>,
    json: bool,
    terminal: Terminal,
) {
    let trials = planned.trials.as_slice();
    let keys: Vec<&str> = sweep_file.axes.iter().map(|axis| axis.key.as_str()).collect();
    if json {
        let trials: Vec<serde_json::Value> = trials
            .iter()
            .enumerate()
            .map(|(at, trial)| {
                let values = keys.iter().zip(&trial.values).map(|(key, value)| masked(key, value));
                let values: Vec<serde_json::Value> = values.collect();
                serde_json::json!({
                    "trial": at + 1, "values": values, "steps": trial.steps, "buffer_bytes": trial.buffer_bytes,
                })
            })
            .collect();
        let mut all = serde_json::json!({ "keys": keys, "repeats": sweep_file.sweep.repeats, "trials": trials });
        if let (Some(all), false) = (all.as_object_mut(), planned.rungs.is_empty()) {
            all.insert("rungs".into(), planned.rungs.clone().into());
        }
        if let (Some(all), Some((job, _))) = (all.as_object_mut(), job) {
            all.insert("job".into(), job.into());
        }
        terminal.json(&all);
        return;
    }
    let search = search::search_from(sweep_file, &planned.rungs)
        .map_or_else(String::new, |search| format!("{}\n", sweep_search::description(&search)));
    let plan = format!("{}{search}", text::plan(&keys, trials, sweep_file.sweep.repeats, terminal.width()));
    let Some((job, note)) = job else { return terminal.print(&plan) };
    // The answer is the job alone, which can be piped.
    terminal.info(plan.trim_end());
    terminal.print(&job);
    if !note.is_empty() {
        terminal.info(&note);
    }
}

/// Reports the progress of a sweep.
struct Lines {
    keys: Vec<String>,
    /// The number of runs is not known before their results.
    searches: bool,
    /// The batch script of a cluster.
    script: Option<PathBuf>,
    terminal: Terminal,
    begun: Instant,
    last: Option<Instant>,
    /// Runs that ended since this process began.
    ended: usize,
    all: usize,
}

impl Lines {
    fn new(record: &SweepRecord, script: Option<PathBuf>, terminal: Terminal) -> Self {
        Self {
            keys: record.keys.clone(),
            searches: record.search.is_some(),
            script,
            terminal,
            begun: Instant::now(),
            last: None,
            ended: 0,
            all: record.runs_at_most(),
        }
    }

    fn event(&mut self, event: Event<'_>) {
        let text = match event {
            Event::Begins { done: 0, .. } => return,
            Event::Begins { left, done } => {
                let is = if done == 1 { "is" } else { "are" };
                format!("{} {is} done, {left} to do", pluralize(done as u64, "run"))
            }
            Event::Waits { run } => format!("{run}: locked by another process; waiting for it to finish"),
            Event::Submitted { job, jobs, .. } if self.searches => {
                if self.all > LINES_MAX && !self.terminal.verbose {
                    return;
                }
                let one = |job: &Job| {
                    let far = job.until.map_or_else(|| "its end".to_owned(), |step| format!("step {step}"));
                    format!("{} to {far}", job.run)
                };
                format!("job {job}: {}", jobs.iter().map(one).collect::<Vec<_>>().join(", "))
            }
            Event::Submitted { job, jobs, memory } => {
                let each = memory.map_or_else(String::new, |memory| format!(", {} each", Bytes(memory)));
                let script = self.script.as_deref().unwrap_or(Path::new("")).display();
                let runs = pluralize(jobs.len() as u64, "run");
                format!("job {job}: {runs}{each} ({script}); Ctrl-C leaves them to Slurm")
            }
            Event::Queue { running, waiting, reason } => {
                let why = if reason.is_empty() || reason == "None" { String::new() } else { format!(" ({reason})") };
                let waiting = if waiting > 0 { format!(", {waiting} waiting{why}") } else { String::new() };
                format!("{running} running{waiting}")
            }
            Event::Unavailable { error: error @ SlurmError::Refused { .. } } => {
                format!("{error}; resubmitted when another job has ended")
            }
            Event::Unavailable { error } => format!("{error}; retrying until Slurm answers"),
            Event::Retried { run, process } => {
                let why = process.message.as_deref().unwrap_or("too little memory while co-scheduled");
                match (&self.script, process.retry_memory.map(Bytes)) {
                    (Some(_), Some(bytes)) => format!("{run}: {why}; resubmitted with {bytes}"),
                    (Some(_), None) => format!("{run}: {why}; resubmitted"),
                    (None, bytes) => {
                        let needs = bytes.map_or_else(String::new, |bytes| format!(", with about {bytes}"));
                        format!("{run}: {why}; retried alone{needs}")
                    }
                }
            }
            Event::Stops { running } => format!("stopping: {} to save a checkpoint", pluralize(running as u64, "run")),
            Event::Ended { job, values, process, left } => return self.ended(job, values, process, left),
        };
        self.terminal.info(&text);
    }

    fn ended(&mut self, Job { run, until }: Job, values: &[serde_json::Value], process: &Process, left: usize) {
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
            (None, None) => "ended with unknown exit status".into(),
        };
        let why = process.message.as_ref().filter(|_| !good).map_or_else(String::new, |why| format!(": {why}"));
        let time = self.begun.elapsed().as_secs_f64() / self.ended as f64 * left as f64;
        let time = if left > 0 && !self.searches { format!(" · about {} left", seconds(time)) } else { String::new() };
        let values = words(self.keys.iter().map(String::as_str), values.iter());
        self.terminal.info(&format!("{}/{} · {run} · {values} · {how}{why}{time}", self.all - left, self.all));
    }
}
