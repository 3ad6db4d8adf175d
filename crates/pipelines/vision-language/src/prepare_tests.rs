//! Tests of the facts for the plan: digests, trained parameters, lowered settings and metrics.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use xrun_core::files::write::replace;
use xrun_data::image_text::generate::generate_in;
use xrun_data::image_text::settings::{Generated, ImageText as Data};
use xrun_data::reading::invalid::OnInvalid;

/// Generated data in a temporary directory.
pub(crate) struct Made {
    pub directory: TempDir,
    pub path: PathBuf,
}

impl Made {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let few = Generated { examples: 24, held_out_examples: 8, unseen_examples: 8, image_size: 32, seed: 0 };
        let path = generate_in(&few, directory.path()).unwrap().join("train.jsonl");
        Self { directory, path }
    }

    /// Experiment with 19 training and 5 held-out examples by default. `training` may end with other tables.
    pub fn experiment(&self, pipeline: &str, training: &str) -> Experiment {
        self.with(
            pipeline,
            training,
            &format!("source = \"messages\"\npath = {:?}\nvalidation_fraction = 0.2", self.path),
        )
    }

    /// Experiment with the given keys of its tables.
    pub fn with(&self, pipeline: &str, training: &str, dataset: &str) -> Experiment {
        let text = format!(
            "[pipeline.vision-language]\nsequence_length = 120\n{pipeline}\n[model.vision-language]\n\
             [dataset.image-text]\nimage_size = 16\n{dataset}\n[training]\nepochs = 3\n{training}"
        );
        toml::from_str(&text).unwrap()
    }
}

pub(crate) fn prepared(experiment: &Experiment) -> Result<(TaskFacts, Prepared), TaskError> {
    let (facts, prepared) = experiment.prepare(&Ledger::default())?;
    Ok((facts, prepared.into_parts().unwrap()))
}

#[test]
fn facts_have_sizes_clamped_settings_digests_and_owners() {
    let made = Made::new();
    let (facts, prepared) = prepared(&made.experiment("", "batch_size = 32\n[validation]\nbatches = 4")).unwrap();
    assert_eq!((facts.batches_per_epoch, facts.batch_items), (1, 32));
    // The model has 4 patches in place of 36, and the vocabulary of the data in place of 512 tokens.
    let vocabulary = prepared.batches.store.tokenizer.size() as u64;
    assert_eq!(facts.trained_parameters, Some(272_192 - (36 - 4) * 64 - (512 - vocabulary) * 64));
    let lowered: Vec<(&str, u64, u64)> =
        facts.lowered.iter().map(|one| (one.key.as_str(), one.asked, one.used)).collect();
    assert_eq!(lowered[..2], [("training.batch_size", 32, 19), ("validation.batches", 4, 1)]);
    assert_eq!(lowered.get(2), (vocabulary < 512).then_some(&("dataset.image-text.vocabulary_size", 512, vocabulary)));
    let names: Vec<&str> = facts.data_digests.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["image-text"]);
    let owners: Vec<&str> = facts.owners.iter().map(|owner| owner.name.as_str()).collect();
    assert_eq!(
        owners,
        [
            "image_cache",
            "decoding",
            "dataset_index",
            "vocabulary_learning",
            "feed_ready",
            "feed_in_use",
            "validation_batch",
            "decode_cache",
            "part_gradients",
            "field_counts"
        ]
    );
}

#[test]
fn files_of_weights_are_part_of_the_digests() {
    let made = Made::new();
    let weights = made.directory.path().join("weights.safetensors");
    replace(&weights, b"one").unwrap();
    let digests = |key: &str| {
        let mut experiment = made.experiment("", "");
        let text = format!("[model.vision-language]\n{key} = {weights:?}");
        experiment.model = toml::from_str::<Experiment>(&format!("[pipeline.vision-language]\n{text}")).unwrap().model;
        prepared(&experiment).unwrap().0.data_digests
    };
    assert_eq!(digests("vision_weights")[1].0, "vision_weights");
    assert_eq!(digests("language_weights")[1].1, xrun_core::dataset::digest::digest(b"one"));
}

#[test]
fn fields_of_held_out_answers_have_metrics() {
    let made = Made::new();
    let (facts, prepared) = prepared(&made.experiment("", "")).unwrap();
    let names: Vec<&str> = facts.metrics.iter().map(|metric| metric.name).collect();
    assert_eq!(names[0], "field_accuracy");
    assert!(!names.contains(&"field_accuracy_unseen"), "files of messages have no unseen pairs");
    let mut fields = prepared.fields.clone();
    fields.sort();
    let expected =
        ["colour", "mark", "place", "shape", "size"].map(|name| (format!("/{name}"), format!("field_{name}")));
    assert_eq!(fields, expected);
    let without_grey = metric_names(&made.experiment("grey_images = false", ""));
    assert!(!without_grey.contains(&"field_accuracy_grey".to_owned()), "{without_grey:?}");
}

fn metric_names(experiment: &Experiment) -> Vec<String> {
    prepared(experiment).unwrap().0.metrics.iter().map(|metric| metric.name.to_owned()).collect()
}

#[test]
fn answers_without_fields_are_compared_as_texts() {
    let made = Made::new();
    let image = xrun_core::dataset::sample::HostImage { width: 20, height: 10, rgb: vec![7; 600].into() };
    replace(&made.directory.path().join("a.png"), &image.to_png().unwrap()).unwrap();
    replace(&made.directory.path().join("b.png"), &image.to_png().unwrap()).unwrap();
    let line = |image: &str| format!("{{\"text\": \"What?\", \"image\": \"{image}\", \"response\": \"red\"}}\n");
    let path = made.directory.path().join("plain.jsonl");
    replace(&path, (line("a.png") + &line("b.png")).as_bytes()).unwrap();
    let names = metric_names(&made.with("", "", &format!("source = \"messages\"\npath = {path:?}")));
    assert_eq!(names[0], "exact_match");
    assert!(names.iter().all(|name| !name.starts_with("field_")), "{names:?}");
}

#[test]
fn examples_that_are_too_long_are_invalid_and_never_cut() {
    let made = Made::new();
    let mut experiment = made.experiment("", "");
    // The image and the end of text take two tokens, which leaves 25.
    let settings =
        VisionLanguage { sequence_length: 26, ..experiment.pipeline.settings::<VisionLanguage>().unwrap().clone() };
    let failed = prepare(&settings, &experiment, &Ledger::default()).unwrap_err().to_string();
    assert!(failed.contains("too_long") && failed.contains("`sequence_length`"), "{failed}");
    experiment.dataset.as_mut().unwrap().settings_mut::<Data>().unwrap().on_invalid = OnInvalid::Skip;
    experiment.training.epochs = 1;
    match prepare(&settings, &experiment, &Ledger::default()) {
        Ok((facts, prepared)) => {
            let left = prepared.batches.store.count(Split::Train) + prepared.batches.store.count(Split::Validation);
            assert_eq!(facts.data_skipped.counts["too_long"] + left, 24);
        }
        Err(error) => assert!(error.to_string().contains("too_long"), "{error}"),
    }
}
