//! Messages about JSON that is not an example: the key, the expected and the found value, and a hint.
//!
//! Called for a line or an item that did not parse. `None` leaves the parser's own message.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::record::AtMost;
use crate::json::{TEXT, kind};

const OBJECT: &str = "an object";
const LIST: &str = "a list";

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    image: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    from: Option<IgnoredAny>,
    value: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    r#type: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    image: Option<&'a RawValue>,
    #[serde(borrow)]
    image_url: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Url<'a> {
    #[serde(borrow)]
    url: Option<&'a RawValue>,
}

/// Message about an answer that is JSON and not a text.
const ANSWER: &str =
    "an answer in JSON is written as a text, its quotation marks with `\\` before them: \"{\\\"name\\\": …}\"";
const ONE_IMAGE: &str = "write the one image alone: \"image\": \"images/7.jpg\"";

/// Problem of a line of JSON lines.
pub fn line_problem(line: &str) -> Option<String> {
    if kind(line) != OBJECT {
        return None;
    }
    let Line { messages, text, image, response } = serde_json::from_str(line).ok()?;
    not_a_text("`text`", text, None)
        .or_else(|| not_a_text("`image`", image, Some(ONE_IMAGE)))
        .or_else(|| not_a_text("`response`", response, Some(ANSWER)))
        .or_else(|| messages_problem(messages?.get()))
}

/// Found value where a text was expected, and a hint.
fn not_a_text(what: &str, value: Option<&RawValue>, hint: Option<&str>) -> Option<String> {
    let found = kind(value?.get());
    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
    (found != TEXT).then(|| format!("{what} is {found}, expected {TEXT}{hint}"))
}

fn messages_problem(messages: &str) -> Option<String> {
    let found = kind(messages);
    if found != LIST {
        return Some(format!("`messages` is {found}, expected {LIST} of messages"));
    }
    let AtMost(messages) = serde_json::from_str::<AtMost<&RawValue>>(messages).ok()?;
    (1..).zip(messages).find_map(|(number, message)| message_problem(number, message.get()))
}

fn message_problem(number: usize, message: &str) -> Option<String> {
    let found = kind(message);
    if found != OBJECT {
        return Some(format!("message {number} is {found}, expected {OBJECT}: {{\"role\": …, \"content\": …}}"));
    }
    let Message { role, content, from, value } = serde_json::from_str(message).ok()?;
    let (Some(role), Some(content)) = (role, content) else {
        let missing = if role.is_none() { "role" } else { "content" };
        let other = if from.is_some() || value.is_some() {
            "; write `role` in place of `from`, and `content` in place of `value`"
        } else {
            ""
        };
        return Some(format!("message {number} has no `{missing}`{other}"));
    };
    not_a_text(&format!("`role` of message {number}"), Some(role), None).or_else(|| {
        let content = content.get();
        match kind(content) {
            TEXT => None,
            LIST => {
                let AtMost(parts) = serde_json::from_str::<AtMost<&RawValue>>(content).ok()?;
                (1..)
                    .zip(parts)
                    .find_map(|(part, value)| part_problem(&format!("part {part} of message {number}"), value))
            }
            found => {
                let hint = if found == OBJECT { format!("; {ANSWER}") } else { String::new() };
                Some(format!("`content` of message {number} is {found}, expected {TEXT} or {LIST} of parts{hint}"))
            }
        }
    })
}

fn part_problem(at: &str, part: &RawValue) -> Option<String> {
    let found = kind(part.get());
    if found != OBJECT {
        let example = "{\"type\": \"text\", \"text\": …}";
        return Some(format!("{at} is {found}, expected {OBJECT} such as {example}"));
    }
    let Part { r#type, text, image, image_url } = serde_json::from_str(part.get()).ok()?;
    not_a_text(&format!("`type` of {at}"), r#type, None)
        .or_else(|| not_a_text(&format!("`text` of {at}"), text, None))
        .or_else(|| not_a_text(&format!("`image` of {at}"), image, Some(ONE_IMAGE)))
        .or_else(|| {
            let image_url = image_url?.get();
            let example = "{\"url\": \"data:image/png;base64,…\"}";
            let found = kind(image_url);
            if found != OBJECT {
                return Some(format!("`image_url` of {at} is {found}, expected {OBJECT}: {example}"));
            }
            match serde_json::from_str::<Url<'_>>(image_url).ok()?.url {
                None => Some(format!("`image_url` of {at} has no `url`, expected {example}")),
                url => not_a_text(&format!("`url` of {at}"), url, None),
            }
        })
}

/// Problem of an item of a question list.
pub fn item_problem(item: &str) -> Option<String> {
    let found = kind(item);
    if found != LIST {
        return Some(format!("it is {found}"));
    }
    let AtMost(entries) = serde_json::from_str::<AtMost<&RawValue>>(item).ok()?;
    let [question, answer, image] = entries.as_slice() else {
        return Some(format!("it has {} entries, expected three", entries.len()));
    };
    not_a_text("the question", Some(question), None).or_else(|| not_a_text("the answer", Some(answer), None)).or_else(
        || {
            let image = image.get();
            let expected = "expected a whole number: 7 of `images/7.png`";
            image.trim().parse::<u64>().is_err().then(|| match kind(image) {
                "a number" => format!("the image is {}, {expected}", image.trim()),
                found => format!("the image is {found}, {expected}"),
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_which_key_is_wrong_and_what_to_write() {
        let message = |message: &str| format!("{{\"messages\": [{message}]}}");
        let parts = |parts: &str| message(&format!("{{\"role\": \"user\", \"content\": [{parts}]}}"));
        for (line, said) in [
            (
                r#"{"text": "a", "image": "b", "response": {"name": "Orn"}}"#.to_owned(),
                "`response` is an object, expected a text; an answer in JSON",
            ),
            (
                r#"{"text": "a", "image": ["b"], "response": "c"}"#.to_owned(),
                "`image` is a list, expected a text; write the one image alone",
            ),
            (r#"{"text": 7, "image": "b", "response": "c"}"#.to_owned(), "`text` is a number, expected a text"),
            (r#"{"messages": "a"}"#.to_owned(), "`messages` is a text, expected a list of messages"),
            (message("7"), "message 1 is a number, expected an object"),
            (message(r#"{"from": "human", "value": "a"}"#), "message 1 has no `role`; write `role` in place of `from`"),
            (message(r#"{"role": "user"}"#), "message 1 has no `content`"),
            (message(r#"{"role": true, "content": "a"}"#), "`role` of message 1 is true or false"),
            (
                message(r#"{"role": "assistant", "content": {"name": "Orn"}}"#),
                "`content` of message 1 is an object, expected a text or a list of parts; an answer",
            ),
            (parts("\"a\""), "part 1 of message 1 is a text, expected an object"),
            (parts(r#"{"type": "text", "text": 1}"#), "`text` of part 1 of message 1 is a number"),
            (
                parts(r#"{"type": "text", "text": "a"}, {"type": "image", "image": ["a.png"]}"#),
                "`image` of part 2 of message 1 is a list",
            ),
            (
                parts(r#"{"type": "image_url", "image_url": "a"}"#),
                "`image_url` of part 1 of message 1 is a text, expected an object: {\"url\"",
            ),
            (parts(r#"{"type": "image_url", "image_url": {}}"#), "has no `url`"),
        ] {
            let found = line_problem(&line).unwrap_or_else(|| panic!("nothing is said of {line}"));
            assert!(found.starts_with(said) || (said == "has no `url`" && found.contains(said)), "{found} ({line})");
        }
        assert_eq!(line_problem(r#"{"text": "a", "image": "b", "response": "c", "id": []}"#), None);
    }

    #[test]
    fn an_item_is_told_what_it_has_in_place_of_three_entries() {
        for (item, said) in [
            ("{}", "it is an object"),
            (r#"["a", "b"]"#, "it has 2 entries, expected three"),
            (r#"[1, "b", 2]"#, "the question is a number, expected a text"),
            (r#"["a", null, 2]"#, "the answer is null, expected a text"),
            (r#"["a", "b", "7"]"#, "the image is a text, expected a whole number"),
            (r#"["a", "b", -1]"#, "the image is -1, expected a whole number"),
        ] {
            assert!(item_problem(item).unwrap().starts_with(said), "{item}: {:?}", item_problem(item));
        }
        assert_eq!(item_problem(r#"["a", "b", 7]"#), None);
    }
}
