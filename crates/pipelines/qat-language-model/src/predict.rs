//! Prediction: answers to the questions of a file, at each precision, as in a validation.

use std::path::Path;

use serde::Serialize;

use super::context::QuantContext;
use super::network::Gpt2Network;
use super::precision::names;
use super::training::QatLanguageModule;
use xrun_core::task::TaskError;
use xrun_core::task::predict::{Item, PredictRequest, PredictionSink};
use xrun_data::question_answers::user_questions::{UserQuestion as Question, UserQuestions};

/// A line of `predictions.jsonl`.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    question: &'a str,
    /// Answer of the widest precision, trimmed.
    answer: &'a str,
    /// Mean of `log p` over the tokens of the answer, and over its end if it was reached; `null` if it is not finite.
    mean_log_probability: Option<f64>,
    /// Answers of all precisions, widest first.
    precisions: &'a [PrecisionAnswer],
}

#[derive(Serialize)]
struct PrecisionAnswer {
    /// Kind of a training step at this precision, such as `8_bit`.
    precision: &'static str,
    answer: String,
    mean_log_probability: Option<f64>,
}

/// Number and content of a line of a file.
type Line = (u64, Result<Question, String>);
/// Question with the prompts of its windows.
type Prompted = (Question, Vec<Vec<u32>>);

impl QatLanguageModule {
    /// Answers each line of each file. `network` is on the inner device.
    ///
    /// # Errors
    /// An answer cannot be written.
    pub(super) fn answer_files(
        &mut self,
        network: &Gpt2Network,
        request: &PredictRequest<'_>,
        sink: &mut dyn PredictionSink,
    ) -> Result<serde_json::Value, TaskError> {
        for path in request.files {
            let mut questions = match UserQuestions::open(path) {
                Ok(questions) => questions,
                Err(reason) => {
                    sink.failed(Item::file(path), &reason)?;
                    continue;
                }
            };
            loop {
                let lines: Vec<Line> = questions.by_ref().take(request.limits.batch_size).collect();
                if lines.is_empty() {
                    break;
                }
                self.answer(network, path, lines, sink)?;
            }
        }
        let precisions: Vec<&str> = self.precisions.iter().map(|precision| names(precision.weights).kind).collect();
        Ok(serde_json::json!({ "precisions": precisions }))
    }

    fn answer(
        &mut self,
        network: &Gpt2Network,
        path: &Path,
        lines: Vec<Line>,
        sink: &mut dyn PredictionSink,
    ) -> Result<(), TaskError> {
        let store = &self.validation.batches.store;
        let prompted: Vec<(u64, Result<Prompted, String>)> = lines
            .into_iter()
            .map(|(line, question)| {
                let prompted = question.and_then(|question| {
                    let prompts = store.prompts(&question.context, &question.question);
                    prompts.map(|prompts| (question, prompts)).map_err(|error| error.to_string())
                });
                (line, prompted)
            })
            .collect();
        let valid = prompted.iter().filter_map(|(_, prompted)| prompted.as_ref().ok());
        let prompts: Vec<Vec<&[u32]>> = valid.map(|(_, prompts)| prompts.iter().map(Vec::as_slice).collect()).collect();
        let mut answers: Vec<Vec<PrecisionAnswer>> = prompts.iter().map(|_| Vec::new()).collect();
        for (at, precision) in self.precisions.iter().enumerate() {
            let mut quant = QuantContext::new(&self.config, Some((at, *precision)), &mut self.ranges);
            let completions = self.validation.answers(network, &prompts, &mut quant, None)?;
            for (answers, completion) in answers.iter_mut().zip(completions) {
                let mean = completion.as_ref().map(|one| one.mean_log_probability).filter(|mean| mean.is_finite());
                let text = completion.map_or(String::new(), |one| store.corpus.tokenizer.decode(&one.tokens));
                answers.push(PrecisionAnswer {
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
                    sink.failed(item, reason)?;
                    continue;
                }
            };
            let Some((precisions, widest)) = answers.next().and_then(|all| Some((all, all.first()?))) else { continue };
            let Question { id, question, .. } = question;
            let PrecisionAnswer { answer, mean_log_probability, .. } = widest;
            let (id, mean) = (id.as_deref(), *mean_log_probability);
            sink.answered(item, &Answer { id, question, answer, mean_log_probability: mean, precisions }, answer)?;
        }
        Ok(())
    }
}
