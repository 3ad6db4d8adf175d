//! Tests of the recognition, on recorded output of trainers.

use std::collections::BTreeSet;

use super::SourceNote;
use crate::command::steps::{StepEvent, StepParser, Steps};
use xrun_results::format::MetricsLine;

/// Recording: its title, what must be found, and its lines.
struct Recording {
    title: String,
    steps: u64,
    loss: Option<f64>,
    lines: Vec<String>,
}

fn recordings(text: &str) -> Vec<Recording> {
    let sections = text.split("\n== ").skip(1);
    sections
        .map(|section| {
            let mut lines = section.lines();
            let title = lines.next().unwrap().to_owned();
            let expected = lines.next().unwrap().strip_prefix("expect ").unwrap();
            let number = |name: &str| expected.split(' ').find_map(|word| word.strip_prefix(name)?.parse::<f64>().ok());
            let steps = number("steps=").unwrap_or_default() as u64;
            assert!(steps > 0 || expected == "nothing", "{title}: {expected}");
            let lines = lines.filter(|line| !line.is_empty()).flat_map(repeated).collect();
            Recording { title, steps, loss: number("loss="), lines }
        })
        .collect()
}

/// Lines of `@first..last..stride text`, in which {n} is the number and {l} its inverse.
fn repeated(line: &str) -> Vec<String> {
    let line = line.replace('␛', "\u{1b}");
    let Some((range, text)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) else { return vec![line] };
    let numbers: Vec<usize> = range.split("..").map(|number| number.parse().unwrap()).collect();
    let numbers = (numbers[0]..=numbers[1]).step_by(numbers.get(2).copied().unwrap_or(1));
    let inverse = |number: usize| format!("{:.4}", 1.0 / number as f64);
    numbers.map(|number| text.replace("{n}", &number.to_string()).replace("{l}", &inverse(number))).collect()
}

/// Steps and the last loss that are found in lines, and the note.
fn found(lines: &[String]) -> (u64, Option<f64>, Option<SourceNote>) {
    let (steps, events) = Steps::new(Some(StepParser::recognised()), BTreeSet::new());
    let mut loss = None;
    for line in lines {
        steps.read_output(line.as_bytes());
        for event in events.try_iter() {
            loss = match event {
                StepEvent::Anew => None,
                StepEvent::Metrics(MetricsLine::Train { loss, .. }) => Some(loss),
                StepEvent::Metrics(_) | StepEvent::LossNotFinite(_) => loss,
            };
        }
    }
    (steps.newest(), loss, steps.source_note())
}

/// Recordings that are not recognised as they should be.
fn wrong(text: &str) -> Vec<String> {
    let wrong = |recording: Recording| {
        let (steps, loss, note) = found(&recording.lines);
        let is_near = match (loss, recording.loss) {
            (Some(loss), Some(expected)) => (loss - expected).abs() < 1e-3 * expected,
            (loss, expected) => loss.is_none() == expected.is_none(),
        };
        let is_right = steps == recording.steps && is_near && note.is_some() == (recording.steps > 0);
        let Recording { title, steps: expected, loss: expected_loss, .. } = recording;
        (!is_right)
            .then(|| format!("{title}: {steps} steps, loss {loss:?}; not {expected}, {expected_loss:?} ({note:?})"))
    };
    recordings(text).into_iter().filter_map(wrong).collect()
}

#[test]
fn steps_and_losses_of_trainers_are_recognised() {
    let wrong = wrong(include_str!("recordings/open.txt"));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn steps_and_losses_of_further_trainers_are_recognised() {
    let wrong = wrong(include_str!("recordings/held.txt"));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

proptest::proptest! {
    #[test]
    fn arbitrary_lines_do_not_panic(lines in proptest::collection::vec("[ -~━|█]{0,60}", 0..20)) {
        let _ = found(&lines);
        let bars: Vec<String> = lines.iter().map(|line| format!("{line} 5%|█ | 9/9 [00:01<00:02, 1it/s, loss={line}")).collect();
        let _ = found(&bars);
    }
}
