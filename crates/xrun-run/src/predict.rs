//! How does a checkpoint of a run answer about files of a person's own, without touching the run?

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use super::evaluate::{Chosen, new_folder};
use super::manifest;
use super::prepare::{NotStarted, Opened, not_opened};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::LineWriter;
use xrun_core::heap;
use xrun_core::panics;
use xrun_core::task::predict::{Asked, Item, Told};
use xrun_core::task::{Task, TaskError};
use xrun_results::built::code_digest;
use xrun_results::command_line;
use xrun_results::format::{Manifest, VERSION};
use xrun_results::prediction::Prediction;
use xrun_results::timestamp;
use xrun_watch::memory::sources;

/// Lines of answers that wait to be written.
const LINES: usize = 64;

/// What is asked of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// As they were named.
    pub files: &'a [PathBuf],
    /// What is asked about each; `None` where nothing was typed.
    pub question: Option<&'a str>,
    /// A new or an empty folder in place of one below the run.
    pub out: Option<&'a Path>,
    /// As `section.key=value`.
    pub overrides: &'a [String],
    /// Whether the data is what the run had.
    pub same_data: bool,
}

/// Hears what becomes of each file or line.
pub trait Listener {
    /// An answer in a few words; not escaped.
    fn answered(&mut self, item: Item<'_>, words: &str);
    /// Why there is none; not escaped.
    fn failed(&mut self, item: Item<'_>, reason: &str);
}

/// Why there is no answer at all.
#[derive(Debug)]
pub enum NotPredicted {
    /// It cannot be asked so.
    Refused(String),
    /// Data, device or disk.
    NotStarted(NotStarted),
}

impl From<NotStarted> for NotPredicted {
    fn from(error: NotStarted) -> Self {
        Self::NotStarted(error)
    }
}

/// Refuses a folder in which there is something already.
///
/// # Errors
/// For people: it is not empty, no folder, or cannot be read.
pub fn free(out: &Path) -> Result<(), String> {
    let said = |what: &str| Err(format!("--out {}: {what}; name a new folder", out.display()));
    match std::fs::read_dir(out).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => said("the folder is not empty"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => said("is there already, and no folder"),
        Err(error) => said(&format!("cannot be read: {error}")),
    }
}

/// Loads the checkpoint, answers about the files, and writes `predictions.jsonl`, `prediction.json` and what the task leaves
/// into a new folder; gives that folder.
///
/// # Errors
/// The pipeline does not predict, or not this; the checkpoint cannot be loaded, the task fails, or the disk does. A file that
/// cannot be used is no error.
pub fn predict(
    opened: &Opened,
    mut task: Box<dyn Task>,
    run: &Path,
    of_run: &Manifest,
    chosen: &Chosen,
    wanted: Wanted<'_>,
    listener: &mut dyn Listener,
) -> Result<(PathBuf, Prediction), NotPredicted> {
    let (began, started) = (Instant::now(), timestamp::now());
    let limits = &opened.plan.experiment.limits;
    let asked = Asked { files: wanted.files, question: wanted.question, limits, folder: run };
    let pipeline = opened.plan.experiment.pipeline.name();
    match task.predictor().map(|predictor| predictor.refuses(&asked)) {
        None => return Err(NotPredicted::Refused(does_not_predict(pipeline))),
        Some(Some(why)) => return Err(NotPredicted::Refused(why)),
        Some(None) => {}
    }
    // Before the folder is there.
    of_task(opened, panics::caught(|| task.load(&chosen.path)))?;
    let folder = match wanted.out {
        None => new_folder(&run.join(layout::PREDICTIONS))?,
        Some(out) => {
            write::at(out, std::fs::create_dir_all(out)).map_err(NotStarted::failed)?;
            out.to_path_buf()
        }
    };
    let mut answers = Answers::begin(&folder, listener).map_err(NotStarted::failed)?;
    let asked = Asked { folder: &folder, ..asked };
    let about = panics::caught(|| {
        let about = task.predictor().map_or(Ok(serde_json::Value::Null), |it| it.predict(&asked, &mut answers));
        // What was answered before an error stays.
        let written = answers.lines.sync();
        let about = about?;
        written?;
        task.synchronise()?;
        Ok(about)
    });
    let about = of_task(opened, about)?;
    let device = manifest::device(&opened.chosen, &opened.plan.experiment.device);
    let prediction = Prediction {
        version: VERSION,
        experiment: of_run.experiment.clone(),
        run: of_run.run.clone(),
        folder: folder.display().to_string(),
        step: chosen.step,
        started,
        seconds: began.elapsed().as_secs_f64(),
        command: command_line::command(),
        overrides: wanted.overrides.to_vec(),
        device: device.chosen,
        device_name: device.name,
        source_digest: Some(code_digest()),
        data: opened.plan.facts.data_digests.iter().cloned().collect(),
        same_data: wanted.same_data,
        files: wanted.files.len() as u64,
        answered: answers.answered,
        failed: answers.failed,
        about,
        heap_peak: heap::read().peak,
        resident_peak: sources::rss_peak(),
    };
    write::replace_json(&folder.join(layout::PREDICTION), &prediction).map_err(NotStarted::failed)?;
    Ok((folder, prediction))
}

/// What is said of a pipeline that has no answers.
pub fn does_not_predict(pipeline: &str) -> String {
    format!("the pipeline `{pipeline}` does not predict: it has no answer about files")
}

fn of_task<T>(opened: &Opened, done: Result<Result<T, TaskError>, panics::Panic>) -> Result<T, NotStarted> {
    done.map_err(|panic| not_opened(&opened.chosen, &panic))?.map_err(NotStarted::failed)
}

/// A line of `predictions.jsonl`.
#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(flatten)]
    answer: Option<&'a dyn erased_serde::Serialize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Writes what becomes of each item, and counts it.
struct Answers<'a> {
    lines: LineWriter,
    listener: &'a mut dyn Listener,
    answered: u64,
    failed: u64,
}

impl<'a> Answers<'a> {
    fn begin(folder: &Path, listener: &'a mut dyn Listener) -> Result<Self, write::WriteError> {
        let buffer = write::lines("predictions_lines", LINES);
        // There is no plan of a prediction: its only entry.
        let lines = LineWriter::open(&Ledger::default(), &buffer, &folder.join(layout::ANSWERS))?;
        Ok(Self { lines, listener, answered: 0, failed: 0 })
    }

    fn write(&mut self, item: Item<'_>, answer: Result<&dyn erased_serde::Serialize, &str>) -> Result<(), TaskError> {
        let (answer, error) = (answer.ok(), answer.err());
        let line = Line { file: &item.file.to_string_lossy(), line: item.line, answer, error };
        Ok(self.lines.record(&line)?)
    }
}

impl Told for Answers<'_> {
    fn answered(&mut self, item: Item<'_>, answer: &dyn erased_serde::Serialize, words: &str) -> Result<(), TaskError> {
        self.write(item, Ok(answer))?;
        self.answered += 1;
        self.listener.answered(item, words);
        Ok(())
    }

    fn failed(&mut self, item: Item<'_>, reason: &str) -> Result<(), TaskError> {
        self.write(item, Err(reason))?;
        self.failed += 1;
        self.listener.failed(item, reason);
        Ok(())
    }
}
