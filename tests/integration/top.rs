//! `xrun top`: its rows, and the restored terminal.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use crate::terminal::{Terminal, resize};
use crate::workplace::{Workplace, end, json, send, wait_until};

const SLOW: &str = "[pipeline.dummy]\nsteps_per_epoch = 100000\nstep_microseconds = 20000\n";

/// Starts a run that takes long, and waits until it has written some steps.
fn begin(workplace: &Workplace, name: &str, more: &[&str]) -> Child {
    workplace.file(&format!("{name}.toml"), SLOW);
    let file = format!("{name}.toml");
    // A leak of so many steps does not fit.
    let child = workplace.spawn(&[&[file.as_str(), "-q", "--force"], more].concat());
    let metrics = workplace.path("results").join(name).join("latest/metrics.jsonl");
    wait_until("steps", || std::fs::read(&metrics).is_ok_and(|bytes| bytes.len() > 2000));
    child
}

/// Running runs and the ten newest that ended.
fn once(workplace: &Workplace, arguments: &[&str]) -> String {
    let output = workplace.xrun(&[&["top", "--once", "-n", "10"], arguments].concat());
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{output:?}");
    output.out
}

/// The numbers of runs that are active and that have ended, from the first line.
fn counts(frame: &str) -> Vec<usize> {
    frame.lines().next().unwrap().split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn row<'a>(frame: &'a str, word: &str) -> &'a str {
    frame.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("no {word} in\n{frame}"))
}

#[test]
fn runs_that_go_on_have_ended_or_were_killed_are_seen_with_their_state() {
    let workplace = Workplace::new();
    insta::assert_snapshot!(once(&workplace, &[]));
    workplace.finished("done", "[pipeline.dummy]\n");
    end(begin(&workplace, "dead", &[]));
    let going_on = begin(&workplace, "live", &["-s", "training.time_limit=\"1h\""]);
    let frame = once(&workplace, &[]);
    assert_eq!(counts(&frame), [1, 2], "{frame}");
    assert!(row(&frame, " done ").contains("finished") && row(&frame, " done ").contains("10/10 100 %"), "{frame}");
    assert!(row(&frame, " dead ").contains("killed") && frame.contains("SIGKILL"), "{frame}");
    let live = row(&frame, " live ");
    for part in ["training", "/100000   0 %", "MiB", "inconclusive"] {
        assert!(live.contains(part), "{part}: {frame}");
    }
    // 100,000 steps of 20 ms take more than half an hour.
    assert!(live.contains(" min ") || live.contains(" h "), "{frame}");
    let first = frame.lines().nth(3).unwrap();
    assert!(first.contains(" live "), "what goes on comes first: {frame}");
    let owners = frame.lines().nth(4).unwrap();
    assert!(owners.starts_with("  ") && owners.contains("_lines "), "who holds memory: {frame}");
    // One of them, by its name and by its directory.
    for name in ["live", "results/live/latest"] {
        let one = once(&workplace, &[name]);
        assert!(one.contains(" live ") && !one.contains(" done "), "{one}");
    }
    let output = workplace.exits(2, &["top", "--once", "liv"]);
    insta::assert_snapshot!("no_run_of_this_name", output.err.lines().next().unwrap());
    end(going_on);
}

#[test]
fn a_run_that_leaks_is_seen_to_grow_before_it_ends() {
    let workplace = Workplace::new();
    let leak = ["-s", "pipeline.dummy.leak_per_step=\"1 MiB\"", "-s", "pipeline.dummy.leak_in_ledger=true"];
    let child = begin(&workplace, "leaky", &[&leak[..], &["-s", "pipeline.dummy.step_microseconds=2000"]].concat());
    let mut frame = String::new();
    wait_until("growth", || {
        frame = once(&workplace, &[]);
        row(&frame, " leaky ").contains("growing")
    });
    assert!(frame.contains("dummy_leak ") && frame.contains("1.0 MiB"), "{frame}");
    end(child);
}

#[test]
fn the_runs_of_a_sweep_are_seen_below_their_experiment() {
    let workplace = Workplace::with("swept.toml", "[pipeline.dummy]\n");
    workplace.exits(0, &["sweep", "swept.toml", "-s", "experiment.seed=1,2", "-q"]);
    let frame = once(&workplace, &[]);
    for run in ["0001-1", "0002-1"] {
        assert!(row(&frame, run).contains("swept") && row(&frame, run).contains("finished"), "{frame}");
    }
    assert!(once(&workplace, &["swept/sweeps/latest"]).contains("0002-1"));
    let shortened = workplace.xrun(&["top", "--once", "-n", "1"]).out;
    assert_eq!(shortened.matches(" swept ").count(), 1, "{shortened}");
    insta::assert_snapshot!(shortened.lines().last().unwrap());
    let running = workplace.xrun(&["top", "--once"]).out;
    assert!(counts(&running) == [0, 2] && !running.contains(" swept "), "{running}");
}

#[test]
fn broken_directories_are_named_and_their_texts_do_nothing_to_the_terminal() {
    let workplace = Workplace::with("results/evil\u{1b}[2J/2026-11-21T07-56-17_57d022/manifest.json", "{\u{1b}[31m");
    workplace.file("results/pipes/2026-11-21T07-56-18_57d022/summary.json", "{}");
    workplace.file("results/pipes/2026-11-21T07-56-18_57d022/run.lock", "");
    let memory = workplace.path("results/pipes/2026-11-21T07-56-18_57d022/memory.jsonl");
    let memory = std::ffi::CString::new(memory.to_str().unwrap()).unwrap();
    // SAFETY: a path that ends with NUL.
    assert_eq!(unsafe { libc::mkfifo(memory.as_ptr(), 0o600) }, 0);
    let frame = once(&workplace, &[]);
    assert!(!frame.contains('\u{1b}') && frame.contains("evil\\u{1b}[2J"), "{frame}");
    assert_eq!(frame.matches("unreadable").count(), 2, "{frame}");
}

#[test]
fn a_run_on_another_machine_is_told_with_its_name_and_when_it_was_seen() {
    let workplace = Workplace::new();
    end(begin(&workplace, "far", &[]));
    let run = workplace.latest("far");
    let mut note = json(&run.join("process.json"));
    note["host"] = "node\u{1b}7".into();
    std::fs::write(run.join("process.json"), note.to_string()).unwrap();
    let frame = once(&workplace, &[]);
    assert!(counts(&frame) == [1, 0] && frame.contains("node\\u{1b}7"), "{frame}");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(120);
    let age = |at| {
        for name in ["memory.jsonl", "metrics.jsonl", "log.txt", "process.json", "manifest.json"] {
            File::options().append(true).open(run.join(name)).unwrap().set_modified(at).unwrap();
        }
    };
    age(long_ago);
    let frame = once(&workplace, &[]);
    assert!(counts(&frame) == [1, 0] && frame.contains("2 min 0"), "{frame}");
    age(long_ago - Duration::from_secs(3600));
    let frame = once(&workplace, &[]);
    assert!(counts(&frame) == [0, 1] && frame.contains("killed"), "{frame}");
}

#[test]
fn a_report_of_a_run_that_goes_on_says_so_and_what_is_known_so_far() {
    let workplace = Workplace::new();
    let child = begin(&workplace, "live", &[]);
    let run = workplace.latest("live");
    let output = workplace.xrun(&["export", "live", "--to", "report"]);
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{output:?}");
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    for words in [">running<", " of 100000", "inconclusive"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!run.join("SHA256SUMS").exists(), "the list of digests is the run's own while it goes on");
    end(child);
    let output = workplace.xrun(&["export", "live", "--to", "report"]);
    let page = std::fs::read_to_string(run.join("report.html")).unwrap();
    assert!(output.code == 0 && !page.contains(">running<") && page.contains(">killed<"), "{output:?}");
}

impl Terminal {
    /// The newest whole frame, line by line, without what moves the cursor.
    fn frame(&mut self) -> Vec<String> {
        let text = self.text();
        let frames: Vec<&str> = text.split("\x1b[H").collect();
        let frame = frames[frames.len() - 2];
        let plain = |line: &str| {
            ["\x1b[K", "\x1b[J", "\x1b[1m", "\x1b[0m"].iter().fold(line.to_owned(), |line, code| line.replace(code, ""))
        };
        frame.split("\r\n").map(plain).collect()
    }

    /// Its exit code, once it has left, and the terminal is whole again.
    fn left(mut self) -> i32 {
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), None);
        let text = self.text();
        let last = |code: &str| text.rfind(code).unwrap_or_else(|| panic!("no {code:?} in {text:?}"));
        assert!(last("\x1b[?1049l") > last("\x1b[?1049h") && last("\x1b[?1049l") > last("\x1b[H"), "{text:?}");
        assert!(last("\x1b[?25h") > last("\x1b[?25l") && last("\x1b[?7h") > last("\x1b[?7l"), "{text:?}");
        status.code().unwrap()
    }
}

#[test]
fn a_narrow_terminal_is_drawn_on_follows_its_size_and_is_left_whole_by_signals() {
    let workplace = Workplace::new();
    let going_on = begin(&workplace, "live", &[]);
    for (signal, code) in [(None, 0), (Some(libc::SIGTERM), 8), (Some(libc::SIGHUP), 8)] {
        let mut terminal = Terminal::open(workplace.command(&["top", "--every", "100ms"]), 60);
        terminal.wait_for("training");
        terminal.wait_for("Ctrl-C: quit");
        // Another look has been drawn after it: the one before is whole.
        let frames = terminal.text().matches("\x1b[H").count();
        wait_until("another frame", || terminal.text().matches("\x1b[H").count() > frames + 1);
        let frame = terminal.frame();
        assert!(frame.iter().all(|line| line.trim_end_matches('\u{1b}').width() <= 62), "{frame:#?}");
        assert!(!frame.iter().any(|line| line.contains(" experiment ")), "no room for it: {frame:#?}");
        if signal.is_none() {
            resize(&terminal.ours, 140);
            terminal.wait_for(" experiment ");
        }
        match signal {
            Some(signal) => send(&terminal.child, signal),
            // Ctrl-C.
            None => terminal.ours.write_all(b"\x03").unwrap(),
        }
        assert_eq!(terminal.left(), code, "{signal:?}");
    }
    end(going_on);
}
