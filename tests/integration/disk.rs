//! Full disks and unwritable directories: messages, and directories that stay readable.

use crate::workplace::{Workplace, json, lines_with, metrics, redacted, said, skipped, text};

/// `ulimit -f` makes writes fail as a full disk does, on any machine and without privileges.
#[test]
fn no_space_left_ends_the_run_with_a_message_and_a_directory_that_reads() {
    let workplace = Workplace::with(
        "trial.toml",
        "[pipeline.dummy]\nsteps_per_epoch = 4000\ncheckpoint_size = \"4 KiB\"\n[checkpoint]\nevery_steps = 50\n",
    );
    let said = with_small_files(&workplace, &["trial.toml"]);
    assert_eq!(said.code, 1, "{said:?}");
    insta::assert_snapshot!(lines_with(&said.err, "error: "));
    let memory = text(&workplace.latest("trial").join("memory.jsonl"));
    let whole = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
    assert!(memory.ends_with('\n') && memory.lines().all(whole), "the half line was cut off");
    assert!(memory.len() <= 256 << 10 && memory.len() > 252 << 10, "and no other: {}", memory.len());
    workplace.exits(0, &["show", "latest"]);
    workplace.exits(0, &["resume", "latest", "-s", "memory.every_steps=100"]);
}

/// Runs xrun where no file may have more than 256 KiB.
fn with_small_files(workplace: &Workplace, arguments: &[&str]) -> crate::workplace::Output {
    let script = ["-c", "ulimit -f 256; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_xrun")];
    said(workplace.in_place("bash", &[&script[..], arguments].concat()).output().unwrap())
}

#[test]
fn a_limit_on_file_sizes_stops_no_command_and_is_its_own() {
    let workplace = Workplace::new();
    let prints = "i=0; while [ $i -lt 6000 ]; do i=$((i + 1)); echo \"step $i loss 0.5 some words that nobody reads\"; done; \
        head -c 400000 /dev/zero > large; echo ended by $?";
    let said =
        with_small_files(&workplace, &["watch", "--every", "20ms", "--name", "trial", "--", "bash", "-c", prints]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.ends_with(&format!("ended by {}\n", 128 + libc::SIGXFSZ)), "{said:?}");
    let summary = json(&workplace.latest("trial").join("summary.json"));
    assert!(summary["outcome"] == "finished" && summary["steps"].as_u64() > Some(4000), "{summary}");
    assert!(said.err.contains("metrics.jsonl"), "{said:?}");
}

/// Runs a script where `at` is an empty file system of 1 MiB; `None` where the kernel lets nobody make one.
fn with_mounted(at: &str, workplace: &Workplace, script: &str) -> Option<crate::workplace::Output> {
    std::fs::create_dir_all(workplace.path(at)).unwrap();
    let inside = |script: &str| {
        let script = format!("mount -t tmpfs -o size=1m none {at} && {script}");
        let words = ["--user", "--map-root-user", "--mount", "bash", "-c", &script];
        workplace.in_place("unshare", &words).output().ok().map(said)
    };
    if inside("true").is_none_or(|said| said.code != 0) {
        skipped("no file system can be mounted here (`unshare --user --map-root-user --mount`)");
        return None;
    }
    inside(script)
}

fn on_a_small_disk(workplace: &Workplace, script: &str) -> Option<crate::workplace::Output> {
    with_mounted("small", workplace, script)
}

#[test]
fn no_device_file_is_needed() {
    let workplace = Workplace::with("trial.toml", "[pipeline.dummy]\nsteps_per_epoch = 20\n");
    let xrun = env!("CARGO_BIN_EXE_xrun");
    let script = format!("{xrun} trial.toml -q && {xrun} watch -q --name w -- sh -c 'ls /dev; exit 3'");
    let Some(said) = with_mounted("/dev", &workplace, &script) else { return };
    assert!(said.code == 3 && said.out.is_empty(), "{said:?}");
    for name in ["trial", "w"] {
        assert!(workplace.latest(name).join("summary.json").is_file(), "{name}: {said:?}");
    }
}

#[test]
fn a_plan_says_before_the_run_that_its_checkpoints_do_not_fit_the_disk() {
    let workplace = Workplace::new();
    let file =
        "[pipeline.dummy]\nsteps_per_epoch = 100\ncheckpoint_size = \"400 KiB\"\n[checkpoint]\nevery_steps = 10\n";
    workplace.file("trial.toml", &format!("{file}keep_last = 3\n"));
    let xrun = env!("CARGO_BIN_EXE_xrun");
    let Some(said) = on_a_small_disk(&workplace, &format!("{xrun} plan trial.toml --results small/results --json"))
    else {
        return;
    };
    assert_eq!(said.code, 3, "{said:?}");
    let disk = said.json()["disk"].clone();
    assert_eq!((&disk["fits"], &disk["free"]), (&false.into(), &(1 << 20).into()), "{disk}");
    insta::assert_snapshot!(redacted(disk["sentence"].as_str().unwrap()));
    // The run says so and goes on: space may be freed meanwhile.
    let script = format!("{xrun} trial.toml --results small; {xrun} plan trial.toml --results . --json");
    let said = on_a_small_disk(&workplace, &script).unwrap();
    assert!(said.err.contains("`checkpoint.keep_last`") && said.err.contains("No space left"), "{said:?}");
    let plan: serde_json::Value = serde_json::from_str(&said.out[said.out.find('{').unwrap()..]).unwrap();
    assert_eq!((said.code, &plan["disk"]["fits"], &plan["fits"]), (0, &true.into(), &true.into()), "{plan}");
    let disk = &plan["plan"]["forecast"]["disk"];
    let kept = disk["checkpoint"].as_u64().unwrap();
    assert!((400 << 10..410 << 10).contains(&kept), "its state is beside the weights: {disk}");
    assert!(disk["trace"].as_u64().unwrap() > 100 * 500, "{disk}");
}

#[test]
fn on_a_full_disk_the_summary_still_says_how_the_run_ended() {
    let workplace = Workplace::with(
        "trial.toml",
        "[pipeline.dummy]\nsteps_per_epoch = 100000\n[checkpoint]\nevery_steps = 50000\n",
    );
    let xrun = env!("CARGO_BIN_EXE_xrun");
    let script = format!("{xrun} trial.toml --results small; {xrun} ls --results small --json");
    let Some(said) = on_a_small_disk(&workplace, &script) else { return };
    // Which of the files comes first is a matter of time.
    let error = lines_with(&said.err, "No space left").replace("metrics.jsonl", "memory.jsonl");
    insta::assert_snapshot!(error.lines().next().unwrap());
    let runs = said.json();
    assert_eq!(runs[0]["state"], "failed", "{said:?}");
}

/// Prints steps: once, or until a condition holds.
const PRINTS: &str = "i=0
prints() { i=$((i + 1)); echo \"step $i loss 0.5\"; }
prints_until() { until eval \"$1\"; do prints; sleep 0.02; done; }
metrics=small/results/full/latest/metrics.jsonl
written() { wc -c < $metrics; }
";

/// Watches a script whose results are on a small file system; what is there in the end is in the directory `kept`.
fn watched_on_a_small_disk(workplace: &Workplace, script: &str) -> Option<crate::workplace::Output> {
    workplace.file("trainer.sh", &format!("{PRINTS}{script}"));
    let words = "--results small/results --every 10ms --name full --steps 'step (?<step>\\d+) loss (?<loss>\\S+)'";
    let watch = format!("{} watch {words} -- sh trainer.sh 2> said.txt > output.txt", env!("CARGO_BIN_EXE_xrun"));
    on_a_small_disk(workplace, &format!("{watch}; code=$?; cp -a small/results kept; exit $code"))
}

#[test]
fn a_watch_outlasts_a_disk_that_is_full_for_a_moment() {
    let workplace = Workplace::new();
    let script = "prints_until '[ -s $metrics ]'
cat /dev/zero > small/fill 2> fill.txt
prints_until 'grep -q \"No space left\" said.txt'
before=$(written)
rm small/fill
prints_until '[ $(written) -gt $before ]'
prints
exit 3
";
    let Some(ended) = watched_on_a_small_disk(&workplace, script) else { return };
    let said = text(&workplace.path("said.txt"));
    assert_eq!(ended.code, 3, "the command's own: {said}");
    assert_eq!(said.matches("No space left").count(), 1, "reported once: {said}");
    assert!(!said.contains("resume"), "{said}");
    let run = std::fs::canonicalize(workplace.path("kept/full/latest")).unwrap();
    let summary = json(&run.join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["exit_code"]), (&"failed".into(), &3.into()), "{summary}");
    // How many samples and steps the disk did not take is a matter of time.
    let count = regex_lite::Regex::new(r"(\d+ samples?|\d+ steps?)( and \d+ steps?)?").unwrap();
    insta::assert_snapshot!(count.replace_all(summary["message"].as_str().unwrap(), "LINES"));
    let steps: Vec<u64> = metrics(&run).iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps.last(), summary["steps"].as_u64().as_ref(), "what came after it is there: {said}");
    for file in ["verdict.json", "report.html"] {
        assert!(run.join(file).is_file(), "{file}: {said}");
    }
    let judged = workplace.xrun(&["verdict", run.to_str().unwrap()]);
    assert!(judged.code == 0 && !judged.out.contains("damaged"), "{judged:?}");
    let shown = workplace.xrun(&["show", run.to_str().unwrap(), "--json"]).json();
    assert_eq!(shown["damage"], serde_json::json!([]), "{shown}");
}

#[test]
fn a_watch_ends_in_the_room_that_was_kept_where_the_disk_stays_full() {
    let workplace = Workplace::new();
    let script = "prints_until '[ -s $metrics ]'
cat /dev/zero > small/fill 2> fill.txt
prints_until 'grep -q \"No space left\" said.txt'
exit 3
";
    let Some(ended) = watched_on_a_small_disk(&workplace, script) else { return };
    let said = text(&workplace.path("said.txt"));
    assert_eq!(ended.code, 3, "{said}");
    let run = std::fs::canonicalize(workplace.path("kept/full/latest")).unwrap();
    assert_eq!(json(&run.join("summary.json"))["exit_code"], 3, "{said}");
    assert!(run.join("verdict.json").is_file(), "{said}");
}
