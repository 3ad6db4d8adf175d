//! `xrun predict`: answers about files, failures and output paths.

use std::path::Path;

use serde_json::Value;

use crate::workplace::{Output, Workplace, json, lines, redacted};

fn trained() -> Workplace {
    let workplace = Workplace::ran(
        "trial",
        "[experiment]\nseed = 5\n[pipeline.dummy]\nsteps_per_epoch = 20\n[validation]\nevery_steps = 10\n\
         [checkpoint]\nevery_steps = 10\nkeep_last = 2\n[training]\nepochs = 1\n",
    );
    workplace.file("three", "abc");
    workplace.file("five", "abcde");
    workplace
}

fn predict(workplace: &Workplace, arguments: &[&str]) -> Output {
    workplace.xrun(&[&["predict", "trial"], arguments].concat())
}

/// Files of a directory, by name, with their bytes.
fn content(directory: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let mut all: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).ok()))
        .filter(|(name, _)| name != "predictions")
        .collect();
    all.sort();
    all
}

#[test]
fn each_file_has_a_line_in_the_order_in_which_it_was_named_and_the_run_stays_as_it_is() {
    let workplace = trained();
    let run = workplace.latest("trial");
    let before = content(&run);
    let output = predict(&workplace, &["five", "./three", "five"]);
    assert_eq!(output.code, 0, "{output:?}");
    let answers: Vec<&str> = output.out.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(answers, ["five", "./three", "five"], "{output:?}");
    insta::assert_snapshot!(output.out);
    let directory = output.err.lines().find_map(|line| line.strip_prefix("predictions: ")).unwrap();
    assert!(Path::new(directory).starts_with(run.join("predictions")), "{output:?}");
    let record = json(&Path::new(directory).join("prediction.json"));
    assert_eq!((&record["step"], &record["files"], &record["answered"]), (&20.into(), &3.into(), &3.into()));
    let found = lines(&Path::new(directory).join("predictions.jsonl"));
    let files: Vec<&Value> = found.iter().map(|line| &line["file"]).collect();
    assert_eq!(files, ["five", "./three", "five"]);
    let weight = record["about"]["weight"].as_f64().unwrap();
    assert!(weight < 1.0, "the checkpoint was loaded");
    assert_eq!(found[1]["sum"], weight * 3.0);
    assert_eq!(content(&run), before);
    // Another checkpoint has another weight, and a second prediction another directory.
    let output = predict(&workplace, &["five", "--checkpoint", "10", "--json"]);
    assert_eq!(output.code, 0, "{output:?}");
    let record = output.json();
    assert_eq!(record["step"], 10);
    assert!(record["about"]["weight"].as_f64() > Some(weight), "{record}");
    assert_ne!(record["directory"], directory);
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_answered() {
    let workplace = trained();
    let name = "ab\u{1b}[2Jsent";
    std::fs::create_dir(workplace.path("directory")).unwrap();
    let output = predict(&workplace, &["three", name, "directory", "five", "--out", "mine/answers"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(!output.err.contains('\u{1b}'), "{output:?}");
    insta::assert_snapshot!("unreadable", redacted(&output.err));
    let record = json(&workplace.path("mine/answers/prediction.json"));
    assert_eq!((&record["answered"], &record["failed"]), (&2.into(), &2.into()), "{record}");
    let found = lines(&workplace.path("mine/answers/predictions.jsonl"));
    let failed: Vec<bool> = found.iter().map(|line| line["error"].is_string()).collect();
    assert_eq!(failed, [false, true, true, false]);
    assert_eq!(found[1]["file"], name);
    // There is something now.
    let output = predict(&workplace, &["three", "--out", "mine/answers"]);
    assert_eq!(output.code, 2, "{output:?}");
    insta::assert_snapshot!("out_is_not_empty", output.err);
    let output = predict(&workplace, &["three", "--out", "five"]);
    assert_eq!(output.code, 2, "{output:?}");
    insta::assert_snapshot!("out_is_a_file", output.err);
    let output = predict(&workplace, &["nowhere", "--out", "empty", "--json", "-q"]);
    assert_eq!(output.code, 1, "{output:?}");
    let record = output.json();
    assert_eq!((&record["answered"], &record["failed"]), (&0.into(), &1.into()));
    insta::assert_snapshot!("no_file_is_answered", output.err);
}

#[test]
fn of_many_files_without_an_answer_the_first_are_named_and_all_are_written_down() {
    let workplace = trained();
    let names: Vec<String> = (0..70).map(|number| format!("missing_{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let output = predict(&workplace, &[&names[..], &["--out", "answers"]].concat());
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains("missing_19: ") && !output.err.contains("missing_20: "), "{output:?}");
    insta::assert_snapshot!(redacted(&output.err));
    assert_eq!(lines(&workplace.path("answers/predictions.jsonl")).len(), 70);
}

#[test]
fn what_cannot_be_asked_is_refused_before_anything_is_written() {
    let workplace = trained();
    workplace.finished("other", "[pipeline.command]\nprogram = [\"true\"]\n");
    workplace.finished("bare", "[pipeline.dummy]\n[checkpoint]\nkeep_last = 1\n");
    std::fs::remove_dir_all(workplace.latest("bare").join("checkpoints")).unwrap();
    let refusals = workplace.refusals(&[
        (1, &["predict", "trial", "three", "--checkpoint", "7"]),
        (1, &["predict", "bare", "three"]),
        (2, &["predict", "trial", "three", "-s", "training.epochs=9"]),
        (2, &["predict", "trial", "three", "--question", "What?"]),
        (2, &["predict", "trial"]),
        (2, &["predict", "nowhere", "three"]),
        (2, &["predict", "other", "three"]),
    ]);
    insta::assert_snapshot!(redacted(&refusals));
    assert!(!workplace.latest("trial").join("predictions").exists());
}
