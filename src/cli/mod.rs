//! Command line: arguments of all subcommands. Each subcommand has a file of its own.

mod blame;
mod changeable;
mod check;
mod choice;
mod command;
mod compare;
mod contract;
mod devices;
mod dispatch;
#[cfg(test)]
#[path = "documents_tests.rs"]
mod documents;
mod ending;
mod eval;
mod export;
mod fail_on;
mod fork;
mod generate;
mod keep;
mod list;
mod new;
mod note;
mod plan;
mod predict;
mod problems;
mod programs;
mod progress;
mod remove;
mod reproduce;
mod resume;
mod run;
mod show;
mod sweep;
mod sweep_jobs;
mod sweep_search;
mod sweep_slurm;
mod terminal;
mod top;
mod training;
mod typo;
mod ui;
mod until;
mod verdict;
mod watch;

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};

use crate::experiment::Experiment;
use crate::invocation;
use crate::report::width::fold;
use crate::run::evaluate::CheckpointChoice;
use crate::units::{Bytes, Span};
pub use dispatch::{main, run_from_args};
use fail_on::FailingVerdict;
use terminal::Terminal;

/// Environment variables that are valid Unicode; others cannot set a key.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

const EXIT_CODES: &str = "\
Exit codes:
    0  success: finished, stopped early as configured, or valid
    1  failed: data, device or disk
    2  invalid file or command line
    3  the plan does not fit the limits or the machine; --force starts anyway
    4  the loss is not finite
    5  a memory limit was reached
    6  memory grows or training failed (with --fail-on, memory.fail_on or training.fail_on), or the memory contract is
       violated (--locked)
    7  the time limit was reached
    8  stopped by a signal; the run can be resumed
   70  panic of the backend or the program
   75  parked with a checkpoint, because memory was short (`park` in limits.on_pressure)";

const REPRODUCE_EXIT_CODES: &str = "\
Exit codes:
    0  the metrics agree: bit-identical on the CPU, within the tolerance on a GPU
    1  the metrics differ, or the reproduction failed
    2  no such run, or invalid command line
    8  stopped by a signal";

/// Default directory of all results.
const RESULTS: &str = "results";

/// Help of an argument that names a run.
const RUN_HELP: &str = "Run: a directory, EXPERIMENT/RUN, the first or last six characters of its name, EXPERIMENT, latest or \
    latest~2";

/// Version of xrun, also for a program that is built on it.
fn version() -> &'static str {
    let is_xrun = invocation::program() == env!("CARGO_PKG_NAME");
    if is_xrun { env!("CARGO_PKG_VERSION") } else { concat!("with xrun ", env!("CARGO_PKG_VERSION")) }
}

/// Commands of the short help by purpose. `--help-all` has the others, too.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Run", &["run", "sweep", "check", "plan", "new"]),
    ("Look", &["ls", "show", "compare", "top", "ui"]),
    ("Continue", &["resume", "fork", "predict", "eval", "export"]),
    ("Other trainers", &["watch", "verdict"]),
];

/// Column at which the descriptions of commands begin.
const ABOUT_COLUMN: usize = 13;
/// Width of the help where the terminal is wider.
const HELP_WIDTH_MAX: usize = 100;

/// The command line. Its help has commands in groups; `all`: all of them, and the exit codes.
pub fn command_line(all: bool) -> clap::Command {
    let command = CommandLine::command();
    let width = terminal::stdout_width().min(HELP_WIDTH_MAX);
    let line = |name: &str| {
        let about = command.find_subcommand(name).and_then(clap::Command::get_about);
        let about = about.map(ToString::to_string).unwrap_or_default();
        fold(&format!("  {name:<11}{about}\n"), Some(width), ABOUT_COLUMN)
    };
    let group = |(title, names): &(&str, &[&str])| {
        format!("{title}:\n{}\n", names.iter().map(|name| line(name)).collect::<String>())
    };
    let groups: String = GROUPS.iter().map(group).collect();
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others = command.get_subcommands().filter(|other| !other.is_hide_set()).map(clap::Command::get_name);
    let others: Vec<&str> = others.filter(|name| !is_grouped(name)).collect();
    let program = invocation::program();
    let end = match all {
        true => format!("{}{EXIT_CODES}", group(&("Others", others.as_slice()))),
        false => format!(
            "All commands and exit codes: {program} --help-all. Options: {program} COMMAND --help.\n\
             For programs that run experiments: {program} help agents."
        ),
    };
    command
        .help_template("{about-with-newline}\n{usage-heading} {usage}{after-help}\n")
        .after_help(format!("{groups}{end}"))
}

/// Run a declarative experiment in which every buffer is bounded.
///
/// FILE is a TOML file with pipeline, model, data and limits. Results are written to results/<experiment>/<run>/;
/// results/<experiment>/latest is a symlink to the newest run.
#[derive(Debug, Parser)]
#[command(name = invocation::program(), version = version(), args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, arg_required_else_help = true)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an experiment (`run` can be omitted: xrun FILE).
    #[command(after_help = EXIT_CODES)]
    Run(RunArguments),
    /// Run an experiment for many values of its settings, and compare metrics, memory and speed.
    #[command(after_help = sweep::HELP)]
    Sweep(sweep::SweepArguments),
    /// Check experiment files and their data, or the devices of this machine, and report all problems.
    Check(CheckArguments),
    /// Forecast the memory of an experiment, check that it fits, or find the largest value that fits.
    #[command(after_help = EXIT_CODES)]
    Plan(PlanArguments),
    /// Print a commented experiment file as a starting point.
    New(NewArguments),
    /// Resume a run that was stopped or killed.
    #[command(after_help = EXIT_CODES)]
    Resume(resume::ResumeArguments),
    /// Start a new run from a checkpoint of a run, with other settings.
    #[command(after_help = EXIT_CODES)]
    Fork(fork::ForkArguments),
    /// Run an experiment of an existing run again and compare the metrics.
    #[command(after_help = REPRODUCE_EXIT_CODES)]
    Reproduce(reproduce::ReproduceArguments),
    /// Validate a checkpoint of a run, on its own data or on other data.
    #[command(after_help = EXIT_CODES)]
    Eval(eval::EvalArguments),
    /// Predict on your own images, sounds or questions with a checkpoint of a run.
    #[command(after_help = EXIT_CODES)]
    Predict(predict::PredictArguments),
    /// List runs, newest first.
    Ls(list::ListArguments),
    /// Attach a note or tags to a run.
    Note(note::NoteArguments),
    /// Copy a result in the form to be committed or published: small files, without names of machine, user and directories.
    Keep(keep::KeepArguments),
    /// Remove runs, or all but the newest, after confirmation; never one that is active or committed in git.
    Rm(remove::RemoveArguments),
    /// Compare the settings, metrics, memory and speed of runs.
    Compare(compare::CompareArguments),
    /// Show a run or a sweep.
    Show(show::ShowArguments),
    /// Monitor runs: state, progress, memory by owner, and the verdict so far.
    #[command(after_help = top::HELP)]
    Top(top::TopArguments),
    /// Serve a local page with all runs and sweeps, their curves and reports.
    #[command(after_help = ui::HELP)]
    Ui(ui::UiArguments),
    /// Judge whether memory grows, in a run, a memory.jsonl or a trace of another tool.
    #[command(after_help = EXIT_CODES)]
    Verdict(VerdictArguments),
    /// Find the part of an experiment that makes memory grow, by twins of a run with parts switched off.
    Blame(blame::BlameArguments),
    /// Run any command, record its memory and judge whether it grows: watch -- python train.py
    #[command(after_help = watch::HELP)]
    Watch(watch::WatchArguments),
    /// Export a run: its report again, its metrics as TensorBoard events, or its weights for PyTorch.
    Export(ExportArguments),
    /// Print schemas, manual pages and shell completions, for editors and packages.
    #[command(hide = true)]
    Generate(generate::GenerateArguments),
    /// Print how a program that runs experiments uses xrun.
    #[command(hide = true, long_about = AGENTS, help_template = "{about}")]
    Agents,
}

/// Page for programs that run experiments.
const AGENTS: &str = include_str!("../../SKILL.md");

impl Command {
    /// Runs the subcommand and returns the exit code.
    fn run(self, terminal: &Terminal) -> Result<u8, terminal::Failure> {
        match self {
            Self::Run(arguments) => run::run(&arguments),
            Self::Resume(arguments) => resume::run(&arguments),
            Self::Sweep(arguments) => sweep::run(&arguments),
            Self::Fork(arguments) => fork::run(&arguments),
            Self::Reproduce(arguments) => reproduce::run(&arguments),
            Self::Eval(arguments) => eval::run(&arguments),
            Self::Predict(arguments) => predict::run(&arguments),
            Self::Verdict(arguments) => verdict::run(&arguments, terminal),
            Self::Watch(arguments) => watch::run(&arguments, terminal),
            Self::Blame(arguments) => blame::run(&arguments, terminal),
            Self::Check(arguments) => check::run(&arguments, terminal),
            Self::Plan(arguments) => plan::run(&arguments, terminal),
            Self::New(arguments) => new::run(&arguments, terminal),
            Self::Ls(arguments) => list::run(&arguments, terminal),
            Self::Note(arguments) => note::run(&arguments, terminal),
            Self::Keep(arguments) => keep::run(&arguments, terminal),
            Self::Rm(arguments) => remove::run(&arguments, terminal),
            Self::Compare(arguments) => compare::run(&arguments, terminal),
            Self::Show(arguments) => show::run(&arguments, terminal),
            Self::Top(arguments) => top::run(&arguments, terminal),
            Self::Ui(arguments) => ui::run(&arguments, terminal),
            Self::Export(arguments) => export::run(&arguments, terminal),
            Self::Generate(arguments) => generate::run(&arguments, terminal),
            Self::Agents => {
                terminal.print(AGENTS);
                Ok(0)
            }
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// Experiment file to run.
    // Always present. It is an `Option` only because a subcommand takes its place.
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Use this name in place of `experiment.name`.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Exit with code 6 if the verdict on memory or on training is this or worse (repeatable); replaces `memory.fail_on` or
    /// `training.fail_on`.
    #[arg(long, value_enum, value_name = "VERDICT", value_delimiter = ',')]
    fail_on: Vec<FailingVerdict>,
    /// Stop after this many steps and report the memory demand; used by the subcommand plan.
    #[arg(long, value_name = "STEPS", hide = true, conflicts_with_all = ["steps", "smoke", "until"])]
    probe: Option<u64>,
    /// Do a short run of this many steps, with warm-up, stages, validations and checkpoints scaled to it.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// Do a short run of 20 steps with short validations, to test that an experiment works.
    #[arg(long, conflicts_with = "steps")]
    smoke: bool,
    #[command(flatten)]
    until: until::Until,
    /// Skip the run if a finished run has the same experiment, data and code.
    #[arg(long, conflicts_with = "dry_run")]
    if_changed: bool,
    /// Start even if the plan does not fit the limits or the machine.
    #[arg(long)]
    force: bool,
    /// Fail with exit code 6 if the forecast or the run exceeds the memory contract NAME.memory.lock.
    #[arg(long, conflicts_with_all = ["steps", "smoke", "if_changed"])]
    locked: bool,
    /// Print the plan after doing everything up to the first step; write no results.
    #[arg(long)]
    dry_run: bool,
    /// Write the results to this (new) directory; used by sweeps.
    #[arg(long, hide = true, value_name = "DIR", conflicts_with = "dry_run")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    display: Display,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct Data {
    /// Hash all data files again. By default, files with unchanged size, mtime and inode are trusted, so silent corruption is
    /// detected only with this option.
    #[arg(long)]
    verify_data: bool,
}

impl Data {
    /// Applies the option to an experiment whose data is not open yet.
    fn prepare(self, experiment: &Experiment) {
        if let Some(dataset) = experiment.dataset.as_ref().filter(|_| self.verify_data) {
            dataset.forget_digests();
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct Overrides {
    /// Set a value of the experiment (repeatable). After FILE, `-s` can be omitted: FILE limits.workers=2.
    #[arg(short = 's', long = "set", value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Device: auto, cpu, cuda, cuda:N or vulkan; replaces `experiment.device`.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

impl Overrides {
    /// All overrides as `section.key=value`, and `--device=DEVICE`.
    fn all(&self) -> Vec<String> {
        let device = self.device.iter().map(|device| format!("--device={device}"));
        self.set.iter().cloned().chain(device).collect()
    }
}

#[derive(Clone, Debug, Args)]
pub struct Results {
    /// Directory of all results.
    #[arg(id = "results", long = "results", value_name = "DIR", default_value = RESULTS, value_hint = ValueHint::DirPath)]
    directory: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub struct Display {
    /// Format of progress.
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    progress: Progress,
    /// Print the outcome as JSON on stdout.
    #[arg(long)]
    json: bool,
    /// Print errors only: no progress, no notes, no results, no verdict.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Print more, such as checkpoints and the device.
    #[arg(short, long)]
    verbose: bool,
}

impl Display {
    /// Terminal with these settings.
    fn terminal(&self) -> Terminal {
        Terminal { quiet: self.quiet, verbose: self.verbose, events: self.progress == Progress::Json }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// Bar on a terminal, lines otherwise.
    Auto,
    /// Progress bar.
    Bars,
    /// Lines at intervals.
    Plain,
    /// One JSON object per event on stderr, and nothing else there.
    Json,
    /// No progress; notes at the start, and verdict and results at the end, are printed (see --quiet).
    None,
}

impl Progress {
    /// Value on the command line.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Clone, Debug, Args)]
pub struct CheckArguments {
    /// Experiment files to check.
    #[arg(required_unless_present = "devices", value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// List the devices of this machine with their memory and driver, and what the unusable ones lack.
    #[arg(long, conflicts_with_all = ["files", "set", "device", "resolved", "origins", "locked", "no_data"])]
    devices: bool,
    #[command(flatten)]
    overrides: Overrides,
    /// Print the resolved experiment, with every key and its value.
    #[arg(long)]
    resolved: bool,
    /// Print the resolved experiment with the origin of each value.
    #[arg(long)]
    origins: bool,
    /// Fail with exit code 6 if the forecast exceeds the memory contract NAME.memory.lock. Runs a memory probe unless one is
    /// cached.
    #[arg(long, conflicts_with = "no_data")]
    locked: bool,
    /// Check the experiment files only, not the data.
    #[arg(long)]
    no_data: bool,
    /// Print problems as JSON.
    #[arg(long, conflicts_with_all = ["resolved", "origins"])]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct PlanArguments {
    /// Experiment file to plan.
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Write the memory contract NAME.memory.lock next to the file, which `--locked` of check and run enforces.
    #[arg(long, conflicts_with = "solve")]
    lock: bool,
    /// Find the largest value of this key that fits, for example limits.batch_size.
    #[arg(long, value_name = "SECTION.KEY")]
    solve: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct NewArguments {
    /// Pipeline, such as fewshot-detection, or example, such as detection. Default: list all.
    pipeline: Option<String>,
    /// Print an example, such as stage2, instead of a file with every key.
    #[arg(long, value_name = "EXAMPLE", conflicts_with = "pipeline")]
    like: Option<String>,
    /// Write to this new file.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct VerdictArguments {
    /// Run (named as in `show`), memory.jsonl, or trace of another tool: mprof .dat, psrecord log, memray HTML, output of
    /// nvidia-smi, free, vmstat, ps, top or docker stats, a table with a header, JSON, or a log.
    #[arg(value_name = "RUN", value_hint = ValueHint::AnyPath, required_unless_present = "pid")]
    path: Option<String>,
    /// Observe a running process and its descendants until it exits or Ctrl-C.
    #[arg(long, value_name = "N", conflicts_with_all = ["path", "column", "step_column", "unit", "of", "growth_min"])]
    pid: Option<u32>,
    /// Sampling period for --pid.
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "pid")]
    every: Span,
    /// Column of a table to judge (repeatable). Default: all columns that look like sizes.
    #[arg(long, value_name = "NAME")]
    column: Vec<String>,
    /// Column of steps or times of a table. Default: the one named step, iteration, time, epoch or similar.
    #[arg(long, value_name = "NAME")]
    step_column: Option<String>,
    /// Unit of columns without one in their header or cells: B, KB, MB, GB, KiB, MiB or GiB.
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Memory that is 100 % of columns in percent, such as 16GiB.
    #[arg(long, value_name = "SIZE")]
    of: Option<String>,
    /// Growth from which on a column of a table counts as growing. Default: 16MiB.
    #[arg(long, value_name = "SIZE")]
    growth_min: Option<Bytes>,
    /// Fail with exit code 6 from this verdict on (repeatable), or if a column that may be memory cannot be read.
    #[arg(long, value_enum, value_name = "VERDICT", value_delimiter = ',')]
    fail_on: Vec<FailingVerdict>,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ExportArguments {
    #[arg(help = RUN_HELP, default_value = "latest", value_hint = ValueHint::DirPath)]
    run: String,
    /// Format to write.
    // Required. It is an `Option` only so that the error lists the choices.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<export::To>,
    /// Output directory. Default: `export` in the run; the report is always written into the run.
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// Checkpoint whose weights are exported (--to weights): best, last, or the step after which it was written.
    #[arg(long, value_name = "CHECKPOINT", default_value = "best", value_parser = eval::checkpoint_choice)]
    checkpoint: CheckpointChoice,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{EXIT_BAD_INPUT, EXIT_DOES_NOT_FIT, EXIT_OUT_OF_MEMORY, EXIT_PANIC, EXIT_VERDICT, exit_code};
    use crate::results::format::Outcome;
    use std::collections::BTreeSet;

    #[test]
    fn the_command_line_is_consistent() {
        command_line(true).debug_assert();
        let command = CommandLine::command();
        let grouped = GROUPS.iter().flat_map(|(_, names)| *names);
        assert!(grouped.copied().all(|name| command.find_subcommand(name).is_some()));
    }

    #[test]
    fn the_help_lists_the_exit_codes() {
        let outcomes = [
            Outcome::Finished,
            Outcome::StoppedEarly,
            Outcome::Interrupted,
            Outcome::TimeLimit,
            Outcome::MemoryGrew,
            Outcome::DidNotLearn,
            Outcome::Diverged,
            Outcome::MemoryLimit,
            Outcome::Parked,
            Outcome::Failed,
            Outcome::Panicked,
        ];
        let others = [EXIT_BAD_INPUT, EXIT_DOES_NOT_FIT, EXIT_OUT_OF_MEMORY, EXIT_VERDICT, EXIT_PANIC];
        let codes: BTreeSet<u8> = outcomes.map(exit_code).into_iter().chain(others).collect();
        let listed = EXIT_CODES.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
        assert_eq!(listed.collect::<BTreeSet<u8>>(), codes);
    }
}
