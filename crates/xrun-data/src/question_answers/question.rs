//! Reader of one question: an object of SQuAD's `qas`, or the columns of a row, in the forms that exports have.

use serde_json::{Map, Value};

use super::squad::{Answer, Question};
use crate::json::{integer, kind};

/// Reads an item of `qas`.
///
/// # Errors
/// The key that is wrong, and what was expected.
pub(super) fn of_object(value: Value) -> Result<Question, String> {
    let Value::Object(mut keys) = value else { return Err(format!("is {}, expected an object", named(&value))) };
    let mut take = |key: &str| keys.remove(key).unwrap_or_default();
    read(take("id"), take("question"), take("answers"))
}

/// Reads a question from the values of its keys.
///
/// # Errors
/// As [`of_object`].
pub(super) fn read(id: Value, question: Value, answers: Value) -> Result<Question, String> {
    let id = match id {
        Value::Null => String::new(),
        Value::String(id) => id,
        Value::Number(number) => number.to_string(),
        other => return Err(format!("`id` is {}, expected a text or a number", named(&other))),
    };
    let question = match question {
        Value::String(text) => text,
        Value::Null => return Err("has no `question`".into()),
        other => return Err(format!("`question` is {}, expected a text", named(&other))),
    };
    Ok(Question { id, question, answers: list(answers)? })
}

/// Answers: a list of objects, or one object of lists, as the rows of `datasets` have it.
fn list(answers: Value) -> Result<Vec<Answer>, String> {
    match answers {
        Value::Null => Ok(Vec::new()),
        Value::Array(answers) => answers
            .into_iter()
            .map(|answer| match answer {
                Value::Object(mut keys) => pair(taken(&mut keys, "text"), taken(&mut keys, "answer_start")),
                other => Err(format!("an answer is {}, expected an object", named(&other))),
            })
            .collect(),
        Value::Object(mut keys) => match (taken(&mut keys, "text"), taken(&mut keys, "answer_start")) {
            (Value::Array(texts), Value::Array(starts)) if texts.len() == starts.len() => {
                texts.into_iter().zip(starts).map(|(text, start)| pair(text, start)).collect()
            }
            (Value::Array(texts), Value::Array(starts)) => {
                Err(format!("`answers` has {} texts and {} starts", texts.len(), starts.len()))
            }
            // A single answer.
            (text @ Value::String(_), start) => Ok(vec![pair(text, start)?]),
            _ => Err("`answers` has no lists `text` and `answer_start`".into()),
        },
        other => Err(format!("`answers` is {}, expected a list", named(&other))),
    }
}

fn pair(text: Value, start: Value) -> Result<Answer, String> {
    let Value::String(text) = text else {
        return Err(format!("`text` of an answer is {}, expected a text", named(&text)));
    };
    let answer_start = integer(&start).ok().and_then(|start| usize::try_from(start).ok());
    let expected = || format!("`answer_start` is {}, expected a whole number from 0", named(&start));
    Ok(Answer { text, answer_start: answer_start.ok_or_else(expected)? })
}

fn taken(keys: &mut Map<String, Value>, key: &str) -> Value {
    keys.remove(key).unwrap_or_default()
}

fn named(value: &Value) -> &'static str {
    kind(&value.to_string())
}
