//! `xrun check` on valid and invalid files.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workplace::{Output, Workplace, text, without_pipelines};

fn samples(directory: &str) -> (PathBuf, Vec<String>) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/experiments").join(directory);
    let entries = std::fs::read_dir(&directory).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    (directory, names)
}

/// Runs in the directory of the samples, so that the names in messages are short and the same everywhere.
fn check(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xrun"));
    Output::from(command.arg("check").args(arguments).current_dir(directory).output().unwrap())
}

#[test]
fn every_wrong_file_is_refused_in_words_that_help() {
    let (directory, names) = samples("invalid");
    assert!(names.len() >= 30);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../experiments/invalid/said");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for name in names {
        let output = check(&directory, &[&name]);
        assert_eq!(output.code, 2, "{name}: {output:?}");
        assert!(output.out.is_empty(), "{name}: {output:?}");
        assert!(
            !output.err.contains('\u{1b}') && !output.err.contains('\u{202e}'),
            "{name} drives the terminal: {output:?}"
        );
        settings.bind(|| {
            insta::assert_snapshot!(
                name.trim_end_matches(".toml"),
                without_pipelines(&output.err.replace(directory.to_str().unwrap(), "HERE"))
            )
        });
    }
}

#[test]
fn right_files_resolve_to_files_that_resolve_to_themselves() {
    let (directory, names) = samples("valid");
    let workplace = Workplace::new();
    for name in names {
        let first = check(&directory, &[&name, "--resolved"]);
        assert_eq!(first.code, 0, "{name}: {first:?}");
        let resolved = workplace.file(&name, &first.out);
        assert_eq!(first.out, check(&directory, &[resolved.to_str().unwrap(), "--resolved"]).out, "{name}");
    }
}

#[test]
fn later_layers_win_and_each_value_knows_its_layer() {
    let (directory, _) = samples("valid");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xrun"));
    command.args(["check", "--resolved", "--origins", "extends_two.toml", "-s", "limits.prefetch=9"]);
    command.env("XRUN__LIMITS__PREFETCH", "5").env("XRUN__PIPELINE__DUMMY__NAN_AT_STEP", "4").current_dir(&directory);
    let output = Output::from(command.output().unwrap());
    assert_eq!(output.code, 0, "{output:?}");
    for (key, value, origin) in [
        ("seed", "8", "bases/other_base.toml:2"),
        ("name", "\"from-the-base\"", "bases/base.toml:2"),
        ("workers", "2", "extends_two.toml:3"),
        ("prefetch", "9", "command line"),
        ("nan_at_step", "4", "environment variable XRUN__PIPELINE__DUMMY__NAN_AT_STEP"),
        ("frame_cache", "\"1536 MiB\"", "bases/other_base.toml:4"),
        ("learning_rate", "1.0", "extends_two.toml:5"),
        ("batch_size", "32", "default"),
    ] {
        let start = format!("{key} = {value} ");
        let line = output
            .out
            .lines()
            .find(|line| line.starts_with(&start))
            .unwrap_or_else(|| panic!("no {start}: {}", output.out));
        assert!(line.ends_with(&format!(" # {origin}")), "{line}");
    }
    assert!(
        !output.out.contains("momentum"),
        "AdamW of the later file replaces SGD of the earlier one:\n{}",
        output.out
    );
}

#[test]
fn files_that_are_no_experiments_are_refused_and_nothing_panics() {
    let workplace = Workplace::new();
    std::fs::write(workplace.path("binary.toml"), [0x7f, b'E', b'L', b'F', 0, 0xff, 0xfe]).unwrap();
    std::fs::write(workplace.path("large.toml"), vec![b'#'; 2 << 20]).unwrap();
    std::fs::write(workplace.path("deep.toml"), format!("a = {}", "[".repeat(100_000))).unwrap();
    std::fs::write(workplace.path("wide.toml"), format!("x = \"{}\"", "y".repeat(500_000))).unwrap();
    std::fs::create_dir(workplace.path("directory.toml")).unwrap();
    let mut messages = String::new();
    for name in ["binary.toml", "large.toml", "deep.toml", "wide.toml", "directory.toml", "stage3.toml"] {
        let output = workplace.exits(2, &["check", name]);
        assert!(output.err.contains(name) && output.err.len() < 4000, "{name}: {output:?}");
        messages += output.err.lines().next().unwrap_or_default();
        messages.push('\n');
    }
    insta::assert_snapshot!(messages);
}

#[test]
fn a_file_deeper_than_sixteen_extends_is_refused() {
    let workplace = Workplace::new();
    for number in 0..20 {
        workplace.file(&format!("{number}.toml"), &format!("extends = \"{}.toml\"\n", number + 1));
    }
    workplace.file("20.toml", "[pipeline.dummy]\n");
    insta::assert_snapshot!(workplace.exits(2, &["check", "0.toml"]).err);
    workplace.exits(0, &["check", "6.toml"]);
}

#[test]
fn programs_get_the_same_problems_as_json() {
    let (directory, _) = samples("invalid");
    let output = check(&directory, &["--json", "unknown_key.toml", "negative.toml"]);
    assert_eq!(output.code, 2);
    let answers = output.json();
    assert_eq!(answers[0]["problems"][0]["key"], "limits.worker");
    assert_eq!(answers[0]["problems"][0]["line"], 3);
    assert_eq!(answers[1]["problems"][0]["column"], 11);
}

#[test]
fn a_wrong_override_is_shown_where_it_was_typed() {
    let workplace = Workplace::with("a.toml", "[pipeline.dummy]\n");
    let mut messages = String::new();
    for text in [
        "limits.wrokers=2",
        "limits.workers",
        "=3",
        "extends=\"b.toml\"",
        "limits.workers=[1, 2",
        "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q=1",
    ] {
        messages += &workplace.exits(2, &["a.toml", "-s", text]).err;
    }
    insta::assert_snapshot!(messages);
    assert!(!workplace.path("results").exists(), "a wrong command line leaves nothing behind");
    assert!(text(&workplace.path("a.toml")).contains("dummy"));
}
