//! Are batches what they should be: each question once an epoch, targets one ahead, within their size?

use std::collections::BTreeSet;

use super::*;
use crate::data::question_answers::corpus::Corpus;
use crate::data::question_answers::settings::{Generated, Settings as Data, Source};
use crate::memory::ledger::Ledger;

fn batches(settings: &Settings, size: usize) -> (tempfile::TempDir, Batches) {
    let folder = tempfile::tempdir().unwrap();
    let generated = Generated { articles: 3, paragraphs_per_article: 2, ..Generated::default() };
    let path = crate::data::question_answers::generate::generate_in(&generated, folder.path()).unwrap();
    let data = Data { source: Source::File, path: Some(path.to_str().unwrap().into()), ..Data::default() };
    let store =
        ExampleStore::new(Corpus::open(&data).unwrap(), &data, settings.sequence_length, &Ledger::default()).unwrap();
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
    let example = Arc::new(Example { tokens: vec![5, 6, 7, 8, 9], prompt: 3, answers: vec![] });
    let all = TokenBatch::new(std::slice::from_ref(&example), 6, LossOn::All, 0, "");
    assert_eq!(all.inputs, [5, 6, 7, 8, 9, 0]);
    assert_eq!(all.targets, [6, 7, 8, 9, 0, 0]);
    assert_eq!(all.weights, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
    let answer = TokenBatch::new(std::slice::from_ref(&example), 6, LossOn::Answer, 0, "");
    assert_eq!(answer.weights, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    let full = TokenBatch::new(std::slice::from_ref(&example), 4, LossOn::All, 0, "");
    assert_eq!((&full.inputs[..], &full.targets[..]), (&[5, 6, 7, 8][..], &[6, 7, 8, 9][..]));
    assert_eq!(full.text(), [0, 1, 2, 3]);
    let short = Arc::new(Example { tokens: vec![5, 6], prompt: 1, answers: vec![] });
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
