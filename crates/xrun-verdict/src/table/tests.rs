//! Readings of the cases in `tests/reading/cases.txt`; damaged texts give a verdict or an error.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::Axis;
use crate::findings::UnitSource;

/// Case of the file: its lines with their first letter, and the text that they are the form of.
struct Case {
    name: &'static str,
    lines: Vec<(char, &'static str)>,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let text = include_str!("../../tests/reading/cases.txt");
    let sections = text.split("\n# ").skip(1).map(|section| section.split_once('\n').unwrap());
    let line = |line: &'static str| (line.chars().next().unwrap(), &line[1..]);
    sections.map(|(name, lines)| Case { name, lines: lines.lines().map(line).collect() }).collect()
});

/// Number of the row `at` by an expression, whose operators apply from left to right.
fn evaluated(expression: &str, at: i64) -> i64 {
    let mut value = at;
    let mut rest = expression.strip_prefix("at").unwrap();
    while let Some(begin) = rest.find(|letter: char| letter.is_ascii_digit() || letter == '-') {
        let end =
            rest[begin + 1..].find(|letter: char| !letter.is_ascii_digit()).map_or(rest.len(), |end| begin + 1 + end);
        let number: i64 = rest[begin..end].parse().unwrap();
        value = match &rest[..begin] {
            "+" => value + number,
            "*" => value * number,
            "/" => value / number,
            "%" => value % number,
            "<<" => value << number,
            other => panic!("{other} in {expression}"),
        };
        rest = &rest[end..];
    }
    value
}

/// Template of a row with the numbers of row `at`.
fn row(template: &str, at: i64) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("<at") {
        let (expression, after) = after.split_once('>').unwrap();
        let (expression, form) = expression.split_once(':').unwrap_or((expression, ""));
        let value = evaluated(&format!("at{expression}"), at);
        text += before;
        text += &match form {
            "t" => format!("{:02}:{:02}:{:02}", 10 + value / 3600, value / 60 % 60, value % 60),
            "" => value.to_string(),
            width => format!("{value:0width$}", width = width.parse::<usize>().unwrap()),
        };
        rest = after;
    }
    text + rest
}

impl Case {
    fn text(&self) -> String {
        let of = |kind: char| self.lines.iter().filter(move |line| line.0 == kind).map(|line| line.1);
        let plain = |line: &str| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n";
        let (count, first) = of('R').next().unwrap().split_once(' ').unwrap();
        let rows: Vec<String> = std::iter::once(first.to_owned() + "\n").chain(of('R').skip(1).map(plain)).collect();
        let rows = (0..count.parse().unwrap()).map(|at| row(&rows.concat(), at)).collect::<String>();
        let text = of('H').map(plain).collect::<String>() + &rows + &of('T').map(plain).collect::<String>();
        text.replace("\\t", "\t").replace("\\e", "\u{1b}")
    }

    /// Differences between what is expected and what was read.
    fn problems(&self) -> Vec<String> {
        let of = |line: &str| line.trim().strip_prefix("--of ").map(str::to_owned);
        let of = self.lines.iter().filter(|line| line.0 == 'O').find_map(|line| of(line.1));
        let read = judged(self.text().as_bytes(), &TableOptions { of, ..TableOptions::default() });
        let mut problems = Vec::new();
        let grows = self.lines.iter().any(|line| line.0 == '+');
        for (kind, expected) in self.lines.iter().map(|(kind, line)| (kind, line.trim())) {
            let verdict = match (&read, kind) {
                (_, 'H' | 'R' | 'T' | 'O') => continue,
                (Err(error), '!') => {
                    let line = if expected.is_empty() { String::new() } else { format!("line {expected}:") };
                    problems.extend((!error.to_string().contains(&line)).then(|| format!("another line: {error}")));
                    continue;
                }
                (Ok(read), '!') => return vec![format!("not refused: {}", read.verdict.message)],
                (Err(error), _) => return vec![format!("refused: {error}")],
                (Ok(read), _) => &read.verdict,
            };
            if *kind == 'x' {
                let is_left_out = verdict.not_judged.iter().any(|one| one.column == expected);
                problems.extend((!is_left_out).then(|| format!("{expected} is not in {:?}", verdict.not_judged)));
                continue;
            }
            let (name, value) = expected.rsplit_once(": ").unwrap();
            let exact = verdict.series.iter().find(|one| one.name == name);
            let Some(found) = exact.or_else(|| verdict.series.iter().find(|one| one.name.contains(name))) else {
                let names: Vec<&str> = verdict.series.iter().map(|one| one.name.as_str()).collect();
                problems.push(format!("no series {name} in {names:?}"));
                continue;
            };
            if (found.findings.verdict == VerdictWord::Growing) != (*kind == '+') {
                problems.push(format!("{name} is {:?}", found.findings.verdict));
            }
            let source = found.unit_source;
            let is_right = match value {
                "%" => found.unit == "percent",
                "?" => found.unit == "unknown",
                size => {
                    let (number, unit) = size.trim_start_matches('~').split_once(' ').unwrap();
                    let last = number.parse::<f64>().unwrap() * names::bytes_of(&unit.to_lowercase()).unwrap();
                    let is_known = !matches!(source, Some(UnitSource::Assumed | UnitSource::Unknown));
                    let is_near = (found.last - last).abs() <= 1e-3 * last;
                    found.unit == "bytes" && is_near && is_known != size.starts_with('~')
                }
            };
            problems.extend((!is_right).then(|| format!("{name} is {} {} ({source:?})", found.last, found.unit)));
            if (verdict.verdict == VerdictWord::Growing) != grows {
                problems.push(format!("verdict {:?}: {}", verdict.verdict, verdict.message));
            }
        }
        problems
    }
}

fn judged(text: &[u8], options: &TableOptions) -> Result<TableVerdict, TableError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, text).unwrap();
    judge_table(file.path(), options)
}

fn by_default(text: &str) -> TableVerdict {
    judged(text.as_bytes(), &TableOptions::default()).unwrap()
}

/// Lines of `count` rows after a header.
fn table(header: &str, count: u64, row: impl Fn(u64) -> String) -> String {
    (0..count).fold(format!("{header}\n"), |text, at| text + &row(at) + "\n")
}

#[test]
fn all_cases_are_read_as_they_must_be() {
    let wrong = CASES.iter().map(|case| (case.name, case.problems())).filter(|(_, problems)| !problems.is_empty());
    let wrong: Vec<String> = wrong.map(|(name, problems)| format!("{name}: {}", problems.join("; "))).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
}

/// The traces of `tests/traces`, which the tools wrote themselves.
#[test]
fn recorded_traces_are_judged() {
    for (file, axis, series, last, word) in [
        ("mprof_leak.dat", Axis::Clock, "memory", 101_634_047.0, VerdictWord::Growing),
        ("mprof_flat.dat", Axis::Clock, "memory", 9_015_295.0, VerdictWord::Bounded),
        ("mprof_functions.dat", Axis::Clock, "memory", 0.0, VerdictWord::Growing),
        ("mprof_children.dat", Axis::Clock, "child 26472", 132_775_936.0, VerdictWord::Growing),
        ("mprof_children.dat", Axis::Clock, "child 26473", 9_027_584.0, VerdictWord::Bounded),
        ("psrecord_leak.txt", Axis::Clock, "Real (MB)", 69_447_188.0, VerdictWord::Growing),
        ("psrecord_leak.csv", Axis::Clock, "mem_real", 100_216_832.0, VerdictWord::Growing),
        ("psrecord_io.txt", Axis::Clock, "Real (MB)", 10_649_337.0, VerdictWord::Bounded),
        ("memray_flamegraph.html", Axis::Clock, "heap", 91_270_008.0, VerdictWord::Growing),
        ("memray_flamegraph.html", Axis::Clock, "rss", 136_855_552.0, VerdictWord::Growing),
        ("free_m.txt", Axis::Samples, "used", 7_024_410_624.0, VerdictWord::NoGrowthFound),
        ("free_date.txt", Axis::Clock, "used", 7_158_874_112.0, VerdictWord::NoGrowthFound),
        ("vmstat_t.txt", Axis::Clock, "fall of free + buff + cache", 1_373_749_248.0, VerdictWord::NoGrowthFound),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(file);
        let verdict = judge_table(&path, &TableOptions::default()).unwrap().verdict;
        let found = verdict.series.iter().find(|one| one.name == series);
        let found = found.unwrap_or_else(|| panic!("{file}: {:?}", verdict.series));
        assert_eq!(
            (verdict.axis, found.last, found.findings.verdict),
            (axis, last, word),
            "{file}: {}",
            verdict.message
        );
    }
}

#[test]
fn columns_of_steps_and_times_are_found_by_their_names() {
    for (name, axis, units) in [
        ("Iteration", Axis::Steps, 1.0),
        ("iter", Axis::Steps, 1.0),
        ("global_step", Axis::Steps, 1.0),
        ("train/step", Axis::Steps, 1.0),
        ("epoch", Axis::Epochs, 1e3),
        ("elapsed_s", Axis::Clock, 1e3),
        ("timestamp", Axis::Clock, 1e3),
        ("batch", Axis::Samples, 1e3),
    ] {
        let text = table(&format!("{name},gpu_bytes,other"), 400, |at| format!("{at},{},500000", (at + 2000) << 20));
        let verdict = by_default(&text).verdict;
        let slope = verdict.series[0].findings.slope.unwrap() * units / 1_048_576.0;
        assert!((slope - 1.0).abs() < 0.002, "{name}: {slope}");
        assert_eq!((verdict.axis, verdict.series.len()), (axis, 1), "{name}");
    }
    let text = table("at,batch,gpu_bytes", 400, |at| {
        format!("2024-01-02T{:02}:{:02}:00Z,{at},{}", at / 60, at % 60, at << 20)
    });
    let axis = |column: &str| {
        let options = TableOptions { step_column: Some(column.into()), ..TableOptions::default() };
        judged(text.as_bytes(), &options).unwrap().verdict.axis
    };
    assert_eq!((axis("at"), axis("batch")), (Axis::Clock, Axis::Steps));
}

#[test]
fn each_process_is_judged_separately_and_the_worst_is_reported() {
    let process = |growth: u64| table("elapsed_s,rss_mb", 300, |at| format!("{at},{}", 2000 + growth * at));
    let flat = by_default(&(process(0) + &process(0)));
    assert_eq!(flat.verdict.verdict, VerdictWord::Bounded);
    let leak = by_default(&(process(0) + &process(1) + &process(0)));
    assert_eq!(leak.verdict.verdict, VerdictWord::Growing);
    insta::assert_snapshot!(format!("{}\n{}", flat.notes.join("; "), leak.verdict.message));
}

#[test]
fn a_process_that_has_ended_is_no_leak_and_one_that_lives_is() {
    let workers = |of_last: u64| {
        let rows = (0..400u64).map(|at| {
            let slope = if at < 300 { 4 } else { of_last };
            format!("{at},100,900\n{at},{},{}\n", at / 100 + 200, at % 100 * slope + 500)
        });
        by_default(&(String::from("time,pid,rss_mb\n") + &rows.collect::<String>())).verdict
    };
    let (ended, lives) = (workers(0), workers(4));
    assert!(ended.verdict < VerdictWord::Slowing && !ended.series.iter().any(|one| one.name.ends_with("pid 200")));
    assert!(lives.series.iter().any(|one| one.name == "rss_mb, pid 203"));
}

#[test]
fn a_clock_that_is_set_back_by_less_than_a_second_is_no_restart() {
    let back = |at: u64| if at % 50 == 49 { 1.4 } else { 0.0 };
    let time = |at: u64| 1_700_000_000.0 + at as f64 - back(at);
    let judged = by_default(&table("timestamp,rss_mb", 300, |at| format!("{},{}", time(at), 2000 + at)));
    assert_eq!((judged.verdict.verdict, judged.notes.len()), (VerdictWord::Growing, 2), "{:?}", judged.notes);
}

#[test]
fn rates_have_a_unit_that_fits_the_length_of_the_trace() {
    let mut messages = Vec::new();
    for seconds in [1, 10, 300, 7200] {
        let row = |at: u64| format!("{},{}", 1_700_000_000 + at * seconds, 2000 + at);
        let verdict = by_default(&table("unix_time,rss_mb", 600, row)).verdict;
        // A window begins between samples: its minimum may be a little later.
        let expected = 1e6 / (seconds as f64 * 1e3);
        assert!((verdict.series[0].findings.slope.unwrap() / expected - 1.0).abs() < 0.01);
        messages.push(verdict.message);
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn options_set_columns_units_and_the_growth_that_counts() {
    let text = table("step,gpu_mem,rss_mb", 300, |at| format!("{at},{},{}", 2000 + at, 1000 + at));
    let options = |unit: &str| TableOptions {
        columns: vec!["gpu_mem".into()],
        unit: Some(unit.into()),
        ..TableOptions::default()
    };
    let found = judged(text.as_bytes(), &options("MiB")).unwrap().verdict;
    assert_eq!((found.series[0].last, found.series.len()), (2299.0 * 1_048_576.0, 1));
    let error = judged(text.as_bytes(), &options("apples")).unwrap_err();
    assert!(matches!(error, TableError::Options(_)), "{error}");
    let chosen = TableOptions { columns: vec!["step".into()], ..TableOptions::default() };
    assert!(judged(text.as_bytes(), &chosen).is_err(), "it holds the steps");
    let text = table("step,held_bytes", 200, |at| format!("{at},{}", 1 + at * 1000));
    let verdict = |growth_min| {
        let options = TableOptions { growth_min, ..TableOptions::default() };
        judged(text.as_bytes(), &options).unwrap().verdict.verdict
    };
    assert_eq!(verdict(Some(64 * 1024)), VerdictWord::Growing);
    assert_eq!([verdict(None), verdict(Some(1 << 20))], [VerdictWord::Bounded; 2]);
}

#[test]
fn errors_name_the_line() {
    let texts = [
        "# Elapsed time   CPU (%)     Real (MB)|1.0 0.0 5.0|2.0 0.0 5.0|21.0 0.0 5.0 7|3.0 0.0 5.0 7|",
        "time,rss_mb|1,5|-2,5|",
        "time,rss_mb|1,5|soon,5|",
        "time,rss_mb|5,5|2,5|",
        "step,bytes|x,5|",
        "step,rss_mb|1.5,5|",
        "step,rss_mb|1e15,5|",
        "1,2|3,4|",
        "<html>|</html>|",
        "<html>|memory_records = [[1,2,3],[3",
        "{\"step\": 1}|",
        "allocator,num_allocations,size|MALLOC,1,1340|",
        " | |",
    ];
    let message = |text: &&str| judged(text.replace('|', "\n").as_bytes(), &TableOptions::default()).unwrap_err();
    let file = |error: TableError| match error {
        TableError::Content(message) => message,
        other => panic!("{other}"),
    };
    insta::assert_snapshot!(texts.iter().map(message).map(file).collect::<Vec<String>>().join("\n"));
}

#[test]
fn missing_values_duplicate_times_and_repeated_headers_are_ignored() {
    let row = |row: u64| {
        let cell = if row.is_multiple_of(7) { "[N/A]".into() } else { format!("{} MiB", 500 + row) };
        format!("2024/01/02 10:{:02}:{:02}.345, {cell}", row / 2 / 60, row / 2 % 60)
    };
    let parts = (0..4).map(|part| table("timestamp, memory.used [MiB]", 100, |at| row(part * 100 + at)));
    let verdict = by_default(&parts.collect::<String>()).verdict;
    assert_eq!(verdict.verdict, VerdictWord::Growing, "{}", verdict.message);
    assert!((verdict.series[0].findings.slope.unwrap() - 2.0 * 1_048_576.0 / 1e3).abs() < 20.0, "two a second");
}

#[test]
fn columns_beyond_the_cap_are_ignored_and_said() {
    let names: Vec<String> = (0..300).map(|at| format!("c{at}_mb")).collect();
    let row = |step: u64| (0..300).map(|at| (at + step).to_string()).collect::<Vec<String>>().join(",");
    let found = by_default(&table(&(names.join(",") + ",step"), 20, |step| row(step) + &format!(",{step}")));
    assert_eq!((found.verdict.series.len(), found.verdict.axis), (256, Axis::Samples));
    assert!(found.notes.iter().any(|note| note.contains("256")), "{:?}", found.notes);
}

#[test]
fn a_short_series_says_how_much_is_missing() {
    for (text, more) in [
        (table("step,rss_mb", 5, |at| format!("{at},{}", 500 + at)), "more steps"),
        (table("elapsed_s,rss_mb", 4, |at| format!("{},{}", at * 60, 500 + at)), "another"),
        (table("rss_mb,note", 4, |at| format!("{},x", 500 + at)), "more samples"),
    ] {
        let verdict = by_default(&text).verdict;
        assert_eq!(verdict.verdict, VerdictWord::Inconclusive);
        let missing = verdict.series[0].findings.more_steps.unwrap();
        let unit = if verdict.axis == Axis::Samples { 1000 } else { 1 };
        assert!(missing >= 4 * unit && verdict.window >= unit, "{missing}: {}", verdict.message);
        assert!(verdict.message.contains(more), "{}", verdict.message);
    }
}

/// Asserts that an error is short, and that a verdict survives a round trip through JSON.
fn assert_sound(result: &Result<TableVerdict, TableError>) {
    match result {
        Err(error) => assert!(error.to_string().len() < 30_000, "{error}"),
        Ok(judged) => {
            let json = serde_json::to_string(&judged.verdict).unwrap();
            let read: Verdict = serde_json::from_str(&json).unwrap();
            assert_eq!(read.series.len(), judged.verdict.series.len());
            assert!(judged.verdict.series.len() <= columns::SERIES_MAX && !judged.verdict.message.is_empty());
        }
    }
}

const WORDS: &[&str] = &[
    "\n",
    "-",
    "9",
    "99999999999999999999",
    "nan",
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
    "|",
    "GPU[0]",
    "é",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Words and pieces of another case are inserted, bytes overwritten, and the end is cut.
    #[test]
    fn a_damaged_trace_gives_a_verdict_or_an_error(
        which in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        places in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(WORDS), any::<[u8; 3]>()), 1..5),
        unit in prop::option::of(prop::sample::select(vec!["MiB", "?"])),
        step_column in prop::option::of(prop::sample::select(vec!["time", "rss", "step"])),
    ) {
        static TEXTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| CASES.iter().map(|case| case.text().into_bytes()).collect());
        let (mut text, other) = (which.get(&TEXTS).clone(), other.get(&TEXTS));
        for (number, (place, word, bytes)) in places.iter().enumerate() {
            let at = place.index(text.len());
            let from = place.index(other.len());
            let piece = [word.as_bytes(), &bytes[..], &other[from..(from + 300).min(other.len())]][number % 3];
            text.splice(at..at, piece.iter().copied());
            text.truncate(text.len() - bytes[0] as usize % 40);
        }
        let (unit, step_column) = (unit.map(str::to_owned), step_column.map(str::to_owned));
        assert_sound(&judged(&text, &TableOptions { unit, step_column, ..TableOptions::default() }));
    }

    #[test]
    fn any_text_gives_a_verdict_or_an_error(text in "((step|time|rss_mb|memory.used \\[MiB\\]|[{}\\[\\]|\"':=%/]|[0-9.:/ -]{0,12}|[a-zA-Z]{0,5}|\\PC{0,3})[,; \t\n]){0,60}") {
        assert_sound(&judged(text.as_bytes(), &TableOptions::default()));
    }
}
