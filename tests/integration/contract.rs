//! Memory contracts beside an experiment.

use crate::workplace::{Output, Workplace, json, lines_with, text, unsealed};

const EXPERIMENT: &str = "[pipeline.dummy]\nsteps_per_epoch = 60\n";

fn locked() -> Workplace {
    let workplace = Workplace::with("trial.toml", EXPERIMENT);
    let output = workplace.xrun(&["plan", "trial.toml", "--lock"]);
    assert!(output.code == 0 && workplace.path("trial.memory.lock").is_file(), "{output:?}");
    workplace
}

fn check(workplace: &Workplace, set: &[&str]) -> Output {
    let set: Vec<&str> = set.iter().flat_map(|set| ["-s", set]).collect();
    workplace.xrun(&[&["check", "trial.toml", "--locked"], &set[..]].concat())
}

#[test]
fn an_unchanged_experiment_keeps_its_contract_again_and_again() {
    let workplace = locked();
    let contract = text(&workplace.path("trial.memory.lock"));
    assert!(contract.contains("[device.cpu.owners.metrics_lines]") && contract.contains("slope = "), "{contract}");
    // Each with a cache of its own measures anew.
    for number in 0..5 {
        let cache = workplace.path(&format!("cache{number}"));
        let mut command = workplace.command(&["check", "trial.toml", "--locked"]);
        let output = crate::workplace::Output::from(command.env("XRUN_CACHE", cache).output().unwrap());
        assert_eq!(output.code, 0, "{output:?}");
    }
    workplace.exits(0, &["run", "trial.toml", "--locked"]);
    workplace.exits(0, &["plan", "trial.toml", "--lock"]);
    let again = text(&workplace.path("trial.memory.lock"));
    let of = |text: &str, key: &str| text.lines().find(|line| line.starts_with(key)).map(str::to_owned);
    assert_eq!(of(&again, "fingerprint"), of(&contract, "fingerprint"));
}

#[test]
fn a_doubled_limit_and_a_leak_are_told_with_owner_key_and_how_much() {
    let workplace = locked();
    for (set, names) in [
        (vec!["limits.metrics_queue=32"], vec!["`metrics_lines`", "`limits.metrics_queue`", "+100 %"]),
        (vec!["limits.gradient_norm_window=200"], vec!["`gradient_norms`", "`limits.gradient_norm_window`"]),
        (vec!["pipeline.dummy.leak_per_step=1 MiB", "pipeline.dummy.leak_in_ledger=true"], vec!["`dummy_leak`"]),
    ] {
        let output = check(&workplace, &set);
        assert_eq!(output.code, 6, "{output:?}");
        names.iter().for_each(|name| assert!(output.err.contains(name), "{name}: {output:?}"));
        assert!(output.err.contains("xrun plan trial.toml --lock"), "{output:?}");
        let set: Vec<&str> = set.iter().flat_map(|set| ["-s", set]).collect();
        workplace.exits(6, &[&["run", "trial.toml", "--locked"], &set[..]].concat());
        assert!(!workplace.path("results").exists(), "nothing was run");
    }
    insta::assert_snapshot!(check(&workplace, &["limits.metrics_queue=32"]).err);
    let leak = check(&workplace, &["pipeline.dummy.leak_per_step=1 MiB", "pipeline.dummy.leak_in_ledger=true"]);
    insta::assert_snapshot!("a_buffer_beyond_the_contract", lines_with(&leak.err, "`dummy_leak`"));
    let answer = workplace.xrun(&["check", "trial.toml", "--locked", "--json", "-s", "limits.log_queue=32"]).json();
    assert_eq!(answer[0]["beyond_contract"][0]["key"], "limits.log_queue", "{answer}");
}

#[test]
fn growth_that_no_plan_can_know_breaks_the_contract_when_the_run_has_shown_it() {
    let workplace = Workplace::new();
    let leak = "[pipeline.dummy]\nsteps_per_epoch = 300\nleak_per_step = \"256 KiB\"\n";
    workplace.file("trial.toml", leak);
    workplace.exits(0, &["plan", "trial.toml", "--lock"]);
    assert_eq!(check(&workplace, &[]).code, 0, "two steps of a probe do not show it");
    let output = workplace.exits(6, &["run", "trial.toml", "--locked"]);
    assert_eq!(json(&workplace.latest("trial").join("verdict.json"))["verdict"], "growing", "{output:?}");
    let growth = output.err.lines().rfind(|line| line.starts_with("error: ")).unwrap();
    insta::assert_snapshot!(growth.split(" by ").next().unwrap());
}

#[test]
fn a_contract_that_is_missing_damaged_or_of_another_device_is_told() {
    let workplace = Workplace::with("trial.toml", EXPERIMENT);
    let output = check(&workplace, &[]);
    assert!(output.code == 2 && output.err.contains("xrun plan trial.toml --lock"), "{output:?}");
    let output = workplace.exits(2, &["plan", "trial.toml", "--lock", "-s", "limits.log_queue=9"]);
    let mut messages = lines_with(&output.err, "error: ") + "\n";
    let lock = workplace.path("trial.memory.lock");
    workplace.exits(0, &["plan", "trial.toml", "--lock"]);
    let contract = text(&lock);
    let other = unsealed(&contract).replace("device.cpu", "device.cuda");
    let digest = xrun::dataset::digest::digest(other.as_bytes());
    let (_, line) = contract.trim_end().rsplit_once('\n').unwrap();
    std::fs::write(&lock, format!("{other}{}: {digest}\n", line.rsplit_once(": ").unwrap().0)).unwrap();
    let output = check(&workplace, &[]);
    assert_eq!(output.code, 2, "{output:?}");
    messages += &output.err;
    insta::assert_snapshot!(messages);
    // Edited by hand, and without its checksum: a misspelt part would be held against nothing.
    for edited in [contract.replace("heap_peak = ", "heap_peak = 9"), unsealed(&contract)] {
        std::fs::write(&lock, edited).unwrap();
        let output = check(&workplace, &[]);
        assert!(output.code == 2 && output.err.contains("trial.memory.lock"), "{output:?}");
        assert!(output.err.contains("`xrun plan trial.toml --lock`"), "{output:?}");
        workplace.exits(2, &["run", "trial.toml", "--locked"]);
    }
    workplace.exits(0, &["plan", "trial.toml", "--lock"]); // the cure
    assert_eq!(check(&workplace, &[]).code, 0);
}
