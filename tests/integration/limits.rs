//! Do limits only limit? Each key of `[limits]` is given another value, and what is learnt stays what it is.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::workplace::{Workplace, lines_with, text};

pub const FEW_SHOT: &str = r#"
[experiment]
seed = 5
device = "cpu"
[pipeline.fewshot-detection]
n_way = 2
n_query = 3
augmentations = 2
image_size = 32
reference_size = 16
[model.reference-detector]
channels = [8, 8, 16, 16]
pyramid_channels = 16
embedding_size = 8
[dataset.synthetic-video]
train_classes = 4
validation_classes = 2
videos_per_class = 2
frames_per_video = 6
references_per_class = 3
frame_size = 32
[training]
max_steps = 8
epochs = 4
[limits]
micro_batch_size = 2
[validation]
batches = 2
every_steps = 4
[memory]
probe = false
"#;

pub const LANGUAGE_MODEL: &str = r#"
[experiment]
seed = 5
device = "cpu"
[pipeline.qat-language-model]
sequence_length = 32
weight_bits = [8, 4]
activation_bits = [8, 8]
kv_cache_bits = [8, 8]
activation_ranges = "per-token"
pretraining_steps = 3
max_new_tokens = 2
[model.gpt2]
layers = 1
heads = 2
hidden_size = 16
context_length = 32
[dataset.question-answers.generated]
articles = 6
paragraphs_per_article = 4
[training]
max_steps = 8
epochs = 100
batch_size = 6
[validation]
batches = 2
every_steps = 4
[memory]
probe = false
"#;

/// Small, and with an encoder that is trained first.
pub const FEDERATED: &str = r#"
[experiment]
seed = 5
device = "cpu"
[pipeline.federated-adapters]
nodes = 2
pretraining_steps = 2
[model.audio-adapters]
bands = 16
hidden_size = 8
layers = 1
heads = 2
pooled = { hidden = [8], output_size = 8 }
tokens = { hidden = [], latents = 2, output_size = 8 }
pool_heads = 2
[dataset.sound-clips.generated]
classes = 2
clips_per_class = 10
other_clips_per_class = 5
[training]
max_steps = 8
epochs = 100
batch_size = 6
[limits]
micro_batch_size = 2
[validation]
batches = 2
every_steps = 4
[memory]
probe = false
"#;

pub const VISION_LANGUAGE: &str = r#"
[experiment]
seed = 5
device = "cpu"
[pipeline.vision-language]
sequence_length = 64
max_new_tokens = 4
generated_answers = 4
[pipeline.vision-language.selective]
after_step = 4
[model.vision-language]
vision_hidden_size = 8
vision_layers = 1
vision_heads = 2
layers = 1
heads = 2
hidden_size = 16
context_length = 64
[dataset.image-text]
image_size = 16
vocabulary_size = 320
[dataset.image-text.generated]
examples = 64
held_out_examples = 8
unseen_examples = 8
image_size = 32
[training]
max_steps = 8
epochs = 100
batch_size = 6
[limits]
micro_batch_size = 2
[validation]
batches = 2
every_steps = 4
[memory]
probe = false
"#;

/// Keys that bound a buffer which a pipeline may not have, and the pipelines that have it: the others refuse them.
const OF_ITS_OWN: &[(&str, &[&str])] = &[
    ("frame_cache", &["few-shot"]),
    ("decode_memory", &["few-shot", "federated", "vision-language"]),
    ("micro_batch_size", &["few-shot", "federated", "vision-language"]),
];

/// Another value of each key than its default. A new key needs one here.
const OTHERS: &[(&str, &str)] = &[
    ("batch_size", "4"),
    ("micro_batch_size", "4"),
    ("threads", "1"),
    ("threads", "3"),
    ("workers", "2"),
    ("prefetch", "5"),
    ("frame_cache", "\"100 KiB\""),
    ("decode_memory", "\"64 MiB\""),
    ("gradient_norm_window", "3"),
    ("metrics_queue", "1"),
    ("log_queue", "1"),
    ("host_memory", "\"64 GiB\""),
    ("device_memory", "\"64 GiB\""),
];

/// Lines of metrics, without what a limit is there to change: over how many steps a median is taken.
fn learnt(run: &Path) -> Vec<Value> {
    let lines = text(&run.join("metrics.jsonl"));
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|mut line| {
            let fields = line.as_object_mut().unwrap();
            fields.remove("gradient_norm_median");
            // A check over the bytes of the line.
            fields.retain(|name, _| name != "crc32" && name != "check");
            line
        })
        .collect()
}

/// Every number, in order.
fn numbers(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Number(number) => into.extend(number.as_f64()),
        Value::Array(list) => list.iter().for_each(|part| numbers(part, into)),
        Value::Object(fields) => fields.values().for_each(|part| numbers(part, into)),
        _ => {}
    }
}

#[test]
fn no_limit_changes_what_is_learnt() {
    let schema = Workplace::new().xrun(&["generate", "schema"]).json();
    let keys: Vec<&String> = schema["properties"]["limits"]["properties"].as_object().unwrap().keys().collect();
    assert!(keys.iter().all(|key| OTHERS.iter().any(|(other, _)| other == key)), "{keys:?} and {OTHERS:?}");
    let pipelines = [
        ("few-shot", FEW_SHOT),
        ("language-model", LANGUAGE_MODEL),
        ("federated", FEDERATED),
        ("vision-language", VISION_LANGUAGE),
    ];
    let mut refusals = BTreeSet::new();
    for (pipeline, experiment) in pipelines {
        let workplace = Workplace::new();
        workplace.file("tiny.toml", experiment);
        let expected = learnt(&workplace.trained(&format!("{pipeline}-as-it-is"), &[]));
        for (key, value) in OTHERS {
            let name = format!("{pipeline}-{}-{}", key.replace('_', "-"), value.replace(['"', ' '], ""));
            if OF_ITS_OWN.iter().any(|(own, pipelines)| own == key && !pipelines.contains(&pipeline)) {
                let said = workplace.attempt(&name, &[&format!("limits.{key}={value}")]);
                assert_eq!(said.code, 2, "{said:?}");
                refusals.insert(lines_with(&said.err, &format!("`limits.{key}`")));
                continue;
            }
            let found = learnt(&workplace.trained(&name, &[&format!("limits.{key}={value}")]));
            if !["batch_size", "micro_batch_size"].contains(key) {
                assert!(found == expected, "{pipeline}: `limits.{key}` = {value} changes what is learnt");
                continue;
            }
            // The same step up to rounding: of the first lines, before weights drift apart.
            let (mut of_found, mut of_expected) = (Vec::new(), Vec::new());
            found.iter().take(3).for_each(|line| numbers(line, &mut of_found));
            expected.iter().take(3).for_each(|line| numbers(line, &mut of_expected));
            assert_eq!((found.len(), of_found.len()), (expected.len(), of_expected.len()));
            for (found, expected) in of_found.iter().zip(&of_expected) {
                let apart = (found - expected).abs();
                assert!(apart <= 1e-3 * expected.abs().max(0.1), "{pipeline}: {found}, expected {expected}");
            }
        }
    }
    insta::assert_snapshot!(refusals.into_iter().collect::<Vec<String>>().join("\n"));
}

/// Rust ends a program without memory by SIGABRT, and without advice.
#[test]
#[cfg(target_os = "linux")]
fn a_program_for_which_the_system_has_no_memory_says_so_and_ends_with_5() {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\nsteps_per_epoch = 5\nhold = \"64 GiB\"\n");
    let script = format!("ulimit -v 4194304; exec {} trial.toml", env!("CARGO_BIN_EXE_xrun"));
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]).current_dir(workplace.directory.path()).env("XRUN_CACHE", crate::workplace::cache());
    let said = crate::workplace::said(command.output().unwrap());
    assert_eq!(said.code, 5, "{said:?}");
    insta::assert_snapshot!(lines_with(&said.err, "ulimit -v"));
}
