//! `xrun evaluate`: validation of a checkpoint, and refusals.

use crate::workplace::{Workplace, json, redacted, redacted_names, text};

const EXPERIMENT: &str = include_str!("../experiments/tiny/evaluated.toml");

#[test]
fn a_checkpoint_gives_the_metrics_that_the_run_measured() {
    let workplace = Workplace::ran("trial", EXPERIMENT);
    let best = workplace.exits(0, &["eval", "trial", "--json"]).json();
    assert_eq!((&best["step"], &best["same_data"]), (&60.into(), &true.into()), "{best}");
    assert_eq!(best["metrics"], best["in_training"], "{best}");
    insta::assert_snapshot!(redacted(&workplace.exits(0, &["eval", "trial", "--checkpoint", "45"]).out));
    let evaluations = workplace.latest("trial").join("evaluations");
    let mut found: Vec<_> = std::fs::read_dir(evaluations).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    let steps: Vec<_> =
        found.iter().map(|directory| json(&directory.join("evaluation.json"))["step"].clone()).collect();
    assert_eq!(steps, [60, 45]);
    // The run is as it was.
    for command in
        [&["show", "trial"][..], &["ls"], &["export", "trial", "--to", "report"], &["compare", "trial", "trial"]]
    {
        workplace.exits(0, command);
    }
    assert_eq!(json(&workplace.latest("trial").join("summary.json"))["steps"], 60);
}

#[test]
fn what_cannot_be_evaluated_is_refused_with_the_reason() {
    let workplace = Workplace::ran("trial", EXPERIMENT);
    let mut messages = String::new();
    for (arguments, code) in
        [(&["--checkpoint", "15"][..], 1), (&["--checkpoint", "worst"], 2), (&["-s", "training.epochs=9"], 2)]
    {
        messages += &workplace.exits(code, &[&["eval", "trial"], arguments].concat()).err;
    }
    let weights = workplace.latest("trial").join("checkpoints/step_00000060/model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    messages += &workplace.exits(1, &["eval", "trial"]).err;
    insta::assert_snapshot!(redacted_names(&messages));
    assert!(!workplace.latest("trial").join("evaluations").exists());
    workplace.exits(0, &["eval", "trial", "--checkpoint", "45", "-q"]);
    assert!(text(&workplace.latest("trial").join("metrics.jsonl")).lines().count() > 60);
}
