//! Training of quantised language models: learning at each precision, bit-identical for any workers and interruptions.
use std::path::Path;

use serde_json::Value;

use crate::workplace::{Workplace, is_bounded, json, metrics, send, text, wait_for_lines};

/// A language model as small as it gets: a step takes milliseconds.
const EXPERIMENT: &str = include_str!("../experiments/tiny/quantised.toml");

fn workplace() -> Workplace {
    Workplace::with("tiny.toml", EXPERIMENT)
}

#[test]
fn the_same_experiment_gives_the_same_bytes_however_it_is_fed() {
    let workplace = workplace();
    let expected = text(&workplace.trained("one", &[]).join("metrics.jsonl"));
    for (name, overrides) in [
        ("again", &[][..]),
        ("none", &["limits.workers=0", "limits.prefetch=1"]),
        ("three", &["limits.workers=3", "limits.prefetch=5"]),
        ("uncached", &["dataset.question-answers.example_cache=\"0 B\""]),
        ("preprocessed", &["dataset.question-answers.preprocess_all=true"]),
    ] {
        let other = workplace.trained(name, overrides);
        assert!(text(&other.join("metrics.jsonl")) == expected, "{name}: the metrics differ");
    }
    let other_seed = workplace.trained("seed", &["experiment.seed=3"]);
    assert!(text(&other_seed.join("metrics.jsonl")) != expected, "the seed changes nothing");
}

#[test]
fn steps_go_through_pretraining_and_then_the_precisions_of_their_policy() {
    let workplace = workplace();
    let kinds = |run: &Path| -> Vec<String> {
        let steps = metrics(run).into_iter().filter(|line| line["kind"] == "train");
        steps.map(|line| line["batch"].as_str().unwrap().to_owned()).collect()
    };
    let cyclic = kinds(&workplace.trained("cyclic", &[]));
    assert_eq!(cyclic[..6], ["pretraining"; 6]);
    assert_eq!(cyclic[6..9], ["full", "8_bit", "4_bit"]);
    let sandwich = ["pipeline.qat-language-model.policy=\"sandwich\"", "training.gradient_accumulation=2"];
    assert_eq!(kinds(&workplace.trained("sandwich", &sandwich))[6..], ["sandwich"; 14]);
}

/// Sequences are of many lengths: batches of one have few and many tokens that count.
#[test]
fn a_step_of_several_batches_is_the_step_of_one_large_batch() {
    let workplace = workplace();
    let steps = |run: &Path| -> Vec<[f64; 2]> {
        let steps = metrics(run).into_iter().filter(|line| line["batch"] == "pretraining");
        steps.map(|line| ["loss", "gradient_norm"].map(|name| line[name].as_f64().unwrap())).collect()
    };
    let whole = steps(&workplace.trained("whole", &[]));
    for (name, size, accumulation) in [("halves", 2, 2), ("single", 1, 4)] {
        let (size, accumulation) =
            (format!("training.batch_size={size}"), format!("training.gradient_accumulation={accumulation}"));
        let several = steps(&workplace.trained(name, &[&size, &accumulation]));
        assert_eq!(several.len(), whole.len());
        for (step, (found, expected)) in several.iter().zip(&whole).enumerate() {
            // Weights are equal before the first step; then they drift apart by rounding.
            let tolerance = if step == 0 { 1e-5 } else { 1e-3 };
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() < tolerance * expected,
                    "{name}, step {}: {found}, expected {expected}",
                    step + 1
                );
            }
        }
    }
}

#[test]
fn quantised_steps_warm_up_and_have_a_cosine_of_their_own() {
    let workplace = workplace();
    let rates = |name: &str, per_stage: &str| -> Vec<f64> {
        let cosine = ["training.schedule.cosine.warmup_steps=2", per_stage];
        let steps = metrics(&workplace.trained(name, &cosine)).into_iter().filter(|line| line["kind"] == "train");
        steps.map(|line| line["learning_rate"].as_f64().unwrap() / 1e-2).collect()
    };
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}, expected {expected}");
    let stages = rates("stages", "training.schedule.cosine.per_stage=true");
    // Of 20 steps 6 are pretraining.
    for (step, expected) in [(1, 0.5), (2, 1.0), (4, 0.5), (6, 0.0), (7, 0.5), (8, 1.0), (14, 0.5), (20, 0.0)] {
        close(stages[step - 1], expected);
    }
    let one = rates("one", "training.schedule.cosine.per_stage=false");
    for (step, expected) in [(1, 0.5), (2, 1.0), (11, 0.5), (20, 0.0)] {
        close(one[step - 1], expected);
    }
    assert!(one[6] < 0.6 * one[5] && one[7] > one[6], "the new optimiser warms up: {one:?}");
}

#[test]
fn activations_computed_again_make_the_same_first_steps() {
    let workplace = workplace();
    let losses = |run: &Path| -> Vec<f64> { metrics(run).iter().filter_map(|line| line["loss"].as_f64()).collect() };
    let kept = losses(&workplace.trained("kept", &[]));
    let again = losses(&workplace.trained("again", &["training.activation_checkpointing=true"]));
    assert_eq!(kept.len(), again.len());
    // Sums in another order: equal to rounding, which grows from step to step.
    for (one, other) in kept.iter().zip(&again).take(10) {
        assert!((one - other).abs() / one < 1e-3, "{one} and {other}");
    }
}

/// Ten blocks of 128 positions: what they keep is most of what a step needs.
#[test]
fn activations_computed_again_are_not_held() {
    let workplace = workplace();
    let peak = |name: &str, again: bool| {
        let again = format!("training.activation_checkpointing={again}");
        let run = workplace.trained(
            name,
            &[
                &again,
                "training.max_steps=8",
                "memory.every_steps=1",
                "validation.every_steps=0",
                "pipeline.qat-language-model.sequence_length=128",
                "model.gpt2.context_length=128",
                "model.gpt2.hidden_size=32",
                "model.gpt2.layers=10",
            ],
        );
        let steps = text(&run.join("memory.jsonl"));
        let lines = steps.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .filter(|line| line["point"] == "step")
            .map(|line| line["host"]["heap_high"].as_u64().unwrap())
            .max()
            .unwrap()
    };
    let (kept, again) = (peak("kept", false), peak("again", true));
    assert!(again < kept / 2, "{again} with, {kept} without");
}

#[test]
fn training_lowers_perplexity_at_every_precision_and_more_bits_are_not_worse() {
    let workplace = workplace();
    // So little pretraining that LoRA has something left to learn.
    let overrides =
        ["training.max_steps=240", "pipeline.qat-language-model.pretraining_steps=60", "validation.every_steps=60"];
    let run = workplace.trained("learns", &overrides);
    let validations: Vec<Value> = metrics(&run).into_iter().filter(|line| line["kind"] == "validation").collect();
    let of = |at: usize, name: &str| {
        validations[at]["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {}", validations[at]))
    };
    let last = validations.len() - 1;
    for name in ["perplexity_full", "perplexity_8_bit", "perplexity_4_bit"] {
        assert!(of(last, name) < 0.2 * of(0, name), "{name}: {} -> {}", of(0, name), of(last, name));
        assert!(of(last, name) < of(1, name), "LoRA alone moves {name}: {} -> {}", of(1, name), of(last, name));
    }
    let (full, eight, four) = (of(last, "perplexity_full"), of(last, "perplexity_8_bit"), of(last, "perplexity_4_bit"));
    assert!(eight < 1.05 * full, "{full} and {eight}");
    assert!(eight < 1.02 * four, "{eight} and {four}");
}

#[test]
fn a_frozen_base_has_no_gradients_in_the_plan() {
    let workplace = workplace();
    let planned = |pretraining: &str| {
        let pretraining = format!("pipeline.qat-language-model.pretraining_steps={pretraining}");
        let plan = workplace.xrun(&["plan", "tiny.toml", "--json", "-s", &pretraining]).json();
        let rows = plan["plan"]["forecast"]["rows"].as_array().unwrap().clone();
        ["weights", "gradients", "optimizer"]
            .map(|name| rows.iter().find(|row| row["name"] == name).unwrap()["bytes"].as_u64().unwrap())
    };
    let [weights, gradients, optimizer] = planned("0");
    assert!(gradients < weights / 2 && optimizer == 2 * gradients, "{weights}, {gradients}, {optimizer}");
    let [_, pretrained, _] = planned("6");
    assert!(pretrained > gradients && pretrained < weights, "the base before, LoRA after: {pretrained}");
}

#[test]
fn every_buffer_is_planned_and_stays_below_its_cap() {
    let workplace = workplace();
    is_bounded(&workplace.trained("on-demand", &["limits.workers=2", "limits.prefetch=3"]));
    is_bounded(&workplace.trained("preprocessed", &["dataset.question-answers.preprocess_all=true"]));
}

#[test]
fn stopped_or_killed_in_each_stage_a_resumed_run_gives_the_same_bytes() {
    let workplace = workplace();
    // Pretraining is long enough to be met in it; learnt scales and ranges have a state of their own.
    let (before, after) = (300, 340);
    let long = [
        &format!("training.max_steps={after}")[..],
        &format!("pipeline.qat-language-model.pretraining_steps={before}"),
        "pipeline.qat-language-model.weight_scale=\"learned\"",
        "pipeline.qat-language-model.scale_learning_rate_factor=0.3",
        "training.schedule.cosine.warmup_steps=8",
        "validation.every_steps=40",
    ];
    let expected = text(&workplace.trained("whole", &long).join("metrics.jsonl"));
    let stopped = [("stopped", 3, libc::SIGINT), ("killed", 8, libc::SIGKILL), ("late", 320, libc::SIGINT)];
    for (name, after, signal) in stopped {
        let overrides = long.iter().flat_map(|text| ["-s", text]);
        let arguments: Vec<&str> =
            ["tiny.toml", "--name", name, "--progress", "none"].into_iter().chain(overrides).collect();
        let mut child = workplace.spawn(&arguments);
        wait_for_lines(&workplace.path("results").join(name).join("latest"), after);
        send(&child, signal);
        child.wait().unwrap();
        let run = workplace.latest(name);
        let last = metrics(&run).iter().filter_map(|line| line["step"].as_u64()).max().unwrap();
        assert_eq!(last < before, name != "late", "{name} after step {last}, and pretraining has {before}");
        workplace.exits(0, &["resume", run.to_str().unwrap(), "-q"]);
        assert!(text(&run.join("metrics.jsonl")) == expected, "{name}: the metrics differ");
    }
}

/// At this learning rate a scale that is itself the parameter goes past zero within a few steps.
#[test]
fn learnt_scales_keep_every_precision_under_adamw() {
    let workplace = workplace();
    let overrides = [
        "pipeline.qat-language-model.weight_scale=\"learned\"",
        "pipeline.qat-language-model.pretraining_steps=60",
        "optimizer.adamw.learning_rate=2e-2",
        "training.max_steps=240",
        "validation.every_steps=60",
    ];
    let run = workplace.trained("learnt", &overrides);
    let validations: Vec<Value> = metrics(&run).into_iter().filter(|line| line["kind"] == "validation").collect();
    for name in ["perplexity_full", "perplexity_8_bit", "perplexity_4_bit"] {
        let all: Vec<f64> = validations.iter().map(|line| line["metrics"][name].as_f64().unwrap_or(f64::NAN)).collect();
        assert!(all.iter().all(|perplexity| perplexity.is_finite()), "{name}: {all:?}");
        assert!(all[all.len() - 1] < all[1], "{name}, from the end of pretraining on: {all:?}");
        assert!(all[all.len() - 1] < 0.2 * all[0], "{name}: {all:?}");
    }
    let last = |name: &str| validations[validations.len() - 1]["metrics"][name].as_f64().unwrap();
    assert!(last("perplexity_8_bit") < 1.15 * last("perplexity_full"), "a scale is lost");
}

#[test]
fn a_merged_model_is_written_for_each_precision_and_can_be_started_from() {
    let workplace = workplace();
    let run = workplace.trained("merged", &["pipeline.qat-language-model.export_merged=true"]);
    let checkpoint = run.join("checkpoints/step_00000020");
    for name in ["full", "w8", "w4"] {
        for file in ["model.safetensors", "config.json", "vocab.json", "merges.txt"] {
            assert!(checkpoint.join(format!("merged_lora_{name}")).join(file).is_file(), "{name}: {file}");
        }
    }
    assert!(!checkpoint.join("base").exists(), "parts were not asked for");
    let directory = checkpoint.join("merged_lora_full");
    let path = directory.join("model.safetensors");
    let weights = format!("model.gpt2.weights=\"{}\"", path.display());
    // Its own vocabulary belongs to it.
    let encoder = format!("dataset.question-answers.encoder=\"{}\"", directory.join("vocab.json").display());
    let merges = format!("dataset.question-answers.merges=\"{}\"", directory.join("merges.txt").display());
    let again = [&weights[..], &encoder, &merges, "pipeline.qat-language-model.pretraining_steps=0"];
    let again = workplace.trained("again", &again);
    let metric = |run: &Path, when: &str, name: &str| json(&run.join("summary.json"))[when][name].as_f64().unwrap();
    for name in ["perplexity_full", "bits_per_byte_full"] {
        let (before, after) = (metric(&run, "metrics_last", name), metric(&again, "metrics_first", name));
        assert!((before - after).abs() / before < 1e-3, "{name}: {before} and {after}");
    }
    let wrong = workplace.attempt("wrong", &[&weights, "model.gpt2.hidden_size=32"]);
    assert!(wrong.code == 2 && wrong.err.contains("merged_lora_full/model.safetensors"), "{wrong:?}");
}

/// Contexts are longer than a sequence, so a validation looks at several windows of each.
#[test]
fn windows_of_a_context_are_bounded_and_do_not_depend_on_what_is_kept() {
    let workplace = workplace();
    let long = [
        "dataset.question-answers.generated.sentences_per_paragraph=8",
        "dataset.question-answers.generated.articles=3",
        "dataset.question-answers.window_stride=6",
        "training.batch_size=3",
    ];
    let run = workplace.trained("windows", &long);
    let with = |more: &'static str| [&long[..], &[more]].concat();
    let preprocessed = workplace.trained("kept", &with("dataset.question-answers.preprocess_all=true"));
    assert!(text(&run.join("metrics.jsonl")) == text(&preprocessed.join("metrics.jsonl")));
    let summary = json(&run.join("summary.json"));
    let owner = summary["owners"].as_array().unwrap().iter().find(|owner| owner["name"] == "validation_batch").unwrap();
    let (peak, cap) = (owner["peak_bytes"].as_u64().unwrap(), owner["cap_bytes"].as_u64().unwrap());
    assert!(peak <= cap, "{owner}");
    let one =
        json(&workplace.trained("one", &with("dataset.question-answers.validation_windows=1")).join("summary.json"));
    let owner = one["owners"].as_array().unwrap().iter().find(|owner| owner["name"] == "validation_batch").unwrap();
    assert!(owner["peak_bytes"].as_u64().unwrap() < peak, "windows are counted: {owner}");
    // The window that shares most with the question is the same.
    let perplexity = |summary: &Value| summary["metrics_last"]["perplexity_4_bit"].as_f64().unwrap();
    assert_eq!(perplexity(&one), perplexity(&summary));
}

#[test]
fn ranges_of_each_token_train_and_resume() {
    let workplace = workplace();
    let per_token = [
        "pipeline.qat-language-model.activation_ranges=\"per-token\"",
        "pipeline.qat-language-model.activation_scheme=\"symmetric\"",
        "pipeline.qat-language-model.activation_bits=[32, 8, 8]",
        "training.max_steps=60",
    ];
    let run = workplace.trained("tokens", &per_token);
    let perplexity = |when: &str| json(&run.join("summary.json"))[when]["perplexity_8_bit"].as_f64().unwrap();
    assert!(perplexity("metrics_last") < 0.5 * perplexity("metrics_first"), "{}", perplexity("metrics_last"));
    let ranges = text(&run.join("checkpoints/step_00000060/ranges.json"));
    assert!(ranges.contains("null") && !ranges.contains('.'), "no range is held: {ranges}");
    // Computed again, activations have the same ranges.
    let again = workplace.trained("again", &[&per_token[..], &["training.activation_checkpointing=true"]].concat());
    let loss = |run: &Path| metrics(run).iter().filter_map(|line| line["loss"].as_f64()).nth(8).unwrap();
    assert!((loss(&run) - loss(&again)).abs() < 1e-3 * loss(&run));
}
