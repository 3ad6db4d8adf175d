//! `xrun predict RUN FILES…`: predict on the user's own files with a checkpoint.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::changeable::refuse_other_keys;
use super::eval::{CHANGEABLE, checkpoint_choice, plan_inference};
use super::resume::{find_experiment_run, recorded_experiment};
use super::terminal::{Failure, Terminal};
use super::{Data, Display, Overrides, Results};
use crate::data::boxes::raw::IMAGE_ENDINGS;
use crate::data::reading::confined::{Root, files};
use crate::files::layout;
use crate::printable;
use crate::results::prediction::PredictionRecord;
use crate::results::read as read_results;
use crate::run::evaluate::{self, CheckpointChoice};
use crate::run::predict::{self, PredictError, PredictListener, PredictOptions};
use crate::task::predict::Item;
use crate::units::{pluralize, seconds};

/// Largest number of failures that are printed; all of them are in `predictions.jsonl`.
const FAILURES_PRINTED_MAX: u64 = 20;
/// Largest number of characters of a file's name.
const NAME_MAX: usize = 200;
/// Largest number of characters of an answer or a reason.
const TEXT_MAX: usize = 400;

#[derive(Clone, Debug, Args)]
pub struct PredictArguments {
    #[arg(help = super::RUN_HELP, value_hint = ValueHint::DirPath)]
    run: String,
    /// Files to predict on, or directories of them: images, sounds (WAV) or JSON lines of questions, depending on the pipeline.
    #[arg(required = true, value_name = "FILES", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Checkpoint: best, last, or the step after which it was written.
    #[arg(long, value_name = "CHECKPOINT", default_value = "best", value_parser = checkpoint_choice)]
    checkpoint: CheckpointChoice,
    /// Question about each file, for a model that needs one.
    #[arg(long, value_name = "TEXT")]
    question: Option<String>,
    /// New or empty output directory. Default: a new one in `predictions` of the run.
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    results: Results,
    #[command(flatten)]
    pub(super) display: Display,
}

pub fn run(arguments: &PredictArguments) -> Result<u8, Failure> {
    let terminal = arguments.display.terminal();
    let run = find_experiment_run(&arguments.results, &arguments.run)?;
    let overrides = arguments.overrides.all();
    refuse_other_keys(&overrides, CHANGEABLE, "cannot be changed for a trained checkpoint", "train another model")?;
    if let Some(out) = &arguments.out {
        predict::check_output(out).map_err(Failure::Usage)?;
    }
    let files = listed(&arguments.files)?;
    let manifest = read_results::manifest(&run).map_err(Failure::failed)?;
    let experiment = recorded_experiment(&run, &overrides)?.experiment;
    if experiment.command().is_some() {
        return Err(Failure::Usage(predict::unsupported_message(experiment.pipeline.name())));
    }
    let checkpoint = evaluate::select_checkpoint(&run, &manifest, arguments.checkpoint).map_err(Failure::Failed)?;
    // Notes on the data of the training say nothing about these files.
    let planning = Terminal { quiet: !terminal.verbose, ..terminal };
    let (planned, same_data) = plan_inference(experiment, &overrides, &manifest, arguments.data, planning)?;
    let (opened, task) = planned.open(1)?;
    let options = PredictOptions {
        files: &files,
        question: arguments.question.as_deref(),
        out: arguments.out.as_deref(),
        overrides: &overrides,
        same_data,
    };
    let print_answers = !arguments.display.json && !terminal.quiet;
    let mut printer = AnswerPrinter { terminal, print_answers, failed: 0 };
    let predicted = predict::predict(&opened, task, &run, &manifest, &checkpoint, options, &mut printer);
    let (directory, prediction) = predicted.map_err(|error| match error {
        PredictError::Refused(why) => Failure::Usage(why),
        PredictError::Start(error) => error.into(),
    })?;
    match printer.failed.saturating_sub(FAILURES_PRINTED_MAX) {
        0 => {}
        more => terminal.error(&format!("and {more} more in {}", layout::ANSWERS)),
    }
    if prediction.answered == 0 {
        terminal.error("all predictions failed");
    }
    if arguments.display.json {
        terminal.json(&prediction);
    }
    terminal.info(&text(&prediction));
    terminal.info(&format!("predictions: {}", directory.display()));
    Ok(u8::from(prediction.failed > 0))
}

/// Files, with those of a directory in its place, sorted by name.
fn listed(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let endings = [&IMAGE_ENDINGS[..], &["wav", "jsonl"]].concat();
    let mut all = Vec::new();
    for path in paths {
        let names = match path.is_dir() {
            true => {
                Root::open(path, false, None).and_then(|root| files(&root, "", &endings)).map_err(Failure::failed)?
            }
            false => Vec::new(),
        };
        // A directory without such files is answered with an error, as a file that cannot be read.
        if names.is_empty() {
            all.push(path.clone());
        }
        all.extend(names.iter().map(|name| path.join(name)));
    }
    if let Some(path) = all.first().filter(|_| all.iter().all(|path| path.is_dir())) {
        let (path, endings) = (path.display(), endings.join(", "));
        let message = format!("{path}: no file of {endings} in this directory; name those in it, as {path}/*");
        return Err(Failure::Usage(message));
    }
    Ok(all)
}

/// Summary of a prediction: model, device, and numbers of answers and failures.
fn text(prediction: &PredictionRecord) -> String {
    let name = |text: &str| printable::line(text, NAME_MAX);
    let failed = match prediction.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    format!(
        "{}/{} after {}, on {}: {}{failed}, {}",
        name(&prediction.used.experiment),
        name(&prediction.used.run),
        pluralize(prediction.used.step, "step"),
        prediction.used.device,
        pluralize(prediction.answered, "answer"),
        seconds(prediction.used.seconds)
    )
}

/// Printer of answers and failures.
struct AnswerPrinter {
    terminal: Terminal,
    print_answers: bool,
    failed: u64,
}

/// `FILE` or `FILE:LINE`.
fn item_name(item: Item<'_>) -> String {
    let file = printable::line(&item.file.to_string_lossy(), NAME_MAX);
    item.line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"))
}

impl PredictListener for AnswerPrinter {
    fn answered(&mut self, item: Item<'_>, text: &str) {
        if self.print_answers {
            let text = if text.is_empty() { "(empty answer)" } else { text };
            self.terminal.print(&format!("{}: {}", item_name(item), printable::line(text, TEXT_MAX)));
        }
    }

    fn failed(&mut self, item: Item<'_>, reason: &str) {
        self.failed += 1;
        if self.failed <= FAILURES_PRINTED_MAX {
            self.terminal.error(&format!("{}: {}", item_name(item), printable::line(reason, TEXT_MAX)));
        }
    }
}
