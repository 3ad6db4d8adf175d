//! Verdicts on training, and durations of a plan.

use crate::workplace::{Workplace, json, unsealed};

const EXPERIMENT: &str = "[pipeline.dummy]\nsteps_per_epoch = 50\n[training]\nepochs = 4\n[memory]\nprobe = false\n";

fn workplace() -> Workplace {
    Workplace::with("trial.toml", EXPERIMENT)
}

#[test]
fn a_run_that_learns_nothing_is_told_and_fails_if_asked() {
    let workplace = workplace();
    let still = ["trial.toml", "-s", "optimizer.adamw.learning_rate=0"];
    let output = workplace.exits(0, &still);
    let summary = json(&workplace.latest("trial").join("summary.json"));
    assert_eq!(summary["training"]["verdict"], "no_progress", "{summary}");
    assert!(output.err.contains(summary["training"]["message"].as_str().unwrap()), "{output:?}");
    workplace.exits(6, &[&still[..], &["--fail-on", "no_progress"]].concat());
    let run = workplace.latest("trial");
    assert_eq!(json(&run.join("summary.json"))["outcome"], "did_not_learn");
    workplace.exits(2, &["resume", "latest"]); // all its steps are done
    workplace.exits(0, &["trial.toml", "--fail-on", "overfitting", "-q"]); // it learns
    for (word, code) in [("no_progress", 6), ("diverged", 0), ("growing", 0)] {
        workplace.exits(code, &["verdict", run.to_str().unwrap(), "--fail-on", word]);
    }
}

#[test]
fn training_is_judged_in_every_listing_and_in_older_results() {
    let workplace = workplace();
    let worse = ["trial.toml", "-q", "-s", "pipeline.dummy.worse_after_step=80"];
    workplace.exits(0, &worse);
    let run = workplace.latest("trial");
    let shown = || workplace.xrun(&["show", "latest", "--json"]).json()["training"]["verdict"].clone();
    let listed = || workplace.xrun(&["ls", "--json"]).json()[0]["training"].clone();
    assert_eq!((shown(), listed()), ("diverged".into(), "diverged".into()));
    let log = std::fs::read_to_string(run.join("log.txt")).unwrap();
    assert_eq!(log.matches("diverged: ").count(), 1, "while it runs, once: {log}");
    assert!(std::fs::read_to_string(run.join("report.html")).unwrap().contains(">diverged</span>"));
    // As an older version wrote it.
    let path = run.join("summary.json");
    let mut summary: serde_json::Value = serde_json::from_str(&unsealed(&crate::workplace::text(&path))).unwrap();
    summary.as_object_mut().unwrap().remove("training").unwrap();
    std::fs::write(&path, summary.to_string()).unwrap();
    assert_eq!((shown(), listed()), ("diverged".into(), "diverged".into()));
    for (word, count) in [("diverged", 1), ("improved", 0)] {
        assert_eq!(workplace.xrun(&["ls", "--training", word, "--json"]).json().as_array().unwrap().len(), count);
    }
}

#[test]
fn a_resumed_run_is_judged_as_a_whole() {
    let workplace = workplace();
    workplace.exits(0, &["trial.toml", "-q", "--until", "150"]);
    workplace.exits(0, &["resume", "latest", "-q"]);
    let training = json(&workplace.latest("trial").join("summary.json"))["training"].clone();
    assert_eq!(
        (&training["loss"]["steps"], &training["metric"]["validations"]),
        (&200.into(), &4.into()),
        "{training}"
    );
    assert_eq!(training["verdict"], "still_improving");
}

#[cfg(target_os = "linux")]
#[test]
fn the_loss_of_a_watched_command_is_judged() {
    let workplace = Workplace::new();
    let print = |formula: &str| format!("for n in $(seq 200); do awk -v n=$n 'BEGIN {{ {formula} }}'; done");
    let falls = print(r#"printf "step %d loss %f\n", n, 0.2 + 3 / n"#);
    let breaks = print(r#"if (n < 50) printf "step %d loss %f\n", n, 1 / n; else printf "step %d loss nan\n", n"#);
    for (name, script, verdict, code) in [("falls", falls, "improved", 0), ("breaks", breaks, "diverged", 106)] {
        let options = ["watch", "--name", name, "--every", "20ms", "--fail-on", "diverged", "--", "sh", "-c", &script];
        workplace.exits(code, &options);
        let summary = json(&workplace.latest(name).join("summary.json"));
        assert_eq!(summary["training"]["verdict"], verdict, "{summary}");
    }
}

#[test]
fn a_plan_and_a_run_forecast_the_time() {
    let workplace = Workplace::new();
    let slow = "[pipeline.dummy]\nsteps_per_epoch = 50\nstep_microseconds = 2000\n[validation]\nevery_steps = 10\n";
    workplace.file("trial.toml", slow);
    let plan = workplace.xrun(&["plan", "trial.toml", "--json"]).json();
    let seconds = |name: &str| plan["duration"][name].as_f64().unwrap();
    assert!(seconds("steps") >= 0.1 && seconds("low") <= seconds("seconds"), "{plan}");
    assert!(seconds("seconds") <= seconds("high"), "{plan}");
    let output = workplace.xrun(&["trial.toml", "--progress", "json"]);
    let events: Vec<serde_json::Value> = output.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let left = |event: &&serde_json::Value| event["event"] == "step" && event["seconds_left"].is_number();
    assert_eq!(events.iter().filter(left).count(), 50, "the probe knows before the first step");
    let durations = &json(&workplace.latest("trial").join("summary.json"))["durations"];
    assert_eq!((&durations["steps"][0]["count"], &durations["validation"]["count"]), (&49.into(), &5.into()));
}
