//! Every command of the README, the tutorial and the concepts, in order and as written, in an empty directory with what the
//! text says a reader has.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use clap::ValueEnum;
use xrun::verdict::VerdictWord;
use xrun::verdict::training::TrainingVerdictWord;

use crate::workplace::{Output, Workplace, text};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Workplace with everything that the documents assume: experiments, images by class, a trainer, a trace.
fn reader() -> Workplace {
    let workplace = Workplace::new();
    symlink(Path::new(ROOT).join("experiments"), workplace.path("experiments")).unwrap();
    for (class, red) in [("cat", 220), ("dog", 120), ("fox", 20)] {
        let directory = workplace.path("my-images").join(class);
        std::fs::create_dir_all(&directory).unwrap();
        for number in 0..12_u8 {
            let image = image::RgbImage::from_fn(40, 40, |x, y| image::Rgb([red, number * 20, (x * y % 256) as u8]));
            image.save(directory.join(format!("{number}.png"))).unwrap();
        }
    }
    std::fs::copy(Path::new(ROOT).join("examples/watch/train.py"), workplace.path("train.py")).unwrap();
    std::fs::copy(Path::new(ROOT).join("examples/watch/steps.py"), workplace.path("steps.py")).unwrap();
    let rows: String = (0..400).map(|step| format!("{step},{}\n", 200_000_000 + step % 7 * 1000)).collect();
    workplace.file("memory.csv", &format!("step,rss_bytes\n{rows}"));
    workplace
}

/// Commands that the test does not run, and why not.
const NOT_RUN: &[(&str, &str)] = &[
    ("cargo install --path .", "builds for minutes: .ci/fresh-clone-test"),
    ("cargo install --path . --features cuda", "downloads LLVM, and needs a GPU: .ci/cuda builds it"),
    ("just wheel && pip install dist/xrun-*.whl", "builds a wheel: .ci/python"),
    ("cargo test --release --workspace", "this test is one of them"),
];

/// Runs all commands of a document in order: lines of fenced shell blocks, and code spans of at least three words without a
/// placeholder. Files in TOML are written under the name in the text before them. Returns the numbers of commands that ran and
/// that did not.
fn follow(document: &str) -> (usize, usize) {
    let workplace = reader();
    let (mut fence, mut file, mut body, mut counts) = (None, String::new(), String::new(), (0, 0));
    let mut step = |line: &str| {
        let command = line.split_once('#').map_or(line, |(command, _)| command).trim();
        if command.is_empty() {
            return;
        }
        match NOT_RUN.iter().any(|(left_out, _)| *left_out == command) {
            true => counts.1 += 1,
            false => counts.0 += execute(&workplace, line, document),
        }
    };
    for line in text(&Path::new(ROOT).join(document)).lines() {
        if let Some(language) = line.strip_prefix("```") {
            match fence.take() {
                None => fence = Some(language.to_owned()),
                Some(language) if language == "toml" => {
                    drop(workplace.file(&file, &std::mem::take(&mut body)));
                }
                Some(_) => {}
            }
            continue;
        }
        match fence.as_deref() {
            None => {
                let spans = || line.split('`').skip(1).step_by(2);
                file = spans().filter(|span| span.ends_with(".toml")).last().map_or(file.clone(), str::to_owned);
                let is_placeholder =
                    |word: &str| word.len() > 2 && !word.contains(|letter: char| !letter.is_uppercase());
                let whole = |span: &&str| span.split_whitespace().count() > 2 && !span.split(' ').any(is_placeholder);
                spans().filter(|span| span.starts_with("xrun ")).filter(whole).for_each(&mut step);
            }
            Some("toml") => body += &format!("{line}\n"),
            Some("console" | "sh" | "bash") => step(line),
            Some(_) => {}
        }
    }
    counts
}

/// Runs one command as it is written; `1`.
fn execute(workplace: &Workplace, line: &str, document: &str) -> usize {
    let (command, comment) = line.split_once('#').unwrap_or((line, ""));
    let command = command.trim().strip_prefix("cargo run --release --").or(command.trim().strip_prefix("xrun "));
    let words: Vec<&str> =
        command.unwrap_or_else(|| panic!("{document}: neither run nor listed: {line}")).split_whitespace().collect();
    let expected = comment.split_once("exit code ").map_or("0", |(_, code)| &code[..1]);
    let output = Output::from(workplace.command(&words).output().unwrap());
    assert_eq!(output.code.to_string(), expected, "{document}: {line}: {output:?}");
    1
}

#[test]
fn commands_of_the_readme_work() {
    assert_eq!(follow("README.md"), (10, NOT_RUN.len()));
}

#[test]
fn commands_of_the_tutorial_work() {
    let (run, left_out) = follow("docs/tutorial.md");
    assert!(run >= 20 && left_out == 0, "{run} commands");
}

#[test]
fn commands_of_the_concepts_work() {
    assert_eq!(follow("docs/concepts.md"), (4, 0));
}

#[test]
fn the_glossary_has_every_verdict_and_few_other_words() {
    let glossary = text(&Path::new(ROOT).join("docs/glossary.md"));
    let row = |line: &str| Some(line.strip_prefix("| ")?.split_once(" | ")?.0.to_owned());
    let words: BTreeSet<String> = glossary.lines().filter_map(row).filter(|word| word != "word").collect();
    let name = |word: serde_json::Result<serde_json::Value>| word.unwrap().as_str().unwrap().to_owned();
    let memory = VerdictWord::value_variants().iter().map(|word| name(serde_json::to_value(word)));
    let training = TrainingVerdictWord::value_variants().iter().map(|word| name(serde_json::to_value(word)));
    let verdicts: BTreeSet<String> = memory.chain(training).collect();
    assert!(verdicts.is_subset(&words), "{:?}", verdicts.difference(&words));
    assert!(words.len() - verdicts.len() <= 15, "{words:?}");
}
