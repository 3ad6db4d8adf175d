//! Answers to what was typed: values, options that are keys, keys without their section, short runs.

use serde_json::Value;

use crate::workplace::{Workplace, json, lines_with, without_pipelines};

fn trial() -> Workplace {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\nsteps_per_epoch = 5\n[optimizer.adamw]\n");
    workplace
}

#[test]
fn values_behind_the_file_are_set_without_an_option() {
    let workplace = trial();
    let said = workplace.xrun(&["trial.toml", "training.epochs=2", "-q", "experiment.seed=7"]);
    assert_eq!(said.code, 0, "{said:?}");
    let run = workplace.latest("trial");
    assert_eq!(json(&run.join("summary.json"))["steps"], 10);
    assert_eq!(json(&run.join("manifest.json"))["seed"], 7);
    let said = workplace.xrun(&["check", "trial.toml", "training.epochs=no"]);
    assert!(said.code == 2 && said.err.contains("training.epochs"), "{said:?}");
}

#[test]
fn several_values_point_to_a_sweep() {
    let (workplace, mut messages) = (trial(), String::new());
    for text in ["training.epochs=1,2", "experiment.device=cpu,cuda", "limits.frame_cache=1 MiB,2 MiB"] {
        let said = workplace.xrun(&["trial.toml", "-s", text]);
        assert_eq!(said.code, 2, "{said:?}");
        messages += &said.err;
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn a_mistake_in_an_option_names_the_option_as_it_was_typed() {
    let workplace = trial();
    let device = workplace.xrun(&["check", "trial.toml", "--device", "gpu"]);
    let name = workplace.xrun(&["trial.toml", "--name", "a b/c"]);
    workplace.file("swept.toml", "extends = \"trial.toml\"\n[sweep]\n\"training.epochs\" = [1, 2]\n");
    let mode = workplace.xrun(&["sweep", "swept.toml", "--method", "random"]);
    assert_eq!([device.code, name.code, mode.code], [2; 3]);
    insta::assert_snapshot!(device.err + &name.err + &mode.err);
    // A program that reads the answer gets the key.
    let answer = workplace.xrun(&["check", "trial.toml", "--json", "--device", "gpu"]).json();
    assert_eq!(answer[0]["problems"][0]["key"], "experiment.device");
    // The option is an override like any other: also for the process in which memory is measured.
    let run = workplace.xrun(&["trial.toml", "--device", "cpu", "--name", "5", "--fail-on", "growing", "-q"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}");
    assert_eq!(json(&workplace.latest("5").join("manifest.json"))["experiment"], "5");
}

#[test]
fn keys_without_their_section_name_the_places_that_all_experiments_share() {
    let workplace = trial();
    let said = |text: &str| workplace.xrun(&["check", "trial.toml", "-s", text]).err;
    let seed = said("seed=4");
    assert!(seed.contains("[experiment]"), "{seed}");
    assert!(seed.contains("[sweep]") && !seed.contains("[dataset.synthetic-video]"), "{seed}");
    let rate = said("learning_rate=1");
    assert!(rate.contains("[optimizer.adamw]") && rate.contains("[optimizer.sgd]"), "{rate}");
    insta::assert_snapshot!(said("n_way=2"));
}

#[test]
fn options_that_are_keys_are_answered_with_the_key() {
    let (workplace, mut messages) = (trial(), String::new());
    for arguments in [
        &["trial.toml", "--epochs", "3"][..],
        &["trial.toml", "--seed", "3"],
        &["trial.toml", "--lr=0.1"],
        &["new", "fewshot"],
    ] {
        let said = workplace.xrun(arguments);
        assert_eq!(said.code, 2, "{said:?}");
        messages += &said.err;
    }
    insta::assert_snapshot!(without_pipelines(&messages));
}

#[test]
fn a_kind_as_a_value_is_answered_with_its_table() {
    let (workplace, mut messages) = (trial(), String::new());
    for value in ["optimizer=sgd", "optimizer=sgdd", "optimizer=rprop"] {
        let said = workplace.xrun(&["trial.toml", value]);
        assert_eq!(said.code, 2, "{said:?}");
        messages += &said.err;
    }
    insta::assert_snapshot!(messages);
    // What is advised works.
    let said = workplace.xrun(&["check", "trial.toml", "-s", "optimizer.sgd={}", "--resolved"]);
    assert!(said.code == 0 && said.out.contains("[optimizer.sgd]"), "{said:?}");
}

#[test]
fn an_experiment_without_its_directory_and_ending_is_found() {
    let workplace = Workplace::new();
    std::fs::create_dir(workplace.path("experiments")).unwrap();
    workplace.file("experiments/stage2.toml", "[pipeline.dummy]\n");
    let mut messages = String::new();
    for typed in ["stage2", "stage2.toml", "stag2", "experiments/stage2"] {
        let said = workplace.xrun(&[typed]);
        assert_eq!(said.code, 2, "{said:?}");
        messages += &said.err;
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn an_export_without_a_format_names_the_formats() {
    let said = trial().xrun(&["export", "latest"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("--to tensorboard") && said.err.contains("--to weights"), "{}", said.err);
}

#[test]
fn a_limit_of_a_buffer_that_an_experiment_has_not_is_refused() {
    let workplace = Workplace::new();
    workplace.file("mine.toml", "[pipeline.qat-language-model]\n[model.gpt2]\n[dataset.question-answers]\n");
    let check = |set: &str| workplace.xrun(&["check", "mine.toml", "--no-data", "-s", set]);
    let mut messages = String::new();
    for set in ["limits.frame_cache=1 MiB", "limits.decode_memory=64 MiB"] {
        let said = check(set);
        assert_eq!(said.code, 2, "{said:?}");
        messages += &said.err;
    }
    insta::assert_snapshot!(messages);
    assert_eq!(check("limits.frame_cache=64 MiB").code, 0, "as it is by default, it changes nothing");
    assert_eq!(check("limits.workers=1").code, 0);
}

#[test]
fn new_lists_pipelines_and_writes_a_file_once() {
    let workplace = Workplace::new();
    let said = workplace.xrun(&["new"]);
    assert_eq!(said.code, 0, "{said:?}");
    for kind in ["fewshot-detection", "qat-language-model", "dummy"] {
        assert!(said.out.contains(kind), "{}", said.out);
    }
    assert_eq!(workplace.xrun(&["new", "dummy", "-o", "mine.toml"]).code, 0);
    assert_eq!(workplace.xrun(&["check", "mine.toml"]).code, 0);
    let again = workplace.xrun(&["new", "dummy", "-o", "mine.toml"]);
    assert_eq!(again.code, 2, "{again:?}");
    insta::assert_snapshot!(again.err);
}

#[test]
fn a_file_that_extends_itself_is_told_so() {
    let workplace = Workplace::with("circle.toml", "extends = \"circle.toml\"\n");
    let circle = workplace.exits(2, &["check", "circle.toml"]);
    assert!(circle.err.contains("`extends`: circle.toml extends itself"), "{circle:?}");
}

#[test]
fn progress_as_json_is_a_stream_of_json_with_the_ending_at_its_end() {
    let workplace = trial();
    let said = workplace.xrun(&["trial.toml", "--progress", "json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let events: Vec<Value> = said
        .err
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let step = events.iter().find(|event| event["event"] == "step").unwrap();
    for key in ["time", "seconds", "learning_rate", "steps_per_second_overall", "loss"] {
        assert!(!step[key].is_null(), "{key}: {step}");
    }
    let last = events.last().unwrap();
    assert_eq!(
        (&last["event"], &last["exit_code"], &last["outcome"]),
        (&"ended".into(), &0.into(), &"finished".into())
    );
    assert!(last["report"].as_str().is_some_and(|path| path.ends_with("report.html")), "{last}");
    assert!(last["verdict"]["verdict"].is_string() && last["metrics_last"].is_object(), "{last}");
    let wrong = workplace.xrun(&["trial.toml", "--progress", "json", "-s", "training.epoch=1"]);
    let event: Value = serde_json::from_str(wrong.err.trim()).unwrap();
    assert_eq!((wrong.code, &event["problems"][0]["key"]), (2, &"training.epoch".into()));
}

#[test]
fn json_is_printed_of_what_cannot_be_run_too() {
    let workplace = trial();
    for arguments in [
        vec!["trial.toml", "--json", "-s", "training.epoch=1"],
        vec!["plan", "trial.toml", "--json", "-s", "training.epoch=1"],
        vec!["sweep", "trial.toml", "--json", "-s", "training.epoch=1"],
    ] {
        let said = workplace.xrun(&arguments);
        let answer = said.json();
        assert_eq!((said.code, &answer["exit_code"]), (2, &2.into()), "{answer}");
        assert!(answer["message"].as_str().is_some_and(|text| text.contains("training.epoch")), "{answer}");
    }
    let said = workplace.xrun(&["sweep", "trial.toml", "-s", "experiment.seed=1,2", "--progress", "json", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let runs = said.err.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(runs.filter(|event| event["event"] == "run").count(), 2, "{}", said.err);
}

#[test]
fn a_smoke_run_scales_what_would_not_fit() {
    let workplace = Workplace::new();
    workplace.file(
        "trial.toml",
        "[pipeline.dummy]\nsteps_per_epoch = 50\n[training]\nepochs = 10\n[training.schedule.cosine]\nwarmup_steps = 50\n\
         [checkpoint]\nevery_steps = 100\n",
    );
    assert_eq!(workplace.xrun(&["trial.toml", "-s", "training.max_steps=12"]).code, 2, "the warm-up is longer");
    let said = workplace.xrun(&["trial.toml", "--steps", "12"]);
    assert_eq!(said.code, 0, "{said:?}");
    insta::assert_snapshot!(lines_with(&said.err, "500"));
    let run = workplace.latest("trial-short");
    assert_eq!(json(&run.join("summary.json"))["steps"], 12);
    let said = workplace.xrun(&["trial.toml", "--smoke", "--name", "tried"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(json(&workplace.latest("tried").join("summary.json"))["steps"], 20);
    assert!(!workplace.path("results/trial").exists(), "no result of the experiment itself");
}

#[test]
fn failed_trials_of_a_sweep_say_how_to_try_them_again() {
    let workplace = trial();
    let said = workplace.xrun(&["sweep", "trial.toml", "-s", "pipeline.dummy.fail_at_step=2,3"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("--retry-failed"), "{}", said.err);
}
