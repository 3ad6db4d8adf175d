//! Prediction: free answers to one question about each of the given images.

use serde::Serialize;
use serde_json::{Map, Value};

use super::network::{ForwardConfig, VisionLanguageNetwork};
use super::validation::Validation;
use xrun_core::dataset::split::Split;
use xrun_core::printable;
use xrun_core::task::TaskError;
use xrun_core::task::predict::{Item, PredictRequest, PredictionSink};
use xrun_data::image_text::store::{Example, Text};
use xrun_data::image_text::{image_file, record};
use xrun_data::reading::named_image::read_image_file;

/// Number of held-out examples that must ask the same question for it to be the default.
const COMPARED_EXAMPLES: u64 = 64;
/// Maximum length of a question in a message, in characters.
const SHOWN_MAX: usize = 200;

/// A line of `predictions.jsonl`.
#[derive(Serialize)]
struct Answer<'a> {
    question: &'a str,
    /// Text of the answer.
    answer: &'a str,
    /// Fields of the answer if it is one JSON object, otherwise `null`.
    fields: Option<Map<String, Value>>,
}

/// Question about each image, and its prompt.
pub struct Question {
    text: String,
    prompt: Vec<u32>,
}

/// Returns the question of the request, or the one that all held-out examples ask.
///
/// # Errors
/// Message for the user: there is no single question, or it is too long.
pub fn question(validation: &Validation, request: &PredictRequest<'_>) -> Result<Question, String> {
    let (store, batches) = (&validation.batches.store, &validation.batches);
    let text = match request.question {
        Some(text) => text.to_owned(),
        None => {
            let of_example = |number| store.text(Split::Validation, number).map(|text| text.question);
            let first = of_example(0).map_err(|error| error.to_string())?;
            for number in 1..store.count(Split::Validation).min(COMPARED_EXAMPLES) {
                if of_example(number).map_err(|error| error.to_string())? != first {
                    let shown = printable::line(&first, SHOWN_MAX);
                    return Err(format!(
                        "the data asks several questions about images; choose one, for example --question {}",
                        printable::shell_word(&shown)
                    ));
                }
            }
            first
        }
    };
    let prompt = store.tokenizer.encode(&record::prompt(&text)).map_err(|error| error.to_string())?;
    // At least one token is left for the answer.
    match prompt.len() < batches.shape.length {
        true => Ok(Question { text, prompt }),
        false => Err(format!(
            "`--question` has {} tokens in its prompt, and the model takes at most {}; ask a shorter one",
            prompt.len(),
            batches.shape.length.saturating_sub(1)
        )),
    }
}

/// Answers the question about each file, which is an image. `network` is on the inner device.
///
/// # Errors
/// There is no question, or an answer cannot be written.
pub fn predict(
    validation: &Validation,
    network: &VisionLanguageNetwork,
    config: &ForwardConfig,
    request: &PredictRequest<'_>,
    sink: &mut dyn PredictionSink,
) -> Result<Value, TaskError> {
    let question = question(validation, request).map_err(TaskError::Data)?;
    let side = validation.batches.shape.side;
    // The KV cache has room for this many.
    let batch_size = request.limits.batch_size.min(validation.batches.shape.size);
    for files in request.files.chunks(batch_size) {
        let mut examples = Vec::with_capacity(files.len());
        let failures: Vec<Option<String>> = files
            .iter()
            .map(|path| {
                let most = request.limits.decode_memory;
                let bytes = read_image_file(path, most).map_err(Some);
                let decoded =
                    bytes.and_then(|bytes| image_file::decode(&bytes, most.0).map_err(|(_, message)| Some(message)));
                // The original is dropped here.
                let image = decoded.map(|image| image_file::scaled(&image, side));
                image.map(|image| examples.push(Example { image, text: question.without_answer() })).err().flatten()
            })
            .collect();
        let mut answers = validation.generated_answers(network, config, &examples)?.into_iter();
        for (path, failure) in files.iter().zip(failures) {
            let item = Item::file(path);
            let (None, Some(text)) = (&failure, if failure.is_none() { answers.next() } else { None }) else {
                sink.failed(item, &failure.unwrap_or_else(|| "the model gave no answer".into()))?;
                continue;
            };
            let answer = Answer { question: &question.text, answer: &text, fields: serde_json::from_str(&text).ok() };
            sink.answered(item, &answer, &text)?;
        }
    }
    Ok(serde_json::json!({ "question": question.text }))
}

impl Question {
    /// Text of an example with an empty answer.
    fn without_answer(&self) -> Text {
        let (prompt, question) = (self.prompt.clone(), self.text.clone());
        Text { prompt, answer: Vec::new(), answer_text: String::new(), question }
    }
}
