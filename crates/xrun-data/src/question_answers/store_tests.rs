//! Examples are the same whatever the cache holds, and the cache is bounded.

use super::super::settings::{QuestionAnswers, Source};
use super::*;
use crate::real_data::real_data;
use xrun_core::files::write;
use xrun_core::units::Bytes;

const SQUAD: &str = r#"{"data": [
  {"title": "A", "paragraphs": [{"context": "Ann has a red cat.", "qas": [
    {"id": "1", "question": "Who has a cat?", "answers": [{"text": "Ann", "answer_start": 0}]},
    {"id": "2", "question": "What has Ann?", "answers": [{"text": "a red cat", "answer_start": 8}]}]}]},
  {"title": "B", "paragraphs": [{"context": "Bob has a dog.", "qas": [
    {"id": "3", "question": "Who has a dog?", "answers": [{"text": "Bob", "answer_start": 0}]}]}]}]}"#;

fn of_file(text: &str) -> (tempfile::TempDir, QuestionAnswers) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("questions.json");
    write::replace(&path, text.as_bytes()).unwrap();
    let settings = QuestionAnswers {
        source: Source::File,
        path: Some(path.to_str().unwrap().into()),
        vocabulary_size: 300,
        ..QuestionAnswers::default()
    };
    (directory, settings)
}

fn store(settings: &QuestionAnswers, ledger: &Ledger) -> ExampleStore {
    ExampleStore::new(Corpus::open(settings).unwrap(), &settings.loader_settings(), 48, 5, ledger).unwrap()
}

#[test]
fn examples_are_the_same_on_demand_and_preprocessed() {
    let (_directory, on_demand) = of_file(SQUAD);
    let preprocessed = QuestionAnswers { preprocess_all: true, ..on_demand.clone() };
    let uncached = QuestionAnswers { example_cache: Bytes(0), ..on_demand.clone() };
    let ledgers = [Ledger::default(), Ledger::default(), Ledger::default()];
    let stores: Vec<ExampleStore> = [on_demand, preprocessed, uncached]
        .iter()
        .zip(&ledgers)
        .map(|(settings, ledger)| store(settings, ledger))
        .collect();
    assert_eq!((stores[0].count(Split::Train), stores[0].count(Split::Validation)), (2, 1));
    for split in [Split::Train, Split::Validation] {
        for number in 0..stores[0].count(split) {
            let [one, two, three] = [0, 1, 2].map(|at: usize| stores[at].example(split, number).unwrap());
            assert_eq!((&one, &one), (&two, &three));
        }
    }
    assert_eq!(stores[0].example(Split::Validation, 0).unwrap().answers, ["Bob"]);
    for (store, ledger) in stores.iter().zip(&ledgers) {
        let mut planned: Vec<_> = store.buffers.iter().map(|buffer| (buffer.name, buffer.cap)).collect();
        planned.sort_by_key(|(name, _)| *name);
        assert_eq!(ledger.read().iter().map(|owner| (owner.name, owner.cap)).collect::<Vec<_>>(), planned);
        assert!(ledger.read().iter().all(|owner| !owner.exceeds_cap()), "{:?}", ledger.read());
    }
}

#[test]
fn a_file_that_changes_during_the_run_is_refused() {
    let (_directory, settings) = of_file(SQUAD);
    let store = store(&settings, &Ledger::default());
    // In place: a file that is replaced stays what it was for those who have it open.
    let file = std::fs::OpenOptions::new().write(true).open(settings.path.as_ref().unwrap()).unwrap();
    std::io::Write::write_all(&mut &file, "x".repeat(SQUAD.len()).as_bytes()).unwrap();
    let message = store.example(Split::Train, 0).unwrap_err().to_string();
    assert!(message.contains("changed during the run"), "{message}");
}

#[test]
fn a_file_without_enough_articles_is_refused() {
    let only = SQUAD.replace("\"title\": \"B\", \"paragraphs\": [{", "\"title\": \"B\", \"paragraphs\": [], \"x\": [{");
    let (_directory, settings) = of_file(&only);
    let message = Corpus::open(&settings).unwrap_err().to_string();
    assert!(message.contains("held out for validation") && message.contains("validation_path"), "{message}");
    let both = QuestionAnswers { validation_path: settings.path.clone(), ..settings };
    assert_eq!(Corpus::open(&both).unwrap().places.map(|places| places.len()), [2, 2]);
}

#[test]
fn the_real_file_is_indexed_in_full() {
    let Some(path) = real_data("text/squad/dev-v1.1.json") else { return };
    let path = Some(path.to_str().unwrap().into());
    let settings = QuestionAnswers { source: Source::File, path, ..QuestionAnswers::default() };
    let store = store(&settings, &Ledger::default());
    assert_eq!(store.count(Split::Train) + store.count(Split::Validation), 10_570);
    let example = store.example(Split::Train, 1000).unwrap();
    assert!(example.tokens.len() <= 49 && !example.answers.is_empty());
}

/// A long document with many questions: its words are counted once.
#[test]
fn many_questions_of_a_long_context_take_at_most_the_memory_of_the_file() {
    let context = "Ala ma kota. ".repeat(4_000);
    let asked =
        |at: usize| format!(r#"{{"id":"{at}","question":"Who {at}?","answers":[{{"text":"Ala","answer_start":0}}]}}"#);
    let asked = (0..3_000).map(asked).collect::<Vec<_>>().join(",");
    let paragraph = format!(r#"{{"context":"{context}","qas":[{asked}]}}"#);
    let article = format!(r#"{{"title":"a","paragraphs":[{paragraph}]}}"#);
    let (_directory, settings) = of_file(&format!(r#"{{"data":[{article},{article}]}}"#));
    let corpus = Corpus::open(&settings).unwrap();
    assert_eq!(corpus.places(Split::Train).len(), 3_000);
    // Other tests run beside this one: written out, 156 MB of text would be some gigabytes of words.
    let most = xrun_core::heap::read().peak;
    assert!(most < 1 << 30, "{most}");
}
