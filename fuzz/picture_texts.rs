//! What reads pictures with texts and answers in JSON, and what must hold of each?

use std::path::Path;

use rand::RngExt;
use xrun::bounded::ledger::Ledger;
use xrun::data::image_text::settings::{AnswerForm, Settings, Source};
use xrun::data::image_text::store::ImageTextStore;
use xrun::data::image_text::{open, record};
use xrun::metrics::fields;
use xrun::pipelines::vision_language::json_bytes;
use xrun::settings::sections::Limits;

use super::mutate::mutated;
use super::samples::{self, put};
use super::targets::{Work, one, policy};
use xrun::dataset::split::Split;

/// A line of messages or an item of a question list: what is taken has an answer.
pub fn messages(_: &Path) -> Work {
    let lines = samples::messages();
    Box::new(move |random| {
        let text = mutated(one(&lines, random), one(&lines, random), random);
        let form = if random.random() { AnswerForm::Plain } else { AnswerForm::Json };
        let read = match std::str::from_utf8(&text) {
            Ok(item) if text.starts_with(b"[") => record::of_item(item, form),
            _ => record::of_line(&text),
        };
        match read {
            Ok(record) if record.answer.is_empty() => Err("takes an example without an answer".into()),
            read => Ok(read.is_ok()),
        }
    })
}

/// A file of messages with a picture in it: every example that is taken decodes, or says why not.
pub fn image_text(place: &Path) -> Work {
    let (root, pictures) = (place.join("texts"), samples::pictures());
    pictures.iter().for_each(|(name, bytes)| put(&root.join(name), bytes));
    let lines = samples::messages();
    let path = root.join("a.jsonl");
    Box::new(move |random| {
        let (_, picture) = &pictures[random.random_range(0..pictures.len())];
        let line = samples::inline(&mutated(picture, picture, random));
        let mut text = lines[..2].concat();
        text.extend(mutated(&line, &line, random));
        put(&path, &text);
        let settings = Settings {
            source: Source::Messages,
            path: Some(path.display().to_string()),
            on_broken: policy(random),
            ..Settings::default()
        };
        let Ok(library) = open::open(&settings) else { return Ok(false) };
        let tokenizer = library.tokenizer(&settings.options().vocabulary).map_err(|error| error.to_string())?;
        let store =
            ImageTextStore::new(library, tokenizer, &settings.options(), &Limits::default(), &Ledger::default());
        for split in Split::ALL {
            for number in 0..store.count(split) {
                let Ok(example) = store.example(split, number) else { continue };
                if example.picture.rgb.len() != settings.image_size * settings.image_size * 3 {
                    return Err("a picture of another size".into());
                }
            }
        }
        Ok(true)
    })
}

/// An answer: JSON for serde_json and for the scanner alike; one that is right for itself.
pub fn answer_text(_: &Path) -> Work {
    const ANSWER: &[u8] = br#"{"a": "b \\\" c\u00e9", "n": [3, -2.5e+3, true, {}], "o": {"m": null, "x/~y": ""}}"#;
    Box::new(|random| {
        let text = String::from_utf8_lossy(&mutated(ANSWER, ANSWER, random)).into_owned();
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        let scanned = json_bytes::scan(&text);
        // Deeper than xrun reads, what is skipped has no end for serde_json.
        let deep = text.matches(['[', '{']).count() > 127;
        if scanned.is_some() != theirs && !deep {
            return Err(format!("JSON for one and not for the other: {text}"));
        }
        let judged = fields::compare_answer(&text, &text);
        match judged.exact_match && judged.fields.iter().all(|(_, right)| *right) {
            true => Ok(scanned.is_some()),
            false => Err(format!("is not right beside itself: {text}")),
        }
    })
}
