//! `xrun verdict FILE` on files of other tools.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::workplace::{Workplace, json, redacted, redacted_names, series, text, unsealed};

const MIB: f64 = 1024.0 * 1024.0;

fn near(measured: &Value, expected: f64, what: &str) {
    let measured = measured.as_f64().unwrap();
    assert!((measured / expected - 1.0).abs() < 0.05, "{what}: {measured}, expected {expected}");
}

#[test]
fn a_memory_jsonl_may_begin_late() {
    let workplace = Workplace::new();
    workplace.file("leak.toml", "[pipeline.dummy]\nsteps_per_epoch = 300\nleak_per_step = \"256 KiB\"\n");
    assert_eq!(workplace.xrun(&["leak.toml", "-q"]).code, 0);
    let late: String = unsealed(&text(&workplace.latest("leak").join("memory.jsonl")))
        .lines()
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            line["step"] = (line["step"].as_u64().unwrap() + 1_000_000).into();
            format!("{line}\n")
        })
        .collect();
    workplace.file("late.jsonl", &late);
    let said = workplace.xrun(&["verdict", "late.jsonl", "--fail-on", "growing"]);
    assert_eq!(said.code, 6, "{said:?}");
    let verdict = workplace.xrun(&["verdict", "late.jsonl", "--json"]).json();
    near(&series(&verdict, "heap")["slope"], MIB / 4.0, "bytes a step");
    let said = workplace.xrun(&["verdict", "late.jsonl", "--unit", "MB"]);
    assert_eq!(said.code, 2, "{said:?}");
    insta::assert_snapshot!(said.err);
}

#[test]
fn damaged_lines_in_the_middle_are_left_out_and_counted_and_the_rest_is_judged() {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\nsteps_per_epoch = 400\n");
    assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
    let run = workplace.latest("trial");
    let path = run.join("memory.jsonl");
    let memory = text(&path);
    let judged = |path: &std::path::Path| {
        let said = workplace.xrun(&["verdict", path.to_str().unwrap(), "--json"]);
        assert_eq!(said.code, 0, "{said:?}");
        said.json()
    };
    let before = judged(&run);
    // As a disk that was full for a moment left it: the beginning of a line, and the next one behind it.
    let torn: String = memory
        .lines()
        .enumerate()
        .map(|(at, line)| if at == 100 { line[..40].to_owned() } else { format!("{line}\n") })
        .collect();
    std::fs::write(&path, torn).unwrap();
    for place in [&run, &path] {
        let after = judged(place);
        assert_eq!(after["verdict"], before["verdict"], "{after}");
        let note = after["message"].as_str().unwrap().rsplit("; ").next().unwrap();
        insta::assert_snapshot!("note_on_a_damaged_line", note);
    }
    let said = workplace.xrun(&["show", run.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!((said.out + &said.err).contains("memory.jsonl"));
    std::fs::write(&path, "nothing\nof it\n").unwrap();
    let said = workplace.xrun(&["verdict", path.to_str().unwrap()]);
    assert_eq!(said.code, 1, "there is nothing to judge: {said:?}");
    insta::assert_snapshot!("trace_without_a_whole_line", redacted(&said.err));
}

/// Each line has its check and is as it was written.
#[test]
fn a_memory_jsonl_whose_lines_changed_places_is_refused() {
    let workplace = Workplace::new();
    workplace.file("trial.toml", "[pipeline.dummy]\nsteps_per_epoch = 50\n");
    assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
    let memory = text(&workplace.latest("trial").join("memory.jsonl"));
    let mut lines: Vec<&str> = memory.lines().collect();
    lines.swap(0, 30);
    workplace.file("swapped.jsonl", &(lines.join("\n") + "\n"));
    let said = workplace.xrun(&["verdict", "swapped.jsonl"]);
    assert_eq!(said.code, 1, "{said:?}");
    insta::assert_snapshot!(said.err);
}

#[test]
fn a_wrong_command_line_is_2_and_a_wrong_file_1() {
    let workplace = Workplace::new();
    workplace.file("plain.csv", "step,rss_mb,note\n1,5,warm\n2,5,warm\n");
    let mprof = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/xrun-verdict/tests/traces/mprof_flat.dat");
    let mprof = mprof.to_str().unwrap();
    let mut refusals = String::new();
    for (arguments, code) in [
        (&["plain.csv", "--column", "rss"][..], 2),
        (&["plain.csv", "--step-column", "Stp"], 2),
        (&["plain.csv", "--unit", "apples"], 2),
        (&["plain.csv", "--of", "16"], 2),
        (&[mprof, "--step-column", "time"], 2),
        (&["nothing_of_this_name"], 2),
        (&["nothing.csv"], 2),
        (&["plain.csv", "--column", "note"], 1),
    ] {
        let said = workplace.xrun(&[&["verdict"], arguments].concat());
        assert_eq!(said.code, code, "{said:?}");
        refusals += &format!("verdict {}\n{}\n", arguments.join(" "), said.err);
    }
    for (name, text) in [
        ("empty.csv", ""),
        ("back.csv", "step,bytes\n5,1\n4,1\n"),
        ("words.csv", "step,bytes\n1,many\n"),
        ("none.csv", "step,time_ms\n1,5\n"),
        ("steps.csv", "step,bytes\nx,5\n"),
        ("twice.csv", "step,time,time\n1,5,6\n"),
        ("unit.csv", "step,value,other\n1,500,600\n"),
        ("commas.csv", "step,rss_mb,cpu\n1,1500,5,40,2\n2,1500,7,41,3\n"),
        ("beyond.csv", "step,rss_gb\n1,90000\n"),
        ("open.csv", &format!("step,bytes\n1,\"{}", "7,\n".repeat(200_000))),
        ("zero.csv", "step,uid,a\n1,0,0\n"),
        ("long.csv", &format!("step bytes\n1 {}\n", "7".repeat(2_000_000))),
        ("binary.csv", "step,bytes\n1,\0\n"),
    ] {
        workplace.file(name, text);
        let said = workplace.xrun(&["verdict", name]);
        assert_eq!(said.code, 1, "{name}: {said:?}");
        refusals += &format!("verdict {name}\n{}\n", said.err);
    }
    insta::assert_snapshot!(redacted_names(&refusals));
}

#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_not_waited_for() {
    let workplace = Workplace::new();
    let pipe = |path: PathBuf| {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    };
    pipe(workplace.path("pipe.csv"));
    pipe(workplace.path("pipe.jsonl"));
    std::os::unix::fs::symlink("/dev/zero", workplace.path("zero.csv")).unwrap();
    for run in ["memory.jsonl", "verdict.json", "plan.json", "resolved.toml"] {
        let directory = workplace.path(&format!("run_{run}"));
        std::fs::create_dir_all(&directory).unwrap();
        std::os::unix::fs::symlink("/dev/zero", directory.join(run)).unwrap();
    }
    let runs =
        ["run_memory.jsonl", "run_verdict.json", "run_plan.json", "run_resolved.toml"].map(|run| format!("./{run}"));
    let mut messages = String::new();
    for path in
        ["pipe.csv", "pipe.jsonl", "zero.csv", "/dev/null"].iter().copied().chain(runs.iter().map(String::as_str))
    {
        let said = workplace.xrun(&["verdict", path]);
        assert_eq!(said.code, 1, "{path}: {said:?}");
        messages += &said.err;
    }
    insta::assert_snapshot!(redacted_names(&messages));
}

#[test]
fn a_unit_that_is_unknown_is_said_and_growth_fails_all_the_same() {
    let workplace = Workplace::new();
    let rows = |header: &str, row: &dyn Fn(u64) -> String| {
        (0..300).fold(format!("{header}\n"), |text, number| text + &row(number) + "\n")
    };
    workplace.file("unknown.csv", &rows("step,gpu_mem,cpu_mb", &|row| format!("{row},{},900", 4004 + 5 * row)));
    let said = workplace.xrun(&["verdict", "unknown.csv", "--fail-on", "suspect"]);
    assert_eq!(said.code, 6, "{said:?}");
    insta::assert_snapshot!("a_table_with_an_unknown_unit", said.out + &said.err);
    let said = workplace.xrun(&["verdict", "unknown.csv", "--json"]);
    let verdict = said.json();
    let unit = |name: &str| {
        let one = series(&verdict, name);
        (one["unit"].clone(), one["unit_source"].clone())
    };
    assert_eq!(unit("gpu_mem"), ("unknown".into(), "unknown".into()));
    assert_eq!(unit("cpu_mb"), ("bytes".into(), "header".into()));
    assert_eq!(verdict["not_judged"][0]["column"], "step");
    let known = workplace.xrun(&["verdict", "unknown.csv", "--unit", "MiB", "--json"]).json();
    assert_eq!(series(&known, "gpu_mem")["last"], 5499.0 * MIB);
    // Bytes are likely, and assumed aloud.
    workplace.file("assumed.csv", &rows("step,heap", &|row| format!("{row},{}", 3_000_000_000 + row)));
    let said = workplace.xrun(&["verdict", "assumed.csv", "--fail-on", "suspect"]);
    assert_eq!(said.code, 0, "{said:?}");
    insta::assert_snapshot!("a_table_with_an_assumed_unit", said.out + &said.err);
    // Of 100 %, an option says how much it is.
    workplace.file("percent.csv", &rows("step,mem_percent", &|row| format!("{row},{}", 25.0 + row as f64 / 100.0)));
    let percent = workplace.xrun(&["verdict", "percent.csv", "--json", "--of", "64GiB"]).json();
    assert_eq!(series(&percent, "mem_percent")["first"], 16.0 * 1024.0 * MIB);
    assert_eq!(workplace.xrun(&["verdict", "percent.csv", "--fail-on", "growing"]).code, 6);
}

#[test]
fn a_column_of_memory_that_cannot_be_read_fails_unless_others_are_chosen() {
    let workplace = Workplace::new();
    let rows = (0..300).fold("step,gpu_mem_mb,rss_mb\n".to_owned(), |text, step| text + &format!("{step},many,900\n"));
    workplace.file("unreadable.csv", &rows);
    assert_eq!(workplace.xrun(&["verdict", "unreadable.csv"]).code, 0);
    let said = workplace.xrun(&["verdict", "unreadable.csv", "--fail-on", "growing"]);
    assert_eq!(said.code, 6, "{said:?}");
    insta::assert_snapshot!(said.err);
    let chosen = ["verdict", "unreadable.csv", "--fail-on", "growing", "--column", "rss_mb"];
    assert_eq!(workplace.xrun(&chosen).code, 0);
}

#[test]
fn the_terminal_shows_what_moved_and_what_grows_first() {
    let workplace = Workplace::new();
    let rows = (0..400u64).fold("step,a_mb,b_mb,c_mb,d_mb,e_mb\n".to_owned(), |text, step| {
        text + &format!("{step},500,{},{},500,{}\n", 500 + step, 500 + 3 * step, 500 + step % 2)
    });
    workplace.file("many.csv", &rows);
    let said = workplace.xrun(&["verdict", "many.csv"]);
    let order: Vec<&str> = said
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|word| word.ends_with("_mb"))
        .collect();
    assert_eq!(order, ["c_mb", "b_mb", "e_mb"], "{said:?}");
    insta::assert_snapshot!(said.out);
    let verdict = workplace.xrun(&["verdict", "many.csv", "--json"]).json();
    assert_eq!(verdict["series"].as_array().unwrap().len(), 5);

    workplace.file("dummy.toml", "[pipeline.dummy]\nsteps_per_epoch = 100\n[training]\nepochs = 3\n");
    assert_eq!(workplace.xrun(&["dummy.toml", "-q"]).code, 0);
    let said = workplace.xrun(&["verdict", "latest"]);
    assert!(said.out.contains("\nheap ") && !said.out.contains("\nowner:"), "rows of small buffers: {said:?}");
    assert_eq!(json(&workplace.latest("dummy").join("verdict.json"))["axis"], "steps");
}

/// Host memory of a vision-language trainer, eight samples within its first epoch of 83 steps, from the first report of a growth
/// that its authors found later to end with the epoch: <https://github.com/leokeba/model-garden>
/// (`UNSLOTH_MEMORY_LEAK_BUG_REPORT.md`).
const WITHIN_AN_EPOCH: [u64; 8] = [5552, 7159, 8851, 10375, 12000, 13757, 15559, 17412];

/// The peak of a GPU's memory every ten batches of one validation: <https://github.com/salesforce/LAVIS/issues/84>.
const THROUGH_A_VALIDATION: [u64; 15] =
    [9518, 9555, 9594, 9633, 9671, 9709, 9747, 9785, 9824, 9862, 9900, 9938, 9976, 10015, 10053];

#[test]
fn published_series_are_not_told_more_surely_than_they_can_be() {
    let workplace = Workplace::new();
    let table = |column: &str, first: usize, values: &[u64]| -> String {
        let row = |(number, value): (usize, &u64)| format!("{},{value}\n", first + 10 * number);
        std::iter::once(format!("step,{column}\n")).chain(values.iter().enumerate().map(row)).collect()
    };
    workplace.file("images.csv", &table("process_mb", 10, &WITHIN_AN_EPOCH));
    let said = workplace.xrun(&["verdict", "images.csv", "--fail-on", "growing"]);
    assert_eq!(said.code, 0, "eight samples say that it rises, and not that it goes on: {said:?}");
    insta::assert_snapshot!("a_series_within_an_epoch", said.out);
    workplace.file("validation.csv", &table("max_mem_mb", 0, &THROUGH_A_VALIDATION));
    let said = workplace.xrun(&["verdict", "validation.csv", "--fail-on", "growing"]);
    assert_eq!(said.code, 6, "{said:?}");
    // 38.2 MB in ten batches.
    insta::assert_snapshot!("a_series_through_a_validation", said.out);
}
