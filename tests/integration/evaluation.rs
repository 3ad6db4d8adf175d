//! `xrun evaluate`: validation of a checkpoint, and refusals.

use crate::workplace::{Workplace, json, redacted, redacted_names, text};

const EXPERIMENT: &str = "
[experiment]
seed = 5
[pipeline.dummy]
steps_per_epoch = 20
[training]
epochs = 3
[validation]
every_steps = 15
[checkpoint]
every_steps = 15
keep_last = 2
";

fn trained() -> Workplace {
    let workplace = Workplace::new();
    workplace.file("trial.toml", EXPERIMENT);
    assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
    workplace
}

#[test]
fn a_checkpoint_gives_the_metrics_that_the_run_measured() {
    let workplace = trained();
    let said = workplace.xrun(&["eval", "trial", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let best = said.json();
    assert_eq!((&best["step"], &best["same_data"]), (&60.into(), &true.into()), "{best}");
    assert_eq!(best["metrics"], best["in_training"], "{best}");
    let said = workplace.xrun(&["eval", "trial", "--checkpoint", "45"]);
    assert_eq!(said.code, 0, "{said:?}");
    insta::assert_snapshot!(redacted(&said.out));
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
        assert_eq!(workplace.xrun(command).code, 0, "{command:?}");
    }
    assert_eq!(json(&workplace.latest("trial").join("summary.json"))["steps"], 60);
}

#[test]
fn what_cannot_be_evaluated_is_refused_with_the_reason() {
    let workplace = trained();
    let mut messages = String::new();
    for (arguments, code) in
        [(&["--checkpoint", "15"][..], 1), (&["--checkpoint", "worst"], 2), (&["-s", "training.epochs=9"], 2)]
    {
        let said = workplace.xrun(&[&["eval", "trial"], arguments].concat());
        assert_eq!(said.code, code, "{said:?}");
        messages += &said.err;
    }
    let weights = workplace.latest("trial").join("checkpoints/step_00000060/model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let said = workplace.xrun(&["eval", "trial"]);
    assert_eq!(said.code, 1, "{said:?}");
    messages += &said.err;
    insta::assert_snapshot!(redacted_names(&messages));
    assert!(!workplace.latest("trial").join("evaluations").exists());
    let said = workplace.xrun(&["eval", "trial", "--checkpoint", "45", "-q"]);
    assert_eq!(said.code, 0, "the other one is whole: {said:?}");
    assert!(text(&workplace.latest("trial").join("metrics.jsonl")).lines().count() > 60);
}
