//! Outcomes of runs, with their messages and files.

use crate::workplace::{Workplace, is_bounded, json, lines_with, redacted, redacted_names, text};

fn run_dummy(extra: &[&str]) -> (Workplace, crate::workplace::Output) {
    let workplace =
        Workplace::with("trial.toml", "[pipeline.dummy]\nsteps_per_epoch = 20\n[checkpoint]\nevery_steps = 5\n");
    let mut arguments = vec!["trial.toml"];
    arguments.extend(extra);
    let output = workplace.xrun(&arguments);
    (workplace, output)
}

#[test]
fn a_finished_run_leaves_everything_that_the_manual_names() {
    let (workplace, output) = run_dummy(&[]);
    assert_eq!(output.code, 0, "{output:?}");
    let run = workplace.latest("trial");
    let files = "resolved.toml manifest.json plan.json metrics.jsonl memory.jsonl log.txt checkpoints";
    files.split(' ').for_each(|name| assert!(run.join(name).exists(), "{name} is missing"));
    assert_eq!(text(&run.join("experiment.toml")), text(&workplace.path("trial.toml")), "byte for byte");
    let (report, summary) = (text(&run.join("report.html")), json(&run.join("summary.json")));
    assert_eq!((summary["outcome"].as_str(), summary["steps"].as_u64()), (Some("finished"), Some(20)));
    assert!(report.contains(summary["message"].as_str().unwrap()), "{summary}");
    assert!(report.contains(">finished<") && !report.contains(">running<"), "the run is over when it is written");
    is_bounded(&run);
}

#[test]
fn the_resolved_file_is_an_experiment_that_gives_the_same_numbers() {
    let (workplace, _) = run_dummy(&["-s", "experiment.seed=3"]);
    let first = workplace.latest("trial");
    workplace.exits(0, &[first.join("resolved.toml").to_str().unwrap(), "--results", "again"]);
    let second = std::fs::canonicalize(workplace.path("again/trial/latest")).unwrap();
    assert_eq!(text(&first.join("metrics.jsonl")), text(&second.join("metrics.jsonl")));
    assert_eq!(text(&first.join("resolved.toml")), text(&second.join("resolved.toml")));
}

#[test]
fn a_loss_that_is_not_a_number_names_step_batch_and_the_last_good_checkpoint() {
    let (workplace, output) = run_dummy(&["-s", "pipeline.dummy.nan_at_step=13"]);
    assert_eq!(output.code, 4, "{output:?}");
    let run = workplace.latest("trial");
    let summary = json(&run.join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["steps"]), (&"diverged".into(), &12.into()));
    let message = summary["message"].as_str().unwrap();
    assert!(output.err.contains(message), "{output:?}");
    insta::assert_snapshot!(redacted(message));
    assert_eq!(text(&run.join("metrics.jsonl")).lines().count(), 13, "the untrained model and twelve steps");
}

#[test]
fn a_panic_of_the_backend_is_told_and_the_directory_reads() {
    let (workplace, output) = run_dummy(&["-s", "pipeline.dummy.panic_at_step=7"]);
    assert_eq!(output.code, 70, "{output:?}");
    assert!(!output.err.contains("RUST_BACKTRACE"), "{output:?}");
    let run = workplace.latest("trial");
    let summary = json(&run.join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["steps"]), (&"panicked".into(), &6.into()));
    let message = summary["message"].as_str().unwrap();
    assert!(output.err.contains(message), "{output:?}");
    insta::assert_snapshot!(redacted_names(message));
    workplace.exits(70, &["resume", "latest"]);
}

#[test]
fn a_device_without_memory_is_a_memory_limit_with_a_post_mortem() {
    let (workplace, output) =
        run_dummy(&["-s", "pipeline.dummy.device_full_at_step=7", "-s", "checkpoint.every_steps=5"]);
    assert_eq!(output.code, 5, "{output:?}");
    assert!(
        output.err.contains("3.0 GiB") && output.err.contains("training.activation_checkpointing=true"),
        "{output:?}"
    );
    assert!(!output.err.contains("CallError"), "{output:?}");
    let run = workplace.latest("trial");
    let summary = json(&run.join("summary.json"));
    assert_eq!(summary["outcome"], "memory_limit");
    let message = summary["message"].as_str().unwrap();
    assert!(output.err.contains(message), "{output:?}");
    insta::assert_snapshot!(message.split("; ").next().unwrap());
    let dead = json(&run.join("post_mortem.json"));
    assert_eq!((&dead["place"], &dead["limit_key"]), (&"device".into(), &serde_json::Value::Null));
    assert_eq!((&dead["held"], &dead["step"]), (&(3u64 << 30).into(), &6.into()));
    assert_eq!(dead["suggestions"][0]["key"], "training.activation_checkpointing");
    let log = text(&run.join("log.txt"));
    let errors = ["CallError", "out of device memory allocating"];
    assert!(errors.iter().all(|error| log.contains(error)), "the errors of the backend are in the log: {log}");
    let resumed = workplace.exits(5, &["resume", "latest"]);
    assert_eq!(json(&run.join("post_mortem.json"))["step"], 6, "{resumed:?}");
}

#[test]
fn a_failing_step_says_why() {
    let (workplace, output) = run_dummy(&["-s", "pipeline.dummy.fail_at_step=3"]);
    assert_eq!(output.code, 1, "{output:?}");
    let summary = json(&workplace.latest("trial").join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["steps"]), (&"failed".into(), &2.into()));
    let message = summary["message"].as_str().unwrap();
    assert!(output.err.contains(message), "{output:?}");
    insta::assert_snapshot!(message);
}

#[test]
fn two_runs_at_once_keep_out_of_each_others_way() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\nstep_microseconds = 2000\n");
    let children: Vec<_> = (0..4).map(|_| workplace.spawn(&["trial.toml"])).collect();
    for child in children {
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    }
    let runs = std::fs::read_dir(workplace.path("results/trial")).unwrap().flatten();
    let whole = runs.filter(|entry| entry.file_name() != "latest" && entry.path().join("summary.json").exists());
    assert_eq!(whole.count(), 4);
}

#[test]
fn a_dry_run_says_what_would_happen_and_writes_nothing() {
    let (workplace, output) = run_dummy(&["--dry-run"]);
    assert_eq!(output.code, 0, "{output:?}");
    let (_, as_json) = run_dummy(&["--dry-run", "--json"]);
    let plan = as_json.json();
    assert_eq!((&plan["steps"], &plan["steps_per_epoch"], &plan["epochs"]), (&20.into(), &20.into(), &1.into()));
    insta::assert_snapshot!(lines_with(&output.out, "20 steps"));
    let device = output.out.lines().find(|line| line.starts_with("device ")).unwrap();
    assert!(device.contains(" cpu (") && output.out.contains("\nfits: "), "{}", output.out);
    for owner in plan["owners"].as_array().unwrap() {
        assert!(output.out.contains(owner["name"].as_str().unwrap()), "{owner}: {}", output.out);
    }
    assert!(!workplace.path("results").exists());
}

#[test]
fn the_outcome_is_there_for_machines() {
    let (_, output) = run_dummy(&["--json", "-q"]);
    assert_eq!(output.err, "", "quiet");
    let value = output.json();
    assert_eq!(value["outcome"], "finished");
    let (_, output) = run_dummy(&["--progress", "json"]);
    let events: Vec<String> = output
        .err
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .map(|event| event["event"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(events.iter().filter(|event| *event == "step").count(), 20);
    assert_eq!(events.last().map(String::as_str), Some("ended"));
}

#[test]
fn growth_that_no_buffer_holds_is_told_at_the_head_of_the_page_and_beside_the_forecast() {
    let workplace = Workplace::new();
    let leak = "[pipeline.dummy]\nsteps_per_epoch = 100\nleak_per_step = \"64 KiB\"\n[training]\nepochs = 4\n";
    workplace.file("leak.toml", leak);
    workplace.file("tight.toml", &leak.replace("64 KiB", "0 B"));
    for (name, leaks) in [("leak", true), ("tight", false)] {
        let output = workplace.xrun(&[&format!("{name}.toml")]);
        assert!(output.code == 0 && output.err.contains(" on cpu") && output.err.contains("400 steps"), "{output:?}");
        let output = workplace.xrun(&["show", name, "-v"]);
        let caveat = output.out.lines().map(str::trim).find(|line| line.starts_with("the forecast "));
        assert_eq!(caveat.is_some(), leaks, "{output:?}");
        let page = text(&workplace.latest(name).join("report.html"));
        let (head, _) = page.split_once("<details>").unwrap();
        assert_eq!(head.contains(">memory grows<") && head.contains("KiB a step"), leaks, "{name}");
        assert!(head.contains(", RSS "), "{name}: the peak of memory");
        if let Some(caveat) = caveat {
            assert!(page.contains(caveat), "{name}");
            insta::assert_snapshot!(caveat);
        }
    }
}

#[test]
fn results_that_cannot_be_written_are_named() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\n");
    workplace.file("taken", "a file where the directory should be");
    insta::assert_snapshot!(lines_with(&workplace.exits(1, &["trial.toml", "--results", "taken"]).err, "error: "));
}
