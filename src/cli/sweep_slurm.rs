//! `xrun sweep --launcher slurm`: what is asked for, what is said meanwhile; and what a node's process becomes.

use std::path::Path;

use super::programs::Programs;
use super::sweep::{Lines, SweepArguments, how_to_go_on};
use super::sweep_forecasts::AsChosen;
use super::sweep_jobs::Jobs;
use super::sweep_memory;
use super::terminal::{Failure, Terminal};
use crate::child;
use crate::device::{self, Kind};
use crate::experiment::launcher::Slurm;
use crate::experiment::read;
use crate::files::layout;
use crate::invocation;
use crate::results::format::Outcome;
use crate::stop::{StopSignal, exit_code};
use crate::sweep::needs::Forecasts;
use crate::sweep::records::search::{Method, Search};
use crate::sweep::records::sweep::Record;
use crate::sweep::records::sweep_memory::SweepMemory;
use crate::sweep::search::course::course as search_course;
use crate::sweep::slurm::arrays::ARRAYS_MAX;
use crate::sweep::slurm::jobs::tasks_of;
use crate::sweep::slurm::watch::{Event, Submission, Watched, active_jobs, counts, queued, watch};
use crate::sweep::slurm::{self, SlurmError, queue, search, task};
use crate::sweep::{table, text};
use crate::units::{Bytes, counted};

/// What to do where no probe can be made.
const ADVICE: &str = "write `memory = \"8 GiB\"`, or what it needs, in [launcher.slurm]";

/// Refuses what has no meaning on a cluster, and a machine without Slurm, before anything is written.
pub fn check(arguments: &SweepArguments) -> Result<(), Failure> {
    if arguments.jobs != Jobs::Count(1) {
        let message =
            "--jobs is for this machine; on Slurm `array_limit` in [launcher.slurm] says how many run at once";
        return Err(Failure::Usage(message.into()));
    }
    if arguments.fail_fast {
        return Err(Failure::Usage("--fail-fast is for this machine: Slurm starts the runs by itself".into()));
    }
    queue::available().map_err(Failure::failed)
}

/// Refuses to run here what jobs of Slurm are at work on.
pub fn check_idle(sweep: &Path) -> Result<(), Failure> {
    // Without Slurm's commands nothing is known; locks still keep two processes out of one run.
    let record = Record::read(sweep).map_err(Failure::failed)?;
    let tasks = tasks_of(sweep, &record).unwrap_or_default();
    let jobs = active_jobs(&tasks);
    match jobs.is_empty() {
        true => Ok(()),
        false => {
            let jobs: Vec<String> = jobs.iter().map(u64::to_string).collect();
            let message =
                format!("jobs of this sweep are in Slurm's queue; cancel them first: scancel {}", jobs.join(" "));
            Err(Failure::Usage(message))
        }
    }
}

/// Hands the sweep to Slurm and watches it. `settings` are the file's; those of a sweep that was submitted before count more.
pub fn conduct(
    sweep: &Path,
    record: &Record,
    settings: Option<Slurm>,
    allowed: bool,
    arguments: &SweepArguments,
    stop: &StopSignal,
    terminal: Terminal,
) -> Result<Watched, Failure> {
    let settings = match slurm::kept(sweep).map_err(Failure::failed)? {
        Some(settings) => settings,
        None => {
            let settings = asked(sweep, record, settings.unwrap_or_default())?;
            // Before anything of Slurm is written: where it fails, the sweep may go on here.
            by_point(sweep, record, &settings, terminal)?;
            slurm::keep(sweep, &settings).map_err(Failure::failed)?;
            settings
        }
    };
    let memory = by_point(sweep, record, &settings, terminal)?;
    if let Some(memory) = &memory {
        terminal.say(&format!("memory by point: {}", sweep_memory::words_of_sizes(memory)));
    }
    let program = child::this_program().map_err(Failure::failed)?;
    let retry_failed = arguments.retry_failed;
    let forecasts = memory.map(|memory| AsChosen::new(sweep, memory, terminal));
    let memory = forecasts.as_ref().map(|forecasts| forecasts as &dyn Forecasts);
    let submission = Submission { program: &program, settings: &settings, memory, retry_failed, allowed };
    let mut lines = Lines::new(record, terminal);
    let mut tell = |event: Event<'_>| said(&event, &mut lines, sweep, terminal);
    let watched = match &record.search {
        Some(by) => {
            // Points that were planned are chosen one by one, and some are already.
            let mut record = Record::read(sweep).map_err(Failure::failed)?;
            let most = settings.array_limit.unwrap_or(search::JOBS);
            terminal.say(&format!(
                "at most {} at once (`array_limit`); Ctrl-C leaves them to Slurm",
                counted(most.into(), "job")
            ));
            search::watch(sweep, &mut record, by, submission, stop, &mut tell)
        }
        None => watch(sweep, record, submission, stop, &mut tell),
    };
    watched.map_err(|error| Failure::Failed(format!("{error}\n{}", how_to_go_on(sweep))))
}

fn said(event: &Event<'_>, lines: &mut Lines, sweep: &Path, terminal: Terminal) {
    match event {
        Event::Submitted { job, runs, memory } => {
            let each = memory.map_or_else(String::new, |memory| format!(", {} each", Bytes(memory)));
            terminal.say(&format!(
                "job {job}: {}{each}, as {} says; Ctrl-C leaves them to Slurm",
                counted(*runs as u64, "run"),
                sweep.join(layout::SLURM_SCRIPT).display()
            ));
        }
        Event::Queue { running, waiting, reason } => {
            let why = if reason.is_empty() || *reason == "None" { String::new() } else { format!(" ({reason})") };
            let waiting = if *waiting > 0 { format!(", {waiting} waiting{why}") } else { String::new() };
            terminal.say(&format!("{running} running{waiting}"));
        }
        Event::Silent { error: error @ SlurmError::Refused { .. } } => {
            terminal.say(&format!("{error}; it is tried again when another job has ended"));
        }
        Event::Silent { error } => terminal.say(&format!("{error}; asking again until Slurm answers")),
        Event::Again { run, why, memory } => {
            let with = memory.map_or_else(String::new, |memory| format!(", once, with {}", Bytes(memory)));
            terminal.say(&format!("{run}: {why}; submitted again{with}"));
        }
        Event::Ended { run, until, values, process, left } => lines.ended((*run, *until), values, process, *left),
        Event::Sent { job, run, until } => lines.sent(*job, *run, *until),
        Event::Waits { run } => lines.waits(*run),
    }
}

/// Says how watching ended, and answers with the exit code; `None` when all is done.
pub fn tell(watched: &Watched, sweep: &Path, record: &Record, terminal: Terminal) -> Option<u8> {
    let runs = record.runs_at_most();
    match watched {
        Watched::AllDone => None,
        Watched::Left { jobs, left } => {
            let goes_on = match (&record.search, jobs.len() as u64) {
                (None, _) => ", and Slurm goes on with them".to_owned(),
                (Some(_), 0) => "; no job is in the queue".to_owned(),
                // What comes after them follows from what comes out.
                (Some(_), jobs) => format!(
                    "; Slurm goes on with {} that it has, and no other is submitted before the search is continued",
                    counted(jobs, "job")
                ),
            };
            let jobs: Vec<String> = jobs.iter().map(u64::to_string).collect();
            terminal.error(&format!("stopped watching: {left} of {runs} runs are not done{goes_on}"));
            terminal.say(&format!(
                "to look, later and from any shell: {} sweep --collect {}",
                invocation::program(),
                sweep.display()
            ));
            if !jobs.is_empty() {
                terminal.say(&format!("to cancel them: scancel {}", jobs.join(" ")));
            }
            terminal.say(&how_to_go_on(sweep));
            Some(exit_code(Outcome::Interrupted))
        }
        Watched::Cancelled { left } => {
            terminal.error(&format!("jobs were cancelled: {left} of {runs} runs are not done"));
            terminal.say(&how_to_go_on(sweep));
            Some(exit_code(Outcome::Interrupted))
        }
    }
}

/// The settings with GPUs and the size of arrays filled in.
fn asked(sweep: &Path, record: &Record, mut settings: Slurm) -> Result<Slurm, Failure> {
    let base = sweep.join(layout::BASE);
    let device = read::read_resolved(&base, &[])?.experiment.experiment.device;
    let swept = record.keys.iter().position(|key| key == "experiment.device");
    let mut devices: Vec<String> = match swept {
        Some(at) => record.points.iter().filter_map(|point| point[at].as_str().map(str::to_owned)).collect(),
        None => vec![device],
    };
    devices.dedup();
    if settings.gpus.is_none() {
        settings.gpus = Some(u32::from(devices.iter().any(|device| wants_gpu(device))));
    }
    let gpus = settings.gpus.unwrap_or_default();
    let number = |device: &String| device.split_once(':').and_then(|(_, number)| number.parse::<u32>().ok());
    if let Some(device) = devices.iter().find(|device| gpus > 0 && number(device).is_some_and(|number| number >= gpus))
    {
        let message = format!(
            "`{device}`: Slurm counts the GPUs that it gives to a run from 0, and {gpus} are asked for; write \
             experiment.device = \"{}\", or more `gpus` in [launcher.slurm]",
            device.split(':').next().unwrap_or_default()
        );
        return Err(Failure::Usage(message));
    }
    settings.array_size = settings.array_size.or_else(queue::array_size_max);
    check_arrays(record.runs_at_most(), settings.array_size)?;
    Ok(settings)
}

/// What each point is given, where no size is set for all.
fn by_point(
    sweep: &Path,
    record: &Record,
    settings: &Slurm,
    terminal: Terminal,
) -> Result<Option<SweepMemory>, Failure> {
    match settings.memory.is_some() {
        true => Ok(None),
        false => sweep_memory::with_sizes(sweep, record, ADVICE, terminal).map(Some),
    }
}

/// A cluster may take no arrays at all, or so small ones that they would be too many.
fn check_arrays(runs: usize, size: Option<u32>) -> Result<(), Failure> {
    let message = match size {
        Some(0) => {
            "this cluster takes no job arrays (MaxArraySize is 0 in `scontrol show config`); run the sweep without \
                    `--launcher slurm`, on this machine or in a job of its own"
                .to_owned()
        }
        Some(size) if runs.div_ceil(size as usize) > ARRAYS_MAX => format!(
            "{runs} runs would be {} job arrays, and at most {ARRAYS_MAX} are submitted: this cluster takes {size} tasks in \
             one (`array_size`, or MaxArraySize in `scontrol show config`); sweep less at once",
            runs.div_ceil(size as usize)
        ),
        _ => return Ok(()),
    };
    Err(Failure::Usage(message))
}

fn wants_gpu(device: &str) -> bool {
    match device.split(':').next() {
        Some("cuda" | "vulkan") => true,
        Some("auto") => device::choose(device).is_ok_and(|chosen| chosen.kind != Kind::Cpu),
        _ => false,
    }
}

/// `xrun sweep --collect DIR`: the table of what there is, whoever works on it. How to continue is said where something is left to
/// do, unless `told` says that it will be.
pub fn collect(sweep: &Path, json: bool, told: bool, terminal: Terminal) -> Result<u8, Failure> {
    let record = Record::read(sweep).map_err(Failure::failed)?;
    let on_slurm = sweep.join(layout::SLURM).is_file();
    let tasks = match tasks_of(sweep, &record) {
        Ok(tasks) => tasks,
        Err(error) if on_slurm => {
            terminal.say(&format!("{error}; what runs and waits is not known"));
            Vec::new()
        }
        Err(_) => Vec::new(),
    };
    let table = table::write(sweep, &record, &queued(&record, &tasks)).map_err(Failure::failed)?;
    match json {
        true => terminal.json(&table),
        false if !terminal.quiet => terminal.answer(&text::text(&table, terminal.width())),
        false => {}
    }
    terminal.say(&format!("report: {}", sweep.join(layout::REPORT).display()));
    let runs = || table.rows.iter().flat_map(|row| &row.runs);
    let finished = runs().filter(|run| run.outcome == "finished" || run.at_rung).count();
    let open = ["running", "waiting", "not run", "killed", Outcome::Interrupted.words()];
    let open = runs().filter(|run| open.contains(&run.outcome.as_str())).count();
    // A search has points that are not chosen yet.
    let all = record.runs_at_most();
    let open = open + all - record.order.len();
    // Points of halving that stand at a rung are done only when none of them is to go on.
    let due = match &record.search {
        Some(search @ Search { method: Method::Asha { .. }, .. }) => {
            let mut course = search_course(sweep, &record, search, false);
            search::under_way(&record, &tasks).into_iter().for_each(|job| course.adopt(job));
            course.next(&mut record.clone()).map_err(Failure::failed)?.is_some()
        }
        _ => false,
    };
    let open = open + usize::from(due);
    let (running, waiting) = counts(&tasks);
    terminal.say(&format!("{finished} of {all} runs finished, {running} running, {waiting} waiting"));
    match (finished == all && !due, open > 0) {
        (true, _) => Ok(0),
        (_, true) => {
            if open > running + waiting && !told {
                terminal.say(&how_to_go_on(sweep));
            }
            Ok(exit_code(Outcome::Interrupted))
        }
        _ => Ok(exit_code(Outcome::Failed)),
    }
}

/// `xrun sweep --task N --resume DIR`, on a node: this process becomes the run, to stop after a step if there is one.
/// `(retry_failed, allowed)` as in the script.
pub fn become_run(
    sweep: &Path,
    place: usize,
    until: Option<u64>,
    (retry_failed, allowed): (bool, bool),
) -> Result<u8, Failure> {
    let record = task::record(sweep, place).map_err(Failure::failed)?;
    Programs::of_sweep(sweep, &record)?.check(allowed)?;
    let start = task::start(sweep, &record, place, until, retry_failed, allowed).map_err(Failure::failed)?;
    let Some(start) = start else { return Ok(0) };
    let program = child::this_program().map_err(Failure::failed)?;
    let mut command = start.command(&program).map_err(Failure::failed)?;
    // One process, and no other before it: Slurm signals some processes of a job, or all.
    #[cfg(unix)]
    return Err(Failure::failed(std::os::unix::process::CommandExt::exec(&mut command)));
    #[cfg(not(unix))]
    return command.status().map_err(Failure::failed).map(|status| status.code().unwrap_or(1) as u8);
}
