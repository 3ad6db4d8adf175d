//! Judgements on traces of each format; damaged traces give a verdict or an error.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::findings::SeriesVerdict;

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}

/// One trace of each format.
fn samples() -> Vec<String> {
    let recorded = [
        "mprof_children.dat",
        "mprof_functions.dat",
        "psrecord_io.txt",
        "psrecord_leak.csv",
        "memray_flamegraph.html",
        "free_date.txt",
        "free_m.txt",
        "vmstat_t.txt",
    ];
    let mut texts: Vec<String> =
        recorded.iter().map(|name| std::fs::read_to_string(traces().join(name)).unwrap()).collect();
    let rows = |header: &str, row: &dyn Fn(u64) -> String| {
        (0..200).fold(format!("{header}\n"), |text, number| text + &row(number) + "\n")
    };
    texts.push(rows("timestamp, index, memory.used [MiB]", &|row| {
        format!("2024/01/02 10:{:02}:{:02}.{:03}, {}, {} MiB", row / 120, row / 2 % 60, row % 2 * 3, row % 2, 500 + row)
    }));
    texts.push(rows("timestamp, memory.used [MiB]", &|row| {
        format!("2024/01/02 10:{:02}:{:02}.{:03}, {} MiB", row / 240, row / 4 % 60, row % 4 * 3, 500 + row)
    }));
    texts.push(rows("step;rss_mb;note", &|row| format!("{row};{},5;\"a;b\"", 100 + row)));
    texts.push(rows("time rss", &|row| format!("2024-01-02 10:{:02}:{:02} {}", row / 60, row % 60, 5_000_000 + row)));
    let log = |row: u64| format!("[rank{}]: step {} loss 2.5 mem {} MiB", row % 2, row / 2, 900 + row);
    texts.push(rows("Loading the model", &log));
    texts.push(rows("", &|row| format!("{{\"step\": {row}, \"gpu\": {{\"mem_mb\": {}}}}}", 900 + row)));
    texts.push(rows("| Step | RSS |\n|---|---|", &|row| format!("| {row} | {} MB (+5) |", 900 + row)));
    texts.push(rows("", &|row| {
        let header = "CONTAINER ID   NAME   CPU %   MEM USAGE / LIMIT   MEM %";
        format!("{header}\n1a2b   t   9.5%   {}MiB / 31GiB   3.9%", 900 + row)
    }));
    texts.push(rows("", &|row| {
        let block = "==============NVSMI LOG==============\nTimestamp                  : Mon Feb 24";
        format!(
            "{block} 10:{:02}:{:02} 2025\nGPU 00000000:CA:00.0\n    FB Memory Usage\n        Used : {} MiB",
            row / 60,
            row % 60,
            900 + row
        )
    }));
    texts.push(rows("epoch\trank\tgpu_bytes", &|row| format!("{}\t{}\t{}", row as f64 / 8.0, row % 4, row << 20)));
    texts
}

fn judged(text: &[u8], options: &TableOptions) -> Result<TableVerdict, TableError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, text).unwrap();
    judge_table(file.path(), options)
}

/// Asserts that an error is short, and that a verdict survives a round trip through JSON.
fn assert_sound(result: &Result<TableVerdict, TableError>) {
    match result {
        Err(error) => assert!(error.to_string().len() < 30_000, "{error}"),
        Ok(judged) => {
            let json = serde_json::to_string(&judged.verdict).unwrap();
            let read: Verdict = serde_json::from_str(&json).unwrap();
            assert_eq!(read.series.len(), judged.verdict.series.len());
            assert!(judged.verdict.series.len() <= SERIES_MAX && !judged.verdict.message.is_empty());
        }
    }
}

#[test]
fn each_format_is_judged() {
    let mut notes = Vec::new();
    for text in samples() {
        let judged = judged(text.as_bytes(), &TableOptions::default()).unwrap();
        let rises = judged.verdict.series.iter().any(|one| one.peak > one.first);
        assert!(rises, "{:?}: {}", judged.notes, judged.verdict.message);
        notes.extend(judged.notes);
    }
    insta::assert_snapshot!(notes.join("\n"));
}

#[test]
fn the_first_step_of_a_trace_may_be_large() {
    let rows = (0..1200u64).fold("step,gpu_bytes\n".to_owned(), |text, row| {
        text + &format!("{},{}\n", 1_000_001 + row, 2_000_000_000 + row * 524_288)
    });
    let verdict = judged(rows.as_bytes(), &TableOptions::default()).unwrap().verdict;
    assert_eq!(verdict.verdict, VerdictWord::Growing, "{}", verdict.message);
    assert!((verdict.series[0].findings.slope.unwrap() - 524_288.0).abs() < 1.0);
}

#[test]
fn each_process_is_judged_separately_and_the_worst_is_reported() {
    let process = |text: String, growth: f64| {
        (0..300).fold(text, |text, second| text + &format!("{second},{}\n", 2000.0 + growth * f64::from(second)))
    };
    let header = "elapsed_s,rss_mb\n".to_owned();
    let flat = judged(process(process(header.clone(), 0.0), 0.0).as_bytes(), &TableOptions::default()).unwrap();
    assert_eq!(flat.verdict.verdict, VerdictWord::Bounded);
    let notes = flat.notes.join("; ");
    let leak = judged(process(process(process(header, 0.0), 1.0), 0.0).as_bytes(), &TableOptions::default()).unwrap();
    assert_eq!(leak.verdict.verdict, VerdictWord::Growing);
    insta::assert_snapshot!(format!("{notes}\n{}", leak.verdict.message));
}

#[test]
fn a_clock_that_is_set_back_by_less_than_a_second_is_no_restart() {
    let rows = (0..300).fold("timestamp,rss_mb\n".to_owned(), |text, row| {
        let back = if row % 50 == 49 { 1.4 } else { 0.0 };
        text + &format!("{},{}\n", 1_700_000_000.0 + f64::from(row) - back, 2000 + row)
    });
    let judged = judged(rows.as_bytes(), &TableOptions::default()).unwrap();
    assert_eq!((judged.verdict.verdict, judged.notes.len()), (VerdictWord::Growing, 2), "{:?}", judged.notes);
}

#[test]
fn rates_have_a_unit_that_fits_the_length_of_the_trace() {
    let rows = |seconds: u64| {
        (0..600u64).fold("unix_time,rss_mb\n".to_owned(), |text, row| {
            text + &format!("{},{}\n", 1_700_000_000 + row * seconds, 2000 + row)
        })
    };
    let mut messages = Vec::new();
    for seconds in [1, 10, 300, 7200] {
        let verdict = judged(rows(seconds).as_bytes(), &TableOptions::default()).unwrap().verdict;
        // A window begins between samples: its minimum may be a little later.
        let expected = 1e6 / (seconds as f64 * 1e3);
        assert!((verdict.series[0].findings.slope.unwrap() / expected - 1.0).abs() < 0.01);
        messages.push(verdict.message);
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_unit_is_assumed_for_bytes_and_otherwise_unknown() {
    let rows = (0..300u64).fold("step,memory_mb,gpu_mem,alloc\n".to_owned(), |text, row| {
        text + &format!("{row},{},{},{}\n", 2000 + row, 2000 + row, 2_000_000_000 + row)
    });
    let found = judged(rows.as_bytes(), &TableOptions::default()).unwrap();
    let names: Vec<&str> = found.verdict.series.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["alloc", "gpu_mem", "memory_mb"]);
    let units: Vec<(&str, Option<UnitSource>)> =
        found.verdict.series.iter().map(|one| (one.unit.as_str(), one.unit_source)).collect();
    let expected = [("bytes", UnitSource::Assumed), ("unknown", UnitSource::Unknown), ("bytes", UnitSource::Header)];
    assert_eq!(units, expected.map(|(unit, source)| (unit, Some(source))));
    assert_eq!((found.verdict.series[0].last, found.verdict.series[1].last), (2_000_000_299.0, 2299.0));
    let options = |unit: &str| TableOptions {
        columns: vec!["gpu_mem".into()],
        unit: Some(unit.into()),
        ..TableOptions::default()
    };
    let found = judged(rows.as_bytes(), &options("MiB")).unwrap();
    assert_eq!((found.verdict.series[0].last, found.verdict.series.len()), (2299.0 * 1_048_576.0, 1));
    let error = judged(rows.as_bytes(), &options("apples")).unwrap_err();
    assert!(matches!(error, TableError::Options(_)), "{error}");
}

#[test]
fn several_gpus_are_distinguished_by_a_column_or_by_their_order() {
    let time = |row: u64, gpu: u64| format!("2024/01/02 10:{:02}:{:02}.{:03}", row / 60, row % 60, 345 + gpu * 4);
    let size = |row: u64, gpu: u64| if gpu == 2 { 500 + row } else { 9000 };
    let rows = |header: &str, row: &dyn Fn(u64, u64) -> String| {
        let rows = (0..400).flat_map(|number| (0..4).map(move |gpu| (number, gpu)));
        rows.fold(format!("{header}\n"), |text, (number, gpu)| text + &row(number, gpu) + "\n")
    };
    for (table, name) in [
        (
            rows("timestamp, name, index, memory.used [MiB], utilization.gpu [%]", &|row, gpu| {
                format!("{}, NVIDIA A100, {gpu}, {} MiB, {} %", time(row, gpu), size(row, gpu), row % 100)
            }),
            "memory.used [MiB], GPU 2",
        ),
        (
            rows("timestamp, uuid, memory.used [MiB], memory.total [MiB]", &|row, gpu| {
                format!("{}, GPU-0{gpu}, {}, 81559", time(row, gpu), size(row, gpu))
            }),
            "memory.used [MiB], GPU-02",
        ),
        (
            rows("index, memory.used [MiB]", &|row, gpu| format!("{gpu}, {} MiB", size(row, gpu))),
            "memory.used [MiB], GPU 2",
        ),
        (
            rows("timestamp, memory.used [MiB]", &|row, gpu| format!("{}, {} MiB", time(row, gpu), size(row, gpu))),
            "memory.used [MiB], GPU 3 of 4",
        ),
        (
            rows("timestamp, pid, used_gpu_memory [MiB]", &|row, gpu| {
                format!("{}, {}, {} MiB", time(row, gpu), 100 + gpu, size(row, gpu))
            }),
            "used_gpu_memory [MiB], pid 102",
        ),
    ] {
        let verdict = judged(table.as_bytes(), &TableOptions::default()).unwrap().verdict;
        assert_eq!(verdict.series.len(), 4, "{}", verdict.message);
        let growing: Vec<&SeriesVerdict> =
            verdict.series.iter().filter(|one| one.findings.verdict == VerdictWord::Growing).collect();
        assert_eq!(growing.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [name]);
        let others = verdict.series.iter().filter(|one| one.name != name);
        assert!(others.into_iter().all(|one| (one.first, one.peak) == (9000.0 * 1_048_576.0, 9000.0 * 1_048_576.0)));
    }
}

#[test]
fn errors_name_the_line() {
    let lines = |text: &str| text.replace('|', "\n");
    let mprof = "CMDLINE x|".to_owned() + &"MEM 5.0 1700000000.1|".repeat(20);
    let psrecord = "# Elapsed time   CPU (%)     Real (MB)   Virtual (MB)|".to_owned()
        + &(0..20).map(|row| format!("{row}.0 0.0 5.0 9.0|")).collect::<String>();
    let free = "total used free shared buff/cache available|Mem: 24105 3662 10704 8 10079 20442|".repeat(12);
    let vmstat = "r b swpd free buff cache si|".to_owned() + &"6 0 0 10829588 25952 10410164 0|".repeat(20);
    let texts = [
        format!("{mprof}total used free|"),
        format!("{mprof}MEM 5.0 -3|"),
        format!("{mprof}MEM five 17|"),
        format!("{psrecord}{}", "21.0 0.0 5.0|".repeat(3)),
        format!("{psrecord}-1 0 5 9|"),
        format!("{free}1,2,3|"),
        format!("{free}Swap: x y z|"),
        format!("{vmstat}step,bytes|"),
        "r b swpd free buff cache|6 0 0 1082 25 1041|".to_owned(),
        "time,rss_mb|1,5|-2,5|".to_owned(),
        "time,rss_mb|1,5|soon,5|".to_owned(),
        "time,rss_mb|5,5|2,5|".to_owned(),
        "step,rss_mb|1.5,5|".to_owned(),
        "step,rss_mb|1e15,5|".to_owned(),
        "1,2|3,4|".to_owned(),
        "<html>|</html>|".to_owned(),
        "<html>|memory_records = [[1,2],[3|".to_owned(),
        "<html>|memory_records = [[1,2,3],[3".to_owned(),
        "{\"step\": 1}|".to_owned(),
        "allocator,num_allocations,size|MALLOC,1,1340|".to_owned(),
        " | |".to_owned(),
    ];
    let message = |text: &String| match judged(lines(text).as_bytes(), &TableOptions::default()).unwrap_err() {
        TableError::Content { message, .. } => message,
        other => panic!("{text}: {other}"),
    };
    insta::assert_snapshot!(texts.iter().map(message).collect::<Vec<String>>().join("\n"));
}

#[test]
fn missing_values_duplicate_times_and_repeated_headers_are_ignored() {
    let mut text = String::new();
    for part in 0..4u64 {
        text += "timestamp, memory.used [MiB]\n";
        for row in part * 100..part * 100 + 100 {
            let cell = if row % 7 == 0 { "[N/A]".into() } else { format!("{} MiB", 500 + row) };
            text += &format!("2024/01/02 10:{:02}:{:02}.345, {cell}\n", row / 2 / 60, row / 2 % 60);
        }
    }
    let verdict = judged(text.as_bytes(), &TableOptions::default()).unwrap().verdict;
    assert_eq!(verdict.verdict, VerdictWord::Growing, "{}", verdict.message);
    assert!((verdict.series[0].findings.slope.unwrap() - 2.0 * 1_048_576.0 / 1e3).abs() < 20.0, "two a second");
}

#[test]
fn columns_beyond_the_cap_are_ignored_and_said() {
    let names: Vec<String> = (0..300).map(|at| format!("c{at}_mb")).collect();
    let row = |step: u64| (0..300).map(|at| (at + step).to_string()).collect::<Vec<String>>().join(",");
    let text = (0..120).fold(names.join(",") + ",step\n", |text, step| text + &row(step) + &format!(",{step}\n"));
    let found = judged(text.as_bytes(), &TableOptions::default()).unwrap();
    assert_eq!((found.verdict.series.len(), found.verdict.axis), (256, Axis::Samples));
    assert!(found.notes.iter().any(|note| note.contains("256")), "{:?}", found.notes);
}

/// Damage to a file.
#[derive(Clone, Debug)]
enum Damage {
    Cut(prop::sample::Index),
    Overwrite(prop::sample::Index, Vec<u8>),
    Insert(prop::sample::Index, String),
    /// Inserts a piece of another trace.
    Mix(prop::sample::Index, usize, prop::sample::Index),
    Repeat(prop::sample::Index, prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    use prop::sample::Index;
    const WORDS: &[&str] = &[
        "\n",
        "-",
        "9",
        "99999999999999999999",
        "nan",
        "inf",
        "-1",
        ",",
        "\"",
        ";",
        " ",
        "1e308",
        "MEM",
        "CMDLINE x\n",
        "total used free\n",
        "Mem:",
        "[",
        "]",
        "00:00:00",
        "2024-01-02 10:11:12",
        "\u{1b}[2J",
        "GiB",
        ".",
        "\t",
        "0",
    ];
    prop_oneof![
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 1..6)).prop_map(|(at, bytes)| Damage::Overwrite(at, bytes)),
        (any::<Index>(), prop::sample::select(WORDS)).prop_map(|(at, word)| Damage::Insert(at, word.to_owned())),
        (any::<Index>(), 0usize..18, any::<Index>()).prop_map(|(at, other, from)| Damage::Mix(at, other, from)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, at)| Damage::Repeat(from, at)),
    ]
}

fn damaged(mut text: Vec<u8>, all: &[Vec<u8>], damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        if text.is_empty() {
            break;
        }
        let position = |at: &prop::sample::Index| at.index(text.len());
        match damage {
            Damage::Cut(at) => text.truncate(position(at)),
            Damage::Overwrite(at, bytes) => {
                let at = position(at);
                let end = (at + bytes.len()).min(text.len());
                text.splice(at..end, bytes.iter().copied());
            }
            Damage::Insert(at, word) => {
                let at = position(at);
                text.splice(at..at, word.bytes());
            }
            Damage::Mix(at, other, from) => {
                let (at, other) = (position(at), &all[other % all.len()]);
                let from = from.index(other.len());
                let piece = &other[from..(from + 300).min(other.len())];
                text.splice(at..at, piece.iter().copied());
            }
            Damage::Repeat(from, at) => {
                let (from, at) = (position(from), position(at));
                let piece: Vec<u8> = text[from..(from + 3000).min(text.len())].to_vec();
                text.splice(at..at, piece);
            }
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_damaged_trace_gives_a_verdict_or_an_error(
        which in 0usize..18,
        damages in prop::collection::vec(damage(), 1..5),
        unit in prop::option::of(prop::sample::select(vec!["MiB", "B", "?"])),
        step_column in prop::option::of(prop::sample::select(vec!["time", "rss", "step", "index"])),
    ) {
        static ALL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| samples().into_iter().map(String::into_bytes).collect());
        let text = damaged(ALL[which].clone(), &ALL, &damages);
        let (unit, step_column) = (unit.map(str::to_owned), step_column.map(str::to_owned));
        assert_sound(&judged(&text, &TableOptions { unit, step_column: step_column.filter(|_| which > 9), ..TableOptions::default() }));
    }

    #[test]
    fn any_text_gives_a_verdict_or_an_error(text in "((step|time|rss_mb|memory.used \\[MiB\\]|[{}\\[\\]|\"':=%/]|[0-9.:/ -]{0,12}|[a-zA-Z]{0,5}|\\PC{0,3})[,; \t\n]){0,60}") {
        assert_sound(&judged(text.as_bytes(), &TableOptions::default()));
    }
}

#[test]
fn growth_min_is_the_growth_from_which_on_bytes_count() {
    let row = |step: u64| format!("{step},{}\n", 1 + step * 1000);
    let text = (0..200).fold("step,held_bytes\n".to_owned(), |text, step| text + &row(step));
    let verdict = |growth_min| {
        let options = TableOptions { growth_min, ..TableOptions::default() };
        judged(text.as_bytes(), &options).unwrap().verdict.verdict
    };
    assert_eq!(verdict(None), VerdictWord::Bounded);
    assert_eq!(verdict(Some(64 * 1024)), VerdictWord::Growing);
    assert_eq!(verdict(Some(1 << 20)), VerdictWord::Bounded);
}
