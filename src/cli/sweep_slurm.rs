//! `xrun sweep --launcher slurm`: the settings of its jobs, its messages, and the process of a task on a node.

use std::path::Path;

use super::programs::Programs;
use super::sweep::SweepArguments;
use super::sweep_jobs;
use super::sweep_jobs::JobLimit;
use super::sweep_search;
use super::terminal::{Failure, Terminal};
use crate::child;
use crate::device::{self, DeviceKind};
use crate::experiment::launcher::{Gpus, Slurm};
use crate::files::layout;
use crate::invocation;
use crate::sweep::launcher::Launcher;
use crate::sweep::records::sweep::SweepRecord;
use crate::sweep::resources::forecasts::Forecasts;
use crate::sweep::schedule::Options;
use crate::sweep::slurm::arrays::{ARRAYS_MAX, Arrays};
use crate::sweep::slurm::jobs::JobNames;
use crate::sweep::slurm::launcher::{SEARCH_JOBS, SlurmLauncher, Submission, active_jobs};
use crate::sweep::slurm::queue::QueuedTask;
use crate::sweep::slurm::script::{self, Array};
use crate::sweep::slurm::{self, SlurmError, queue, task};
use crate::units::pluralize;

/// Advice where no probe can be made.
const ADVICE: &str = "write `memory = \"8 GiB\"`, or what it needs, in [launcher.slurm]";

/// Refuses options without a meaning on a cluster, and a machine without Slurm, before anything is written.
pub fn check(arguments: &SweepArguments) -> Result<(), Failure> {
    check_options(arguments)?;
    queue::available().map_err(Failure::failed)
}

fn check_options(arguments: &SweepArguments) -> Result<(), Failure> {
    if arguments.jobs != JobLimit::Count(1) {
        let message =
            "--jobs is for this machine; on Slurm, `array_limit` in [launcher.slurm] is the number of runs at once";
        return Err(Failure::Usage(message.into()));
    }
    if arguments.fail_fast {
        return Err(Failure::Usage("--fail-fast is for this machine: Slurm starts the runs".into()));
    }
    Ok(())
}

/// The script of the first job that would be submitted, and a sentence on what is not known before. Needs no Slurm.
pub fn dry_script(
    arguments: &SweepArguments,
    sweep: &Path,
    record: &SweepRecord,
    settings: Option<Slurm>,
    device: &str,
) -> Result<(String, String), Failure> {
    check_options(arguments)?;
    let (_, settings) = sweep_search::for_slurm(record, settings);
    let devices = sweep_jobs::devices(record, || Ok(device.to_owned()))?;
    let settings = complete_settings(record, &devices, settings.unwrap_or_default())?;
    let runs = record.runs_at_most();
    let (until, at_once) = match &record.search {
        Some(search) => (search.rungs().first().copied(), 1),
        None => (None, runs.min(settings.array_size.map_or(usize::MAX, |size| size as usize))),
    };
    let arrays = Arrays::new(sweep, runs, settings.array_size);
    let arrays = if record.search.is_some() { arrays.going_to(until) } else { arrays };
    let tasks: Vec<usize> = (0..at_once).collect();
    let array = Array { name: &arrays.name(0), first: 0, tasks: &tasks, after: None, until };
    let program = child::program_path().map_err(Failure::failed)?;
    let script = script::script(&program, sweep, &settings, &array, (false, true)).map_err(Failure::failed)?;
    let mut notes = Vec::new();
    if settings.memory.is_none() {
        notes.push(
            "`--mem` follows from a probe of each trial; trials of different sizes become arrays of their own".into(),
        );
    }
    if runs > at_once {
        notes.push(format!("{} more follow in jobs like this one", pluralize((runs - at_once) as u64, "run")));
    }
    Ok((script, notes.join("; ")))
}

/// Refuses to run a sweep on this machine while its jobs are in the queue.
pub fn check_idle(sweep: &Path) -> Result<(), Failure> {
    // Without Slurm's commands the jobs are not known; locks still protect each run.
    let record = SweepRecord::read(sweep).map_err(Failure::failed)?;
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

/// A launcher that submits the sweep. `settings` are those of the file, unless the sweep has its own from an earlier submission.
pub fn launcher<'a>(
    sweep: &'a Path,
    record: &SweepRecord,
    settings: Option<Slurm>,
    options: Options,
    terminal: Terminal,
) -> Result<Box<dyn Launcher + 'a>, Failure> {
    let (known, settings) = sweep_search::for_slurm(record, settings);
    let settings = match slurm::read_settings(sweep).map_err(Failure::failed)? {
        Some(settings) => settings,
        None => {
            let devices = sweep_jobs::devices(&known, || sweep_jobs::base_device(sweep))?;
            let settings = complete_settings(&known, &devices, settings.unwrap_or_default())?;
            // Before anything is written: after an error, the sweep may continue on this machine.
            forecasts(sweep, &known, &settings, terminal)?;
            slurm::write_settings(sweep, &settings).map_err(Failure::failed)?;
            settings
        }
    };
    let memory = forecasts(sweep, &known, &settings, terminal)?;
    if let Some(forecasts) = &memory {
        terminal.info(&format!("memory by trial: {}", forecasts.memory.sizes_as_text()));
    }
    if record.search.is_some() {
        let most = pluralize(settings.array_limit.unwrap_or(SEARCH_JOBS).into(), "job");
        terminal.info(&format!("at most {most} at once (`array_limit`); Ctrl-C leaves them to Slurm"));
    }
    let program = child::program_path().map_err(Failure::failed)?;
    let submission = Submission { program, settings, memory, options };
    Ok(Box::new(SlurmLauncher::new(sweep, record, submission).map_err(Failure::failed)?))
}

/// Message where the launcher stops and the jobs continue.
pub fn left_message(record: &SweepRecord, jobs: &[u64], left: usize) -> String {
    let continues = match (&record.search, jobs.len() as u64) {
        (None, _) => "; Slurm continues them".to_owned(),
        (Some(_), 0) => "; no job is in the queue".to_owned(),
        // The next jobs follow from their results.
        (Some(_), jobs) => format!(
            "; Slurm continues {}, and no other is submitted before the search is resumed",
            pluralize(jobs, "job")
        ),
    };
    format!("stopped watching: unfinished runs: {left} of {}{continues}", record.runs_at_most())
}

/// Prints how to collect the results of the jobs that continue, and how to cancel them.
pub fn print_job_hints(sweep: &Path, jobs: &[u64], terminal: Terminal) {
    terminal.info(&format!(
        "to see the table, from any shell: {} sweep --collect {}",
        invocation::program(),
        sweep.display()
    ));
    if !jobs.is_empty() {
        let jobs: Vec<String> = jobs.iter().map(u64::to_string).collect();
        terminal.info(&format!("to cancel them: scancel {}", jobs.join(" ")));
    }
}

/// The tasks of a sweep in the queue. Where Slurm does not answer there are none, which is reported if the sweep was submitted.
pub fn tasks_of_sweep(sweep: &Path, record: &SweepRecord, terminal: Terminal) -> Vec<QueuedTask> {
    match tasks_of(sweep, record) {
        Ok(tasks) => tasks,
        Err(error) => {
            if sweep.join(layout::SLURM).is_file() {
                terminal.info(&format!("{error}; the state of the queue is not known"));
            }
            Vec::new()
        }
    }
}

fn tasks_of(sweep: &Path, record: &SweepRecord) -> Result<Vec<QueuedTask>, SlurmError> {
    JobNames::new(sweep, record)?.tasks()
}

/// The settings with the number of GPUs and the size of arrays.
fn complete_settings(record: &SweepRecord, devices: &[String], mut settings: Slurm) -> Result<Slurm, Failure> {
    let wanted = || Gpus::Count(devices.iter().any(|device| wants_gpu(device)).into());
    let gpus = settings.gpus.get_or_insert_with(wanted).count();
    let number = |device: &String| device.split_once(':').and_then(|(_, number)| number.parse::<u32>().ok());
    if let Some(device) = devices.iter().find(|device| gpus > 0 && number(device).is_some_and(|number| number >= gpus))
    {
        let message = format!(
            "`{device}`: Slurm numbers the GPUs of a run from 0, and `gpus` is {gpus}; write \
             experiment.device = \"{}\", or more `gpus` in [launcher.slurm]",
            device.split(':').next().unwrap_or_default()
        );
        return Err(Failure::Usage(message));
    }
    settings.array_size = settings.array_size.or_else(queue::array_size_max);
    check_arrays(record.runs_at_most(), settings.array_size)?;
    Ok(settings)
}

/// Forecasts and sizes, where no size is set for all trials.
fn forecasts<'a>(
    sweep: &'a Path,
    record: &SweepRecord,
    settings: &Slurm,
    terminal: Terminal,
) -> Result<Option<Forecasts<'a>>, Failure> {
    match settings.memory.is_some() {
        true => Ok(None),
        false => Ok(Some(Forecasts::open(sweep, record, true, ADVICE, move |text| terminal.info(text))?)),
    }
}

/// Refuses a cluster without arrays, or with arrays that are too small for the sweep.
fn check_arrays(runs: usize, size: Option<u32>) -> Result<(), Failure> {
    let message = match size {
        Some(0) => {
            "this cluster does not support job arrays (MaxArraySize is 0 in `scontrol show config`); run the sweep without \
                    `--launcher slurm`, on this machine or in a job of its own"
                .to_owned()
        }
        Some(size) if runs.div_ceil(size as usize) > ARRAYS_MAX => format!(
            "{runs} runs would be {} job arrays, and at most {ARRAYS_MAX} are submitted: this cluster takes {size} tasks in \
             one (`array_size`, or MaxArraySize in `scontrol show config`); split the sweep",
            runs.div_ceil(size as usize)
        ),
        _ => return Ok(()),
    };
    Err(Failure::Usage(message))
}

fn wants_gpu(device: &str) -> bool {
    match device.split(':').next() {
        Some("cuda" | "vulkan") => true,
        Some("auto") => device::select(device).is_ok_and(|chosen| chosen.kind != DeviceKind::Cpu),
        _ => false,
    }
}

/// `xrun sweep --task N --resume DIR`, on a node: this process becomes the run, to stop after step `until` or at its end.
/// `(retry_failed, allowed)` are the flags of the script.
pub fn become_run(
    sweep: &Path,
    place: usize,
    until: Option<u64>,
    (retry_failed, allowed): (bool, bool),
) -> Result<u8, Failure> {
    let record = task::record(sweep, place).map_err(Failure::failed)?;
    Programs::for_sweep(sweep, &record)?.check(allowed)?;
    let start = task::start(sweep, &record, place, until, retry_failed, allowed).map_err(Failure::failed)?;
    let Some(start) = start else { return Ok(0) };
    let program = child::program_path().map_err(Failure::failed)?;
    let mut command = start.command(&program).map_err(Failure::failed)?;
    // By `exec`: Slurm signals some processes of a job, or all.
    Err(Failure::failed(std::os::unix::process::CommandExt::exec(&mut command)))
}
