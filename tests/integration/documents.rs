//! Commands of the README and the tutorial, run as a reader would, with shorter training.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use clap::ValueEnum;
use xrun::verdict::VerdictWord;
use xrun::verdict::training::TrainingVerdictWord;

use crate::workplace::{Workplace, said, text};

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

/// Runs all commands of a document in order; files in TOML are written under the name in the text before them.
fn follow(document: &str) -> usize {
    let workplace = reader();
    let (mut fence, mut file, mut body, mut run) = (None, String::new(), String::new(), 0);
    for line in text(&Path::new(ROOT).join(document)).lines() {
        if let Some(language) = line.strip_prefix("```") {
            match fence.take() {
                None => fence = Some(language),
                Some("toml") => drop(workplace.file(&file, &std::mem::take(&mut body))),
                Some(_) => {}
            }
            continue;
        }
        match fence {
            None => {
                let names = line.split('`').skip(1).step_by(2).filter(|span| span.ends_with(".toml"));
                file = names.last().map_or(file, str::to_owned);
            }
            Some("toml") => body += &format!("{line}\n"),
            Some("console") => run += usize::from(execute(&workplace, line, document)),
            Some(_) => {}
        }
    }
    run
}

/// Runs one command, if it is one of xrun: `.ci/run` and `.ci/fresh-clone-test` run those of cargo.
fn execute(workplace: &Workplace, line: &str, document: &str) -> bool {
    let (command, comment) = line.split_once('#').unwrap_or((line, ""));
    let command = command.trim().strip_prefix("cargo run --release --").or(command.trim().strip_prefix("xrun "));
    let Some(command) = command else { return false };
    let words: Vec<&str> =
        command.split_whitespace().map(|word| if word == "python" { "python3" } else { word }).collect();
    let expected = comment.split_once("exit code ").map_or("0", |(_, code)| &code[..1]);
    let mut command = workplace.command(&words);
    if !line.contains("leaks/") {
        command.env("XRUN__TRAINING__MAX_STEPS", "40");
    }
    let said = said(command.output().unwrap());
    assert_eq!(said.code.to_string(), expected, "{document}: {line}: {said:?}");
    true
}

#[test]
fn commands_of_the_readme_work() {
    assert!(follow("README.md") >= 3);
}

#[test]
fn commands_of_the_tutorial_work() {
    assert!(follow("docs/tutorial.md") >= 20);
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
