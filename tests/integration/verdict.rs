//! Verdicts on growing and bounded memory.

use crate::workplace::{Workplace, json, redacted, series};

const EXPERIMENT: &str =
    "[pipeline.dummy]\nsteps_per_epoch = 100\n[training]\nepochs = 3\n[checkpoint]\nevery_steps = 50\n";

fn workplace() -> Workplace {
    Workplace::with("trial.toml", EXPERIMENT)
}

#[test]
fn a_leak_is_called_growing_with_its_speed_and_fails_the_run_if_asked() {
    let workplace = workplace();
    let leak = ["trial.toml", "-s", "pipeline.dummy.leak_per_step=256 KiB"];
    let output = workplace.exits(0, &leak);
    let verdict = json(&workplace.latest("trial").join("verdict.json"));
    assert_eq!(verdict["verdict"], "growing", "{verdict}");
    let slope = series(&verdict, "heap")["slope"].as_f64().unwrap();
    assert!((slope / (256.0 * 1024.0) - 1.0).abs() < 0.02, "{slope} bytes a step");
    assert!(output.err.contains(verdict["message"].as_str().unwrap()), "{output:?}");

    workplace.exits(6, &[&leak[..], &["--fail-on", "growing"]].concat());
    let run = workplace.latest("trial");
    assert_eq!(json(&run.join("summary.json"))["outcome"], "memory_grew");
    workplace.exits(2, &["resume", "latest"]); // all its steps are done
    let judged = workplace.exits(6, &["verdict", "latest", "--fail-on", "growing"]);
    let message = json(&run.join("verdict.json"))["message"].as_str().unwrap().to_owned();
    assert_eq!(judged.out.lines().next(), Some(format!("growing: {message}").as_str()), "{judged:?}");
}

#[test]
fn a_resume_hides_no_leak() {
    let workplace = workplace();
    let leak = "[pipeline.dummy]\nsteps_per_epoch = 100\nleak_per_step = \"512 KiB\"\nleak_in_ledger = true\n";
    let rest = "[training]\nepochs = 3\n[memory]\nfail_on = \"growing\"\nprobe = false\n";
    workplace.file("leak.toml", &format!("{leak}{rest}[limits]\nhost_memory = \"160 MiB\"\n"));
    workplace.exits(5, &["leak.toml", "-q"]);
    let run = workplace.latest("leak");
    let first = json(&run.join("summary.json"));
    assert_eq!(json(&run.join("verdict.json"))["verdict"], "growing", "before the resume");
    let output = workplace.exits(6, &["resume", "latest", "-s", "limits.host_memory=2 GiB"]);
    let (verdict, last) = (json(&run.join("verdict.json")), json(&run.join("summary.json")));
    assert_eq!((&verdict["verdict"], &verdict["owner"]), (&"growing".into(), &"dummy_leak".into()), "{verdict}");
    let message = verdict["message"].as_str().unwrap();
    assert!(output.err.contains(message), "{output:?}");
    assert!(message.contains("1 of 2") && message.contains(&format!("0 to {}", first["steps"])), "{message}");
    assert_eq!(verdict["process"]["segment"], 0);
    assert_eq!(verdict["process"]["last_step"], first["steps"]);
    // The second process had all its memory to itself, and less of it.
    for peak in ["heap_peak", "rss_peak"] {
        assert_eq!(last["memory"][peak], first["memory"][peak], "{peak}");
    }
    assert_eq!(workplace.exits(6, &["verdict", "latest", "--json", "--fail-on", "growing"]).json(), verdict);
}

#[test]
fn a_result_without_its_trace_is_judged_by_its_verdict() {
    let workplace = workplace();
    workplace.exits(0, &["trial.toml", "-q"]);
    let run = workplace.latest("trial");
    std::fs::remove_file(run.join("memory.jsonl")).unwrap();
    let output = workplace.exits(0, &["verdict", "latest"]);
    assert!(output.out.starts_with("bounded: "), "{output:?}");
    let mut messages = output.err;
    std::fs::remove_file(run.join("verdict.json")).unwrap();
    messages += &workplace.exits(1, &["verdict", "latest"]).err;
    insta::assert_snapshot!(redacted(&messages));
}

#[test]
fn a_run_without_a_leak_is_bounded_and_a_short_one_says_nothing() {
    let workplace = workplace();
    workplace.exits(0, &["trial.toml", "--fail-on", "suspect"]);
    let verdict = json(&workplace.latest("trial").join("verdict.json"));
    assert_eq!(verdict["verdict"], "bounded", "{verdict}");
    workplace.exits(0, &["trial.toml", "-s", "training.max_steps=30", "--fail-on", "suspect"]);
    let verdict = json(&workplace.latest("trial").join("verdict.json"));
    assert_eq!(verdict["verdict"], "inconclusive", "{verdict}");
}
