//! `xrun verdict FILE` on files of other tools.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::workplace::{Output, Workplace, json, redacted, redacted_names, series, text, unsealed};

const MIB: f64 = 1024.0 * 1024.0;

/// A trace that the tool itself wrote; `record.sh` beside them makes them.
fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/xrun-verdict/tests/traces").join(name)
}

fn verdict_on(workplace: &Workplace, name: &str, more: &[&str]) -> (Output, Value) {
    let path = trace(name);
    let said = workplace.xrun(&[&["verdict", path.to_str().unwrap(), "--json"], more].concat());
    assert_eq!(said.code, 0, "{name}: {said:?}");
    let verdict = said.json();
    (said, verdict)
}

/// Bytes a second, by two samples of a series far apart: what the slope should be.
fn rate(samples: &[(f64, f64)]) -> f64 {
    let (early, late) = (samples[samples.len() / 4], samples[samples.len() * 3 / 4]);
    (late.1 - early.1) / (late.0 - early.0)
}

fn near(measured: &Value, expected: f64, what: &str) {
    let measured = measured.as_f64().unwrap();
    assert!((measured / expected - 1.0).abs() < 0.05, "{what}: {measured}, expected {expected}");
}

/// Seconds and bytes of the lines that begin with `start`.
fn of_mprof(name: &str, start: &str) -> Vec<(f64, f64)> {
    let text = text(&trace(name));
    let lines = text.lines().filter_map(|line| line.strip_prefix(start));
    lines
        .map(|line| {
            let mut numbers = line.split_whitespace().map(|number| number.parse::<f64>().unwrap());
            let size = numbers.next().unwrap() * MIB;
            (numbers.next().unwrap(), size)
        })
        .collect()
}

#[test]
fn a_trace_of_mprof_is_judged_with_its_children_and_its_marks() {
    let workplace = Workplace::new();
    let (said, verdict) = verdict_on(&workplace, "mprof_leak.dat", &[]);
    insta::assert_snapshot!(said.err);
    assert_eq!((&verdict["verdict"], &verdict["axis"]), (&"growing".into(), &"milliseconds".into()), "{verdict}");
    let samples = of_mprof("mprof_leak.dat", "MEM ");
    let memory = series(&verdict, "memory");
    let slope = memory["slope"].as_f64().unwrap() * 1e3;
    near(&slope.into(), rate(&samples), "bytes a second");
    assert_eq!(memory["first"].as_f64().unwrap(), samples[0].1.floor());
    insta::assert_snapshot!("message_on_a_trace_of_mprof", verdict["message"].as_str().unwrap());

    let (_, verdict) = verdict_on(&workplace, "mprof_flat.dat", &["--fail-on", "suspect"]);
    assert_eq!(verdict["verdict"], "bounded", "{verdict}");

    let (_, verdict) = verdict_on(&workplace, "mprof_children.dat", &[]);
    let children: Vec<&Value> = verdict["series"].as_array().unwrap().iter().collect();
    let verdicts = |name: &str| children.iter().filter(|one| one["verdict"] == name).count();
    assert_eq!((children.len(), verdicts("growing")), (3, 1), "one child leaks: {verdict}");

    let (said, verdict) = verdict_on(&workplace, "mprof_functions.dat", &[]);
    insta::assert_snapshot!("function_marks_of_mprof", said.err);
    let slope = series(&verdict, "memory")["slope"].as_f64().unwrap() * 1e3;
    near(&slope.into(), rate(&of_mprof("mprof_functions.dat", "MEM ")), "bytes a second");
}

#[test]
fn logs_of_psrecord_are_judged_in_both_formats() {
    let workplace = Workplace::new();
    for (name, column) in [("psrecord_leak.txt", "Real (MB)"), ("psrecord_leak.csv", "mem_real")] {
        let rows = text(&trace(name)).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        let samples: Vec<(f64, f64)> = rows
            .iter()
            .map(|row| {
                let cells: Vec<f64> =
                    row.split([',', ' ']).filter(|cell| !cell.is_empty()).map(|cell| cell.parse().unwrap()).collect();
                // Elapsed time; the second column is the share of the processor in one, the number of processes in the other.
                (cells[0], cells[if cells.len() == 4 { 2 } else { 3 }] * MIB)
            })
            .collect();
        let (said, verdict) = verdict_on(&workplace, name, &[]);
        assert_eq!(verdict["verdict"], "growing", "{name}: {verdict}");
        let slope = series(&verdict, column)["slope"].as_f64().unwrap() * 1e3;
        near(&slope.into(), rate(&samples), name);
        insta::assert_snapshot!(name, said.err);
    }
    let (_, verdict) = verdict_on(&workplace, "psrecord_io.txt", &[]);
    assert_eq!(verdict["verdict"], "bounded", "{verdict}");
    let (_, verdict) = verdict_on(&workplace, "psrecord_leak.txt", &["--column", "Virtual (MB)"]);
    assert_eq!((&verdict["series"][0]["name"], &verdict["verdict"]), (&"Virtual (MB)".into(), &"growing".into()));
}

#[test]
fn a_page_of_memray_holds_a_series_and_its_other_files_do_not() {
    let workplace = Workplace::new();
    let page = text(&trace("memray_flamegraph.html"));
    let records = page.split("memory_records = ").nth(1).unwrap().split(";").next().unwrap();
    let records: Vec<(f64, f64, f64)> = serde_json::from_str(records).unwrap();
    let heap: Vec<(f64, f64)> = records.iter().map(|(time, _, heap)| (time / 1e3, *heap)).collect();
    let (_, verdict) = verdict_on(&workplace, "memray_flamegraph.html", &[]);
    assert_eq!(verdict["verdict"], "growing", "{verdict}");
    near(&(series(&verdict, "heap")["slope"].as_f64().unwrap() * 1e3).into(), rate(&heap), "heap");
    assert_eq!(series(&verdict, "rss")["last"].as_f64().unwrap(), records.last().unwrap().1);
    let mut messages = String::new();
    for (name, text) in [
        (
            "memray.csv",
            "allocator,num_allocations,size,tid,thread_name,stack_trace\nMALLOC,1,1340,1,0x1,main;leak.py;5\n",
        ),
        ("memray.json", "{\n  \"total_num_allocations\": 526,\n  \"total_bytes_allocated\": 83729071\n}\n"),
    ] {
        workplace.file(name, text);
        let said = workplace.xrun(&["verdict", name]);
        assert_eq!(said.code, 1, "{said:?}");
        messages += &said.err;
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn what_free_and_vmstat_print_is_judged() {
    let workplace = Workplace::new();
    let used = |name: &str| -> Vec<f64> {
        let text = text(&trace(name));
        let rows = text.lines().filter_map(|line| line.strip_prefix("Mem:"));
        rows.map(|row| row.split_whitespace().nth(1).unwrap().parse().unwrap()).collect()
    };
    for (name, unit, axis) in [("free_m.txt", MIB, "sample_thousandths"), ("free_date.txt", 1.0, "milliseconds")] {
        let (_, verdict) = verdict_on(&workplace, name, &[]);
        let (one, used) = (series(&verdict, "used").clone(), used(name));
        assert_eq!(verdict["axis"], axis, "{name}");
        assert_eq!(one["first"].as_f64(), Some(used[0] * unit), "{name}");
        assert_eq!(one["last"].as_f64(), Some(used[used.len() - 1] * unit), "{name}");
        let peak = used.iter().copied().fold(0.0, f64::max);
        assert_eq!(one["peak"].as_f64(), Some(peak * unit), "{name}");
    }
    let (_, verdict) = verdict_on(&workplace, "vmstat_t.txt", &[]);
    let rows = text(&trace("vmstat_t.txt"));
    let rows = rows.lines().filter(|line| line.trim_start().starts_with(|letter: char| letter.is_ascii_digit()));
    let unused: Vec<f64> =
        rows.map(|row| row.split_whitespace().skip(3).take(3).map(|cell| cell.parse::<f64>().unwrap()).sum()).collect();
    let most = unused.iter().copied().fold(0.0, f64::max);
    let one = series(&verdict, "used");
    assert_eq!(verdict["axis"], "milliseconds");
    assert_eq!(one["first"].as_f64(), Some((most - unused[0]) * 1024.0));
    assert_eq!(one["last"].as_f64(), Some((most - unused[unused.len() - 1]) * 1024.0));

    // The same machine with a leak of 100 MiB a second on top.
    let mut second = 0;
    let leak: String = text(&trace("free_m.txt"))
        .lines()
        .map(|line| match line.strip_prefix("Mem:") {
            Some(cells) => {
                second += 1;
                let cells: Vec<u64> = cells.split_whitespace().map(|cell| cell.parse().unwrap()).collect();
                format!(
                    "Mem: {} {} {} {} {} {}\n",
                    cells[0],
                    3000 + 100 * second,
                    cells[2],
                    cells[3],
                    cells[4],
                    cells[5]
                )
            }
            None => format!("{line}\n"),
        })
        .collect();
    workplace.file("leak.txt", &leak);
    let said = workplace.xrun(&["verdict", "leak.txt", "--fail-on", "growing"]);
    assert_eq!(said.code, 6, "{said:?}");
    let verdict = workplace.xrun(&["verdict", "leak.txt", "--json"]).json();
    near(&(series(&verdict, "used")["slope"].as_f64().unwrap() * 1e3).into(), 100.0 * MIB, "bytes a sample");
}

#[test]
fn tables_of_nvidia_smi_are_judged_a_gpu_at_a_time() {
    let workplace = Workplace::new();
    let table = |unit: &str| {
        let mut text =
            "timestamp, index, name, memory.used [MiB], memory.total [MiB], utilization.gpu [%]\n".to_owned();
        for second in 0..600u64 {
            for gpu in 0..2 {
                let used = if gpu == 1 { 4000 + second } else { 12_000 };
                text += &format!(
                    "2024/01/02 {:02}:{:02}:{:02}.{:03}, {gpu}, NVIDIA A100-SXM4-80GB, {used}{unit}, 81920{unit}, 97\n",
                    10 + second / 3600,
                    second / 60 % 60,
                    second % 60,
                    345 + gpu
                );
            }
        }
        text
    };
    for (name, unit) in [("units.csv", " MiB"), ("nounits.csv", "")] {
        workplace.file(name, &table(unit));
        let said = workplace.xrun(&["verdict", name, "--fail-on", "growing"]);
        assert_eq!(said.code, 6, "{said:?}");
        // A constant series is not in the table.
        insta::assert_snapshot!("tables_of_nvidia_smi", said.out + &said.err);
        let verdict = workplace.xrun(&["verdict", name, "--json"]).json();
        let [constant, growing] = [0, 1].map(|gpu| series(&verdict, &format!("memory.used [MiB], GPU {gpu}")));
        assert_eq!((&constant["verdict"], &growing["verdict"]), (&"bounded".into(), &"growing".into()), "{verdict}");
        near(&(growing["slope"].as_f64().unwrap() * 1e3).into(), MIB, "bytes a second");
    }
    let rows = |row: u64| format!("2024/01/02 10:{:02}:{:02}.345, {} MiB\n", row / 60, row % 60, 4000 + row);
    workplace.file("noheader.csv", &(0..600).map(rows).collect::<String>());
    let said = workplace.xrun(&["verdict", "noheader.csv", "--json", "--fail-on", "growing"]);
    assert_eq!(said.code, 6, "{said:?}");
    let unnamed = &said.json()["series"][0];
    assert_eq!((&unnamed["unit_source"], &unnamed["last"]), (&"cells".into(), &(4599.0 * MIB).into()));
}

#[test]
fn tables_are_judged_by_steps_or_by_times() {
    let workplace = Workplace::new();
    let rows = |place: &str, grow: u64, at: &dyn Fn(u64) -> String| -> String {
        let row = |number: u64| format!("{},{},{}\n", at(number), 2_000_000_000 + number * grow, 500_000);
        std::iter::once(format!("{place},gpu_bytes,other\n")).chain((1..=400).map(row)).collect()
    };
    workplace.file("leaky.csv", &rows("step", 1_000_000, &|row| row.to_string()));
    workplace.file("flat.csv", &rows("step", 0, &|row| row.to_string()));
    let said = workplace.xrun(&["verdict", "leaky.csv", "--json", "--fail-on", "growing"]);
    assert_eq!(said.code, 6, "{said:?}");
    let verdict = said.json();
    assert_eq!((&verdict["verdict"], &verdict["axis"]), (&"growing".into(), &"steps".into()));
    assert_eq!(verdict["series"].as_array().unwrap().len(), 1, "half a million of unknown unit: {verdict}");
    let said = workplace.xrun(&["verdict", "flat.csv", "--fail-on", "suspect"]);
    assert_eq!(said.code, 0, "{said:?}");
    insta::assert_snapshot!("table_with_a_column_without_unit", said.out + &said.err);
    let mut columns = String::new();
    let mut judged = |file: &str, step_column: &[&str]| -> Value {
        let said = workplace.xrun(&[&["verdict", file, "--json"], step_column].concat());
        assert_eq!(said.code, 0, "{file}: {said:?}");
        columns += &format!("{file}: {}\n", said.err.lines().next().unwrap());
        said.json()
    };
    // A slope of 1 MiB in so many units of the axis; a window begins between samples, which may cost a thousandth.
    let grows_by = |verdict: &Value, axis: &str, units: f64| {
        assert_eq!((&verdict["verdict"], &verdict["axis"]), (&"growing".into(), &axis.into()), "{verdict}");
        let slope = series(verdict, "gpu_bytes")["slope"].as_f64().unwrap() * units;
        assert!((slope / MIB - 1.0).abs() < 0.002, "{slope}: {verdict}");
    };
    for (name, axis, units) in [
        ("Iteration", "steps", 1.0),
        ("iter", "steps", 1.0),
        ("global_step", "steps", 1.0),
        ("train/step", "steps", 1.0),
        ("epoch", "epoch_thousandths", 1e3),
        ("elapsed_s", "milliseconds", 1e3),
        ("timestamp", "milliseconds", 1e3),
        ("batch", "sample_thousandths", 1e3),
    ] {
        let file = format!("{}.csv", name.replace('/', "_"));
        workplace.file(&file, &rows(name, 1 << 20, &|row| row.to_string()));
        grows_by(&judged(&file, &[]), axis, units);
    }
    let iso = |row: u64| format!("2024-01-02T{:02}:{:02}:00Z", 10 + row / 60, row % 60);
    workplace.file("iso.csv", &rows("at", 1 << 20, &iso));
    grows_by(&judged("iso.csv", &["--step-column", "at"]), "milliseconds", 60e3);
    grows_by(&judged("batch.csv", &["--step-column", "batch"]), "steps", 1.0);
    insta::assert_snapshot!("columns_of_steps_and_times", columns);
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
    for words in [["show"], ["report"]] {
        let said = workplace.xrun(&[words[0], run.to_str().unwrap()]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!((said.out + &said.err).contains("memory.jsonl"), "{words:?}");
    }
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
    let mprof = trace("mprof_flat.dat");
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
fn columns_of_a_table_are_judged_by_their_names_and_units() {
    let workplace = Workplace::new();
    let table = |separator: &str, before: &str, number: &dyn Fn(f64) -> String| {
        let mut text = format!("{before}{}\n", ["step", "epoch", "time_ms", "rss_mb", "note"].join(separator));
        for step in 0..400u32 {
            let rss = number(1000.0 + 2.5 * f64::from(step));
            let time = 40_000_000 * u64::from(step);
            text += &format!("{step}{separator}{}{separator}{time}{separator}{rss}{separator}warm\n", step / 20);
        }
        text
    };
    workplace.file("plain.csv", &table(",", "", &|rss| rss.to_string()));
    workplace.file("quoted.csv", &table(",", "\u{feff}", &|rss| format!("\"{rss}\"")));
    workplace.file("semicolons.csv", &table(";", "", &|rss| rss.to_string().replace('.', ",")));
    workplace.file("tabs.tsv", &table("\t", "", &|rss| rss.to_string()));
    workplace.file("spaces.txt", &table("  ", "# ", &|rss| rss.to_string()));
    for name in ["plain.csv", "quoted.csv", "semicolons.csv", "tabs.tsv", "spaces.txt"] {
        let said = workplace.xrun(&["verdict", name, "--json"]);
        assert_eq!(said.code, 0, "{name}: {said:?}");
        let verdict = said.json();
        let series = verdict["series"].as_array().unwrap();
        assert_eq!(series.len(), 1, "{name}: {verdict}");
        assert_eq!((&series[0]["name"], &verdict["verdict"]), (&"rss_mb".into(), &"growing".into()));
        assert!((series[0]["slope"].as_f64().unwrap() - 2.5e6).abs() < 1.0, "megabytes, a step: {verdict}");
        assert!(series[0]["slope_per_epoch"].is_null() && verdict["process"].is_null(), "{verdict}");
        insta::assert_snapshot!(name, said.err);
    }
    let said = workplace.xrun(&["verdict", "plain.csv", "--column", "time_ms", "--json"]);
    let verdict = said.json();
    let names: Vec<&Value> = verdict["series"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!((said.code, names), (0, vec![&Value::from("time_ms")]));
    let others = verdict["not_judged"].as_array().unwrap();
    assert!(others.iter().any(|one| one["column"] == "rss_mb"), "{verdict}");
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
fn logs_and_json_lines_are_judged() {
    let workplace = Workplace::new();
    let lines = |row: &dyn Fn(u64) -> String| (0..300).map(|number| row(number) + "\n").collect::<String>();
    workplace.file("train.log", &lines(&|step| format!("step {step}: loss 2.5, rss {} MiB (+1 MiB)", 900 + step)));
    workplace.file("metrics.jsonl", &lines(&|step| format!("{{\"step\": {step}, \"rss_mib\": {}}}", 900 + step)));
    for name in ["train.log", "metrics.jsonl"] {
        let said = workplace.xrun(&["verdict", name, "--json", "--fail-on", "growing"]);
        assert_eq!(said.code, 6, "{said:?}");
        near(&said.json()["series"][0]["slope"], MIB, name);
    }
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
