//! Training of networks: learning, bit-identical for any workers and interruptions.

use std::collections::BTreeSet;
use std::path::Path;

use crate::workplace::{
    Output, Workplace, is_bounded, json, lines_with, metrics, redacted, send, text, wait_for_lines,
};

/// Few-shot detection as small as it gets: a step takes milliseconds.
const EXPERIMENT: &str = concat!(
    include_str!("../experiments/tiny/few-shot.toml"),
    "triplet_ratio = 0.3\ntriplet_batch_size = 3\n[optimizer.adamw]\nlearning_rate = 3e-3\n[training]\nepochs = 4\n\
     [limits]\nbatch_size = 8\nframe_cache = \"64 KiB\"\n[validation]\nbatches = 2\nimages = 2\n[checkpoint]\nevery_steps = 5\n"
);

fn workplace() -> Workplace {
    Workplace::with("tiny.toml", EXPERIMENT)
}

/// The losses of all training steps, in order.
fn losses(run: &Path) -> Vec<f64> {
    metrics(run).iter().filter(|line| line["kind"] != "validation").filter_map(|line| line["loss"].as_f64()).collect()
}

#[test]
fn the_same_experiment_gives_the_same_bytes_for_any_number_of_workers() {
    let workplace = workplace();
    let expected = text(&workplace.trained("one", &[]).join("metrics.jsonl"));
    for (name, workers, prefetch, cache) in
        [("again", 1, 2, "64 KiB"), ("none", 0, 1, "64 KiB"), ("three", 3, 5, "1 MiB"), ("uncached", 2, 2, "0 B")]
    {
        let (workers, prefetch) = (format!("limits.workers={workers}"), format!("limits.prefetch={prefetch}"));
        let cache = format!("limits.frame_cache=\"{cache}\"");
        let other = workplace.trained(name, &[&workers, &prefetch, &cache]);
        assert!(text(&other.join("metrics.jsonl")) == expected, "{name}: the metrics differ");
    }
    let other_seed = workplace.trained("seed", &["experiment.seed=6"]);
    assert!(text(&other_seed.join("metrics.jsonl")) != expected, "the seed changes nothing");
}

#[test]
fn a_batch_that_is_split_gives_the_same_step() {
    let workplace = workplace();
    let whole = losses(&workplace.trained("whole", &[]));
    for (name, size) in [("split", "limits.batch_size=2"), ("odd", "limits.batch_size=5")] {
        let split = losses(&workplace.trained(name, &[size]));
        assert_eq!(whole.len(), split.len());
        // The first step has equal weights and differs by rounding only; later ones drift apart as weights do.
        let first = (whole[0] - split[0]).abs() / whole[0];
        assert!(first < 1e-5, "{name}: {} and {}", whole[0], split[0]);
        let early = whole.iter().zip(&split).take(5).map(|(a, b)| (a - b).abs() / a.abs().max(0.1)).fold(0.0, f64::max);
        assert!(early < 0.02, "{name}: five steps apart by {early}");
    }
}

#[test]
fn accumulated_batches_make_one_step_of_all_of_them() {
    let workplace = workplace();
    let plain = metrics(&workplace.trained("plain", &[])).len();
    let run = workplace.trained("accumulated", &["training.gradient_accumulation=2"]);
    let fewer = losses(&run).len();
    assert!(fewer < plain && losses(&run).iter().all(|loss| loss.is_finite()));
    assert_eq!(json(&run.join("summary.json"))["steps"], fewer);
}

#[test]
fn training_lowers_the_loss_and_finds_classes_that_it_never_saw() {
    let workplace = workplace();
    let run = workplace.trained("learns", &["training.epochs=40", "validation.every_epochs=40"]);
    let losses = losses(&run);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (before, after) = (mean(&losses[..10]), mean(&losses[losses.len() - 10..]));
    assert!(after < 0.6 * before, "{before} -> {after}");
    let summary = json(&run.join("summary.json"));
    let metric = |when: &str, name: &str| summary[when][name].as_f64().unwrap();
    assert!(metric("metrics_last", "map50") > metric("metrics_first", "map50") + 0.05, "{summary}");
}

#[test]
fn triplets_bring_images_of_one_unseen_class_closer_than_those_of_two() {
    let workplace = workplace();
    let triplets = [
        "pipeline.fewshot-detection.triplet_ratio=1.0",
        "pipeline.fewshot-detection.triplet_mining=\"given\"",
        "dataset.synthetic-video.train_classes=12",
        "dataset.synthetic-video.validation_classes=6",
        "pipeline.fewshot-detection.triplet_batch_size=16",
        "training.epochs=10",
        "validation.every_epochs=10",
    ];
    let summary = json(&workplace.trained("embeds", &triplets).join("summary.json"));
    let metric = |when: &str, name: &str| summary[when][name].as_f64().unwrap();
    let gap = |when: &str| metric(when, "embedding_within") - metric(when, "embedding_between");
    assert!(gap("metrics_last") > gap("metrics_first") + 0.1, "{} then {}", gap("metrics_first"), gap("metrics_last"));
}

/// The numbers of the files are checked against pycocotools in `coco_files_tests.rs`.
#[test]
fn a_validation_leaves_what_was_found_and_what_there_was_to_find() {
    let workplace = workplace();
    let run = workplace.trained("leaves", &["pipeline.fewshot-detection.score_threshold=0.001"]);
    let (found, truth) = (json(&run.join("detections.json")), json(&run.join("ground_truth.json")));
    let ids = |list: &str| -> BTreeSet<u64> {
        truth[list].as_array().unwrap().iter().map(|entry| entry["id"].as_u64().unwrap()).collect()
    };
    let (images, categories) = (ids("images"), ids("categories"));
    assert_eq!(categories.len(), 2, "the held-out classes");
    let found = found.as_array().unwrap();
    assert!(!found.is_empty());
    for entry in found.iter().chain(truth["annotations"].as_array().unwrap()) {
        assert!(images.contains(&entry["image_id"].as_u64().unwrap()), "{entry}");
        assert!(categories.contains(&entry["category_id"].as_u64().unwrap()), "{entry}");
    }
    let validation = metrics(&run).into_iter().rfind(|line| line["kind"] == "validation").unwrap();
    assert_eq!(validation["intervals"]["episode_map50"]["episodes"], 2);
    assert_eq!(json(&run.join("summary.json"))["intervals_last"], validation["intervals"]);
    let shown = workplace.xrun(&["show", run.to_str().unwrap(), "--json"]).json();
    assert_eq!(shown["metrics"]["episode_map50"]["interval"], validation["intervals"]["episode_map50"], "{shown}");
    let without = workplace.trained("without", &["pipeline.fewshot-detection.save_detections=false"]);
    assert!(!without.join("detections.json").exists() && !without.join("ground_truth.json").exists());
}

#[test]
fn every_buffer_is_planned_and_stays_below_its_cap() {
    let workplace = workplace();
    let run = workplace.trained("bounded", &["limits.workers=2", "limits.prefetch=3"]);
    is_bounded(&run);
    let summary = json(&run.join("summary.json"));
    let cache = summary["owners"].as_array().unwrap().iter().find(|owner| owner["name"] == "frame_cache").unwrap();
    assert!(cache["peak_bytes"].as_u64() > Some(32 * 1024), "the cache is in use: {cache}");
}

#[test]
fn stopped_or_killed_at_any_step_a_resumed_run_gives_the_same_bytes() {
    let workplace = workplace();
    let long = ["training.epochs=12"];
    let expected = text(&workplace.trained("whole", &long).join("metrics.jsonl"));
    for (name, after, signal) in
        [("interrupted", 9, libc::SIGINT), ("killed", 17, libc::SIGKILL), ("ended", 26, libc::SIGTERM)]
    {
        let mut child = workplace.spawn(&["tiny.toml", "--name", name, "--progress", "none", "-s", long[0]]);
        wait_for_lines(&workplace.path("results").join(name).join("latest"), after);
        send(&child, signal);
        let code = child.wait().unwrap().code();
        let run = workplace.latest(name);
        let killed = signal == libc::SIGKILL;
        assert_eq!(code, if killed { None } else { Some(8) }, "{name}");
        workplace.exits(0, &["resume", run.to_str().unwrap(), "-q"]);
        assert!(text(&run.join("metrics.jsonl")) == expected, "{name}: the metrics differ");
        let found = |run: &Path| text(&run.join("detections.json"));
        assert!(found(&run) == found(&workplace.latest("whole")), "{name}: the detections differ");
        let weights = |run: &Path| -> Vec<u8> {
            let checkpoints = std::fs::read_dir(run.join("checkpoints")).unwrap().flatten();
            let last = checkpoints.map(|entry| entry.path()).filter(|path| path.is_dir()).max().unwrap();
            std::fs::read(last.join("model.safetensors")).unwrap()
        };
        assert!(weights(&run) == weights(&workplace.latest("whole")), "{name}: the weights differ");
    }
}

#[test]
fn a_step_too_large_ends_the_run_with_the_step_and_the_last_good_checkpoint() {
    let workplace = workplace();
    let output = workplace.attempt(
        "diverges",
        &["optimizer.adamw.learning_rate=1000", "checkpoint.every_steps=1", "checkpoint.keep_last=9"],
    );
    assert_eq!(output.code, 4, "{output:?}");
    assert!(output.err.contains("checkpoints/step_0"), "{output:?}");
    let run = workplace.latest("diverges");
    assert_eq!(json(&run.join("summary.json"))["outcome"], "diverged");
}

#[test]
fn that_an_encoder_is_trained_first_is_said_once() {
    let workplace = Workplace::with("tiny.toml", crate::limits::FEDERATED);
    let cache = workplace.path("cache of its own");
    let opened = || {
        let output = workplace.command(&["tiny.toml", "--dry-run"]).env("XRUN_CACHE", &cache).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let first = opened();
    let again = opened();
    let notices: Vec<&str> = first.lines().filter(|line| line.contains("encoder") && !again.contains(line)).collect();
    insta::assert_snapshot!(redacted(&notices.join("\n")));
}

/// The encoder is made once and kept in the cache: numbers depend on its bytes.
#[test]
fn an_encoder_that_is_kept_is_held_against_its_digest_which_is_part_of_the_fingerprint() {
    let workplace = Workplace::new();
    let experiment = "[pipeline.federated-adapters]\nnodes = 2\nlocal_epochs = 1\npretraining_steps = 3\n\
                      [model.audio-adapters]\nbands = 16\nframes = 96\nhidden_size = 16\nlayers = 1\nheads = 2\n\
                      pooled = { hidden = [12], latents = 1, output_size = 8 }\ntokens = { hidden = [], latents = 3, output_size = 8 }\n\
                      pool_heads = 2\n[dataset.sound-clips]\n[dataset.sound-clips.generated]\nclasses = 2\n\
                      clips_per_class = 5\nother_clips_per_class = 5\n[training]\nepochs = 2\nbatch_size = 4\n\
                      [validation]\nbatches = 1\n[memory]\nprobe = false\n";
    workplace.file("mine.toml", experiment);
    let xrun = |arguments: &[&str]| {
        let mut command = workplace.command(arguments);
        Output::from(command.env("XRUN_CACHE", workplace.path("cache")).output().unwrap())
    };
    let run = |name: &str| xrun(&["mine.toml", "--name", name, "-q"]);
    let of = |name: &str, file: &str| std::fs::read(workplace.latest(name).join(file)).unwrap();
    let manifest = |name: &str| json(&workplace.latest(name).join("manifest.json"));
    let output = run("first");
    assert_eq!(output.code, 0, "{output:?}");
    let kept = std::fs::read_dir(workplace.path("cache/encoders")).unwrap().flatten().map(|entry| entry.path());
    let kept = kept.into_iter().find(|path| path.extension().is_some_and(|it| it == "safetensors")).unwrap();
    let whole = std::fs::read(&kept).unwrap();
    assert_eq!(manifest("first")["data"]["encoder"], xrun::dataset::digest::digest(&whole));
    let unchanged =
        || xrun(&["mine.toml", "--name", "first", "--if-changed", "--json"]).out.contains("\"skipped\": true");
    assert!(unchanged());

    let mut flipped = whole.clone();
    let middle = flipped.len() / 2 + 2;
    flipped[middle] ^= 0x10;
    std::fs::write(&kept, &flipped).unwrap();
    let name = kept.file_name().unwrap().to_str().unwrap().to_owned();
    for output in
        [run("second"), xrun(&["reproduce", "first"]), xrun(&["mine.toml", "--name", "first", "--if-changed"])]
    {
        assert!(output.code == 1 && output.err.contains(&name), "{output:?}");
        insta::assert_snapshot!(
            "an_encoder_that_was_changed",
            lines_with(&output.err, &name).replace(&name, "ENCODER")
        );
    }
    std::fs::remove_file(&kept).unwrap();
    assert_eq!(run("second").code, 0);
    assert_eq!(of("second", "metrics.jsonl"), of("first", "metrics.jsonl"));
    assert_eq!(manifest("second")["fingerprint"], manifest("first")["fingerprint"]);
    assert_eq!(std::fs::read(&kept).unwrap(), whole);
    assert!(unchanged());

    // Another encoder, such as one that another machine made: whole, and other numbers.
    std::fs::write(&kept, &flipped).unwrap();
    let sum = format!("{}  {name}\n", xrun::dataset::digest::digest(&flipped));
    std::fs::write(kept.with_file_name(format!("{name}.sha256")), sum).unwrap();
    assert!(!unchanged());
    assert_eq!(run("third").code, 0);
    // Since `unchanged` has run it again, the newest run called `first` has this encoder, too.
    assert_ne!(manifest("third")["fingerprint"], manifest("second")["fingerprint"]);
    assert_ne!(of("third", "metrics.jsonl"), of("second", "metrics.jsonl"));
    let output = xrun(&["reproduce", "second"]);
    assert!(output.err.contains("encoder") || output.out.contains("encoder"), "{output:?}");
    let output = xrun(&["compare", "second", "third"]);
    assert!(output.code == 0 && output.out.contains("encoder"), "{output:?}");
}
