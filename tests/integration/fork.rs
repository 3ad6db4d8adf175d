//! Forks: new runs from a checkpoint of another run.

use crate::workplace::{Workplace, json, lines_with, redacted, text};

/// A run of 40 steps with checkpoints after steps 20 and 40.
fn trained() -> Workplace {
    let workplace = Workplace::new();
    let file = "[pipeline.dummy]\nsteps_per_epoch = 20\n[training]\nepochs = 2\n[checkpoint]\nevery_steps = 20\nkeep_last = 2\n";
    workplace.finished("first", file);
    workplace
}

/// Lines of the metrics after a step.
fn after(metrics: &str, step: u64) -> Vec<&str> {
    let later = |line: &&str| serde_json::from_str::<serde_json::Value>(line).unwrap()["step"].as_u64() > Some(step);
    metrics.lines().filter(later).collect()
}

#[test]
fn a_fork_without_changes_repeats_the_numbers_and_names_its_parent() {
    let workplace = trained();
    let parent = workplace.latest("first");
    workplace.exits(0, &["fork", "first", "--checkpoint", "20", "--name", "second"]);
    let fork = workplace.latest("second");
    let (whole, own) = (text(&parent.join("metrics.jsonl")), text(&fork.join("metrics.jsonl")));
    let start = whole.lines().find(|line| line.contains("\"validation\",\"step\":20,")).unwrap();
    assert_eq!(
        own.lines().collect::<Vec<_>>(),
        [&[start][..], &after(&whole, 20)].concat(),
        "its start, and its own steps"
    );
    let value = json(&fork.join("summary.json"))["training"]["metric"]["untrained"].as_f64();
    assert!(value.is_some_and(|value| start.contains(&value.to_string())), "told where it began: {value:?}");
    let manifest = json(&fork.join("manifest.json"));
    let id = json(&parent.join("manifest.json"))["run"].as_str().unwrap().to_owned();
    assert_eq!(manifest["parent"]["run"], format!("first/{id}"));
    assert_eq!(
        (&manifest["parent"]["step"], &manifest["parent"]["changed"][0]),
        (&20.into(), &"experiment.name".into())
    );
    assert_ne!(manifest["fingerprint"], json(&parent.join("manifest.json"))["fingerprint"]);
    assert_eq!(json(&fork.join("summary.json"))["steps"], 40);
    // A newer run of its experiment would otherwise let `gc` remove the parent.
    workplace.exits(0, &["first.toml", "-q"]);
    let output = workplace.xrun(&["rm", "--keep", "1", "--keep-best", "none", "--yes"]);
    assert!(output.code == 0 && parent.exists(), "{output:?}");
    for arguments in [&["show", "second", "-v"][..], &["ls"]] {
        let output = workplace.xrun(arguments);
        assert!(output.out.contains(&format!("first/{id} after step 20")), "{output:?}");
    }
    assert_eq!(workplace.xrun(&["show", "second", "--json"]).json()["parent"], manifest["parent"]);
}

#[test]
fn a_fork_changes_settings_and_is_resumed_after_a_failure() {
    let workplace = trained();
    let changes = ["-s", "training.epochs=3", "-s", "pipeline.dummy.fail_at_step=50"];
    workplace.exits(1, &[&["fork", "first", "--name", "longer"], &changes[..]].concat());
    let fork = workplace.latest("longer");
    // Only the copy of its parent's checkpoint is there.
    std::fs::remove_dir_all(workplace.path("results/first")).unwrap();
    let resolved = fork.join("resolved.toml");
    let changed = text(&resolved).replace("fail_at_step = 50\n", "");
    std::fs::write(&resolved, crate::workplace::unsealed(&changed)).unwrap();
    workplace.exits(0, &["resume", "longer", "-q"]);
    assert_eq!(
        after(&text(&fork.join("metrics.jsonl")), 40).iter().filter(|line| line.contains("\"train\"")).count(),
        20
    );
    workplace.exits(0, &["eval", "longer"]);
    insta::assert_snapshot!("a_fork_is_not_reproduced", redacted(&workplace.exits(2, &["reproduce", "longer"]).err));
}

#[test]
fn what_cannot_be_forked_or_resumed_is_refused_with_the_command_that_works() {
    let workplace = trained();
    for (name, arguments) in [
        ("nothing_is_left_to_train", vec!["fork", "first"]),
        ("no_such_checkpoint", vec!["fork", "first", "--checkpoint", "30"]),
        ("resume_with_more_epochs", vec!["resume", "first", "-s", "training.epochs=3"]),
        ("resume_with_another_seed", vec!["resume", "first", "-s", "experiment.seed=7"]),
    ] {
        let output = workplace.xrun(&arguments);
        assert_ne!(output.code, 0, "{output:?}");
        insta::assert_snapshot!(name, redacted(&output.err));
    }
    workplace.finished("command", "[pipeline.command]\nprogram = [\"true\"]\n");
    let output = workplace.exits(2, &["fork", "command"]);
    insta::assert_snapshot!("a_command_is_not_forked", lines_with(&redacted(&output.err), "checkpoints"));
}
