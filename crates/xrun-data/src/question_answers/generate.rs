//! Generator of a corpus: articles about made-up towns in SQuAD's form, written once.
//!
//! Equal settings give the same bytes on any machine. Only the paragraph determines an answer.

use std::path::{Path, PathBuf};

use rand::RngExt;
use rand::seq::SliceRandom;
use serde_json::{Value, json};

use super::settings::Generated;
use xrun_core::dataset::digest::digest;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::generated;
use xrun_core::files::write;
use xrun_core::seed::generator;

/// A change to what is written needs a new number: old files stay valid for old code.
const VERSION: u32 = 2;

/// Number of questions about a sentence: the person, what they like, and their trade.
pub const QUESTIONS_PER_SENTENCE: usize = 3;

const NAMES: [&str; 20] = [
    "Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Karin", "Lukas", "Maria",
    "Nils", "Olga", "Peter", "Rosa", "Simon", "Tessa", "Victor",
];
const TRADES: [&str; 12] = [
    "baker", "smith", "tailor", "miller", "weaver", "potter", "doctor", "teacher", "farmer", "sailor", "painter",
    "cook",
];
const COLOURS: [&str; 8] = ["red", "blue", "green", "black", "white", "brown", "grey", "yellow"];
const ANIMALS: [&str; 12] =
    ["cat", "dog", "horse", "goat", "duck", "cow", "sheep", "parrot", "rabbit", "donkey", "goose", "mouse"];
const FIRST: [&str; 8] = ["Nor", "Sal", "Ber", "Kal", "Mon", "Tur", "Vel", "Ost"];
const LAST: [&str; 6] = ["burg", "stad", "heim", "wick", "ford", "mouth"];

/// The generated file below the cache directory `cache`, written now if it is not there yet, and the digest that it was written
/// with.
pub fn generate_in(settings: &Generated, cache: &Path) -> Result<(PathBuf, String), DataError> {
    let identity = format!("{VERSION} {}", serde_json::to_string(settings).unwrap_or_default());
    let place = cache.join(format!("questions-{}.json", &digest(identity.as_bytes())[..16]));
    let written = generated::file(&place, |path| {
        let articles: Vec<Value> = (0..settings.articles).map(|number| article(settings, number)).collect();
        let text = serde_json::to_vec(&json!({ "data": articles, "version": "1.1" })).unwrap_or_default();
        write::replace(path, &text).map_err(|error| generated::not_made(&place, &error.source))
    })?;
    Ok((place, written))
}

fn article(settings: &Generated, number: usize) -> Value {
    let random = &mut generator(settings.seed, "article", number as u64);
    let town = format!("{}{}", FIRST[random.random_range(0..FIRST.len())], LAST[random.random_range(0..LAST.len())]);
    let paragraphs: Vec<Value> = (0..settings.paragraphs_per_article)
        .map(|paragraph| {
            let random = &mut generator(
                settings.seed,
                "paragraph",
                (number * settings.paragraphs_per_article + paragraph) as u64,
            );
            // Nobody and nothing twice in one paragraph: each question has one answer.
            let mut draw = |words: &[&'static str]| {
                let mut words = words.to_vec();
                words.shuffle(random);
                words
            };
            let (names, trades, colours, animals) = (draw(&NAMES), draw(&TRADES), draw(&COLOURS), draw(&ANIMALS));
            let mut context = format!("In {town},");
            let mut questions = Vec::new();
            for at in 0..settings.sentences_per_paragraph {
                let (name, trade, colour, animal) = (names[at], trades[at], colours[at], animals[at]);
                let begin = context.len() + 1;
                context += &format!(" {name} the {trade} has a {colour} {animal}.");
                let mut ask = |question: String, answer: String| {
                    let id = format!("{number:06}{paragraph:06}{:06}", questions.len());
                    let start = begin + context[begin..].find(&answer).unwrap_or_default();
                    let answers = json!([{ "text": answer, "answer_start": start }]);
                    questions.push(json!({ "id": id, "question": question, "answers": answers }));
                };
                ask(format!("Who has a {colour} {animal}?"), name.to_owned());
                ask(format!("What has {name}?"), format!("a {colour} {animal}"));
                ask(format!("Which trade has {name}?"), trade.to_owned());
            }
            json!({ "context": context, "qas": questions })
        })
        .collect();
    json!({ "title": town, "paragraphs": paragraphs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_settings_give_the_same_sound_file() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Generated { articles: 3, paragraphs_per_article: 4, ..Generated::default() };
        let (path, written) = generate_in(&settings, directory.path()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(written, digest(&bytes));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(generate_in(&settings, directory.path()).unwrap(), (path.clone(), written.clone()));
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let (_, other) = generate_in(&Generated { seed: 1, ..settings.clone() }, directory.path()).unwrap();
        assert_ne!(other, written);
        let mut invalid = crate::reading::invalid::InvalidCollector::new(crate::reading::invalid::OnInvalid::Fail);
        let index = super::super::squad::index(std::io::Cursor::new(&bytes), &path, &mut invalid).unwrap();
        assert_eq!(index.places.len(), 3 * 4 * settings.sentences_per_paragraph * QUESTIONS_PER_SENTENCE);
    }
}
