//! Prediction: a checkpoint of a run answers about the user's own files, without changing the run.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::evaluate::{SelectedCheckpoint, UseStart, create_dated_directory};
use super::prepare::{Opened, StartError, device_error};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::LineWriter;
use xrun_core::panics;
use xrun_core::task::predict::{Item, PredictRequest, PredictionSink};
use xrun_core::task::{Task, TaskError};
use xrun_results::format::Manifest;
use xrun_results::prediction::PredictionRecord;

/// Capacity of the buffer of answers, in lines.
const LINES: usize = 64;

/// Options of a prediction.
#[derive(Clone, Copy, Debug)]
pub struct PredictOptions<'a> {
    /// Files to answer about.
    pub files: &'a [PathBuf],
    /// Question about each file, if the model needs one.
    pub question: Option<&'a str>,
    /// New or empty output directory; `None` for one in the run.
    pub out: Option<&'a Path>,
    /// Overrides of the experiment, as `section.key=value`.
    pub overrides: &'a [String],
    /// True if the data is the run's own.
    pub same_data: bool,
}

/// Receiver of the result for each file or line.
pub trait PredictListener {
    /// Handles an answer, as short unescaped text.
    fn answered(&mut self, item: Item<'_>, text: &str);
    /// Handles a failure, with an unescaped reason.
    fn failed(&mut self, item: Item<'_>, reason: &str);
}

/// Reason why a prediction failed as a whole.
#[derive(Debug)]
pub enum PredictError {
    /// The request is not supported.
    Refused(String),
    /// The data, the device or the disk failed.
    Start(StartError),
}

impl From<StartError> for PredictError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

/// Checks that the output directory is empty or does not exist.
///
/// # Errors
/// It is not empty, not a directory, or cannot be read.
pub fn check_output(out: &Path) -> Result<(), String> {
    let error = |what: &str| Err(format!("--out {}: {what}; name a new directory", out.display()));
    match std::fs::read_dir(out).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => error("the directory is not empty"),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotADirectory => error("exists and is not a directory"),
        Err(cause) => error(&format!("cannot be read: {cause}")),
    }
}

/// Loads a checkpoint, answers about the files, and writes `predictions.jsonl`, `prediction.json` and the files of the task into
/// a new directory. Returns that directory.
///
/// # Errors
/// The pipeline does not support the request, the checkpoint cannot be loaded, or the task or the disk fails. An invalid file
/// is recorded and is not an error.
pub fn predict(
    opened: &Opened,
    mut task: Box<dyn Task>,
    run: &Path,
    manifest: &Manifest,
    checkpoint: &SelectedCheckpoint,
    options: PredictOptions<'_>,
    listener: &mut dyn PredictListener,
) -> Result<(PathBuf, PredictionRecord), PredictError> {
    let start = UseStart::now();
    let limits = &opened.plan.experiment.limits;
    let request = PredictRequest { files: options.files, question: options.question, limits, directory: run };
    let pipeline = opened.plan.experiment.pipeline.name();
    match task.predictor().map(|predictor| predictor.refuses(&request)) {
        None => return Err(PredictError::Refused(unsupported_message(pipeline))),
        Some(Some(why)) => return Err(PredictError::Refused(why)),
        Some(None) => {}
    }
    // Before the directory is created.
    task_result(opened, panics::caught(|| task.load(&checkpoint.path)))?;
    let directory = match options.out {
        None => create_dated_directory(&run.join(layout::PREDICTIONS))?,
        Some(out) => {
            write::create_directories(out).map_err(StartError::failed)?;
            out.to_path_buf()
        }
    };
    let mut answers = AnswerWriter::create(&directory, listener).map_err(StartError::failed)?;
    let request = PredictRequest { directory: &directory, ..request };
    let about = panics::caught(|| {
        let about = task.predictor().map_or(Ok(serde_json::Value::Null), |it| it.predict(&request, &mut answers));
        // Answers before an error are kept.
        let written = answers.lines.sync();
        let about = about?;
        written?;
        task.synchronise()?;
        Ok(about)
    });
    let about = task_result(opened, about)?;
    let prediction = PredictionRecord {
        used: start.record(opened, manifest, checkpoint, options.overrides, options.same_data),
        directory: directory.display().to_string(),
        files: options.files.len() as u64,
        answered: answers.answered,
        failed: answers.failed,
        about,
    };
    write::replace_json(&directory.join(layout::PREDICTION), &prediction).map_err(StartError::failed)?;
    Ok((directory, prediction))
}

/// Message for a pipeline without predictions.
pub fn unsupported_message(pipeline: &str) -> String {
    format!("the pipeline `{pipeline}` does not support predictions")
}

fn task_result<T>(opened: &Opened, result: Result<Result<T, TaskError>, panics::Panic>) -> Result<T, StartError> {
    result.map_err(|panic| device_error(&opened.chosen, &panic))?.map_err(StartError::failed)
}

/// Line of `predictions.jsonl`.
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

/// Writer and counter of answers and failures.
struct AnswerWriter<'a> {
    lines: LineWriter,
    listener: &'a mut dyn PredictListener,
    answered: u64,
    failed: u64,
}

impl<'a> AnswerWriter<'a> {
    fn create(directory: &Path, listener: &'a mut dyn PredictListener) -> Result<Self, write::WriteError> {
        let buffer = write::lines("predictions_lines", LINES);
        // A ledger of its own, because a prediction has no plan.
        let lines = LineWriter::open(&Ledger::default(), &buffer, &directory.join(layout::ANSWERS))?;
        Ok(Self { lines, listener, answered: 0, failed: 0 })
    }

    fn write(&mut self, item: Item<'_>, answer: Result<&dyn erased_serde::Serialize, &str>) -> Result<(), TaskError> {
        let (answer, error) = (answer.ok(), answer.err());
        let line = Line { file: &item.file.to_string_lossy(), line: item.line, answer, error };
        Ok(self.lines.record(&line)?)
    }
}

impl PredictionSink for AnswerWriter<'_> {
    fn answered(&mut self, item: Item<'_>, answer: &dyn erased_serde::Serialize, text: &str) -> Result<(), TaskError> {
        self.write(item, Ok(answer))?;
        self.answered += 1;
        self.listener.answered(item, text);
        Ok(())
    }

    fn failed(&mut self, item: Item<'_>, reason: &str) -> Result<(), TaskError> {
        self.write(item, Err(reason))?;
        self.failed += 1;
        self.listener.failed(item, reason);
        Ok(())
    }
}
