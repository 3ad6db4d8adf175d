//! What does the model say about pictures of a person's own? One question about all of them, answered freely.

use serde::Serialize;
use serde_json::{Map, Value};

use super::network::{Rules, VisionLanguage};
use super::validation::Validation;
use xrun_core::dataset::split::Split;
use xrun_core::printable;
use xrun_core::task::TaskError;
use xrun_core::task::predict::{Item, PredictRequest, PredictionSink};
use xrun_data::image_text::store::{Example, Text};
use xrun_data::image_text::{picture, record};
use xrun_data::named::picture_file;

/// Held-out examples that are looked at for a question that all of them ask.
const LOOKED_AT: u64 = 64;
/// Characters of a question in a message.
const SHOWN: usize = 200;

/// A line of `predictions.jsonl`.
#[derive(Serialize)]
struct Answer<'a> {
    question: &'a str,
    /// As it was said.
    answer: &'a str,
    /// The same where it is one JSON object, and else `null`.
    fields: Option<Map<String, Value>>,
}

/// What is asked about each picture, and its tokens.
pub struct Question {
    text: String,
    prompt: Vec<u32>,
}

/// The question that was typed, or the one that all held-out examples ask.
///
/// # Errors
/// For people: there is none, or it does not fit.
pub fn question(validation: &Validation, asked: &PredictRequest<'_>) -> Result<Question, String> {
    let (store, batches) = (validation.store(), validation.batches());
    let text = match asked.question {
        Some(text) => text.to_owned(),
        None => {
            let asked = |number| store.text(Split::Validation, number).map(|text| text.question);
            let first = asked(0).map_err(|error| error.to_string())?;
            for number in 1..store.count(Split::Validation).min(LOOKED_AT) {
                if asked(number).map_err(|error| error.to_string())? != first {
                    let shown = printable::line(&first, SHOWN);
                    return Err(format!(
                        "the data asks more than one question about pictures: say which with `--question`, such as \
                         --question {}",
                        printable::shell_word(&shown)
                    ));
                }
            }
            first
        }
    };
    let prompt = store.tokenizer().encode(&record::prompt(&text)).map_err(|error| error.to_string())?;
    // There is room for one token of an answer at least.
    match prompt.len() < batches.length() {
        true => Ok(Question { text, prompt }),
        false => Err(format!(
            "`--question` has {} tokens with what stands around it, and the model takes {} at most; ask a shorter one",
            prompt.len(),
            batches.length().saturating_sub(1)
        )),
    }
}

/// Answers about each file, which is a picture. `network` is the plain one.
///
/// # Errors
/// There is no question, or an answer cannot be written.
pub fn predict(
    validation: &Validation,
    network: &VisionLanguage,
    rules: &Rules,
    asked: &PredictRequest<'_>,
    told: &mut dyn PredictionSink,
) -> Result<Value, TaskError> {
    let question = question(validation, asked).map_err(TaskError::Data)?;
    let side = validation.batches().side();
    // What is kept while answers are made has room for so many.
    let at_once = asked.limits.batch_size.min(validation.batches().shape().size);
    for files in asked.files.chunks(at_once) {
        let mut examples = Vec::with_capacity(files.len());
        let wrong: Vec<Option<String>> = files
            .iter()
            .map(|path| {
                let bytes = picture_file(path, asked.limits.decoding).map_err(Some);
                let decoded = bytes.and_then(|bytes| picture::decode(&bytes).map_err(|(_, message)| Some(message)));
                // The original ends here.
                let picture = decoded.map(|picture| picture::scaled(&picture, side));
                picture.map(|picture| examples.push(Example { picture, text: question.of_example() })).err().flatten()
            })
            .collect();
        let mut said = validation.free_answers(network, rules, &examples).into_iter();
        for (path, wrong) in files.iter().zip(wrong) {
            let item = Item::file(path);
            let (None, Some(said)) = (&wrong, if wrong.is_none() { said.next() } else { None }) else {
                told.failed(item, &wrong.unwrap_or_else(|| "the model said nothing of it".into()))?;
                continue;
            };
            let answer = Answer { question: &question.text, answer: &said, fields: serde_json::from_str(&said).ok() };
            told.answered(item, &answer, &said)?;
        }
    }
    Ok(serde_json::json!({ "question": question.text }))
}

impl Question {
    /// As of an example whose answer nobody knows.
    fn of_example(&self) -> Text {
        let (prompt, question) = (self.prompt.clone(), self.text.clone());
        Text { prompt, answer: Vec::new(), answer_text: String::new(), question }
    }
}
