//! What can be typed, and what answers it? One file a subcommand.

mod check;
mod command;
mod compare;
mod completions;
mod devices;
#[cfg(test)]
mod documents;
mod enter;
mod eval;
mod explain;
mod export;
mod further;
mod hooks;
mod init;
mod leaks;
mod leaks_runs;
mod list;
mod locked;
mod man;
mod new;
mod note;
mod plan;
mod predict;
mod programs;
mod progress;
mod remove;
mod report;
mod reproduce;
mod resume;
mod run;
mod schema;
mod show;
mod sweep;
mod sweep_forecasts;
mod sweep_jobs;
mod sweep_memory;
mod sweep_search;
mod sweep_slurm;
mod terminal;
mod top;
mod training;
mod typo;
mod until;
mod verdict;
mod watch;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use crate::experiment::Experiment;
use crate::export::Table;
use crate::invocation;
use crate::settings::sections::FailOn;
use crate::units::Span;
use enter::environment;
pub use enter::{answer, main};
use terminal::Terminal;

const EXIT_CODES: &str = "\
Exit codes:
    0  finished, or stopped early as asked; the file is correct
    1  failed: data, device or disk
    2  the file or the command line is wrong
    3  the plan does not fit the limits or the machine (see the subcommand plan)
    4  the loss was not a number
    5  a memory limit was reached
    6  memory is growing, and --fail-on or memory.fail_on says that this fails; or the memory contract is broken (--locked)
    7  the time limit was reached
    8  stopped by a signal; the run can be resumed
   70  a panic, of the backend or of the program";

const REPRODUCE_EXIT_CODES: &str = "\
Exit codes:
    0  the same came out: bit for bit on the CPU, within the tolerance on a GPU
    1  something else came out, or the reproduction failed
    2  there is no such run, or the command line is wrong
    8  stopped by a signal";

/// xrun's, which a program with kinds of its own is built with.
fn version() -> &'static str {
    let is_xrun = invocation::program() == env!("CARGO_PKG_NAME");
    if is_xrun { env!("CARGO_PKG_VERSION") } else { concat!("with xrun ", env!("CARGO_PKG_VERSION")) }
}

/// Run a declared experiment with every buffer bounded.
///
/// FILE is a TOML file that declares pipeline, model, data and limits. The result directory is
/// results/<experiment>/<run>/; results/<experiment>/latest points at the newest.
#[derive(Debug, Parser)]
#[command(name = invocation::program(), version = version(), after_help = EXIT_CODES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, arg_required_else_help = true)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an experiment; the word `run` may be left out.
    #[command(after_help = EXIT_CODES)]
    Run(RunArguments),
    /// Run an experiment once for each of many values, and compare what they cost.
    #[command(after_help = sweep::HELP)]
    Sweep(sweep::SweepArguments),
    /// Check experiment files and their data, and say everything that is wrong.
    Check(CheckArguments),
    /// Say what memory an experiment will need, whether that fits, and what the largest value is that fits.
    #[command(after_help = EXIT_CODES)]
    Plan(PlanArguments),
    /// Print a commented experiment file to start from.
    New(NewArguments),
    /// Make a folder to begin with: an experiment, a workflow that checks it, what git leaves out.
    Init(init::InitArguments),
    /// Continue a run that was stopped or killed.
    #[command(after_help = EXIT_CODES)]
    Resume(resume::ResumeArguments),
    /// Run a result again, and say whether the same comes out.
    #[command(after_help = REPRODUCE_EXIT_CODES)]
    Reproduce(reproduce::ReproduceArguments),
    /// Validate a checkpoint of a run once more, on its own data or on other data.
    #[command(after_help = EXIT_CODES)]
    Eval(eval::EvalArguments),
    /// Answer about pictures, sounds or questions of your own with a checkpoint of a run.
    #[command(after_help = EXIT_CODES)]
    Predict(predict::PredictArguments),
    /// List runs, newest first.
    Ls(list::ListArguments),
    /// Write something down of a run, and give it tags.
    Note(note::NoteArguments),
    /// Remove runs; asks, and never touches what is no run, running or committed in git.
    Rm(remove::RemoveArguments),
    /// Remove all but the newest runs of each experiment and the best one; asks, as rm does.
    Gc(remove::CollectArguments),
    /// Compare runs: what differs in their experiments, results, memory and speed.
    Compare(compare::CompareArguments),
    /// Show what a run did.
    Show(RunName),
    /// Show what runs do now: state, progress, memory and who holds it, and the verdict so far.
    #[command(after_help = top::HELP)]
    Top(top::TopArguments),
    /// Judge whether memory is growing: a run, a memory.jsonl, or a trace of another tool.
    #[command(after_help = EXIT_CODES)]
    Verdict(VerdictArguments),
    /// Explain a word of xrun or a verdict.
    Explain(explain::ExplainArguments),
    /// Run any command, and record and judge its memory: `watch -- python train.py`.
    #[command(after_help = watch::HELP)]
    Watch(watch::WatchArguments),
    /// Run pairs of a leaky and a bounded experiment: are leaks found, and only leaks?
    Leaks(LeaksArguments),
    /// Write a run's report.html again.
    Report(RunName),
    /// Write a run's metrics and memory as Parquet, CSV or TensorBoard's events, for other tools.
    Export(ExportArguments),
    /// List devices: memory, driver, and what is missing.
    Devices(DevicesArguments),
    /// Print the JSON Schema of experiment files, or of a record of the results.
    Schema(SchemaArguments),
    /// Print a completion script for a shell.
    Completions(completions::CompletionsArguments),
    /// Print the manual page, of the program or of a subcommand.
    Man(ManArguments),
}

#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// The experiment to run.
    // Always there: an option only because a subcommand takes its place.
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Names the folder below the results in place of `experiment.name`.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The verdict on memory that fails the run; in place of `memory.fail_on`.
    #[arg(long, value_enum, value_name = "VERDICT")]
    fail_on: Option<FailOn>,
    /// End after this many steps: what the subcommand plan measures with.
    #[arg(long, value_name = "STEPS", hide = true, conflicts_with_all = ["steps", "smoke", "until"])]
    probe: Option<u64>,
    /// A short run in which everything happens once: this many steps, with warm-up, phases, validations and checkpoints at
    /// the same shares of the way.
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// The same with 20 steps and small validations, to see that an experiment works.
    #[arg(long, conflicts_with = "steps")]
    smoke: bool,
    #[command(flatten)]
    until: until::Until,
    /// Run only if no finished result has the same experiment, data and code; says which run has them.
    #[arg(long, conflicts_with = "dry_run")]
    if_changed: bool,
    /// Start none of the programs that the experiment names in `[hooks]`.
    #[arg(long)]
    no_hooks: bool,
    /// Fail with 6 if it is expected to need more memory than NAME.memory.lock beside the file allows, or comes to need more.
    #[arg(long, conflicts_with_all = ["steps", "smoke", "if_changed"])]
    locked: bool,
    /// Do everything up to the first step, print the plan, write no results.
    #[arg(long)]
    dry_run: bool,
    /// Exactly this folder for the results, which must not be there; for runs of a sweep.
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
    /// Hash all files of the data again. Otherwise a file is taken to be what it was while its size, its times and its
    /// inode are: a disk that changed a bit is seen only so.
    #[arg(long)]
    verify_data: bool,
}

impl Data {
    /// Before the data is opened.
    fn prepare(self, experiment: &Experiment) {
        if let Some(dataset) = experiment.dataset.as_ref().filter(|_| self.verify_data) {
            dataset.verify();
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct Overrides {
    /// Set a value of the file; may be given many times. Behind the file also without -s: FILE limits.workers=2.
    #[arg(short = 's', long = "set", value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// auto, cpu, cuda, cuda:N or vulkan; in place of `experiment.device`.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

impl Overrides {
    /// All as `section.key=value`, and `--device=DEVICE` among them.
    fn all(&self) -> Vec<String> {
        let device = self.device.iter().map(|device| format!("--device={device}"));
        self.set.iter().cloned().chain(device).collect()
    }
}

#[derive(Clone, Debug, Args)]
pub struct Results {
    /// Where result directories are.
    #[arg(long = "results", value_name = "DIR", default_value = "results", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub struct Display {
    /// How progress is shown.
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    progress: Progress,
    /// Print the outcome as JSON on standard output.
    #[arg(long)]
    json: bool,
    /// Say only what is wrong.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Say more: every checkpoint and what the device is.
    #[arg(short, long)]
    verbose: bool,
}

impl Display {
    /// What speaks so.
    fn terminal(&self) -> Terminal {
        Terminal { quiet: self.quiet, verbose: self.verbose, events: self.progress == Progress::Json }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// Bars on a terminal, lines otherwise.
    Auto,
    /// A bar that is redrawn.
    Bars,
    /// A line now and then.
    Plain,
    /// A line of JSON for each event, on standard error, and nothing else there.
    Json,
    /// Nothing.
    None,
}

#[derive(Clone, Debug, Args)]
pub struct CheckArguments {
    /// The files to check.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Print the complete experiment: every key with its value.
    #[arg(long)]
    resolved: bool,
    /// The same, with where each value came from.
    #[arg(long)]
    origins: bool,
    /// Fail with 6 if it is expected to need more memory than NAME.memory.lock beside the file allows. Measures, where that is not
    /// known already.
    #[arg(long, conflicts_with = "no_data")]
    locked: bool,
    /// Leave the data out: look at the files of the experiment only.
    #[arg(long)]
    no_data: bool,
    /// How problems are printed.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "human")]
    format: check::Format,
    /// The same as --format json.
    #[arg(long, conflicts_with_all = ["resolved", "origins", "format"])]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct PlanArguments {
    /// The experiment to plan.
    file: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Write what it may need into NAME.memory.lock beside the file, for --locked of the subcommands check and run.
    #[arg(long, conflicts_with = "solve")]
    lock: bool,
    /// Find the largest value of this key with which the experiment fits, such as limits.batch_size.
    #[arg(long, value_name = "SECTION.KEY")]
    solve: Option<String>,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct NewArguments {
    /// The pipeline, such as fewshot-detection; all are listed when absent.
    pipeline: Option<String>,
    /// List pipelines, and the examples that --like takes.
    #[arg(long, conflicts_with_all = ["pipeline", "like", "output"])]
    list: bool,
    /// Print an example, such as stage2, in place of a file with every key.
    #[arg(long, value_name = "EXAMPLE", conflicts_with = "pipeline")]
    like: Option<String>,
    /// Write into this file, which must not be there.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct RunName {
    /// A run: a folder, `experiment/run`, the beginning of a run's name or its last six digits, an experiment's name, `latest` or `latest~2`.
    #[arg(default_value = "latest", value_hint = ValueHint::DirPath)]
    run: String,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct VerdictArguments {
    /// A run (a folder, or its name as in `show`), a memory.jsonl, or what another tool wrote: mprof's .dat, psrecord's log,
    /// a page of memray, the output of `nvidia-smi --query-gpu ... --format=csv -l 1`, `free -s 1` or `vmstat -t 1`, or a
    /// table with a header.
    #[arg(value_hint = ValueHint::AnyPath, required_unless_present = "pid")]
    path: Option<String>,
    /// Look at a process that runs, and all that it started, until it ends or Ctrl-C.
    #[arg(long, value_name = "N", conflicts_with_all = ["path", "column", "step_column", "unit"])]
    pid: Option<u32>,
    /// The time between two looks at that process.
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "pid")]
    every: Span,
    /// Of a table, judge this column; can be given again. Otherwise all that look like sizes.
    #[arg(long, value_name = "NAME")]
    column: Vec<String>,
    /// Of a table, the column of steps or times; otherwise that named step, iteration, time, epoch or the like.
    #[arg(long, value_name = "NAME")]
    step_column: Option<String>,
    /// The unit of columns that have none in their names or cells: B, KB, MB, GB, KiB, MiB or GiB.
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// The verdict that fails: exit code 6.
    #[arg(long, value_enum, value_name = "VERDICT", default_value = "never")]
    fail_on: FailOn,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct LeaksArguments {
    /// The leaks to try; all when none is named.
    names: Vec<String>,
    /// Where <name>.leaky.toml and <name>.bounded.toml are.
    #[arg(long, value_name = "DIR", default_value = "experiments/leaks", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Write what was found into this file as well, as JUnit's XML, which CI servers read.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    junit: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ExportArguments {
    /// A run: a folder, `experiment/run`, the beginning of a run's name or its last six digits, `latest` or `latest~2`.
    #[arg(default_value = "latest", value_hint = ValueHint::DirPath)]
    run: String,
    /// What to write.
    // Always there: an option only so that its absence is answered with the choices.
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<export::To>,
    /// Where to write; when absent, `export` in the run's folder, and for `public` the folder `public` here.
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// Which tables; all when absent.
    #[arg(long, value_enum, value_name = "TABLE", value_delimiter = ',')]
    tables: Vec<Table>,
    /// With `--to public`: the checkpoints too, as they are.
    #[arg(long)]
    with_checkpoints: bool,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct DevicesArguments {
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct SchemaArguments {
    /// experiment, manifest, plan, metrics, memory, verdict, summary, post_mortem, reproduction, evaluation, prediction, comparison, notes, process, hook, loop_state,
    /// or of a sweep: sweep, sweep_memory, processes, table.
    #[arg(default_value = "experiment")]
    record: String,
}

#[derive(Clone, Debug, Args)]
pub struct ManArguments {
    /// A subcommand; the page of the program itself when absent.
    subcommand: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_file_alone_is_run() {
        let line = CommandLine::try_parse_from(["xrun", "experiments/stage2.toml", "-s", "limits.workers=0"]).unwrap();
        assert!(line.command.is_none());
        assert_eq!(line.run.overrides.all(), ["limits.workers=0"]);
    }
}
