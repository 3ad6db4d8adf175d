//! Are batches what they should be: each question once an epoch, targets one ahead, within their size?

use std::collections::BTreeSet;

use rand::RngExt;

use super::*;
use crate::metrics::squad::SquadScore;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::seed::generator;
use xrun_data::question_answers::corpus::Corpus;
use xrun_data::question_answers::settings::{Generated, Settings as Data, Source};

fn batches(settings: &Settings, size: usize) -> (tempfile::TempDir, Batches) {
    let folder = tempfile::tempdir().unwrap();
    let generated = Generated { articles: 3, paragraphs_per_article: 2, ..Generated::default() };
    let (path, _) = xrun_data::question_answers::generate::generate_in(&generated, folder.path()).unwrap();
    let data = Data { source: Source::File, path: Some(path.to_str().unwrap().into()), ..Data::default() };
    let corpus = Corpus::open(&data).unwrap();
    let store = ExampleStore::new(corpus, &data.options(), settings.sequence_length, 1, &Ledger::default()).unwrap();
    (folder, Batches::new(Arc::new(store), settings, 1, size))
}

#[test]
fn an_epoch_has_every_question_once_and_batches_are_within_their_size() {
    let settings = Settings::default();
    let (_folder, batches) = batches(&settings, 4);
    let count = batches.store().count(Split::Train);
    assert_eq!((count, batches.per_epoch()), (24, 6));
    let of_epoch = |epoch: u64| -> BTreeSet<Vec<i32>> {
        (epoch * 6..(epoch + 1) * 6)
            .flat_map(|number| {
                let batch = batches.train(number).unwrap();
                assert!(batch.held_bytes() <= batch_bytes_max(&settings, 4), "{}", batch.held_bytes());
                assert!(batch.describe().starts_with(&format!("batch {number}, questions ")), "{}", batch.describe());
                batch.inputs.chunks(64).map(<[i32]>::to_vec).collect::<Vec<_>>()
            })
            .collect()
    };
    assert_eq!(of_epoch(0).len(), 24);
    assert_eq!(of_epoch(0), of_epoch(1));
    assert_ne!(batches.train(0).unwrap(), batches.train(6).unwrap(), "another order in another epoch");
    assert_eq!(batches.train(3).unwrap(), batches.train(3).unwrap());
}

#[test]
fn a_target_is_the_next_input_and_only_what_is_said_weighs() {
    let example = Arc::new(Example { tokens: vec![5, 6, 7, 8, 9], prompt: 3, answers: vec![], others: vec![] });
    let all = TokenBatch::new(std::slice::from_ref(&example), 6, LossOn::All, 0, "");
    assert_eq!(all.inputs, [5, 6, 7, 8, 9, 0]);
    assert_eq!(all.targets, [6, 7, 8, 9, 0, 0]);
    assert_eq!(all.weights, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
    let answer = TokenBatch::new(std::slice::from_ref(&example), 6, LossOn::Answer, 0, "");
    assert_eq!(answer.weights, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    let full = TokenBatch::new(std::slice::from_ref(&example), 4, LossOn::All, 0, "");
    assert_eq!((&full.inputs[..], &full.targets[..]), (&[5, 6, 7, 8][..], &[6, 7, 8, 9][..]));
    assert_eq!(full.text(), [0, 1, 2, 3]);
    let short = Arc::new(Example { tokens: vec![5, 6], prompt: 1, answers: vec![], others: vec![] });
    let two = TokenBatch::new(&[short, example], 6, LossOn::Answer, 0, "");
    assert_eq!(two.text(), [0, 6, 7, 8, 9], "whatever the loss counts");
}

#[test]
fn validation_ends_with_the_questions_and_is_the_same_each_time() {
    let (_folder, batches) = batches(&Settings::default(), 4);
    let sizes: Vec<usize> = (0..4).map(|number| batches.validation(number).unwrap().len()).collect();
    assert_eq!(sizes, [4, 4, 4, 0]);
    assert_eq!(batches.validation(1).unwrap(), batches.validation(1).unwrap());
    let examples = batches.validation(0).unwrap();
    assert_eq!(batches.of(&examples, LossOn::Answer, 0).size, 4);
}

/// The end of a text is none of its bytes.
#[test]
fn bytes_are_those_of_the_text_that_counts() {
    let (_folder, batches) = batches(&Settings::default(), 4);
    let tokenizer = &batches.store().corpus().tokenizer;
    let [prompt, answer] = ["In Orn", " a red cat"].map(|text| tokenizer.encode(text).unwrap());
    let tokens = [&prompt[..], &answer, &[tokenizer.end()]].concat();
    let example = [Arc::new(Example { tokens, prompt: prompt.len(), answers: vec![], others: vec![] })];
    let bytes = |loss_on| TokenBatch::new(&example, 64, loss_on, tokenizer.end(), "").counted_bytes(tokenizer);
    assert_eq!(bytes(LossOn::Answer), " a red cat".len() as u64);
    let first = tokenizer.bytes(prompt[0]) as u64;
    assert_eq!(bytes(LossOn::All), "In Orn a red cat".len() as u64 - first, "nobody says the first one");
}

/// Long contexts of words drawn by chance, one of them the answer, each as likely.
fn drawn_contexts(count: usize) -> String {
    const WORDS: usize = 60;
    let random = &mut generator(3, "contexts", 0);
    let paragraphs: Vec<serde_json::Value> = (0..count)
        .map(|_| {
            let words: Vec<String> = (0..WORDS).map(|at| format!("w{}x{at}", random.random_range(0..10))).collect();
            let answer = random.random_range(0..WORDS);
            let start = words[..answer].iter().map(|word| word.len() + 1).sum::<usize>();
            let answers = serde_json::json!([{ "text": words[answer], "answer_start": start }]);
            serde_json::json!({ "context": words.join(" "), "qas": [{ "question": "Which?", "answers": answers }] })
        })
        .collect();
    let articles: Vec<serde_json::Value> =
        paragraphs.chunks(count / 2).map(|half| serde_json::json!({ "paragraphs": half })).collect();
    serde_json::json!({ "data": articles }).to_string()
}

/// F1 of a model that copies what stands at a share of the window, and is as sure of it in every window.
fn f1_of_a_copy(store: &ExampleStore, split: Split, share: f64) -> f64 {
    let tokenizer = &store.corpus().tokenizer;
    let mut answers = SquadScore::default();
    for number in 0..store.count(split) {
        let example = store.example(split, number).unwrap();
        let text = tokenizer.decode(example.prompts().next().unwrap());
        let window = text.split_once("Context:").unwrap().1.split_once("\nAnswer:").unwrap().0;
        // The first and the last word may be cut.
        let words: Vec<&str> = window.split_whitespace().collect();
        let inner = &words[1..words.len() - 1];
        let at = (share * (inner.len() - 1) as f64).round() as usize;
        answers.add(&inner[at.saturating_sub(1)..(at + 2).min(inner.len())].join(" "), &example.answers);
    }
    answers.mean().unwrap().1
}

/// The place of an answer teaches nothing where contexts are cut: neither in training, nor in validation.
#[test]
fn a_model_that_copies_the_middle_of_a_window_gains_nothing() {
    const PLACES: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("contexts.json");
    xrun_core::files::write::replace(&path, drawn_contexts(500).as_bytes()).unwrap();
    let data = Data {
        source: Source::File,
        path: Some(path.to_str().unwrap().into()),
        validation_share: 0.5,
        vocabulary_size: 300,
        ..Data::default()
    };
    let store = ExampleStore::new(Corpus::open(&data).unwrap(), &data.options(), 100, 1, &Ledger::default()).unwrap();
    assert!(store.example(Split::Validation, 0).unwrap().others.len() > 3, "contexts are longer than a window");
    let shares = |split| PLACES.map(|share| f1_of_a_copy(&store, split, share));
    // F1 of three words, one of them the answer, is one half. A window that knows the answer has it where it always is: 50.
    let (train, validation) = (shares(Split::Train), shares(Split::Validation));
    for all in [train, validation] {
        let others = [all[0], all[1], all[3], all[4]].iter().sum::<f64>() / 4.0;
        assert!(all[2] < others + 3.0, "the middle: {all:?}");
    }
    // By chance: half of three words of sixty.
    assert!(validation.iter().all(|f1| *f1 < 5.0), "{validation:?}");
}
