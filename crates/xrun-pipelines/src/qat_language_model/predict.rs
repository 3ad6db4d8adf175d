//! What does the model answer to questions of a person's own? At each precision, as in a validation.

use std::path::Path;

use serde::Serialize;

use super::context::{QuantContext, Rules};
use super::gpt2::Gpt2;
use super::precision::{Precision, names};
use super::ranges::Ranges;
use super::validation::Validation;
use xrun_core::task::TaskError;
use xrun_core::task::predict::{Item, PredictRequest, PredictionSink};
use xrun_data::question_answers::asked::{Asked as Question, Questions};

/// The plain network, and what a pass through it needs.
#[derive(Debug)]
pub struct Model<'a> {
    /// On the plain device.
    pub network: Gpt2,
    /// Those that it was trained at, the widest first.
    pub precisions: &'a [Precision],
    /// How things are quantised.
    pub rules: &'a Rules,
    /// Of the checkpoint; they stay as they are.
    pub ranges: &'a mut Ranges,
    /// Has the vocabulary, and answers as in a validation.
    pub validation: &'a Validation,
}

/// A line of `predictions.jsonl`.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    question: &'a str,
    /// Of the widest precision, without space around it.
    answer: &'a str,
    /// Of `log p` over its tokens, and its end where it was said; `null` of a model whose numbers are none.
    mean_log_probability: Option<f64>,
    /// The same of each precision, the widest first.
    precisions: &'a [OfPrecision],
}

#[derive(Serialize)]
struct OfPrecision {
    /// As the steps of the training are called, such as `8_bit`.
    precision: &'static str,
    answer: String,
    mean_log_probability: Option<f64>,
}

/// A line of a file that waits for its answer.
type Waiting = (u64, Result<Question, String>);
/// A question with the prompts of its windows.
type Prompted = (Question, Vec<Vec<u32>>);

impl Model<'_> {
    /// Answers each line of each file.
    ///
    /// # Errors
    /// An answer cannot be written.
    pub fn predict(
        &mut self,
        asked: &PredictRequest<'_>,
        told: &mut dyn PredictionSink,
    ) -> Result<serde_json::Value, TaskError> {
        for path in asked.files {
            let mut questions = match Questions::open(path) {
                Ok(questions) => questions,
                Err(reason) => {
                    told.failed(Item::file(path), &reason)?;
                    continue;
                }
            };
            loop {
                let waiting: Vec<Waiting> = questions.by_ref().take(asked.limits.batch_size).collect();
                if waiting.is_empty() {
                    break;
                }
                self.answer(path, waiting, told)?;
            }
        }
        let precisions: Vec<&str> = self.precisions.iter().map(|precision| names(precision.weights).kind).collect();
        Ok(serde_json::json!({ "precisions": precisions }))
    }

    fn answer(&mut self, path: &Path, waiting: Vec<Waiting>, told: &mut dyn PredictionSink) -> Result<(), TaskError> {
        let store = self.validation.batches.store();
        let prompted: Vec<(u64, Result<Prompted, String>)> = waiting
            .into_iter()
            .map(|(line, question)| {
                let prompted = question.and_then(|question| {
                    let prompts = store.prompts(&question.context, &question.question);
                    prompts.map(|prompts| (question, prompts)).map_err(|error| error.to_string())
                });
                (line, prompted)
            })
            .collect();
        let sound = prompted.iter().filter_map(|(_, prompted)| prompted.as_ref().ok());
        let prompts: Vec<Vec<&[u32]>> = sound.map(|(_, prompts)| prompts.iter().map(Vec::as_slice).collect()).collect();
        let mut answers: Vec<Vec<OfPrecision>> = prompts.iter().map(|_| Vec::new()).collect();
        for (at, precision) in self.precisions.iter().enumerate() {
            let ranges = &mut *self.ranges;
            let mut pass =
                QuantContext { rules: self.rules, at: Some((at, *precision)), ranges, observe: None, frozen: true };
            let said = self.validation.answers(&self.network, &prompts, &mut pass);
            for (answers, said) in answers.iter_mut().zip(said) {
                let mean = said.as_ref().map(|said| said.mean_log_probability).filter(|mean| mean.is_finite());
                let text = said.map_or(String::new(), |said| store.corpus().tokenizer.decode(&said.tokens));
                answers.push(OfPrecision {
                    precision: names(precision.weights).kind,
                    answer: text.trim().to_owned(),
                    mean_log_probability: mean,
                });
            }
        }
        let mut answers = answers.iter();
        for (line, prompted) in &prompted {
            let item = Item { file: path, line: Some(*line) };
            let question = match prompted {
                Ok((question, _)) => question,
                Err(reason) => {
                    told.failed(item, reason)?;
                    continue;
                }
            };
            let Some((precisions, widest)) = answers.next().and_then(|all| Some((all, all.first()?))) else { continue };
            let Question { id, question, .. } = question;
            let OfPrecision { answer, mean_log_probability, .. } = widest;
            let (id, mean) = (id.as_deref(), *mean_log_probability);
            told.answered(item, &Answer { id, question, answer, mean_log_probability: mean, precisions }, answer)?;
        }
        Ok(())
    }
}
