//! Tests of batches: epochs, targets, weights, sizes and windows of contexts.

use std::collections::BTreeSet;

use rand::RngExt;

use super::*;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::seed::generator;
use xrun_data::question_answers::corpus::Corpus;
use xrun_data::question_answers::settings::{Generated, QuestionAnswers as Data, Source};
use xrun_training::metrics::squad::SquadScore;

fn batches(settings: &QatLanguageModel, size: usize) -> (tempfile::TempDir, BatchLoader) {
    let directory = tempfile::tempdir().unwrap();
    let generated = Generated { articles: 3, paragraphs_per_article: 2, ..Generated::default() };
    let (path, _) = xrun_data::question_answers::generate::generate_in(&generated, directory.path()).unwrap();
    let data = Data { source: Source::File, path: Some(path.to_str().unwrap().into()), ..Data::default() };
    let corpus = Corpus::open(&data).unwrap();
    let store =
        ExampleStore::new(corpus, &data.loader_settings(), settings.sequence_length, 1, &Ledger::default()).unwrap();
    (directory, BatchLoader::new(Arc::new(store), settings, 1, size))
}

#[test]
fn an_epoch_has_every_question_once_within_the_declared_bytes() {
    let settings = QatLanguageModel::default();
    let (_directory, batches) = batches(&settings, 4);
    let count = batches.store.count(Split::Train);
    assert_eq!((count, batches.batches_per_epoch()), (24, 6));
    let sequences = |epoch: u64| -> BTreeSet<Vec<i32>> {
        (epoch * 6..(epoch + 1) * 6)
            .flat_map(|number| {
                let batch = batches.training_batch(number).unwrap();
                assert!(batch.deep_size() <= batch_bytes_max(&settings, 4), "{}", batch.deep_size());
                assert!(batch.description.starts_with(&format!("batch {number}, questions ")), "{}", batch.description);
                batch.inputs.chunks(64).map(<[i32]>::to_vec).collect::<Vec<_>>()
            })
            .collect()
    };
    assert_eq!(sequences(0).len(), 24);
    assert_eq!(sequences(0), sequences(1));
    assert_ne!(
        batches.training_batch(0).unwrap(),
        batches.training_batch(6).unwrap(),
        "another order in another epoch"
    );
    assert_eq!(batches.training_batch(3).unwrap(), batches.training_batch(3).unwrap());
}

#[test]
fn a_target_is_the_next_input_and_loss_on_selects_the_weights() {
    let example = Arc::new(Example { tokens: vec![5, 6, 7, 8, 9], prompt_length: 3, answers: vec![], others: vec![] });
    let all = TokenBatch::new(std::slice::from_ref(&example), 6, LossTokens::All, 0, "");
    assert_eq!(all.inputs, [5, 6, 7, 8, 9, 0]);
    assert_eq!(all.targets, [6, 7, 8, 9, 0, 0]);
    assert_eq!(all.loss_mask, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
    let answer = TokenBatch::new(std::slice::from_ref(&example), 6, LossTokens::Answer, 0, "");
    assert_eq!(answer.loss_mask, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    let full = TokenBatch::new(std::slice::from_ref(&example), 4, LossTokens::All, 0, "");
    assert_eq!((&full.inputs[..], &full.targets[..]), (&[5, 6, 7, 8][..], &[6, 7, 8, 9][..]));
    assert_eq!(full.text_positions(), [0, 1, 2, 3]);
    let short = Arc::new(Example { tokens: vec![5, 6], prompt_length: 1, answers: vec![], others: vec![] });
    let two = TokenBatch::new(&[short, example], 6, LossTokens::Answer, 0, "");
    assert_eq!(two.text_positions(), [0, 6, 7, 8, 9], "whatever the loss counts");
}

#[test]
fn validation_batches_are_repeatable_and_end_with_the_questions() {
    let (_directory, batches) = batches(&QatLanguageModel::default(), 4);
    let sizes: Vec<usize> = (0..4).map(|number| batches.held_out(number).unwrap().len()).collect();
    assert_eq!(sizes, [4, 4, 4, 0]);
    assert_eq!(batches.held_out(1).unwrap(), batches.held_out(1).unwrap());
    let examples = batches.held_out(0).unwrap();
    assert_eq!(batches.validation_batch(&examples, LossTokens::Answer, 0).size, 4);
}

/// The end-of-text token has no bytes of text.
#[test]
fn counted_bytes_are_those_of_the_targets_that_count() {
    let (_directory, batches) = batches(&QatLanguageModel::default(), 4);
    let tokenizer = &batches.store.corpus.tokenizer;
    let [prompt, answer] = ["In Orn", " a red cat"].map(|text| tokenizer.encode(text).unwrap());
    let tokens = [&prompt[..], &answer, &[tokenizer.eos_token()]].concat();
    let example = [Arc::new(Example { tokens, prompt_length: prompt.len(), answers: vec![], others: vec![] })];
    let bytes =
        |loss_tokens| TokenBatch::new(&example, 64, loss_tokens, tokenizer.eos_token(), "").target_bytes(tokenizer);
    assert_eq!(bytes(LossTokens::Answer), " a red cat".len() as u64);
    let first = tokenizer.bytes(prompt[0]) as u64;
    assert_eq!(bytes(LossTokens::All), "In Orn a red cat".len() as u64 - first, "the first token is no target");
}

/// Long contexts of random words, one of which is the answer, drawn uniformly.
fn random_contexts(count: usize) -> String {
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

/// F1 of a model that copies the words at a fraction of the window, with equal confidence in every window.
fn f1_of_a_copy(store: &ExampleStore, split: Split, fraction: f64) -> f64 {
    let tokenizer = &store.corpus.tokenizer;
    let mut answers = SquadScore::default();
    for number in 0..store.count(split) {
        let example = store.example(split, number).unwrap();
        let text = tokenizer.decode(example.prompts().next().unwrap());
        let window = text.split_once("Context:").unwrap().1.split_once("\nAnswer:").unwrap().0;
        // The first and the last word may be cut.
        let words: Vec<&str> = window.split_whitespace().collect();
        let inner = &words[1..words.len() - 1];
        let at = (fraction * (inner.len() - 1) as f64).round() as usize;
        answers.add(&inner[at.saturating_sub(1)..(at + 2).min(inner.len())].join(" "), &example.answers);
    }
    answers.mean().unwrap().1
}

/// The position of an answer in a cut context carries no information, neither in training nor in validation.
#[test]
fn a_model_that_copies_the_middle_of_a_window_gains_nothing() {
    const FRACTIONS: [f64; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.json");
    xrun_core::files::write::replace(&path, random_contexts(500).as_bytes()).unwrap();
    let data = Data {
        source: Source::File,
        path: Some(path.to_str().unwrap().into()),
        validation_fraction: 0.5,
        vocabulary_size: 300,
        ..Data::default()
    };
    let store =
        ExampleStore::new(Corpus::open(&data).unwrap(), &data.loader_settings(), 100, 1, &Ledger::default()).unwrap();
    assert!(store.example(Split::Validation, 0).unwrap().others.len() > 3, "contexts are longer than a window");
    let f1 = |split| FRACTIONS.map(|fraction| f1_of_a_copy(&store, split, fraction));
    // Three words, one of which is the answer, have an F1 of 50: what a leak of the position would give in the middle.
    let (train, validation) = (f1(Split::Train), f1(Split::Validation));
    for all in [train, validation] {
        let others = [all[0], all[1], all[3], all[4]].iter().sum::<f64>() / 4.0;
        assert!(all[2] < others + 3.0, "the middle: {all:?}");
    }
    // Chance is 50 * 3 / 60.
    assert!(validation.iter().all(|f1| *f1 < 5.0), "{validation:?}");
}
