//! Memory plans, and runs that exceed them.

use std::path::Path;
use std::process::Command;

use crate::workplace::{Output, Workplace, end, json, lines_with, redacted, redacted_names, skipped};

const LEAKY: &str = "[pipeline.dummy]\nsteps_per_epoch = 60\nleak_per_step = \"1 MiB\"\nleak_in_ledger = true\n";

/// The plan of `trial.toml` as JSON.
fn planned(workplace: &Workplace, more: &[&str]) -> serde_json::Value {
    let output = workplace.xrun(&[&["plan", "trial.toml", "--json"], more].concat());
    output.json()
}

#[test]
fn a_plan_says_what_is_needed_and_that_it_fits() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\n");
    let output = workplace.exits(0, &["plan", "trial.toml"]);
    for name in ["gradient_norms", "weights", "\nfits: "] {
        assert!(output.out.contains(name), "{name}: {}", output.out);
    }
    let plan = planned(&workplace, &[]);
    assert_eq!((&plan["fits"], &plan["budgets"][0]["place"]), (&true.into(), &"host".into()));
    assert!(plan["plan"]["forecast"]["rss_peak"].as_u64() > Some(1 << 20), "{plan}");
    assert!(!workplace.path("results").exists(), "a plan leaves no results");
}

#[test]
fn tables_can_be_read_in_60_columns() {
    let workplace = Workplace::ran("trial", "[pipeline.dummy]\n[validation]\nevery_steps = 5\n");
    let sweep = ["sweep", "trial.toml", "-s", "pipeline.dummy.checkpoint_size=1 KiB,2 KiB"];
    for (arguments, words) in [
        (vec!["plan", "trial.toml"], vec!["gradient_norms", "because", "description"]),
        (vec!["trial.toml", "--dry-run"], vec!["gradient_norms", "because"]),
        (sweep.to_vec(), vec!["checkpoint_size", "steps/s with cleanup", "heap peak", "outcome"]),
        ([&sweep[..], &["--dry-run"]].concat(), vec!["checkpoint_size", "buffers at most", "2 trials"]),
        (vec!["ls"], vec!["verdict", "inconclusive", "score 0."]),
        (vec!["check", "--devices"], vec!["auto is    cpu"]),
    ] {
        let output = workplace.xrun_within(60, &arguments);
        assert_eq!(output.code, 0, "{output:?}");
        let wide: Vec<&str> = output.out.lines().filter(|line| line.chars().count() > 60).collect();
        // A word that is longer stays whole, as a path.
        assert!(wide.iter().all(|line| line.split_whitespace().count() == 1), "{arguments:?}: {wide:#?}");
        words.iter().for_each(|words| assert!(output.out.contains(words), "{words}: {}", output.out));
    }
}

#[test]
fn a_plan_that_does_not_fit_the_limit_has_its_own_exit_code() {
    let workplace = Workplace::with("trial.toml", &format!("{LEAKY}[limits]\nhost_memory = \"16 MiB\"\n"));
    let output = workplace.exits(3, &["plan", "trial.toml"]);
    let plan = planned(&workplace, &[]);
    assert_eq!((&plan["fits"], &plan["budgets"][0]["bytes"]), (&false.into(), &(16 << 20).into()), "{plan}");
    assert!(plan["sentence"].as_str().unwrap().contains("`limits.host_memory`"), "{plan}");
    // The memory that is missing leaks.
    let advice = plan["advice"].as_str().unwrap();
    assert!(advice.contains("(`limits.metrics_queue`)") && output.out.contains(advice), "{}", output.out);
    assert!(!output.out.contains("--solve"), "{}", output.out);
    insta::assert_snapshot!(redacted(advice));
    let fits = planned(&workplace, &["-s", "limits.host_memory=1 GiB"]);
    assert_eq!((&fits["fits"], &fits["advice"]), (&true.into(), &serde_json::Value::Null));
    workplace.exits(2, &["plan", "nothing.toml"]);
}

#[test]
fn what_a_leak_will_need_is_in_the_plan() {
    let workplace = Workplace::with("trial.toml", LEAKY);
    let peak = |arguments: &[&str]| {
        let plan = workplace.xrun(arguments).json();
        plan["plan"]["forecast"]["heap_peak"].as_f64().unwrap()
    };
    let short = peak(&["plan", "trial.toml", "--json", "-s", "training.max_steps=10"]);
    let long = peak(&["plan", "trial.toml", "--json"]);
    let difference = (long - short) / f64::from(1 << 20);
    assert!((difference - 50.0).abs() < 1.0, "50 more steps of 1 MiB: {difference}");
}

#[test]
fn reading_a_checkpoint_as_a_resume_does_is_in_the_plan() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\ncheckpoint_size = \"24 MiB\"\n");
    let plan = workplace.exits(0, &["plan", "trial.toml", "--json"]).json();
    let forecast = &plan["plan"]["forecast"];
    let row = forecast["rows"].as_array().unwrap().iter().find(|row| row["name"] == "resume").unwrap();
    let needed = row["bytes"].as_u64().unwrap();
    assert!((24 << 20..25 << 20).contains(&needed), "{row}");
    assert!(forecast["heap_peak"].as_u64().unwrap() >= needed, "{forecast}");
    // A run that does not begin at a checkpoint needs none of it, and nothing of it is reported beside what came.
    workplace.exits(0, &["trial.toml", "-q"]);
    let summary = json(&workplace.latest("trial").join("summary.json"));
    assert_eq!(summary["demand"]["load"], 0);
    assert!(summary["plan_and_actual"].as_array().unwrap().iter().all(|pair| pair["name"] != "resume"), "{summary}");
}

#[test]
fn solving_finds_the_largest_value_that_fits() {
    let workplace = Workplace::with("trial.toml", &format!("{LEAKY}[limits]\nhost_memory = \"100 MiB\"\n"));
    let output = workplace.exits(0, &["plan", "trial.toml", "--solve", "pipeline.dummy.steps_per_epoch", "--json"]);
    let found = output.json()["value"].as_u64().unwrap();
    // Of the 100 MiB the process itself takes some, and more without optimisation.
    let least = if cfg!(debug_assertions) { 40 } else { 60 };
    assert!((least..100).contains(&found), "{found} steps of 1 MiB fit in 100 MiB");
    let over = format!("pipeline.dummy.steps_per_epoch={}", found + found / 20 + 4);
    workplace.exits(3, &["plan", "trial.toml", "-s", &over]);
}

#[test]
fn a_probe_that_ends_early_is_no_measurement() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\n");
    let mut failures = String::new();
    for at in ["fail_at_step=2", "nan_at_step=2"] {
        let output = workplace.exits(1, &["plan", "trial.toml", "-s", &format!("pipeline.dummy.{at}")]);
        assert_eq!(output.out, "", "{at}: {output:?}");
        failures += &output.err;
    }
    insta::assert_snapshot!(redacted(&failures));
    let output = workplace.xrun(&["plan", "trial.toml", "-s", "pipeline.dummy.panic_at_step=2"]);
    assert_eq!((output.code, output.out.as_str()), (1, ""), "{output:?}");
    insta::assert_snapshot!("a_probe_that_panics", lines_with(&output.err, "error: "));
}

#[test]
fn data_that_cannot_be_used_end_a_run_before_it_begins_or_have_a_new_one_advised_and_no_resume() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\n");
    for arguments in [["run", "trial.toml"], ["plan", "trial.toml"]] {
        let output = workplace.exits(1, &[&arguments[..], &["-s", "pipeline.dummy.broken_data_at_step=2"]].concat());
        assert_eq!(output.out, "", "{output:?}");
        insta::assert_snapshot!("data_found_invalid_by_the_probe", redacted(&output.err));
    }
    assert!(!workplace.path("results").exists(), "nothing was begun");
    let output = workplace.exits(1, &["trial.toml", "-s", "pipeline.dummy.broken_data_at_step=5"]);
    let advice = redacted(output.err.lines().find(|line| line.contains("xrun resume")).unwrap());
    assert!(advice.find("xrun results/trial/RUN/resolved.toml") < advice.find("xrun resume"), "{advice}");
    insta::assert_snapshot!("a_new_run_is_advised", advice);
    assert_eq!(json(&workplace.latest("trial").join("summary.json"))["is_data_error"], true);
    assert!(!workplace.exits(0, &["show", "latest"]).out.contains("xrun resume"));
}

#[test]
fn after_a_short_run_the_experiment_itself_is_advised() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\nbroken_data_at_step = 5\n");
    for short in [&["--steps", "8"][..], &["--steps=8"], &["--smoke", "-s", "training.epochs=5"]] {
        let output = workplace.exits(1, &[&["trial.toml"], short].concat());
        let whole = if short.len() > 2 { "xrun trial.toml -s training.epochs=5; " } else { "xrun trial.toml; " };
        assert!(output.err.contains(whole), "{}", output.err);
    }
    workplace.exits(0, &["trial.toml", "--steps", "4", "-q"]);
    let output = workplace.exits(2, &["resume", workplace.latest("trial-short").to_str().unwrap()]);
    insta::assert_snapshot!(redacted_names(&output.err));
}

#[test]
fn a_step_that_does_not_fit_at_all_does_not_fit() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\nleak_per_step = \"900 TiB\"\n");
    let plan = workplace.exits(3, &["plan", "trial.toml", "--json"]).json();
    assert_eq!(plan["fits"], false);
    insta::assert_snapshot!(plan["sentence"].as_str().unwrap());
}

#[test]
fn a_device_that_is_full_in_the_probe_is_too_large_and_a_search_goes_down() {
    let workplace =
        Workplace::with("trial.toml", "[pipeline.dummy]\ndevice_full_at_step = 2\n[limits]\nbatch_size = 8\n");
    let plan = planned(&workplace, &[]);
    assert_eq!(plan["fits"], false, "{plan}");
    insta::assert_snapshot!(plan["sentence"].as_str().unwrap().split(';').next().unwrap());
    let answer = workplace.exits(3, &["plan", "trial.toml", "--solve", "limits.batch_size", "--json"]).json();
    let tried: Vec<u64> =
        answer["tried"].as_array().unwrap().iter().map(|one| one["value"].as_u64().unwrap()).collect();
    assert_eq!((tried.first(), tried.last()), (Some(&8), Some(&1)), "{answer}");
}

#[test]
fn solving_for_what_is_no_number_says_so() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\n");
    for key in ["limits.batch", "experiment.device"] {
        insta::assert_snapshot!(key, workplace.exits(2, &["plan", "trial.toml", "--solve", key]).err);
    }
}

#[test]
fn a_run_puts_its_forecast_beside_what_came_of_it() {
    let workplace = Workplace::ran("trial", LEAKY);
    let summary = json(&workplace.latest("trial").join("summary.json"));
    let pairs = summary["plan_and_actual"].as_array().unwrap();
    let peak = pairs.iter().find(|pair| pair["name"] == "heap in use, peak").unwrap();
    assert!(peak["error"].as_f64().unwrap().abs() < 0.1, "{peak}");
    let shown = workplace.xrun(&["show", "latest", "-v"]).out;
    assert!(shown.contains(peak["name"].as_str().unwrap()), "{shown}");
}

#[test]
fn a_limit_leaves_a_post_mortem_that_the_resume_which_is_advised_takes_away() {
    let workplace = Workplace::with("trial.toml", &format!("{LEAKY}[limits]\nhost_memory = \"60 MiB\"\n"));
    let refused = workplace.exits(3, &["trial.toml", "--progress", "none"]);
    assert!(!workplace.path("results").exists() && refused.err.contains("--force"), "{refused:?}");
    let ended = workplace.exits(5, &["trial.toml", "--progress", "none", "--force"]);
    let run = workplace.latest("trial");
    let dead = json(&run.join("post_mortem.json"));
    assert_eq!(dead["limit_key"], "limits.host_memory");
    assert!(dead["samples"].as_array().unwrap().len() > 8, "the newest samples are in it");
    let tips = dead["suggestions"].as_array().unwrap();
    assert!(tips.iter().all(|tip| tip["key"] != "pipeline.dummy.leak_per_step"), "a faster leak is no help: {tips:?}");
    let shown = workplace.xrun(&["show", "latest", "--json"]).json();
    assert_eq!(shown["post_mortem"]["limit_key"], "limits.host_memory", "{shown}");
    assert_eq!(dead["step"], json(&run.join("summary.json"))["steps"], "it is that of the ending");
    // The advice, followed to the letter as a shell would.
    let (_, command) = ended.err.lines().find_map(|line| line.split_once("xrun resume ")).unwrap();
    assert!(command.contains(" -s limits.host_memory="), "{command}");
    let script = format!("'{}' resume {command} -q", env!("CARGO_BIN_EXE_xrun"));
    let followed = Output::from(workplace.in_place("sh", &["-c", &script]).output().unwrap());
    assert_eq!(followed.code, 0, "{command}: {followed:?}");
    assert!(!run.join("post_mortem.json").exists());
    let summary = json(&run.join("summary.json"));
    assert!(!summary["plan_and_actual"].as_array().unwrap().is_empty(), "what was resumed has a forecast, too");
}

#[test]
fn the_first_word_comes_before_the_first_step() {
    let workplace =
        Workplace::with("trial.toml", "[pipeline.dummy]\nstep_microseconds = 20_000_000\n[training]\nmax_steps = 2\n");
    let begun = std::time::Instant::now();
    let mut run = workplace.spawn(&["trial.toml"]);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(run.stderr.take().unwrap()), &mut line).unwrap();
    assert_eq!(line, "memory probe: 2 steps, up to 2 min 10 s\n");
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "not before the end of the first step");
    end(run);
}

#[test]
fn a_leak_that_reaches_a_limit_is_told_as_one() {
    let workplace = Workplace::new();
    let hidden = LEAKY.replace("= 60", "= 600").replace("leak_in_ledger = true\n", "");
    workplace.file("trial.toml", &format!("{hidden}[memory]\nprobe = false\n[limits]\nhost_memory = \"200 MiB\"\n"));
    let output = workplace.exits(5, &["trial.toml", "--progress", "none"]);
    let dead = json(&workplace.latest("trial").join("post_mortem.json"));
    assert_eq!(dead["growth"]["verdict"], "growing", "{}", dead["growth"]);
    assert!((dead["growth"]["slope"].as_f64().unwrap() / f64::from(1 << 20) - 1.0).abs() < 0.02);
    let step = dead["step"].as_u64().unwrap();
    assert!(dead["unattributed"].as_u64().unwrap() > step << 20, "a MiB of each step");
    assert_eq!(dead["suggestions"].as_array().unwrap().len(), 0, "nothing of the file helps: {dead}");
    assert_eq!((&dead["limit_key"], &dead["limit"]), (&"limits.host_memory".into(), &(200 << 20).into()));
    assert!(output.err.contains("xrun verdict ") && output.err.contains("1.0 MiB a step"), "{}", output.err);
    let message = json(&workplace.latest("trial").join("summary.json"))["message"].as_str().unwrap().to_owned();
    assert!(output.err.contains(&message), "{message}: {}", output.err);
    assert!(message.contains(&format!("step {step}")) && message.contains("200.0 MiB"), "{message}");
}

/// Needs the right to make a memory cgroup; where that is missing the test says so and ends.
#[test]
fn a_run_in_a_cgroup_that_is_too_small_ends_by_itself_and_not_by_the_kernel() {
    let workplace =
        Workplace::with("trial.toml", &format!("{LEAKY}[checkpoint]\nevery_steps = 0\n").replace("= 60", "= 200"));
    let Some(group) = Cgroup::new("small", 100 << 20) else {
        return skipped("no memory cgroup can be made here");
    };
    let arguments = ["trial.toml", "--progress", "none", "-s", "memory.probe=false"];
    let mut command = group.command(&workplace, &arguments);
    let output = Output::from(command.output().unwrap());
    assert_eq!(output.code, 5, "{output:?}");
    let run = workplace.latest("trial");
    let dead = json(&run.join("post_mortem.json"));
    assert_eq!(dead["limit_key"], serde_json::Value::Null, "{dead}");
    // Less what the kernel uses itself.
    let limit = dead["limit"].as_u64().unwrap() >> 20;
    assert!((85..=95).contains(&limit), "{dead}");
    let step = json(&run.join("summary.json"))["steps"].as_u64().unwrap();
    // The program itself needs some 45 MiB, built without optimisation.
    assert!((40..100).contains(&step), "of 100 MiB, at 1 MiB a step, it used most: {step}");
    assert!(run.join(format!("checkpoints/step_{step:08}/state.json")).exists(), "what was done is saved");
}

/// As above, on machines that forbid cgroups: address space is limited, and a declared limit is below it. Resident memory
/// is known on Linux only.
#[test]
#[cfg(target_os = "linux")]
fn a_run_with_little_address_space_and_a_declared_limit_ends_by_itself() {
    let workplace = Workplace::new();
    let endless = LEAKY.replace("= 60", "= 2000");
    workplace.file("trial.toml", &format!("{endless}[checkpoint]\nevery_steps = 0\n[memory]\nprobe = false\n"));
    let limited = |arguments: &[&str]| {
        let script = ["-c", "ulimit -v 800000 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_xrun"), "trial.toml"];
        Output::from(
            workplace.in_place("sh", &[&script[..], &["--progress", "none"], arguments].concat()).output().unwrap(),
        )
    };
    let output = limited(&["-s", "limits.host_memory=200 MiB"]);
    assert_eq!(output.code, 5, "{output:?}");
    let run = workplace.latest("trial");
    let step = json(&run.join("summary.json"))["steps"].as_u64().unwrap();
    assert!((100..200).contains(&step), "of 200 MiB, at 1 MiB a step, it used most: {step}");
    assert!(run.join(format!("checkpoints/step_{step:08}/state.json")).exists(), "what was done is saved");
    assert_eq!(json(&run.join("post_mortem.json"))["limit_key"], "limits.host_memory");
    // Without it the address space is what ends the run, at once: without a checkpoint and a summary.
    let output = limited(&["--name", "unlimited"]);
    assert_eq!(output.code, 5, "{output:?}");
    insta::assert_snapshot!("no_address_space", lines_with(&output.err, "ulimit -v"));
    assert!(!workplace.latest("unlimited").join("summary.json").exists());
    assert!(!workplace.latest("unlimited").join("post_mortem.json").exists());
}

/// A memory cgroup, version 1 or 2, removed when dropped.
pub struct Cgroup {
    pub directory: std::path::PathBuf,
}

impl Cgroup {
    /// `None` where none can be made. The name tells tests apart that run at the same time.
    pub fn new(name: &str, limit: u64) -> Option<Self> {
        let name = format!("xrun-test-{name}-{}", std::process::id());
        let versions = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        versions.into_iter().find_map(|(root, file)| {
            let directory = Path::new(root).join(&name);
            std::fs::create_dir(&directory).ok()?;
            let group = Self { directory };
            let file = group.directory.join(file);
            (file.exists() && std::fs::write(&file, limit.to_string()).is_ok()).then_some(group)
        })
    }
}

impl Cgroup {
    /// Sets another limit in bytes.
    pub fn set_limit(&self, limit: u64) {
        let files = ["memory.limit_in_bytes", "memory.max"].map(|file| self.directory.join(file));
        let file = files.iter().find(|file| file.exists()).unwrap();
        std::fs::write(file, limit.to_string()).unwrap();
    }

    /// xrun inside of it, in the directory of this workplace.
    pub fn command(&self, workplace: &Workplace, arguments: &[&str]) -> Command {
        let group = self.directory.join("cgroup.procs");
        let script = ["-c", "echo $$ > \"$1\" && shift && exec \"$@\"", "sh", group.to_str().unwrap()];
        workplace.in_place("sh", &[&script[..], &[env!("CARGO_BIN_EXE_xrun")], arguments].concat())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.directory);
    }
}
