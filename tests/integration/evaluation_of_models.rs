//! `xrun evaluate` of each pipeline: equal metrics on the same data, others on other data.

use serde_json::Value;

use crate::limits::{FEDERATED, FEW_SHOT, LANGUAGE_MODEL, VISION_LANGUAGE};
use crate::workplace::{Workplace, json, lines_with};

fn evaluated(workplace: &Workplace, arguments: &[&str]) -> Value {
    let output = workplace.exits(0, &[&["eval", "tiny", "--json", "--progress", "none"], arguments].concat());
    output.json()
}

#[test]
fn the_metrics_of_a_checkpoint_are_those_of_its_run() {
    for experiment in [FEW_SHOT, LANGUAGE_MODEL, FEDERATED, VISION_LANGUAGE] {
        let workplace = Workplace::with("tiny.toml", experiment);
        workplace.exits(0, &["tiny.toml", "-q", "--progress", "none"]);
        for which in ["best", "last"] {
            let found = evaluated(&workplace, &["--checkpoint", which]);
            assert!(found["metrics"].as_object().is_some_and(|metrics| !metrics.is_empty()), "{found}");
            assert_eq!(found["metrics"], found["in_training"], "{which}: {experiment}");
        }
        // A run that starts from these weights measures at first what they measured.
        let best = evaluated(&workplace, &[]);
        let start = ["-s", "training.initial_weights=results/tiny/latest", "-s", "validation.at_start=true"];
        workplace.exits(0, &[&["tiny.toml", "-q", "--progress", "none", "--name", "warm"], &start[..]].concat());
        let first = json(&workplace.latest("warm").join("summary.json"))["metrics_first"].clone();
        // Before its first round a federation has nothing to say of its nodes.
        let known = first.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
        let mut compared = 0;
        for (name, value) in known {
            assert_eq!(*value, best["metrics"][name], "{name}: {experiment}");
            compared += 1;
        }
        assert!(compared > 2, "{first}");
    }
}

#[test]
fn validation_on_classes_that_no_node_has_is_a_phase_of_its_own() {
    let workplace = Workplace::with("tiny.toml", FEDERATED);
    workplace.exits(0, &["tiny.toml", "-q", "--progress", "none"]);
    let phases = json(&workplace.latest("tiny").join("summary.json"))["phases"].clone();
    let names: Vec<&str> = phases.as_array().unwrap().iter().filter_map(|phase| phase["name"].as_str()).collect();
    assert!(
        ["validation", "validation_unheard", "node_validation"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
}

#[test]
fn a_check_refuses_the_initial_weights_that_a_run_refuses() {
    let workplace = Workplace::with("tiny.toml", FEW_SHOT);
    workplace.exits(0, &["tiny.toml", "-q", "--progress", "none"]);
    workplace.file(
        "other.toml",
        &VISION_LANGUAGE.replace("[training]", "[training]\ninitial_weights = \"results/tiny/latest\""),
    );
    workplace.file("broken.safetensors", "no weights");
    let from = |weights: &str| format!("training.initial_weights={weights}");
    let (run, broken) = (from("results/tiny/latest"), from("broken.safetensors"));
    for (refused, arguments) in [
        (false, &["tiny.toml", "-s", &run][..]),
        (true, &["tiny.toml", "-s", &run, "-s", "model.reference-detector.embedding_size=4"]),
        (true, &["tiny.toml", "-s", &broken]),
        (true, &["other.toml"]),
    ] {
        let check = workplace.xrun(&[&["check", "--json"], arguments].concat());
        let run = workplace.xrun(&[arguments, &["-q", "--progress", "none"]].concat());
        assert_eq!((check.code == 2, run.code == 1), (refused, refused), "{arguments:?}: {check:?} {run:?}");
        let problem = &check.json()[0]["problems"][0]["key"];
        assert_eq!(*problem, if refused { "training.initial_weights".into() } else { Value::Null }, "{check:?}");
    }
}

#[test]
fn other_data_is_told_and_a_vocabulary_that_was_learned_fits_no_other() {
    let workplace = Workplace::with("tiny.toml", FEW_SHOT);
    workplace.exits(0, &["tiny.toml", "-q", "--progress", "none"]);
    let more = ["-s", "dataset.synthetic-video.validation_classes=3", "-s", "validation.batches=3"];
    let found = evaluated(&workplace, &more);
    assert_eq!(found["same_data"], false);
    assert_eq!(found["overrides"].as_array().map(Vec::len), Some(2));
    workplace.file("words.toml", LANGUAGE_MODEL);
    workplace.exits(0, &["words.toml", "-q", "--progress", "none"]);
    let output = workplace.exits(1, &["eval", "words", "-s", "dataset.question-answers.generated.articles=7"]);
    insta::assert_snapshot!(lines_with(&output.err, "error: "));
}
