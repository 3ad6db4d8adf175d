//! Is growing memory called growing, and nothing else?

use crate::workplace::{Workplace, json};

const EXPERIMENT: &str =
    "[pipeline.dummy]\nsteps_per_epoch = 100\n[training]\nepochs = 3\n[checkpoint]\nevery_steps = 50\n";

fn workplace() -> Workplace {
    let workplace = Workplace::new();
    workplace.file("trial.toml", EXPERIMENT);
    workplace
}

#[test]
fn a_leak_is_called_growing_with_its_speed_and_fails_the_run_if_asked() {
    let workplace = workplace();
    let leak = ["trial.toml", "-s", "pipeline.dummy.leak_per_step=256 KiB"];
    let said = workplace.xrun(&leak);
    assert_eq!(said.code, 0, "a verdict fails nothing unless asked: {said:?}");
    let verdict = json(&workplace.latest("trial").join("verdict.json"));
    assert_eq!(verdict["verdict"], "growing", "{verdict}");
    let series = verdict["series"].as_array().unwrap();
    let heap = series.iter().find(|one| one["name"] == "heap").unwrap();
    let slope = heap["slope"].as_f64().unwrap();
    assert!((slope / (256.0 * 1024.0) - 1.0).abs() < 0.02, "{slope} bytes a step");
    assert!(said.err.contains("memory is growing: heap in use by 256"), "{said:?}");

    let said = workplace.xrun(&[&leak[..], &["--fail-on", "growing"]].concat());
    assert_eq!(said.code, 6, "{said:?}");
    let run = workplace.latest("trial");
    assert_eq!(json(&run.join("summary.json"))["outcome"], "memory_grew");
    assert_eq!(workplace.xrun(&["resume", "latest"]).code, 2, "all its steps are done");
    let judged = workplace.xrun(&["verdict", "latest", "--fail-on", "growing"]);
    assert_eq!(judged.code, 6);
    assert!(judged.out.starts_with("growing: memory is growing"), "{judged:?}");
}

#[test]
fn a_run_without_a_leak_is_bounded_and_a_short_one_says_nothing() {
    let workplace = workplace();
    assert_eq!(workplace.xrun(&["trial.toml", "--fail-on", "suspect"]).code, 0);
    let verdict = json(&workplace.latest("trial").join("verdict.json"));
    assert_eq!(verdict["verdict"], "bounded", "{verdict}");
    assert_eq!(workplace.xrun(&["trial.toml", "-s", "training.max_steps=30", "--fail-on", "suspect"]).code, 0);
    let verdict = json(&workplace.latest("trial").join("verdict.json"));
    assert_eq!(verdict["verdict"], "inconclusive", "{verdict}");
}

#[test]
fn traces_of_other_tools_are_judged() {
    let workplace = Workplace::new();
    let rows = |grow: u64| -> String {
        let row = |step: u64| format!("{step},{},{}\n", 2_000_000_000 + step * grow, 500_000);
        std::iter::once("step,gpu_bytes,other\n".to_owned()).chain((1..=400).map(row)).collect()
    };
    workplace.file("leaky.csv", &rows(1_000_000));
    workplace.file("flat.csv", &rows(0));
    let said = workplace.xrun(&["verdict", "leaky.csv", "--json", "--fail-on", "growing"]);
    assert_eq!(said.code, 6, "{said:?}");
    let verdict: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(verdict["verdict"], "growing");
    let said = workplace.xrun(&["verdict", "flat.csv", "--fail-on", "suspect"]);
    assert_eq!(said.code, 0, "{said:?}");
    for (name, text, part) in [
        ("empty.csv", "", "is empty"),
        ("no_step.csv", "time,bytes\n1,2\n", "no column is named `step`"),
        ("back.csv", "step,bytes\n5,1\n4,1\n", "sort the table"),
        ("words.csv", "step,bytes\n1,many\n", "whole numbers"),
    ] {
        workplace.file(name, text);
        let said = workplace.xrun(&["verdict", name]);
        assert_eq!(said.code, 1, "{name}: {said:?}");
        assert!(said.err.contains(part), "{name}: {said:?}");
    }
    assert_eq!(workplace.xrun(&["verdict", "nothing_of_this_name"]).code, 2);
}
