//! Inference with a trained model on files of the user (`xrun predict`).
//!
//! Numbers and host data cross this interface, never tensors, as in [`Task`](super::Task). Answers leave one by one, so
//! memory does not grow with the number of files.

use std::path::{Path, PathBuf};

use erased_serde::Serialize;

use super::TaskError;
use crate::settings::sections::Limits;

/// Inference of a pipeline; [`Task::predictor`](super::Task::predictor) returns it.
pub trait Predict {
    /// Reason why the pipeline cannot serve the request, for the user; `None` where it can. Called before anything is written.
    fn refuses(&self, asked: &PredictRequest<'_>) -> Option<String> {
        asked.refused_question()
    }

    /// Predicts each file in the order given, at most `limits.batch_size` items at once, with the loaded checkpoint. A file
    /// that cannot be used is reported as failed, and the next one follows. Returns facts that all answers share.
    ///
    /// # Errors
    /// The device fails, the run's own data is invalid, or an answer cannot be written.
    fn predict(
        &mut self,
        asked: &PredictRequest<'_>,
        sink: &mut dyn PredictionSink,
    ) -> Result<serde_json::Value, TaskError>;
}

/// Input of [`Predict::predict`].
#[derive(Clone, Copy, Debug)]
pub struct PredictRequest<'a> {
    /// Paths as the user gave them.
    pub files: &'a [PathBuf],
    /// Question to be answered about each file, where the pipeline takes one.
    pub question: Option<&'a str>,
    /// Limits of memory: items at once, and bytes for decoding.
    pub limits: &'a Limits,
    /// Existing empty directory for files that the pipeline writes next to the answers.
    pub directory: &'a Path,
}

impl PredictRequest<'_> {
    /// Message of a pipeline that takes no question, if there is one.
    pub fn refused_question(&self) -> Option<String> {
        self.question.map(|_| "this pipeline takes no question; leave out `--question`".to_owned())
    }
}

/// One input: a file, or a line of it.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Path as the user gave it.
    pub file: &'a Path,
    /// Line number from 1, in a file with an item a line.
    pub line: Option<u64>,
}

impl<'a> Item<'a> {
    /// The whole of a file.
    pub fn file(file: &'a Path) -> Self {
        Self { file, line: None }
    }
}

/// Receiver of the answer or failure of each item, in order.
pub trait PredictionSink {
    /// Takes an answer: a record of named fields, and the same as a short human-readable text. Both may have control characters.
    ///
    /// # Errors
    /// Writing fails.
    fn answered(&mut self, item: Item<'_>, answer: &dyn Serialize, words: &str) -> Result<(), TaskError>;

    /// Takes the reason why there is no answer, without the name of the file.
    ///
    /// # Errors
    /// Writing fails.
    fn failed(&mut self, item: Item<'_>, reason: &str) -> Result<(), TaskError>;
}
