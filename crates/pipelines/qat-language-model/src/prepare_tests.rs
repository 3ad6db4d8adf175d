//! Tests of the facts for the plan: digests, trained parameters, lowered settings, stages and probes.

use std::collections::BTreeMap;

use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::*;
use xrun_core::dataset::split::Split;
use xrun_core::files::write;
use xrun_data::question_answers::generate::generate_in;
use xrun_data::question_answers::settings::{Generated, QuestionAnswers as Data, Source};
use xrun_data::tokenizer::END_OF_TEXT;

fn facts(directory: &Path, pipeline: &str, dataset: &str) -> Result<TaskFacts, TaskError> {
    let generated = Generated { articles: 3, paragraphs_per_article: 2, ..Generated::default() };
    let (path, _) = generate_in(&generated, directory).unwrap();
    let text = format!(
        "[pipeline.qat-language-model]\n{pipeline}\n[model.gpt2]\n[training]\nbatch_size = 4\n\
         [dataset.question-answers]\nsource = \"file\"\npath = {path:?}\n{dataset}"
    );
    let experiment: Experiment = toml::from_str(&text).unwrap();
    experiment.prepare(&Ledger::default()).map(|(facts, _)| facts)
}

#[test]
fn the_files_of_a_vocabulary_are_part_of_the_digests() {
    let directory = tempfile::tempdir().unwrap();
    let (encoder, merges) = (directory.path().join("encoder.json"), directory.path().join("vocab.bpe"));
    let mut texts: Vec<String> = ByteLevel::alphabet().into_iter().map(String::from).collect();
    texts.sort_unstable();
    texts.extend(["th", "the", END_OF_TEXT].map(String::from));
    let tokens: BTreeMap<&String, usize> = texts.iter().enumerate().map(|(at, text)| (text, at)).collect();
    write::replace(&encoder, &serde_json::to_vec(&tokens).unwrap()).unwrap();
    let dataset = format!("encoder = {encoder:?}\nmerges = {merges:?}");
    let digests = |text: &str| {
        write::replace(&merges, text.as_bytes()).unwrap();
        facts(directory.path(), "", &dataset).unwrap().data_digests
    };
    let (two, one) = (digests("t h\nth e\n"), digests("t h\n"));
    let names: Vec<&str> = two.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["question-answers", "encoder", "merges"]);
    assert_eq!(two[..2], one[..2]);
    assert_ne!(two[2], one[2], "one merge less");
    assert_eq!(facts(directory.path(), "", "vocabulary_size = 300").unwrap().data_digests, two[..1]);
}

#[test]
fn settings_that_exceed_the_data_are_lowered() {
    let directory = tempfile::tempdir().unwrap();
    let lowered = |pipeline: &str, dataset: &str| -> BTreeMap<String, (u64, u64)> {
        let lowered = facts(directory.path(), pipeline, dataset).unwrap().lowered;
        let name = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
        lowered.iter().map(|one| (name(&one.key), (one.asked, one.used))).collect()
    };
    // 24 questions to train on in batches of 4.
    let many = lowered("calibration_batches = 9", "vocabulary_size = 60000");
    assert_eq!(many["calibration_batches"], (9, 6));
    assert!(many["vocabulary_size"].0 == 60_000 && many["vocabulary_size"].1 < 10_000, "{many:?}");
    let enough = lowered("calibration_batches = 6", "vocabulary_size = 300");
    assert!(!enough.contains_key("calibration_batches") && !enough.contains_key("vocabulary_size"), "{enough:?}");
    assert!(!enough.contains_key("batch_size"), "{enough:?}");
}

#[test]
fn batches_and_validations_larger_than_the_data_are_lowered() {
    let mut experiment: Experiment = toml::from_str("[pipeline.qat-language-model]\n[model.gpt2]\n").unwrap();
    experiment.training.batch_size = Some(32);
    experiment.validation.batches = 3;
    let lowered = |train: u64, held_out: u64| -> Vec<(String, u64, u64)> {
        let all = lowered_settings(&QatLanguageModel::default(), &experiment, [train, held_out]);
        all.into_iter().map(|one| (one.key, one.asked, one.used)).collect()
    };
    assert_eq!(lowered(256, 65), []);
    let expected = [
        ("training.batch_size", 32, 5),
        ("pipeline.qat-language-model.calibration_batches", 8, 1),
        ("validation.batches", 3, 2),
    ];
    assert_eq!(lowered(5, 33), expected.map(|(key, asked, used)| (key.to_owned(), asked, used)));
}

#[test]
fn a_training_that_ends_within_pretraining_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    // 24 questions in batches of 4.
    assert!(facts(directory.path(), "pretraining_steps = 5", "").is_ok());
    let message = facts(directory.path(), "pretraining_steps = 6", "").unwrap_err().to_string();
    assert!(message.contains("`pipeline.qat-language-model.pretraining_steps`"), "{message}");
}

/// With a uniform policy sixteen steps would draw all eight precisions in one of three cases.
#[test]
fn a_probe_draws_every_precision_with_each_policy() {
    let bits = "[16, 8, 7, 6, 5, 4, 3, 2]";
    for (policy, seed) in
        ["uniform", "cyclic", "sandwich"].into_iter().flat_map(|policy| (0..20).map(move |seed| (policy, seed)))
    {
        let text =
            format!("policy = {policy:?}\nweight_bits = {bits}\nactivation_bits = {bits}\nkv_cache_bits = {bits}");
        let settings = QatLanguageModel { pretraining_steps: 900, ..toml::from_str(&text).unwrap() };
        let steps = probe_steps(&settings, seed);
        let overrides = probe_overrides(&settings);
        let cyclic = overrides.iter().any(|text| text.ends_with("policy=\"cyclic\""));
        assert_eq!(cyclic, policy == "uniform", "{overrides:?}");
        let policy = if cyclic { PrecisionPolicy::Cyclic } else { settings.policy };
        let met: BTreeSet<usize> = (4..=steps).flat_map(|step| draw(policy, 8, seed, step)).collect();
        assert_eq!(met.len(), 8, "{policy:?} with seed {seed} in {steps} steps");
        assert!((3 + 16..=3 + 64).contains(&steps), "{steps}");
    }
}

/// In a cut context the position of the answer depends on the cut.
#[test]
fn contexts_of_the_small_experiment_are_never_cut() {
    let directory = tempfile::tempdir().unwrap();
    let mut experiment: Experiment = toml::from_str(include_str!("../../../../experiments/qat_gpt2.toml")).unwrap();
    let data: &mut Data = experiment.dataset.as_mut().unwrap().settings_mut().unwrap();
    let (path, _) = generate_in(&data.generated, directory.path()).unwrap();
    *data = Data { source: Source::File, path: Some(path.to_str().unwrap().into()), ..data.clone() };
    let (_, prepared) = experiment.prepare(&Ledger::default()).unwrap();
    let prepared: Prepared = prepared.into_parts().unwrap();
    let store = prepared.batches.store;
    for number in 0..store.count(Split::Train) {
        let example = store.example(Split::Train, number).unwrap();
        let text = store.corpus.tokenizer.decode(&example.tokens);
        assert!(text.contains("\nContext: In ") && text.contains(".\nAnswer: "), "{text}");
        assert!(example.tokens.len() - example.prompt_length <= prepared.settings.max_new_tokens, "{text}");
    }
}
