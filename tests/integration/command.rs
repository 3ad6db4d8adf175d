//! Commands as experiments (`[pipeline.command]`).

use std::path::Path;

use serde_json::Value;

use crate::watch::has_python;
use crate::workplace::{Output, Workplace, is_bounded, json, metrics, redacted, text, wait_until};

fn script() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/watch/train.py").to_str().unwrap().to_owned()
}

/// A trainer of so many steps; `more` are words behind those of every trial.
fn trial(workplace: &Workplace, steps: u64, more: &str, rest: &str) -> String {
    let script = script();
    let words = format!(
        "\"python3\", {script:?}, \"--steps\", \"{{training.max_steps}}\", \"--seed\", \"{{experiment.seed}}\", \
         \"--checkpoint\", \"{{checkpoint}}\", \"--save-every\", \"{{checkpoint.every_steps}}\", \"--learning-rate\", \
         \"{{values.learning_rate}}\", \"--pause\", \"0.005\""
    );
    let text = format!(
        "[pipeline.command]\nprogram = [{words}{more}]\nresume = [{words}, \"--resume\"]\n\
         checkpoint = \"{{run}}/checkpoint.json\"\nevery = \"50 ms\"\n\
         steps = 'step (?<step>\\d+) loss (?<loss>\\S+) distance (?<distance>\\S+)'\n\
         [pipeline.command.values]\nlearning_rate = 0.1\n[pipeline.command.metrics]\ndistance = \"lower\"\n\
         [checkpoint]\nevery_steps = 10\n[training]\nmax_steps = {steps}\n{rest}"
    );
    workplace.file("trial.toml", &text).to_str().unwrap().to_owned()
}

/// The steps whose losses were written down.
fn trained(run: &Path) -> Vec<u64> {
    let steps = metrics(run).into_iter().filter(|line| line["kind"] == "train");
    steps.map(|line| line["step"].as_u64().unwrap()).collect()
}

#[test]
fn a_command_leaves_the_result_of_an_experiment() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/command.toml");
    let output =
        workplace.exits(0, &[file.to_str().unwrap(), "-s", "training.max_steps=30", "-s", "checkpoint.every_steps=7"]);
    assert_eq!(output.out.lines().count(), 30, "its output is as it was: {output:?}");
    let run = workplace.latest("command");
    assert_eq!(trained(&run), (1..=30).collect::<Vec<u64>>());
    let (summary, plan, manifest) =
        (json(&run.join("summary.json")), json(&run.join("plan.json")), json(&run.join("manifest.json")));
    assert_eq!((&summary["outcome"], &summary["steps"]), (&"finished".into(), &30.into()), "{summary}");
    assert_eq!(summary["best"]["metric"], "distance");
    assert_eq!((&plan["steps"], &plan["best_by"]), (&30.into(), &"distance".into()), "{plan}");
    let words = manifest["watched"]["command"].as_array().unwrap();
    assert!(words.contains(&"7".into()), "the interval reached it: {words:?}");
    assert!(manifest["data"]["examples/watch/train.py"].is_string(), "{manifest}");
    let saved: Value = serde_json::from_str(&text(&run.join("checkpoint.json"))).unwrap();
    assert_eq!(saved["step"], 30);
    is_bounded(&run);
    let shown = workplace.xrun(&["show", "command", "--json"]).json();
    assert_eq!((&shown["steps"], &shown["steps_planned"]), (&30.into(), &30.into()), "{shown}");
    let again = workplace.xrun(&[
        file.to_str().unwrap(),
        "-s",
        "training.max_steps=30",
        "-s",
        "checkpoint.every_steps=7",
        "--if-changed",
    ]);
    assert!(again.code == 0 && workplace.latest("command") == run, "{again:?}");
}

#[test]
fn words_environment_and_directory_arrive_as_they_were_written() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['NAME'], os.getcwd()]))";
    std::fs::create_dir(workplace.path("inner")).unwrap();
    let words = "\"a b; $HOME *\", \"{{\\\"x\\\": {values.text}}}\", \"{limits.host_memory}\", \"{run}\"";
    let file = workplace.file(
        "words.toml",
        &format!(
            "[pipeline.command]\nworking_directory = \"inner\"\nprogram = [\"python3\", \"-c\", {:?}, {words}]\n\
             [pipeline.command.values]\ntext = \"é \"\n[pipeline.command.environment]\nNAME = \"seed {{experiment.seed}}\"\n\
             [limits]\nhost_memory = \"1 GiB\"\n",
            code.replace('{', "{{").replace('}', "}}")
        ),
    );
    let output = workplace.exits(0, &[file.to_str().unwrap(), "-s", "experiment.seed=4"]);
    let [words, name, directory]: [Value; 3] = serde_json::from_str(&output.out).unwrap();
    let run = workplace.latest("words");
    assert_eq!(words, serde_json::json!(["a b; $HOME *", "{\"x\": é }", "1073741824", words[3]]));
    assert_eq!(std::fs::canonicalize(words[3].as_str().unwrap()).unwrap(), run);
    assert_eq!(name, "seed 4");
    assert_eq!(Path::new(directory.as_str().unwrap()), std::fs::canonicalize(workplace.path("inner")).unwrap());
}

#[test]
fn a_command_that_crashed_goes_on_from_its_checkpoint() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let file = trial(&workplace, 40, ", \"--fail-at\", \"25\"", "");
    let crashed = workplace.exits(1, &[&file]);
    assert!(crashed.err.contains("xrun resume"), "{crashed:?}");
    let run = workplace.latest("trial");
    let summary = json(&run.join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["exit_code"]), (&"failed".into(), &1.into()), "{summary}");
    assert_eq!(trained(&run).last(), Some(&25));
    let resumed = workplace.exits(0, &["resume", "trial"]);
    assert!(resumed.out.starts_with("step 21 "), "{resumed:?}");
    assert_eq!(trained(&run), (1..=40).collect::<Vec<u64>>(), "each step stands there once");
    let (summary, manifest) = (json(&run.join("summary.json")), json(&run.join("manifest.json")));
    assert_eq!((&summary["outcome"], &summary["steps"]), (&"finished".into(), &40.into()), "{summary}");
    assert_eq!(manifest["resumed"].as_array().unwrap().len(), 1);
    assert!(text(&run.join("memory.jsonl")).contains("\"segment\":1"));
    insta::assert_snapshot!("resume_of_a_finished_command", redacted(&workplace.exits(2, &["resume", "trial"]).err));
}

#[test]
fn a_command_that_does_not_say_how_is_not_resumed() {
    let workplace = Workplace::new();
    let file = workplace.file("false.toml", "[pipeline.command]\nprogram = [\"false\"]\n");
    let output = workplace.xrun(&[file.to_str().unwrap()]);
    assert!(output.code == 1 && !output.err.contains("xrun resume"), "{output:?}");
    let resumed = workplace.exits(2, &["resume", "false"]);
    let nothing = workplace.file("nothing.toml", "[pipeline.command]\nprogram = [\"no-such-program\"]\n");
    let output = workplace.exits(2, &[nothing.to_str().unwrap()]);
    assert!(!workplace.path("results/nothing").exists(), "nothing was begun");
    insta::assert_snapshot!(redacted(&(resumed.err + &output.err)));
}

#[test]
fn an_interrupted_trial_that_cannot_be_resumed_begins_anew() {
    let workplace = Workplace::new();
    // The second trial waits until it is signalled, and finishes when it is started again.
    let program = "echo $0 >> started; [ $0 = 1 ] || [ -e again ] || (touch again; sleep 60)";
    let file = workplace.file(
        "wait.toml",
        &format!(
            "[pipeline.command]\nprogram = [\"sh\", \"-c\", {program:?}, \"{{values.n}}\"]\ngrace = \"1 s\"\n\
             [pipeline.command.values]\nn = 1\n"
        ),
    );
    let sweep = workplace.spawn(&["sweep", file.to_str().unwrap(), "-s", "pipeline.command.values.n=1,2"]);
    wait_until("the second trial waits", || workplace.path("again").exists());
    // SAFETY: a signal to a child that is not yet waited for.
    unsafe { libc::kill(sweep.id() as i32, libc::SIGINT) };
    assert_eq!(Output::from(sweep.wait_with_output().unwrap()).code, 8);
    let path = workplace.latest_sweep("wait");
    workplace.exits(0, &["sweep", "--resume", path.to_str().unwrap(), "-q"]);
    let rows = json(&path.join("table.json"))["rows"].clone();
    assert!(rows.as_array().unwrap().iter().all(|row| row["outcome"] == "finished"), "{rows}");
    assert_eq!(json(&path.join("interrupted/0002-1/summary.json"))["outcome"], "interrupted");
    assert!(!path.join("interrupted/0001-1").exists());
}

#[test]
fn its_own_knobs_are_swept_and_compared_and_a_result_is_reproduced() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let file = trial(&workplace, 20, "", "");
    let swept = workplace.exits(0, &["sweep", &file, "-s", "pipeline.command.values.learning_rate=0.01,0.2", "--json"]);
    let table = swept.json();
    assert_eq!(table["keys"], serde_json::json!(["pipeline.command.values.learning_rate"]));
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let distance = |row: &Value| row["runs"][0]["metrics"]["distance"].as_f64().unwrap();
    assert!(distance(&rows[1]) < distance(&rows[0]), "the larger rate gets further in 20 steps: {table}");
    assert!(rows.iter().all(|row| row["runs"][0]["rss_peak"].as_u64().unwrap() > 1 << 20), "{table}");

    for rate in ["0.1", "0.2"] {
        workplace.exits(0, &[&file, "-s", &format!("pipeline.command.values.learning_rate={rate}")]);
    }
    let compared = workplace.xrun(&["compare", "latest", "latest~1"]);
    assert!(compared.code == 0 && compared.out.contains("\n  learning_rate "), "{compared:?}");
    let reproduced = workplace.xrun(&["reproduce", "trial"]);
    let record = json(&workplace.reproduction("trial").join("reproduction.json"));
    let agreed = (reproduced.code, &record["agreement"], &record["lines_compared"]);
    assert_eq!(agreed, (0, &"identical".into(), &40.into()), "{reproduced:?}");
}

#[test]
fn at_a_limit_of_the_file_it_saves_first() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let file = trial(&workplace, 1_000_000, ", \"--leak\"", "[limits]\nhost_memory = \"128 MiB\"\n");
    let output = workplace.exits(5, &[&file]);
    let run = workplace.latest("trial");
    let post_mortem = json(&run.join("post_mortem.json"));
    let limit = (&post_mortem["limit_key"], &post_mortem["limit"]);
    assert_eq!(limit, (&"limits.host_memory".into(), &(128 << 20).into()), "{post_mortem}");
    // At 95 %, or before, where the trend says that there would be no time to save.
    let saved: Value = serde_json::from_str(&text(&run.join("checkpoint.json"))).unwrap();
    let last = *trained(&run).last().unwrap();
    assert!(saved["step"].as_u64().unwrap() + 10 > last, "saved after the signal: {saved}, {last} steps");
    assert!(output.err.contains("checkpoint.json") && output.err.contains("128.0 MiB"), "{output:?}");
}

#[test]
fn a_plan_is_made_of_a_short_probe_and_leaves_nothing() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let file = trial(&workplace, 1_000_000, "", "");
    let answer = workplace.exits(0, &["plan", &file, "--json"]).json();
    let forecast = &answer["plan"]["forecast"];
    assert!(forecast["rss_peak"].as_u64().unwrap() > 4 << 20, "python alone needs more: {answer}");
    assert_eq!(forecast["rows"][0]["name"], "processes");
    assert!(!workplace.path("results").exists(), "its results were elsewhere");
    let tight = workplace.xrun(&["plan", &file, "--json", "-s", "limits.host_memory=16MiB", "-s", "experiment.seed=9"]);
    assert!([0, 3].contains(&tight.code) && tight.json()["budgets"][0]["bytes"] == 16 << 20, "{tight:?}");
    let dry = workplace.xrun(&[&file, "--dry-run"]);
    assert!(
        dry.code == 0 && dry.out.contains("--learning-rate 0.1") && dry.out.contains("'{run}/checkpoint.json'"),
        "{dry:?}"
    );
    let short = workplace.xrun(&[&file, "--steps", "5"]);
    assert!(short.code == 0 && short.out.lines().count() == 5, "{short:?}");
}

#[test]
fn knobs_come_from_all_layers() {
    let workplace = Workplace::with(
        "base.toml",
        "[pipeline.command]\nprogram = [\"true\", \"{values.rate}\"]\n[pipeline.command.values]\nrate = 0.1\nkept = 1\n",
    );
    let file = workplace.file("top.toml", "extends = \"base.toml\"\n[pipeline.command.values]\nrate = 0.2\n");
    let resolved = |set: &[&str], variable: Option<&str>| -> Output {
        let mut command = workplace.command(&["check", "--resolved", file.to_str().unwrap()]);
        command.args(set);
        variable.iter().for_each(|value| {
            command.env("XRUN__PIPELINE__COMMAND__VALUES__RATE", value);
        });
        crate::workplace::Output::from(command.output().unwrap())
    };
    let has =
        |output: &Output, line: &str| assert!(output.out.lines().any(|other| other == line), "{line}: {output:?}");
    let output = resolved(&[], None);
    has(&output, "rate = 0.2");
    has(&output, "kept = 1");
    has(&resolved(&[], Some("0.3")), "rate = 0.3");
    has(&resolved(&["-s", "pipeline.command.values.rate=0.4"], Some("0.3")), "rate = 0.4");
    has(&resolved(&["-s", "pipeline.command.values.word=fast"], None), "word = \"fast\"");
}

/// A program that keeps memory if its first argument is `true`, more with a larger second one, for as many steps as the third says.
const KEEPS: &str = "import sys, time\nkept = []\nfor step in range(1, int(sys.argv[3]) + 1):\n    if sys.argv[1] in ('True', 'true'):\n\
                     \x20       kept.append(bytearray(b'x') * 200_000 * (1 + int(sys.argv[2])))\n    print(f'step {step} loss {1 / step}', flush=True)\n    time.sleep(0.01)\n";

fn keeps(workplace: &Workplace, steps: u64, key: &str) -> String {
    let script = workplace.file("keeps.py", KEEPS);
    let text = format!(
        "[pipeline.command]\nprogram = [\"python3\", {script:?}, \"{{values.cache}}\", \"{{values.workers}}\", \
         \"{{training.max_steps}}\"]\nevery = \"20 ms\"\n{key}\n[pipeline.command.values]\ncache = true\nworkers = 2\nrate = 0.5\n\
         [training]\nmax_steps = {steps}\n"
    );
    workplace.file("keeps.toml", &text).to_str().unwrap().to_owned()
}

#[test]
fn growth_of_a_command_is_explained_if_its_experiment_says_it() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let file = keeps(&workplace, 700, "explain = true");
    let output = workplace.exits(0, &[&file]);
    let found = json(&workplace.latest("keeps").join("explanation.json"));
    assert_eq!((&found["cause"], &found["holder"]), (&"container".into(), &"keeps.py: kept".into()), "{found}");
    assert!(output.err.contains(found["message"].as_str().unwrap()), "{output:?}");
    assert_eq!(workplace.xrun(&["show", "keeps", "--json"]).json()["explanation"], found);
    workplace.exits(0, &[&file, "-s", "pipeline.command.values.cache=false"]);
    assert!(!workplace.latest("keeps").join("explanation.json").exists());
}

#[test]
fn the_value_that_makes_a_command_grow_is_blamed() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    workplace.exits(0, &[&keeps(&workplace, 20, "")]);
    let blamed = workplace.exits(0, &["blame", "keeps", "--json"]).json();
    assert_eq!(blamed["culprits"].as_array().unwrap().len(), 1, "{blamed}");
    assert_eq!(blamed["culprits"][0][0], "pipeline.command.values.cache", "{blamed}");
    // The control, all three, one, two.
    assert!(blamed["twins"].as_array().unwrap().len() <= 4, "{blamed}");
    // Without the workers it grows more slowly, and goes on.
    let kept = workplace.xrun(&["blame", "keeps", "--json", "--keep", "pipeline.command.values.cache"]).json();
    assert_eq!((&kept["culprits"], kept["slower"].as_array().unwrap().len()), (&Value::Array(Vec::new()), 1), "{kept}");
    assert_eq!(kept["slower"][0][0], "pipeline.command.values.workers", "{kept}");
}
