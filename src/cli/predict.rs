//! `xrun predict RUN FILES…`: what does a checkpoint answer about files of one's own?

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::eval::{CHANGEABLE, untrained, which};
use super::resume::{find, refuse_command, refuse_other_keys};
use super::terminal::{Failure, Terminal};
use super::{Data, Display, Overrides, Results};
use crate::experiment::read;
use crate::files::layout;
use crate::printable;
use crate::results::prediction::Prediction;
use crate::results::{read as read_results, resolved};
use crate::run::evaluate::{self, Which};
use crate::run::predict::{self, Listener, NotPredicted, Wanted};
use crate::task::predict::Item;
use crate::units::{counted, seconds};

/// Files and lines without an answer that are named; all of them are in `predictions.jsonl`.
const NAMED_MAX: u64 = 20;
/// Characters of a file's name, and of an answer or a reason.
const NAME_MAX: usize = 200;
const WORDS_MAX: usize = 400;

#[derive(Clone, Debug, Args)]
pub struct PredictArguments {
    /// A run: a folder, `experiment/run`, the beginning of a run's name or its last six digits, an experiment's name, `latest` or `latest~2`.
    #[arg(value_hint = ValueHint::DirPath)]
    run: String,
    /// The files to answer about: pictures (PNG or JPEG), sounds (WAV), or JSON lines of questions, as the pipeline takes them.
    #[arg(required = true, value_name = "FILES", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Which checkpoint: `best`, `last`, or the number of steps after which it was written.
    #[arg(long, value_name = "WHICH", default_value = "best", value_parser = which)]
    checkpoint: Which,
    /// What is asked about each file, of a model that is asked something.
    #[arg(long, value_name = "TEXT")]
    question: Option<String>,
    /// Where to write, a new or an empty folder; a new one in `predictions` in the run's folder when absent.
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
    let run = find(&arguments.results, &arguments.run)?;
    refuse_command(&run)?;
    let overrides = arguments.overrides.all();
    refuse_other_keys(
        &overrides,
        CHANGEABLE,
        "a checkpoint predicts: the model is what was trained",
        "train another model",
    )?;
    if let Some(out) = &arguments.out {
        predict::free(out).map_err(Failure::Usage)?;
    }
    let manifest = read_results::manifest(&run).map_err(Failure::failed)?;
    resolved::text_of(&run).map_err(Failure::failed)?;
    let experiment = read::read_resolved(&run.join(layout::RESOLVED), &overrides)?.experiment;
    if experiment.command().is_some() {
        return Err(Failure::Usage(predict::does_not_predict(experiment.pipeline.name())));
    }
    let chosen = evaluate::choose(&run, &manifest, arguments.checkpoint).map_err(Failure::Failed)?;
    let (planned, same_data) = untrained(experiment, &overrides, &manifest, arguments.data, terminal)?;
    let (opened, task) = planned.open(1)?;
    let wanted = Wanted {
        files: &arguments.files,
        question: arguments.question.as_deref(),
        out: arguments.out.as_deref(),
        overrides: &overrides,
        same_data,
    };
    let mut said = Said { terminal, answers: !arguments.display.json && !terminal.quiet, failed: 0 };
    let predicted = predict::predict(&opened, task, &run, &manifest, &chosen, wanted, &mut said);
    let (folder, prediction) = predicted.map_err(|error| match error {
        NotPredicted::Refused(why) => Failure::Usage(why),
        NotPredicted::NotStarted(error) => error.into(),
    })?;
    match said.failed.saturating_sub(NAMED_MAX) {
        0 => {}
        more => terminal.error(&format!("and {more} more, named in {}", layout::ANSWERS)),
    }
    if prediction.answered == 0 {
        terminal.error("there is no answer about any file");
    }
    if arguments.display.json {
        terminal.json(&prediction);
    }
    terminal.say(&text(&prediction));
    terminal.say(&format!("predictions: {}", folder.display()));
    Ok(u8::from(prediction.failed > 0))
}

/// How many answers there are, of which model.
fn text(prediction: &Prediction) -> String {
    let name = |text: &str| printable::line(text, NAME_MAX);
    let failed = match prediction.failed {
        0 => String::new(),
        failed => format!(", {failed} without"),
    };
    format!(
        "{}/{} after {}, on {}: {}{failed}, {}",
        name(&prediction.experiment),
        name(&prediction.run),
        counted(prediction.step, "step"),
        prediction.device,
        counted(prediction.answered, "answer"),
        seconds(prediction.seconds)
    )
}

/// Tells people of each answer.
struct Said {
    terminal: Terminal,
    answers: bool,
    failed: u64,
}

fn named(item: Item<'_>) -> String {
    let file = printable::line(&item.file.to_string_lossy(), NAME_MAX);
    item.line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"))
}

impl Listener for Said {
    fn answered(&mut self, item: Item<'_>, words: &str) {
        if self.answers {
            let words = if words.is_empty() { "(an empty answer)" } else { words };
            self.terminal.answer(&format!("{}: {}", named(item), printable::line(words, WORDS_MAX)));
        }
    }

    fn failed(&mut self, item: Item<'_>, reason: &str) {
        self.failed += 1;
        if self.failed <= NAMED_MAX {
            self.terminal.error(&format!("{}: {}", named(item), printable::line(reason, WORDS_MAX)));
        }
    }
}
