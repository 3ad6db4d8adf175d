//! Full disks and unwritable directories: messages, and directories that stay readable.

use crate::workplace::{Output, Workplace, json, lines_with, metrics, skipped, text};

/// `ulimit -f` makes writes fail as a full disk does, on any machine and without privileges.
#[test]
fn no_space_left_ends_the_run_with_a_message_and_a_directory_that_reads() {
    let workplace = Workplace::with(
        "trial.toml",
        "[pipeline.dummy]\nsteps_per_epoch = 4000\ncheckpoint_size = \"4 KiB\"\n[checkpoint]\nevery_steps = 50\n",
    );
    let output = with_small_files(&workplace, &["trial.toml"]);
    assert_eq!(output.code, 1, "{output:?}");
    insta::assert_snapshot!(lines_with(&output.err, "error: "));
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
    Output::from(workplace.in_place("bash", &[&script[..], arguments].concat()).output().unwrap())
}

#[test]
fn a_limit_on_file_sizes_stops_no_command_and_is_its_own() {
    let workplace = Workplace::new();
    let prints = "i=0; while [ $i -lt 6000 ]; do i=$((i + 1)); echo \"step $i loss 0.5 some words that nobody reads\"; done; \
        head -c 400000 /dev/zero > large; echo ended by $?";
    let output =
        with_small_files(&workplace, &["watch", "--every", "20ms", "--name", "trial", "--", "bash", "-c", prints]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.out.ends_with(&format!("ended by {}\n", 128 + libc::SIGXFSZ)), "{output:?}");
    let summary = json(&workplace.latest("trial").join("summary.json"));
    assert!(summary["outcome"] == "finished" && summary["steps"].as_u64() > Some(4000), "{summary}");
    assert!(output.err.contains("metrics.jsonl"), "{output:?}");
}

/// Runs a script where `at` is an empty file system of 1 MiB; `None` where the kernel lets nobody make one.
fn with_mounted(at: &str, workplace: &Workplace, script: &str) -> Option<crate::workplace::Output> {
    std::fs::create_dir_all(workplace.path(at)).unwrap();
    let inside = |script: &str| {
        let script = format!("mount -t tmpfs -o size=1m none {at} && {script}");
        let words = ["--user", "--map-root-user", "--mount", "bash", "-c", &script];
        workplace.in_place("unshare", &words).output().ok().map(Output::from)
    };
    if inside("true").is_none_or(|output| output.code != 0) {
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
    let Some(output) = with_mounted("/dev", &workplace, &script) else { return };
    assert!(output.code == 3 && output.out.is_empty(), "{output:?}");
    for name in ["trial", "w"] {
        assert!(workplace.latest(name).join("summary.json").is_file(), "{name}: {output:?}");
    }
}

#[test]
fn on_a_full_disk_the_summary_still_says_how_the_run_ended() {
    let workplace = Workplace::with(
        "trial.toml",
        "[pipeline.dummy]\nsteps_per_epoch = 100000\n[checkpoint]\nevery_steps = 50000\n",
    );
    let xrun = env!("CARGO_BIN_EXE_xrun");
    let script = format!("{xrun} trial.toml --results small; {xrun} ls --results small --json");
    let Some(output) = on_a_small_disk(&workplace, &script) else { return };
    // Which of the files comes first is a matter of time, and so is whether the report finds space.
    let error = lines_with(&output.err, "error: failed: ").replace("metrics.jsonl", "memory.jsonl");
    insta::assert_snapshot!(error.lines().next().unwrap());
    let runs = output.json();
    assert_eq!(runs[0]["state"], "failed", "{output:?}");
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
    let output = text(&workplace.path("said.txt"));
    assert_eq!(ended.code, 3, "the command's own: {output}");
    assert_eq!(output.matches("No space left").count(), 1, "reported once: {output}");
    assert!(!output.contains("resume"), "{output}");
    let run = std::fs::canonicalize(workplace.path("kept/full/latest")).unwrap();
    let summary = json(&run.join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["exit_code"]), (&"failed".into(), &3.into()), "{summary}");
    // How many samples and steps the disk did not take is a matter of time.
    let count = regex_lite::Regex::new(r"(\d+ samples?|\d+ steps?)( and \d+ steps?)?").unwrap();
    insta::assert_snapshot!(count.replace_all(summary["message"].as_str().unwrap(), "LINES"));
    let steps: Vec<u64> = metrics(&run).iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps.last(), summary["steps"].as_u64().as_ref(), "what came after it is there: {output}");
    for file in ["verdict.json", "report.html"] {
        assert!(run.join(file).is_file(), "{file}: {output}");
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
    let output = text(&workplace.path("said.txt"));
    assert_eq!(ended.code, 3, "{output}");
    let run = std::fs::canonicalize(workplace.path("kept/full/latest")).unwrap();
    assert_eq!(json(&run.join("summary.json"))["exit_code"], 3, "{output}");
    assert!(run.join("verdict.json").is_file(), "{output}");
}
