//! Exports read by transformers and PEFT, with equal numbers.

use std::process::Command;

use serde_json::Value;

use crate::workplace::{Workplace, json, python};

/// Activations, keys and values are not quantised: what is exported is then all of the model.
const EXPERIMENT: &str = include_str!("../experiments/tiny/exported.toml");

const QUESTIONS: &str = r#"{"data": [{"title": "Towns", "paragraphs": [
  {"context": "In Ostheim, Zoë the baker has 3 red cats; it's 'her' house.", "qas": [
    {"id": "1", "question": "Who has red cats?", "answers": [{"text": "Zoë", "answer_start": 12}]},
    {"id": "2", "question": "What has Zoë?", "answers": [{"text": "3 red cats", "answer_start": 30}]}]},
  {"context": "Żuraw (鶴) is a bird.  It sat on 1,000 stones.", "qas": [
    {"id": "3", "question": "What is Żuraw?", "answers": [{"text": "a bird", "answer_start": 13}]},
    {"id": "4", "question": "On what did it sit?", "answers": [{"text": "1,000 stones", "answer_start": 32}]},
    {"id": "5", "question": "How is it written?", "answers": [{"text": "鶴", "answer_start": 7}]}]}]}]}"#;

#[test]
#[expect(clippy::print_stderr, reason = "the figures that were compared")]
fn perplexity_in_transformers_is_that_of_the_run() {
    let workplace = Workplace::with("tiny.toml", EXPERIMENT);
    let questions = workplace.file("questions.json", QUESTIONS);
    let run = workplace.trained("exported", &[]);
    let checkpoint = run.join("checkpoints/step_00000030");
    let names = ["base", "lora_full", "lora_w4", "lora_w8", "merged_lora_full", "merged_lora_w4", "merged_lora_w8"];
    for name in names.into_iter().chain(["on_grid_w4", "on_grid_w8"]) {
        assert!(checkpoint.join(name).is_dir(), "{name}");
    }
    let Some(python) = python("XRUN_PYTHON", "torch, transformers") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/merged_in_transformers.py");
    let output = Command::new(python).arg(script).args([&checkpoint, &questions]).arg("160").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ours = &json(&run.join("summary.json"))["metrics_last"];
    let mut compared = 0;
    for (label, name) in [("full", "full"), ("w8", "8_bit"), ("w4", "4_bit")] {
        for directory in [format!("merged_lora_{label}"), format!("lora_{label}")] {
            let Some(found) = found.get(&directory) else { continue }; // there is no PEFT
            for metric in ["perplexity", "bits_per_byte"] {
                let (found, ours) =
                    (found[metric].as_f64().unwrap(), ours[format!("{metric}_{name}")].as_f64().unwrap());
                assert!((found - ours).abs() < 1e-4 * ours, "{directory}: {metric} {found}, and here {ours}");
                eprintln!("{directory}: {metric} {found:.6} in transformers, {ours:.6} here");
                compared += 1;
            }
        }
    }
    assert!(compared >= 6, "{found}");
}
