//! Hooks: programs called on events of a run, without a shell and never from untrusted results.

use std::path::Path;

use serde_json::Value;

use crate::workplace::{Workplace, json, lines_with, text};

/// Writes what it reads into the directory `notified`, named by the hook. Its arguments are not seen by a shell of xrun's.
const NOTE: &str = "#!/bin/sh\nmkdir -p notified\ncat > \"notified/$1.json\"\n";

const HOOKS: &str = include_str!("../experiments/tiny/hooks.toml");

fn workplace() -> Workplace {
    use std::os::unix::fs::PermissionsExt;
    let workplace = Workplace::new();
    let script = workplace.file("note.sh", NOTE);
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    workplace.file("notified.toml", HOOKS);
    workplace
}

/// Names of the hooks called since the last time, sorted.
fn notified(workplace: &Workplace) -> Vec<String> {
    let directory = workplace.path("notified");
    let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn forget(workplace: &Workplace) {
    let _ = std::fs::remove_dir_all(workplace.path("notified"));
}

#[test]
fn each_ending_tells_its_hooks_and_the_document_says_how_it_was() {
    let workplace = workplace();
    for (set, code, expected) in [
        ("experiment.seed=1", 0, vec!["on_end.json"]),
        ("pipeline.dummy.fail_at_step=7", 1, vec!["on_end.json", "on_failed.json"]),
        ("pipeline.dummy.nan_at_step=7", 4, vec!["on_end.json", "on_failed.json"]),
        ("pipeline.dummy.device_full_at_step=7", 5, vec!["on_end.json", "on_limit.json"]),
    ] {
        forget(&workplace);
        workplace.exits(code, &["notified.toml", "-s", set]);
        assert_eq!(notified(&workplace), expected, "{set}");
        let document = json(&workplace.path("notified/on_end.json"));
        let run = workplace.latest("notified");
        assert_eq!(document["directory"], run.display().to_string());
        assert_eq!(document["exit_code"], code);
        assert_eq!(document["outcome"], json(&run.join("summary.json"))["outcome"]);
        assert_eq!(document["post_mortem"].is_string(), code == 5, "{document}");
    }
}

#[test]
fn growth_is_told_while_the_run_goes_on() {
    let workplace = workplace();
    let set = ["pipeline.dummy.leak_per_step=1 MiB", "pipeline.dummy.leak_in_ledger=true", "training.epochs=15"];
    let set: Vec<&str> = set.iter().flat_map(|set| ["-s", set]).collect();
    let output = workplace.exits(0, &[&["notified.toml"], &set[..]].concat());
    assert_eq!(notified(&workplace), ["on_end.json", "on_growing.json"]);
    let document = json(&workplace.path("notified/on_growing.json"));
    assert_eq!(document["outcome"], Value::Null, "the run goes on: {document}");
    assert!(document["step"].as_u64().unwrap() < 300, "{document}");
    assert_eq!(document["verdict"]["owner"], "dummy_leak", "{document}");
    assert_eq!(json(&workplace.path("notified/on_end.json"))["verdict"]["verdict"], "growing");
    // A line that stays on the terminal, and one in the log, with the sentence of the hook.
    let line = format!("step {}: {}", document["step"], document["verdict"]["message"].as_str().unwrap());
    assert_eq!(output.err.lines().filter(|shown| *shown == line).count(), 1, "{output:?}");
    assert!(
        text(&workplace.latest("notified").join("log.txt")).lines().any(|logged| logged.ends_with(&line)),
        "{line}"
    );
    // As an event, also without a hook.
    let output = workplace.xrun(&[&["notified.toml", "--no-hooks", "--progress", "json"], &set[..]].concat());
    let events = output.err.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let growing: Vec<Value> = events.filter(|event| event["event"] == "growing").collect();
    assert!(growing.len() == 1 && growing[0]["owner"] == "dummy_leak", "{growing:?}");
}

#[test]
fn a_hook_that_fails_is_told_and_changes_nothing() {
    let (workplace, mut messages) = (workplace(), String::new());
    for (hook, part) in [
        ("[\"sh\", \"-c\", \"echo no mail today >&2; exit 3\"]", "no mail today"),
        ("[\"no-such-program\"]", "`no-such-program`"),
        ("[\"sleep\", \"600\"]", "`hooks.time_limit`"),
        // No shell is in between.
        ("[\"test\", \"$HOME\", \"=\", \"\"]", "`test`"),
    ] {
        let set = format!("hooks.on_end={hook}");
        let output = workplace.exits(0, &["notified.toml", "-q", "-s", &set, "-s", "hooks.time_limit=2s"]);
        messages += &(lines_with(&output.err, "`hooks.on_end`") + "\n");
        let run = workplace.latest("notified");
        assert_eq!(json(&run.join("summary.json"))["outcome"], "finished");
        assert!(text(&run.join("log.txt")).contains(part));
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn a_result_starts_no_program_unless_it_is_asked_for() {
    let workplace = workplace();
    workplace.exits(0, &["notified.toml", "--no-hooks"]);
    assert!(notified(&workplace).is_empty());
    let output = workplace.exits(0, &["reproduce", "notified"]);
    assert!(notified(&workplace).is_empty(), "{output:?}");
    insta::assert_snapshot!(lines_with(&output.err, "--hooks"));
    workplace.exits(0, &["reproduce", "notified", "--hooks"]);
    assert_eq!(notified(&workplace), ["on_end.json"]);

    forget(&workplace);
    workplace.exits(1, &["notified.toml", "--no-hooks", "-s", "pipeline.dummy.fail_at_step=9"]);
    workplace.exits(1, &["resume", "notified"]);
    assert!(notified(&workplace).is_empty(), "it fails there again, and tells nobody");
    workplace.exits(1, &["resume", "notified", "--hooks"]);
    assert_eq!(notified(&workplace), ["on_end.json", "on_failed.json"]);

    forget(&workplace);
    workplace.exits(0, &["sweep", "notified.toml", "-s", "experiment.seed=1,2"]);
    assert!(notified(&workplace).is_empty(), "a sweep would tell for each trial");
}

#[test]
fn hooks_change_neither_the_numbers_nor_the_fingerprint() {
    let workplace = workplace();
    workplace.exits(0, &["notified.toml"]);
    let fingerprint = |run: &Path| json(&run.join("manifest.json"))["fingerprint"].clone();
    let with = workplace.latest("notified");
    workplace.exits(0, &["notified.toml", "-s", "hooks.on_end=[]"]);
    let without = workplace.latest("notified");
    assert_ne!(with, without);
    assert_eq!(fingerprint(&with), fingerprint(&without));
    assert_eq!(text(&with.join("metrics.jsonl")), text(&without.join("metrics.jsonl")));
}

#[test]
fn where_no_temporary_file_can_be_made_the_hook_says_where() {
    let workplace = workplace();
    let output = workplace.command(&["notified.toml"]).env("TMPDIR", "/no/such/directory").output().unwrap();
    let output = crate::workplace::Output::from(output);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.err.contains("/no/such/directory") && output.err.contains("TMPDIR"), "{output:?}");
    assert!(notified(&workplace).is_empty());
}
