//! Fuzz targets for images with texts and for answers in JSON.

use std::path::Path;

use rand::RngExt;
use xrun::bounded::ledger::Ledger;
use xrun::data::image_text::settings::{AnswerFormat, ImageText, Source};
use xrun::data::image_text::store::ImageTextStore;
use xrun::data::image_text::{open, record};
use xrun::metrics::fields;
use xrun::pipelines::vision_language::json_bytes;
use xrun::settings::sections::Limits;

use super::mutate::mutate;
use super::samples::{self, write};
use super::targets::{RunInput, choose, policy};
use xrun::dataset::split::Split;

/// Line of messages, or item of a question list. Invariant: an accepted example has an answer.
pub fn messages(_: &Path) -> RunInput {
    let lines = samples::messages();
    Box::new(move |random| {
        let text = mutate(choose(&lines, random), choose(&lines, random), random);
        let form = if random.random() { AnswerFormat::Plain } else { AnswerFormat::Json };
        let read = match std::str::from_utf8(&text) {
            Ok(item) if text.starts_with(b"[") => record::of_item(item, form),
            _ => record::of_line(&text),
        };
        match read {
            Ok(record) if record.answer.is_empty() => Err("accepts an example without an answer".into()),
            read => Ok(read.is_ok()),
        }
    })
}

/// File of messages with an embedded image. Invariant: a decoded example has the requested size.
pub fn image_text(directory: &Path) -> RunInput {
    let (root, images) = (directory.join("texts"), samples::images());
    images.iter().for_each(|(name, bytes)| write(&root.join(name), bytes));
    let lines = samples::messages();
    let path = root.join("a.jsonl");
    Box::new(move |random| {
        let (_, image_bytes) = &images[random.random_range(0..images.len())];
        let line = samples::inline(&mutate(image_bytes, image_bytes, random));
        let mut text = lines[..2].concat();
        text.extend(mutate(&line, &line, random));
        write(&path, &text);
        let settings = ImageText {
            source: Source::Messages,
            path: Some(path.display().to_string()),
            on_invalid: policy(random),
            ..ImageText::default()
        };
        let Ok(library) = open::open(&settings) else { return Ok(false) };
        let tokenizer = library.tokenizer(&settings.loader_settings().vocabulary).map_err(|error| error.to_string())?;
        let store = ImageTextStore::new(
            library,
            tokenizer,
            &settings.loader_settings(),
            &Limits::default(),
            &Ledger::default(),
        );
        for split in Split::ALL {
            for number in 0..store.count(split) {
                let Ok(example) = store.example(split, number) else { continue };
                if example.image.rgb.len() != settings.image_size * settings.image_size * 3 {
                    return Err("decodes an image of another size".into());
                }
            }
        }
        Ok(true)
    })
}

/// Answer in JSON. Invariants: serde_json and the scanner agree on its validity, and it matches itself.
pub fn answer_text(_: &Path) -> RunInput {
    const ANSWER: &[u8] = br#"{"a": "b \\\" c\u00e9", "n": [3, -2.5e+3, true, {}], "o": {"m": null, "x/~y": ""}}"#;
    Box::new(|random| {
        let text = String::from_utf8_lossy(&mutate(ANSWER, ANSWER, random)).into_owned();
        let valid = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        let scanned = json_bytes::scan(&text);
        // Beyond the depth that xrun reads, serde_json has no limit for skipped values.
        let deep = text.matches(['[', '{']).count() > 127;
        if scanned.is_some() != valid && !deep {
            return Err(format!("scanner and serde_json disagree: {text}"));
        }
        let judged = fields::compare_answer(&text, &text);
        match judged.exact_match && judged.fields.iter().all(|(_, right)| *right) {
            true => Ok(scanned.is_some()),
            false => Err(format!("does not match itself: {text}")),
        }
    })
}
