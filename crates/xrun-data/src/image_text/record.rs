//! Reader of one example: a line of messages, or an item of a question list, before its image is looked at.

use std::fmt;
use std::marker::PhantomData;

use percent_encoding::percent_decode_str;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::settings::AnswerFormat;
use crate::json::{self, object_with};
use crate::reading::invalid::Fault;
use xrun_core::printable;
use xrun_core::problem::nearest;

/// Messages of an example, and parts of a message. More are no conversation about an image.
const LIST_MAX: usize = 4096;

/// An example as the file tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Messages of system and user, a line each.
    pub question: String,
    /// The assistant's text, byte for byte.
    pub answer: String,
    /// Location of its image.
    pub image: Image,
}

/// Location of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A path relative to the directory of the file, or the whole one, as written; not yet checked.
    File(String),
    /// A `data:` URL, as written; not yet checked.
    Inline(String),
}

impl Record {
    /// Prompt of a model.
    pub fn prompt(&self) -> String {
        prompt(&self.question)
    }
}

/// Prompt of a model for a question.
pub fn prompt(question: &str) -> String {
    format!("question: {question}\nanswer: ")
}

/// Description of a line of JSON lines.
pub const EXPECTED: &str = "{\"messages\": [{\"role\": …, \"content\": …}, …]}, {\"conversations\": [{\"from\": …, \"value\": …}, …], \"image\": …} or \
     {\"text\": …, \"image\": …, \"response\": …}";

/// A line of JSON lines.
///
/// # Errors
/// Why it is of no use.
pub fn of_line(line: &[u8]) -> Result<Record, Fault> {
    // So that columns are those of this line.
    let line = line.trim_ascii_end();
    std::str::from_utf8(line)
        .map_err(|error| ("not_utf8", format!("is not UTF-8 from byte {} of the line", error.valid_up_to())))?;
    object_with(line, EXPECTED).map_err(|message| ("wrong_form", message))?;
    let read = json::read::<Line>(line);
    match read.map_err(|error| (if error.is_form { "wrong_form" } else { "not_json" }, error.message))? {
        Line { messages: Some(AtMost(messages)), response: None, image, images, .. } => {
            let images = images.into_iter().flat_map(|AtMost(images)| images).map(|Beside(path)| path);
            of_messages(messages, image.into_iter().chain(images).collect())
        }
        Line { messages: None, text: Some(text), image: Some(image), response: Some(response), .. } => {
            if response.is_empty() {
                return Err(("no_answer", "`response` is empty".into()));
            }
            Ok(Record { question: text, answer: response, image: place(image)? })
        }
        Line { messages: Some(_), .. } => {
            Err(("wrong_form", "has both `messages` and `response`; keep one of them".into()))
        }
        Line { messages: None, text: Some(_), image: Some(_), .. } => Err(("no_answer", "has no `response`".into())),
        Line { .. } => Err(("wrong_form", format!("expected {EXPECTED}, none of them null"))),
    }
}

/// An item of a question list: `[question, answer, image]`.
///
/// # Errors
/// Why it is of no use.
pub fn of_item(item: &str, form: AnswerFormat) -> Result<Record, Fault> {
    let read = json::read::<(String, String, u64)>(item.as_bytes());
    let (question, answer, image) = read
        .map_err(|error| ("wrong_form", format!("is not [question, answer, number of an image]: {}", error.message)))?;
    if answer.is_empty() {
        return Err(("no_answer", "the answer is empty".into()));
    }
    let answer = match form {
        AnswerFormat::Plain => answer,
        AnswerFormat::Json => format!("{{\"answer\": {}}}", serde_json::Value::String(answer)),
    };
    Ok(Record { question, answer, image: Image::File(format!("images/{image}.png")) })
}

/// Reads messages, with the images that stand next to them for the parts that name none.
fn of_messages(messages: Vec<Message>, mut beside: Vec<String>) -> Result<Record, Fault> {
    const ROLES: [&str; 3] = ["system", "user", "assistant"];
    let (mut question, mut answer, mut images) = (Vec::new(), None, Vec::new());
    beside.reverse();
    for (number, Message { role, content }) in (1..).zip(messages) {
        let at = format!("message {number}");
        // Names of ShareGPT.
        let role = match role.as_str() {
            "human" => "user".into(),
            "gpt" => "assistant".into(),
            _ => role,
        };
        if !ROLES.contains(&role.as_str()) {
            let shown = printable::line(&role, 40);
            let meant = nearest(&role, ROLES).map_or_else(String::new, |role| format!("; did you mean {role}?"));
            let message = format!("{at} has the role \"{shown}\", expected {}{meant}", ROLES.join(", "));
            return Err(("unknown_role", message));
        }
        let mut texts = Vec::new();
        let left = beside.len();
        for part in content.0.into_iter().flat_map(|part| part.divided(left)) {
            // A part without an image stands for the next of those next to the messages.
            let part = match part.r#type == "image" && part.image.is_none() {
                true => Part { image: beside.pop(), ..part },
                false => part,
            };
            match part.read(&at)? {
                PartContent::Text(text) => texts.push(text),
                PartContent::Image(image) => images.push(image),
            }
        }
        // Earlier turns are context of the last answer.
        question.extend(answer.take());
        match role == "assistant" {
            true => answer = Some(texts.concat()),
            false => question.append(&mut texts),
        }
    }
    let answer =
        answer.ok_or_else(|| ("answer_not_last", "the last message is not of the role assistant".to_owned()))?;
    if answer.is_empty() {
        return Err(("no_answer", "the last message is empty".to_owned()));
    }
    if images.is_empty() && beside.len() == 1 {
        images.append(&mut beside);
    }
    match (images.pop(), images.len()) {
        (Some(image), 0) => Ok(Record { question: question.join("\n"), answer, image: place(image)? }),
        (image, before) => {
            let found = before + usize::from(image.is_some());
            const EXAMPLE: &str = "a part of a content such as {\"type\": \"image\", \"image\": \"images/7.jpg\"}";
            Err(("not_one_image", format!("{found} images, expected exactly one, {EXAMPLE}")))
        }
    }
}

/// Location of an image, by the text of its key.
fn place(text: String) -> Result<Image, Fault> {
    if text.starts_with("data:") {
        return Ok(Image::Inline(text));
    }
    if let Some(path) = text.strip_prefix("file://") {
        // The host is empty, or this machine.
        let path = path.strip_prefix("localhost").unwrap_or(path);
        let path = percent_decode_str(path).decode_utf8();
        let path = path.map_err(|_| ("url", "the image is a file:// URL that is not UTF-8".to_owned()))?;
        return Ok(Image::File(path.into_owned()));
    }
    if text.contains("://") {
        let shown = printable::line(&text, 60);
        let message = format!("the image is the URL \"{shown}\"; download it into the data set's directory");
        return Err(("url", message));
    }
    Ok(Image::File(text))
}

#[derive(Deserialize)]
struct Line {
    /// `conversations` in files of LLaVA and ShareGPT.
    #[serde(alias = "conversations")]
    messages: Option<AtMost<Message>>,
    text: Option<String>,
    image: Option<String>,
    images: Option<AtMost<Beside>>,
    response: Option<String>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Message {
    #[serde(alias = "from")]
    role: String,
    #[serde(alias = "value")]
    content: Content,
}

/// Path of an image next to the messages; of Hugging Face an object with the key `path`.
struct Beside(String);

impl<'de> Deserialize<'de> for Beside {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a path, or an object with `path`")]
        enum Form {
            Path(String),
            Object { path: String },
        }
        let (Form::Path(path) | Form::Object { path }) = Form::deserialize(deserializer)?;
        Ok(Self(path))
    }
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
struct Part {
    #[serde(default)]
    r#type: String,
    text: Option<String>,
    image: Option<String>,
    image_url: Option<Url>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Url {
    url: String,
}

enum PartContent {
    Text(String),
    Image(String),
}

impl Part {
    fn text(text: &str) -> Self {
        Self { r#type: "text".into(), text: Some(text.to_owned()), ..Self::default() }
    }

    /// Text with `<image>` in it as several parts, where `images` stand next to the messages.
    fn divided(self, images: usize) -> Vec<Self> {
        const MARK: &str = "<image>";
        let Some(text) = self.text.as_ref().filter(|text| images > 0 && self.r#type == "text" && text.contains(MARK))
        else {
            return vec![self];
        };
        let mut parts = Vec::new();
        for (at, text) in text.splitn(images + 1, MARK).enumerate() {
            if at > 0 {
                parts.push(Self { r#type: "image".into(), ..Self::default() });
            }
            let text = text.trim_matches('\n');
            if !text.is_empty() {
                parts.push(Self::text(text));
            }
        }
        parts
    }

    fn read(self, at: &str) -> Result<PartContent, Fault> {
        const TYPES: [&str; 3] = ["text", "image", "image_url"];
        let Self { r#type, text, image, image_url } = self;
        let (found, needed) = match r#type.as_str() {
            "text" => (text.map(PartContent::Text), "text"),
            "image" => (image.map(PartContent::Image), "image"),
            "image_url" => (image_url.map(|Url { url }| PartContent::Image(url)), "image_url"),
            _ => {
                let shown = printable::line(&r#type, 40);
                let meant = nearest(&r#type, TYPES);
                let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
                let message = format!("{at} has a part of the type \"{shown}\", expected {}{meant}", TYPES.join(", "));
                return Err(("unknown_part", message));
            }
        };
        found.ok_or_else(|| ("wrong_form", format!("{at} has a part of the type {needed} without `{needed}`")))
    }
}

/// List of at most [`LIST_MAX`] items.
struct AtMost<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for AtMost<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfList<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OfList<T> {
            type Value = AtMost<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                at_most(list).map(AtMost)
            }
        }
        deserializer.deserialize_seq(OfList(PhantomData))
    }
}

fn at_most<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(mut list: A) -> Result<Vec<T>, A::Error> {
    let mut all = Vec::new();
    while let Some(one) = list.next_element()? {
        if all.len() == LIST_MAX {
            return Err(A::Error::custom(format!("a list of more than {LIST_MAX}")));
        }
        all.push(one);
    }
    Ok(all)
}

/// A text, or a list of parts.
struct Content(Vec<Part>);

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfEither;
        impl<'de> Visitor<'de> for OfEither {
            type Value = Content;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text or a list of parts")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content(vec![Part::text(text)]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Content, A::Error> {
                at_most(list).map(Content)
            }
        }
        deserializer.deserialize_any(OfEither)
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
