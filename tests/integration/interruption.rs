//! Ctrl-C, SIGTERM and SIGKILL: complete files, and equal numbers after a resume.

use crate::workplace::{Output, Workplace, end, json, redacted, send, text, wait_for_lines, wait_until};

const EXPERIMENT: &str = include_str!("../experiments/tiny/interrupted.toml");

/// The metrics of a run that nobody disturbed.
fn undisturbed(workplace: &Workplace) -> String {
    workplace.exits(0, &["whole.toml", "-s", "pipeline.dummy.step_microseconds=0"]);
    text(&workplace.latest("whole").join("metrics.jsonl"))
}

fn workplace() -> Workplace {
    let workplace = Workplace::with("whole.toml", EXPERIMENT);
    workplace.file("cut.toml", EXPERIMENT);
    workplace
}

/// Starts `cut.toml`, waits for `lines` of metrics, and sends a signal.
fn cut(workplace: &Workplace, lines: usize, signal: i32) -> Output {
    let child = workplace.spawn(&["cut.toml"]);
    let latest = workplace.path("results/cut/latest");
    wait_for_lines(&latest, lines);
    send(&child, signal);
    Output::from(child.wait_with_output().unwrap())
}

#[test]
fn a_signal_is_answered_at_once_however_long_the_step() {
    let workplace = workplace();
    let settings = ["pipeline.dummy.step_microseconds=8000000", "limits.metrics_queue=1", "memory.probe=false"];
    let mut child = workplace.spawn(&[&["cut.toml"][..], &settings.map(|set| ["-s", set]).concat()].concat());
    let latest = workplace.path("results/cut/latest");
    wait_until("training starts", || latest.join("log.txt").exists());
    send(&child, libc::SIGINT);
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let answer = lines.map_while(Result::ok).skip_while(|line| !line.starts_with("stopping")).take(2);
    insta::assert_snapshot!(answer.collect::<Vec<String>>().join("\n"));
    let metrics = std::fs::read_to_string(latest.join("metrics.jsonl")).unwrap_or_default();
    assert!(!metrics.contains("\"kind\":\"train\""), "before the end of the first step: {metrics}");
    send(&child, libc::SIGINT);
    let code = child.wait().unwrap().code();
    // The first signal may have come before the first step, and the run may have ended before the second signal.
    let before_first_step = || json(&latest.join("summary.json"))["steps"] == 0;
    assert!(code == Some(128 + libc::SIGINT) || code == Some(8) && before_first_step(), "{code:?}");
}

#[test]
fn a_signal_while_memory_is_measured_is_answered_and_leaves_nothing() {
    let (workplace, mut messages) = (workplace(), Vec::new());
    for (arguments, signal) in [
        (["run", "cut.toml"], libc::SIGINT),
        (["run", "cut.toml"], libc::SIGTERM),
        (["plan", "cut.toml"], libc::SIGINT),
    ] {
        let mut child =
            workplace.spawn(&[&arguments[..], &["-s", "pipeline.dummy.step_microseconds=60000000"]].concat());
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let mut lines = lines.map_while(Result::ok);
        // The first line announces the probe.
        assert!(lines.next().is_some(), "{arguments:?}");
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(8), "{arguments:?}");
        messages.push(lines.last().unwrap());
        assert!(!workplace.path("results").exists(), "{arguments:?}");
    }
    messages.dedup();
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_signal_ends_the_run_with_a_checkpoint_and_a_resume_gives_the_same_bytes() {
    let workplace = workplace();
    let expected = undisturbed(&workplace);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGXCPU] {
        let output = cut(&workplace, 20, signal);
        assert!(output.code == 8 && output.err.contains("xrun resume results/cut/"), "{output:?}");
        let run = workplace.latest("cut");
        assert_eq!(json(&run.join("summary.json"))["outcome"], "interrupted");
        workplace.exits(0, &["resume", run.to_str().unwrap()]);
        let forecast = json(&run.join("summary.json"))["plan_and_actual"].clone();
        assert!(forecast.as_array().is_some_and(|pairs| !pairs.is_empty()), "the forecast is still there");
        assert_eq!(text(&run.join("metrics.jsonl")), expected);
        assert_eq!(json(&run.join("manifest.json"))["resumed"].as_array().unwrap().len(), 1);
        std::fs::remove_dir_all(workplace.path("results/cut")).unwrap();
    }
}

/// The shell and the kernel signal a terminal that goes away; whoever ends a session sends SIGTERM after that.
#[test]
fn a_terminal_that_goes_away_ends_the_run_once_however_often_it_is_told() {
    let workplace = workplace();
    let mut child = workplace.spawn(&["cut.toml", "-s", "pipeline.dummy.step_microseconds=200000"]);
    let latest = workplace.path("results/cut/latest");
    wait_until("the run is under way", || latest.join("metrics.jsonl").exists());
    // `timeout` sends SIGTERM to a program, and then to its group.
    for signal in [libc::SIGHUP, libc::SIGHUP, libc::SIGTERM, libc::SIGTERM, libc::SIGTERM] {
        send(&child, signal);
    }
    assert_eq!(child.wait().unwrap().code(), Some(8));
    assert_eq!(json(&latest.join("summary.json"))["outcome"], "interrupted");
    assert!(latest.join("verdict.json").is_file() && latest.join("checkpoints").is_dir());
}

#[test]
fn a_run_that_was_started_without_a_terminal_to_lose_goes_on() {
    let workplace = workplace();
    let mut command = workplace.command(&["cut.toml"]);
    // As `nohup` does.
    // SAFETY: a plain system call between fork and exec.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        });
    }
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let latest = workplace.path("results/cut/latest");
    wait_for_lines(&latest, 8);
    send(&child, libc::SIGHUP);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(text(&workplace.latest("cut").join("metrics.jsonl")), undisturbed(&workplace));
}

#[test]
fn what_a_kill_left_half_written_goes_with_the_resume_and_nothing_behind_a_link() {
    let workplace = workplace();
    assert_eq!(cut(&workplace, 12, libc::SIGKILL).code, -1);
    let (run, elsewhere) = (workplace.latest("cut"), workplace.path("elsewhere"));
    std::fs::create_dir(run.join("images")).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    let left = [run.join(".writing-abc123"), run.join("images/.writing-abc123")];
    let foreign = elsewhere.join(".writing-abc123");
    left.iter().chain([&foreign]).for_each(|path| std::fs::write(path, "half").unwrap());
    let stop = &["resume", run.to_str().unwrap(), "--until", "30"];
    workplace.exits(0, stop);
    assert!(left.iter().all(|path| !path.exists()));
    std::fs::remove_dir_all(run.join("images")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, run.join("images")).unwrap();
    workplace.exits(0, &["resume", run.to_str().unwrap()]);
    assert!(foreign.exists());
}

#[test]
fn killed_again_and_again_a_resumed_run_gives_the_same_bytes() {
    let workplace = workplace();
    assert_eq!(cut(&workplace, 8, libc::SIGKILL).code, -1);
    let run = workplace.latest("cut");
    assert!(!run.join("summary.json").exists(), "a killed run has not ended");
    let mut kills = 0;
    loop {
        let mut child = workplace.spawn(&["resume", run.to_str().unwrap()]);
        let begun = std::time::Instant::now();
        // Each time later, so that kills fall on different places of the loop.
        let patience = std::time::Duration::from_millis(60 + 37 * kills);
        while child.try_wait().unwrap().is_none() && begun.elapsed() < patience {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        if child.try_wait().unwrap().is_some() && run.join("summary.json").exists() {
            break;
        }
        let _ = child.kill();
        let _ = child.wait();
        kills += 1;
        assert!(kills < 60, "the run never ends");
    }
    assert!(kills >= 2, "{kills} kills are too few to mean anything");
    assert_eq!(text(&run.join("metrics.jsonl")), undisturbed(&workplace));
}

#[test]
fn a_run_that_is_being_written_is_not_resumed() {
    let workplace = workplace();
    let child = workplace.spawn(&["cut.toml", "-s", "pipeline.dummy.step_microseconds=50000"]);
    let latest = workplace.path("results/cut/latest");
    wait_until("the run starts", || latest.join("manifest.json").exists());
    insta::assert_snapshot!(redacted(&workplace.exits(1, &["resume", latest.to_str().unwrap()]).err));
    end(child);
}

#[test]
fn a_time_limit_stops_in_good_order_and_a_resume_with_more_time_finishes() {
    let workplace = workplace();
    workplace.exits(7, &["cut.toml", "-s", "training.time_limit=60ms"]);
    let run = workplace.latest("cut");
    workplace.exits(0, &["resume", run.to_str().unwrap(), "-s", "training.time_limit=1h"]);
    let manifest = json(&run.join("manifest.json"));
    let command = manifest["resume_commands"][0].as_array().unwrap();
    assert!(command.iter().any(|word| word == "training.time_limit=1h"), "{command:?}");
    insta::assert_snapshot!(redacted(manifest["origins"]["training.time_limit"].as_str().unwrap()));
    assert_eq!(text(&run.join("metrics.jsonl")), undisturbed(&workplace));
}

#[test]
fn a_resume_by_the_link_to_the_newest_run_stays_in_its_run() {
    let workplace = workplace();
    assert_eq!(cut(&workplace, 20, libc::SIGINT).code, 8);
    let run = workplace.latest("cut");
    let mut resumed = workplace.spawn(&["resume", "results/cut/latest"]);
    wait_until("the resumed run goes on", || !run.join("summary.json").exists());
    // Another run takes the link while the first one works.
    workplace.exits(0, &["cut.toml", "-s", "pipeline.dummy.step_microseconds=0"]);
    assert_eq!(resumed.wait().unwrap().code(), Some(0));
    assert_ne!(workplace.latest("cut"), run);
    assert_eq!(text(&run.join("metrics.jsonl")), undisturbed(&workplace));
    assert_eq!(json(&run.join("summary.json"))["run"], run.file_name().unwrap().to_str().unwrap());
}

#[test]
fn a_signal_before_the_first_step_ends_the_program_and_leaves_nothing() {
    let workplace = Workplace::new();
    let many = "videos_per_class = 400\nframe_size = 512\n";
    workplace.file(
        "large.toml",
        &format!("[pipeline.fewshot-detection]\n[model.reference-detector]\n[dataset.synthetic-video]\n{many}"),
    );
    let cache = workplace.path("cache");
    let mut command = workplace.command(&["large.toml"]);
    let mut child = command.env("XRUN_CACHE", &cache).stderr(std::process::Stdio::null()).spawn().unwrap();
    wait_until("data is generated", || cache.exists());
    send(&child, libc::SIGTERM);
    assert!(!child.wait().unwrap().success());
    assert!(!workplace.path("results").exists());
}

#[test]
fn an_abort_from_outside_ends_it() {
    let workplace = Workplace::with(
        "long.toml",
        "[pipeline.dummy]\nsteps_per_epoch = 100\nstep_microseconds = 60000000\n[memory]\nprobe = false\n",
    );
    let mut child = workplace.spawn(&["long.toml"]);
    wait_until("it runs", || workplace.path("results/long/latest/manifest.json").exists());
    send(&child, libc::SIGABRT);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(libc::SIGABRT));
}
