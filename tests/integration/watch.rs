//! `xrun watch -- COMMAND`: leaks, limits and pass-through.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::terminal::{Terminal, resize};
use crate::workplace::{
    Output, Workplace, end, json, lines, lines_with, redacted, redacted_names, send, series, skipped, text, wait_until,
};

const PATTERN: &str = r"step (?<step>\d+) loss (?<loss>\S+)";
/// Memory that each script keeps per step.
const KEPT: f64 = 256.0 * 1024.0;

pub fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skipped("there is no python3");
    }
    found
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/watch").join(name)
}

fn watched(workplace: &Workplace, name: &str, more: &[&str]) -> (Output, Value) {
    let file = script(name);
    let options = ["watch", "--name", "trial", "--every", "20ms", "--steps", PATTERN, "--"];
    let command = ["python3", file.to_str().unwrap(), "--steps", "300"];
    let output = workplace.xrun(&[&options[..], &command[..], more].concat());
    let verdict = json(&workplace.latest("trial").join("verdict.json"));
    (output, verdict)
}

/// Runs a script with `--explain`; returns what was said and the directory of the result.
pub fn explained(workplace: &Workplace, name: &str, more: &[&str]) -> (Output, PathBuf) {
    let file = script(name);
    let options = ["watch", "--explain", "--name", "explained", "--every", "20ms", "--steps", PATTERN, "--"];
    let command = ["python3", file.to_str().unwrap(), "--steps", "700"];
    let output = workplace.xrun(&[&options[..], &command[..], more].concat());
    (output, workplace.latest("explained"))
}

#[test]
fn growth_is_explained_and_a_bounded_program_is_not() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let (output, run) = explained(&workplace, "loss_history.py", &[]);
    assert_eq!(output.code, 0, "{output:?}");
    let found = json(&run.join("explanation.json"));
    assert_eq!((&found["cause"], &found["certainty"]), (&"container".into(), &"high".into()), "{found}");
    assert_eq!(found["holder"], "loss_history.py: losses", "{found}");
    assert!(found["line"]["text"].as_str().unwrap().starts_with("losses.append("), "{found}");
    let message = found["message"].as_str().unwrap();
    assert!(output.err.contains(message), "{output:?}");
    let shown = workplace.xrun(&["show", "explained", "--json"]).json();
    assert_eq!(shown["explanation"], found, "{shown}");
    assert!(text(&run.join("report.html")).contains("loss_history.py: losses"));
    let (output, run) = explained(&workplace, "loss_history.py", &["--bounded"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(!run.join("explanation.json").exists());
}

/// The leak is named with its speed, and its twin does not grow.
fn pair(name: &str, owner: &str) {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let (leak, verdict) = watched(&workplace, name, &[]);
    assert_eq!(leak.code, 0, "{leak:?}");
    assert!(leak.out.ends_with("step 300 loss 0.003333\n"), "the output is as it was: {leak:?}");
    assert_eq!((&verdict["verdict"], &verdict["axis"]), (&"growing".into(), &"steps".into()), "{verdict}");
    assert_eq!(verdict["owner"], owner, "{verdict}");
    let slope = series(&verdict, &format!("owner:{owner}"))["slope"].as_f64().unwrap();
    assert!((slope / KEPT - 1.0).abs() < 0.1, "{slope} bytes a step: {verdict}");
    // Without the speed, which is measured.
    insta::assert_snapshot!(name, verdict["message"].as_str().unwrap().split(" by ").next().unwrap());
    let judged = workplace.exits(6, &["verdict", "latest", "--json", "--fail-on", "growing"]);
    assert_eq!(judged.json(), verdict, "the trace says the same");
    let (twin, verdict) = watched(&workplace, name, &["--bounded"]);
    assert_eq!(twin.code, 0, "{twin:?}");
    let grows = ["growing", "slowing", "suspect"].contains(&verdict["verdict"].as_str().unwrap());
    assert!(!grows, "the twin: {verdict}");
}

macro_rules! pairs {
    ($($test:ident: $script:literal, $owner:literal;)*) => {
        $(#[test]
        fn $test() {
            pair($script, $owner);
        })*
    };
}

pairs! {
    workers_that_copy_what_they_read_are_named: "copy_on_write.py", "workers/private";
    a_loss_that_is_kept_with_its_history_is_found: "loss_history.py", "main/private";
    predictions_of_validations_that_are_kept_are_found: "predictions.py", "main/private";
    a_cache_without_a_bound_is_found: "cache.py", "main/private";
    a_queue_without_back_pressure_is_found_where_it_is: "queue_of_results.py", "workers/private";
    a_mapped_file_only_looks_like_growth: "mapped_file.py", "main/private";
    shared_memory_that_is_never_unlinked_is_found: "shared_memory.py", "/dev/shm";
    an_allocation_in_c_is_found: "c_allocation.py", "main/private";
    threads_that_never_end_are_found: "threads.py", "main/private";
}

#[test]
fn without_steps_the_clock_judges() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let file = script("c_allocation.py");
    let options =
        ["watch", "--every", "20ms", "--steps", "none", "--host-memory", "100 GiB", "--fail-on", "growing", "--"];
    workplace.exits(
        106,
        &[&options[..], &["python3", file.to_str().unwrap(), "--steps", "500", "--pause", "0.016"]].concat(),
    );
    let verdict = json(&workplace.latest("c_allocation").join("verdict.json"));
    assert_eq!((&verdict["axis"], &verdict["owner"]), (&"milliseconds".into(), &"main/private".into()), "{verdict}");
    let message = verdict["message"].as_str().unwrap();
    let held = series(&verdict, "held");
    assert_eq!(held["cap"].as_u64(), Some(100 << 30), "{verdict}");
    assert!(held["steps_to_limit"].as_f64().unwrap() > 0.0 && !message.contains("step"), "{message}");
    assert_eq!(json(&workplace.latest("c_allocation").join("summary.json"))["outcome"], "memory_grew");
}

#[test]
fn a_command_is_told_to_save_before_a_limit_ends_it() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let file = script("cache.py");
    let options = [
        "watch",
        "--name",
        "trial",
        "--every",
        "20ms",
        "--host-memory",
        "240 MiB",
        "--at",
        "0.5",
        "--grace",
        "20s",
        "--",
    ];
    workplace.exits(105, &[&options[..], &["python3", file.to_str().unwrap(), "--steps", "4000"]].concat());
    let saved: Value = serde_json::from_str(&text(&workplace.path("checkpoint.json"))).unwrap();
    assert!(saved["step"].as_u64().unwrap() > 50, "{saved}");
    let run = workplace.latest("trial");
    let dead = json(&run.join("post_mortem.json"));
    assert!(dead["held"].as_u64().unwrap() < 240 << 20 && dead["limit"] == 240 << 20, "{dead}");
    assert_eq!(dead["limit_key"], "--host-memory");
    let shown = workplace.xrun(&["show", "latest", "--json"]).json();
    assert_eq!(
        (&shown["post_mortem"]["limit_key"], &shown["damage"], &shown["resumable"]),
        (&"--host-memory".into(), &serde_json::json!([]), &false.into()),
        "a command is no run to resume: {shown}"
    );
    insta::assert_snapshot!(redacted_names(&workplace.exits(2, &["resume", "latest"]).err));
}

#[test]
fn a_command_that_ignores_sigterm_is_killed() {
    let workplace = Workplace::new();
    let deaf = "trap '' TERM; while :; do sleep 0.1; done";
    let words =
        ["watch", "--name", "deaf", "--every", "20ms", "--time-limit", "300ms", "--grace", "200ms", "--", "sh", "-c"];
    workplace.exits(107, &[&words[..], &[deaf]].concat());
    let summary = json(&workplace.latest("deaf").join("summary.json"));
    insta::assert_snapshot!(redacted(summary["message"].as_str().unwrap()));
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let workplace = Workplace::new();
    let mut messages = String::new();
    for (command, code) in
        [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", 139), ("kill -KILL $$", 137), ("sleep 3 & exit 0", 0)]
    {
        workplace.exits(code, &["watch", "--every", "20ms", "--", "sh", "-c", command]);
        let summary = json(&workplace.latest("sh").join("summary.json"));
        let message = summary["message"].as_str().unwrap();
        // Behind the signal: how many OOM kills the machine counts, and the memory before.
        let message = message.split_once("(SIGKILL").map_or(message.into(), |(kill, _)| format!("{kill}(SIGKILL)"));
        messages += &format!("{command}: {message}\n");
    }
    insta::assert_snapshot!(redacted(&messages));
    let summary = json(&workplace.latest("sh").join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["steps"]), (&"finished".into(), &0.into()));
    // No code of xrun's own.
    workplace.exits(6, &["watch", "--every", "20ms", "--name", "six", "--", "sh", "-c", "exit 6"]);
}

#[test]
fn a_wrong_command_line_writes_nothing() {
    let workplace = Workplace::new();
    let refusals = workplace.refusals(&[
        (102, &["watch", "--", "no_such_program"]),
        (102, &["watch", "--steps", r"step (\d+)", "--", "true"]),
        (102, &["watch", "--steps", "step (", "--", "true"]),
        (102, &["watch", "--name", "a/b", "--", "true"]),
        (102, &["watch", "--every", "1ms", "--", "true"]),
        (102, &["watch", "--host-memory", "0", "--", "true"]),
        (102, &["watch", "--at", "1.5", "--", "true"]),
        (102, &["watch", "--signal", "KILL", "--", "true"]),
        (2, &["verdict", "--pid", "4000000"]),
    ]);
    insta::assert_snapshot!(refusals);
    assert!(!workplace.path("results").exists());
}

#[test]
fn output_passes_whatever_it_is() {
    let workplace = Workplace::new();
    // A line of 32 MiB without an end, and bytes that are no text.
    let command = r"head -c 33554432 /dev/zero; printf '\377\376\r\033[2Jstep 7\n'";
    let arguments = ["watch", "--steps", r"step (?<step>\d+)", "--every", "20ms", "--", "sh", "-c", command];
    let output = workplace.command(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{:?}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout.len(), 33_554_432 + 14);
    assert!(output.stdout.ends_with(b"\xff\xfe\r\x1b[2Jstep 7\n"));
    let run = workplace.latest("sh");
    assert_eq!(json(&run.join("summary.json"))["steps"], 7);
    let owners = json(&run.join("summary.json"))["owners"].clone();
    let over = |one: &Value| one["peak_bytes"].as_u64() > one["cap_bytes"].as_u64();
    assert!(!owners.as_array().unwrap().iter().any(over), "{owners}");
    // A reader that goes away ends the command, as without xrun.
    let mut child = workplace.spawn(&["watch", "--steps", r"a(?<step>\d+)", "--name", "yes", "--", "yes"]);
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
    let message = json(&workplace.latest("yes").join("summary.json"))["message"].as_str().unwrap().to_owned();
    let count = regex_lite::Regex::new(r"\d+").unwrap();
    insta::assert_snapshot!(count.replace_all(&message, "COUNT"));
}

#[test]
fn steps_come_from_a_file_too() {
    let workplace = Workplace::with("metrics.jsonl", "{\"step\": 900, \"loss\": 9}\n");
    let command = "for i in 1 2 3; do echo \"{\\\"global_step\\\": $i, \\\"loss\\\": 0.$i, \\\"acc\\\": $i}\" >> metrics.jsonl; sleep 0.05; done";
    workplace.exits(0, &["watch", "--steps-file", "metrics.jsonl", "--every", "20ms", "--", "sh", "-c", command]);
    let run = workplace.latest("sh");
    let lines = text(&run.join("metrics.jsonl"));
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.contains("\"loss\":0.3") && lines.contains("\"acc\":3.0"), "{lines}");
    assert_eq!(json(&run.join("summary.json"))["loss_last"], 0.3);
    for command in [
        &["show", "latest"][..],
        &["ls"],
        &["export", "latest", "--to", "report"],
        &["export", "latest", "--to", "tensorboard"],
        &["compare", "latest", "latest"],
    ] {
        workplace.exits(0, command);
    }
    let shown = workplace.xrun(&["show", "latest", "--json"]).json();
    assert_eq!(shown["damage"], serde_json::json!([]), "{shown}");
}

#[test]
fn the_first_signal_is_forwarded_and_the_second_kills() {
    let workplace = Workplace::new();
    let ready = |file: &str| wait_until("the command is ready", || workplace.path(file).exists());
    let saves = "trap 'touch saved; exit 4' INT; touch ready; while :; do sleep 0.05; done";
    let child = workplace.spawn(&["watch", "--every", "20ms", "--name", "saves", "--", "sh", "-c", saves]);
    ready("ready");
    send(&child, libc::SIGINT);
    let saved = Output::from(child.wait_with_output().unwrap());
    assert_eq!(saved.code, 4, "{saved:?}");
    assert!(workplace.path("saved").exists(), "{saved:?}");
    let summary = json(&workplace.latest("saves").join("summary.json"));
    assert_eq!(summary["outcome"], "interrupted");
    let message = |summary: &Value| redacted(summary["message"].as_str().unwrap());
    insta::assert_snapshot!("a_signal_that_is_forwarded", message(&summary));
    let deaf = "trap 'touch heard' INT; trap '' TERM; touch deaf; while :; do sleep 0.05; done";
    let child = workplace.spawn(&["watch", "--every", "20ms", "--name", "deaf", "--", "sh", "-c", deaf]);
    ready("deaf");
    send(&child, libc::SIGINT);
    wait_until("the signal was forwarded", || workplace.path("heard").exists());
    send(&child, libc::SIGINT);
    let killed = Output::from(child.wait_with_output().unwrap());
    assert_eq!(killed.code, 137, "{killed:?}");
    insta::assert_snapshot!("a_second_signal", message(&json(&workplace.latest("deaf").join("summary.json"))));
}

/// Whether a process of another parent has ended.
fn has_ended(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn no_signal_leaves_a_command_unwatched() {
    let workplace = Workplace::new();
    let program = "[\"sh\", \"-c\", \"echo $$ > id; exec sleep 600\"]";
    workplace.file("trial.toml", &format!("[pipeline.command]\nprogram = {program}\n"));
    let watch = ["watch", "--name", "trial", "--every", "20ms", "--", "sh", "-c", "echo $$ > id; exec sleep 600"];
    let (quit, cpu) = (libc::SIGQUIT, libc::SIGXCPU);
    let summed =
        [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGPWR, quit, cpu].map(|number| (number, &watch[..]));
    let ending = [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGKILL];
    let killed = ending.map(|number| (number, &watch[..]));
    let runs = [(quit, &["trial.toml"][..]), (libc::SIGSEGV, &["trial.toml"])];
    for (number, words) in summed.into_iter().chain(killed).chain(runs) {
        let mut child = workplace.spawn(words);
        let id = || std::fs::read_to_string(workplace.path("id")).unwrap_or_default();
        wait_until("the command is ready", || id().ends_with('\n'));
        send(&child, number);
        let status = child.wait().unwrap();
        wait_until("the command ends", || has_ended(&id()));
        std::fs::remove_file(workplace.path("id")).unwrap();
        let summary = workplace.latest("trial").join("summary.json");
        match ending.contains(&number) {
            true => assert!(status.code().is_none() && !summary.exists(), "{number}: {status:?}"),
            false => {
                let code = if words.len() == 1 { 8 } else { 128 + number };
                assert_eq!(status.code(), Some(code), "{number}");
                assert_eq!(json(&summary)["outcome"], "interrupted", "{number}");
            }
        }
    }
}

#[test]
fn a_terminal_that_goes_away_is_told_to_the_command_which_is_waited_for() {
    let workplace = Workplace::new();
    let saves = "trap 'touch saved; while [ ! -e twice ]; do sleep 0.02; done; exit 0' HUP; touch ready; while :; do sleep 0.02; done";
    let child = workplace.spawn(&["watch", "--every", "20ms", "--name", "saves", "--", "sh", "-c", saves]);
    wait_until("the command is ready", || workplace.path("ready").exists());
    send(&child, libc::SIGHUP);
    wait_until("the command saves", || workplace.path("saved").exists());
    send(&child, libc::SIGHUP);
    workplace.file("twice", "");
    let saved = Output::from(child.wait_with_output().unwrap());
    assert_eq!(saved.code, 0, "the second one kills nobody: {saved:?}");
    let run = workplace.latest("saves");
    assert_eq!(json(&run.join("summary.json"))["outcome"], "interrupted");
    assert!(run.join("verdict.json").is_file() && run.join("report.html").is_file());
    let child =
        workplace.spawn(&["watch", "--every", "20ms", "--name", "ends", "--", "sh", "-c", "touch there; sleep 600"]);
    wait_until("the command is there", || workplace.path("there").exists());
    send(&child, libc::SIGHUP);
    let ended = Output::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, 129, "{ended:?}");
    assert_eq!(json(&workplace.latest("ends").join("summary.json"))["exit_code"], 129);
}

#[test]
fn limits_hold_for_a_command_that_ignores_the_end_of_the_terminal() {
    let workplace = Workplace::new();
    let watched = ["watch", "--every", "20ms", "--grace", "100ms", "--", "sh", "-c"];
    let begin = |name: &str, limit: &str, script: &str| {
        let mut words = watched.to_vec();
        words.splice(1..1, ["--name", name, "--time-limit", limit]);
        let child = workplace.spawn(&[&words[..], &[script]].concat());
        wait_until("the command is ready", || workplace.path(name).exists());
        send(&child, libc::SIGHUP);
        // Of a command that has ended nobody can tell whether it ignored the signal.
        wait_until("the signal is forwarded", || text(&workplace.latest(name).join("log.txt")).contains("SIGHUP"));
        child
    };
    let limited = begin("limited", "2s", "trap '' HUP; touch limited; sleep 600");
    let limited = Output::from(limited.wait_with_output().unwrap());
    assert_eq!(json(&workplace.latest("limited").join("summary.json"))["outcome"], "time_limit", "{limited:?}");
    let whole = begin("whole", "600s", "trap '' HUP; touch whole; while [ ! -e enough ]; do sleep 0.02; done");
    workplace.file("enough", "");
    let whole = Output::from(whole.wait_with_output().unwrap());
    assert_eq!(whole.code, 0, "{whole:?}");
    assert_eq!(json(&workplace.latest("whole").join("summary.json"))["outcome"], "finished");
}

#[test]
fn a_signal_that_asks_for_a_checkpoint_is_passed_on_and_the_command_goes_on() {
    let workplace = Workplace::new();
    let saves = "trap 'touch saved' USR1; touch ready; while [ ! -e enough ]; do sleep 0.02; done; exit 5";
    let child = workplace.spawn(&["watch", "--every", "20ms", "--name", "saves", "--", "sh", "-c", saves]);
    wait_until("the command is ready", || workplace.path("ready").exists());
    send(&child, libc::SIGUSR1);
    wait_until("the command saves", || workplace.path("saved").exists());
    workplace.file("enough", "");
    let ended = Output::from(child.wait_with_output().unwrap());
    assert_eq!(ended.code, 5, "{ended:?}");
    let summary = json(&workplace.latest("saves").join("summary.json"));
    assert_eq!(summary["outcome"], "failed", "by itself, and not by the signal: {summary}");
}

#[test]
fn a_process_that_runs_is_judged_without_being_touched() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let mut leak = Command::new("python3")
        .args([script("c_allocation.py").to_str().unwrap(), "--steps", "450", "--pause", "0.016"])
        .current_dir(workplace.directory.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let output = workplace.xrun(&["verdict", "--pid", &leak.id().to_string(), "--every", "20ms", "--json"]);
    let code = leak.wait().unwrap().code();
    assert_eq!((output.code, code), (0, Some(0)), "{output:?}");
    let verdict = output.json();
    assert_eq!((&verdict["verdict"], &verdict["owner"]), (&"growing".into(), &"main/private".into()), "{verdict}");
    assert!(!workplace.path("results").exists(), "nothing is written");
    insta::assert_snapshot!(lines_with(&output.err, "ended").replace(&leak.id().to_string(), "PID"));
}

#[test]
fn a_file_that_is_no_program_is_reported_and_recorded() {
    let workplace = Workplace::with("notes.txt", "no program\n");
    let output = workplace.exits(126, &["watch", "--", "./notes.txt"]);
    let message = json(&workplace.latest("notes").join("summary.json"))["message"].as_str().unwrap().to_owned();
    assert!(output.err.contains(&message), "{output:?}");
    insta::assert_snapshot!(message);
    let shown = workplace.xrun(&["show", "latest"]);
    assert!(shown.code == 0 && shown.out.contains(&message), "{shown:?}");
}

#[test]
fn progress_bars_are_recognised_without_a_pattern() {
    let workplace = Workplace::new();
    let bars = "for i in 1 2 3 4 5; do printf '\\r  1%%|#   | %d/100 [00:01<00:32, 9it/s, loss=0.%d]' $i $i >&2; sleep 0.05; done";
    let output = workplace.exits(0, &["watch", "--every", "20ms", "--", "sh", "-c", bars]);
    let summary = json(&workplace.latest("sh").join("summary.json"));
    assert_eq!((&summary["steps"], &summary["loss_last"]), (&5.into(), &0.5.into()), "{summary}");
    insta::assert_snapshot!(lines_with(&output.err, "tqdm"));
}

/// Draws a bar without a title for data that are read, and then prints the steps of a training that keeps memory.
const PREPARED: &str = include_str!("../scripts/prepared.py");

#[test]
fn a_bar_of_the_preparation_hides_no_leak_of_the_training() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    workplace.exits(106, &["watch", "--every", "10ms", "--fail-on", "growing", "--", "python3", "-c", PREPARED]);
    let run = workplace.latest("python3");
    let [verdict, summary, manifest] =
        ["verdict.json", "summary.json", "manifest.json"].map(|name| json(&run.join(name)));
    assert_eq!((&verdict["verdict"], &verdict["axis"]), (&"growing".into(), &"steps".into()), "{verdict}");
    assert_eq!((&summary["steps"], &summary["loss_last"]), (&200.into(), &0.005.into()), "{summary}");
    assert!(manifest["watched"]["steps"].as_str().is_some_and(|steps| steps.contains("`step`")), "{manifest}");
    let slope = series(&verdict, "owner:main/private")["slope"].as_f64().unwrap();
    assert!((slope / KEPT - 1.0).abs() < 0.1, "{slope} bytes a step: {verdict}");
    // Samples of the preparation have no step.
    let steps: Vec<u64> = lines(&run.join("memory.jsonl")).iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert!(steps.is_sorted() && steps[0] == 0 && steps.last() == Some(&200), "{steps:?}");
    assert_eq!(workplace.xrun(&["verdict", "latest", "--json"]).json(), verdict, "the trace says the same");
}

/// Grows a file without a name that nobody maps, or with an argument does nothing with as many steps.
const UNMAPPED: &str = include_str!("../scripts/unmapped.py");

#[test]
fn memory_that_no_process_maps_is_found() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    workplace.exits(0, &["watch", "--every", "10ms", "--", "python3", "-c", UNMAPPED]);
    let verdict = json(&workplace.latest("python3").join("verdict.json"));
    assert_eq!((&verdict["verdict"], &verdict["owner"]), (&"growing".into(), &"/dev/shm".into()), "{verdict}");
    let slope = series(&verdict, "owner:/dev/shm")["slope"].as_f64().unwrap();
    assert!((slope / KEPT - 1.0).abs() < 0.1, "{slope} bytes a step: {verdict}");
}

/// Appends to a file in /dev/shm until it is killed, or for a minute.
const NEIGHBOUR: &str = include_str!("../scripts/neighbour.py");

#[test]
fn files_of_a_neighbour_in_shared_memory_do_not_count() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let path = format!("/dev/shm/xrun-neighbour-{:x}", std::process::id());
    let Ok(file) = std::fs::File::create(&path) else { return skipped("there is no /dev/shm") };
    let neighbour = Command::new("python3").args(["-c", NEIGHBOUR, &path]).spawn().unwrap();
    wait_until("the neighbour writes", || file.metadata().unwrap().len() > 0);
    let output = workplace.xrun(&["watch", "--every", "10ms", "--", "python3", "-c", UNMAPPED, "level"]);
    end(neighbour);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.code, 0, "{output:?}");
    let verdict = json(&workplace.latest("python3").join("verdict.json"));
    assert!(!["growing", "slowing", "suspect"].contains(&verdict["verdict"].as_str().unwrap()), "{verdict}");
    assert!(series(&verdict, "held")["peak"].as_f64().unwrap() < 64.0 * 1024.0 * KEPT, "{verdict}");
}

#[test]
fn it_is_said_where_no_step_was_found() {
    let workplace = Workplace::new();
    let output = workplace.exits(0, &["watch", "--", "sh", "-c", "echo ready; echo done"]);
    let message = json(&workplace.latest("sh").join("summary.json"))["message"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(message);
    assert!(output.err.contains(&message), "{output:?}");
}

/// Says what terminal it sees, waits for another size, and draws a bar.
const SEES: &str = include_str!("../scripts/sees.py");

#[test]
fn a_command_whose_output_is_read_still_sees_the_terminal_and_its_size() {
    if !has_python() {
        return;
    }
    let workplace = Workplace::new();
    let inner = workplace.file("sees.py", SEES);
    let arguments = ["watch", "--name", "trial", "-q", "--", "python3", inner.to_str().unwrap()];
    let mut terminal = Terminal::open(workplace.command(&arguments), 77);
    terminal.wait_for("True True 77\r\n");
    resize(&terminal.ours, 99);
    terminal.wait_for("now 99\r\n");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0), "{}", terminal.text());
    let summary = json(&workplace.latest("trial").join("summary.json"));
    assert_eq!(summary["steps"], 3, "it was recognised without being asked: {summary}");
}
