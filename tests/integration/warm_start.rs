//! Runs that start from weights of another run, and extended runs.

use crate::workplace::{Workplace, json, redacted, text};

const FIRST: &str = include_str!("../experiments/tiny/first.toml");

/// The last metric of a run, and its first.
fn scores(workplace: &Workplace, experiment: &str) -> (serde_json::Value, serde_json::Value) {
    let summary = json(&workplace.latest(experiment).join("summary.json"));
    (summary["metrics_first"]["score"].clone(), summary["metrics_last"]["score"].clone())
}

#[test]
fn a_run_starts_where_another_ended_and_says_so() {
    let workplace = Workplace::ran("first", FIRST);
    let (_, ended) = scores(&workplace, "first");
    workplace.file("second.toml", "extends = \"first.toml\"\n[training]\ninitial_weights = \"results/first/latest\"\n");
    let output = workplace.exits(0, &["second.toml"]);
    let notice = output.err.lines().find(|line| line.contains("first/")).unwrap();
    insta::assert_snapshot!(redacted(notice));
    assert_eq!(scores(&workplace, "second").0, ended, "it measures at first what the other measured last");
    let manifest = json(&workplace.latest("second").join("manifest.json"));
    let digest = manifest["data"]["initial_weights"].as_str().unwrap().to_owned();
    assert_eq!(digest.len(), 64, "{manifest}");
    // A checkpoint and a file name the same weights.
    for place in ["checkpoints/step_00000020", "checkpoints/step_00000020/model.safetensors"] {
        let place = format!("training.initial_weights=results/first/latest/{place}");
        workplace.exits(0, &["second.toml", "-q", "-s", &place]);
        let manifest = json(&workplace.latest("second").join("manifest.json"));
        assert_eq!(manifest["data"]["initial_weights"], digest.as_str());
    }
    workplace.exits(0, &["reproduce", "second", "-q"]);
    let record = json(&workplace.reproduction("second").join("reproduction.json"));
    assert_eq!(record["agreement"], "identical", "{record}");
}

#[test]
fn a_run_that_has_a_checkpoint_needs_the_weights_no_more_that_it_started_from() {
    let workplace = Workplace::ran("first", FIRST);
    let start = "training.initial_weights=results/first/latest";
    workplace.exits(0, &["first.toml", "-q", "--name", "whole", "-s", start]);
    let fails = ["-s", "pipeline.dummy.fail_at_step=15"];
    assert_ne!(workplace.xrun(&[&["first.toml", "-q", "--name", "cut", "-s", start], &fails[..]].concat()).code, 0);
    let run = workplace.latest("cut");
    // What failed by its own wish fails no more.
    let resolved = run.join("resolved.toml");
    let changed = text(&resolved).replace("fail_at_step = 15\n", "");
    std::fs::write(&resolved, crate::workplace::unsealed(&changed)).unwrap();
    std::fs::remove_dir_all(workplace.path("results/first")).unwrap();
    workplace.exits(0, &["resume", "cut", "-q"]);
    assert_eq!(text(&run.join("metrics.jsonl")), text(&workplace.latest("whole").join("metrics.jsonl")));
    // To evaluate it, neither; to run it again they are needed.
    workplace.exits(0, &["eval", "cut"]);
    let output = workplace.xrun(&["reproduce", "whole"]);
    assert!(output.code == 1 && output.err.contains("training.initial_weights"), "{output:?}");
}

#[test]
fn weights_that_are_not_there_or_do_not_serve_are_refused_with_their_place() {
    let workplace = Workplace::ran("first", FIRST);
    workplace.file("second.toml", "extends = \"first.toml\"\n[training]\ninitial_weights = \"gone\"\n");
    let problem = workplace.exits(2, &["check", "second.toml", "--json"]).json()[0]["problems"][0].clone();
    assert_eq!(
        (&problem["key"], &problem["layer"], &problem["line"], &problem["column"]),
        (&"training.initial_weights".into(), &"second.toml".into(), &3.into(), &19.into()),
        "{problem}"
    );
    insta::assert_snapshot!("weights_that_are_not_there", redacted(problem["message"].as_str().unwrap()));
    let output = workplace.exits(1, &["first.toml", "-s", "training.initial_weights=results/first"]);
    insta::assert_snapshot!("weights_that_are_no_run", redacted(&output.err));
    let command = "[pipeline.command]\nprogram = [\"true\"]\n[training]\ninitial_weights = \"first.toml\"\n";
    workplace.file("command.toml", command);
    insta::assert_snapshot!("weights_of_a_command", workplace.exits(2, &["check", "command.toml"]).err);
}

#[test]
fn a_finished_run_is_trained_further_to_the_bits_of_a_longer_one() {
    let workplace = Workplace::ran("first", FIRST);
    workplace.exits(0, &["first.toml", "-q", "--name", "longer", "-s", "training.epochs=2"]);
    insta::assert_snapshot!("resume_of_a_finished_run", redacted(&workplace.exits(2, &["resume", "first"]).err));
    workplace.exits(0, &["fork", "first", "-q", "--name", "further", "-s", "training.epochs=2"]);
    let further = text(&workplace.latest("further").join("metrics.jsonl"));
    let longer = text(&workplace.latest("longer").join("metrics.jsonl"));
    assert!(further.lines().count() > 20 && longer.ends_with(&further), "{further}");
    assert_eq!(json(&workplace.latest("further").join("summary.json"))["steps"], 40);
}
