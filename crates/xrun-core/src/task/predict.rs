//! What must a pipeline offer, so that its trained model answers about files of a person's own?
//!
//! Numbers and host data cross this interface, never tensors, as in [`Task`](super::Task). Files come in, answers go out one
//! after another: nothing grows with the number of files.

use std::path::{Path, PathBuf};

use erased_serde::Serialize;

use super::TaskError;
use crate::settings::sections::Limits;

/// Answers about files. A pipeline that can gives itself in [`Task::predictor`](super::Task::predictor).
pub trait Predict {
    /// Why this cannot be asked of the model, for the person who typed it; `None` where it can. Nothing is written before.
    fn refuses(&self, asked: &Asked<'_>) -> Option<String> {
        asked.refused_question()
    }

    /// Answers about each file in the order given, at most `limits.batch_size` items at once, with the checkpoint that was
    /// loaded. A file that cannot be used is told as failed, and the next one follows. Returns what holds of all answers.
    ///
    /// # Errors
    /// The device fails, the run's own data does, or an answer cannot be written.
    fn predict(&mut self, asked: &Asked<'_>, told: &mut dyn Told) -> Result<serde_json::Value, TaskError>;
}

/// What a person asks.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// As they were named.
    pub files: &'a [PathBuf],
    /// What is asked about each file.
    pub question: Option<&'a str>,
    /// How much may be held: items at once, and the bytes that decoding takes.
    pub limits: &'a Limits,
    /// Empty, and there when [`Predict::predict`] is called: for files that the pipeline leaves beside the answers.
    pub folder: &'a Path,
}

impl Asked<'_> {
    /// Message of a pipeline that takes no question where there is one.
    pub fn refused_question(&self) -> Option<String> {
        self.question.map(|_| "this pipeline is asked no question: leave out `--question`".to_owned())
    }
}

/// What an answer is about.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// As it was named.
    pub file: &'a Path,
    /// In a file of lines, from 1.
    pub line: Option<u64>,
}

impl<'a> Item<'a> {
    /// All of a file.
    pub fn file(file: &'a Path) -> Self {
        Self { file, line: None }
    }
}

/// Hears what becomes of each item, in order.
pub trait Told {
    /// The answer, a record of named fields, and the same in a few words for people. Control characters may be in both.
    ///
    /// # Errors
    /// It cannot be written.
    fn answered(&mut self, item: Item<'_>, answer: &dyn Serialize, words: &str) -> Result<(), TaskError>;

    /// There is no answer, and why; without the name of the file.
    ///
    /// # Errors
    /// It cannot be written.
    fn failed(&mut self, item: Item<'_>, reason: &str) -> Result<(), TaskError>;
}
