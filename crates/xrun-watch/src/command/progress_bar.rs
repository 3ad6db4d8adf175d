//! Steps from the progress bars of common tools.

use std::sync::LazyLock;

use regex_lite::Regex;

use super::steps::{StepValues, loss_of};
use xrun_core::units::counted;

/// Bar of tqdm, also in Lightning and Hugging Face's Trainer: `Epoch 0:  30%|███ | 30/100 [00:01<00:02, 29it/s, loss=0.5]`.
static TQDM: LazyLock<Regex> =
    LazyLock::new(|| expression(r"^(?<title>[^|]*?):?\s*\d+%\|[^|]*\|\s*(?<step>\d+)/(?<total>\d+) \[(?<rest>.*)"));
/// Bar of Keras: `30/100 ━━━━ 0s 2ms/step - loss: 0.5`, in older versions `30/100 [==>...] - ETA: 0s - loss: 0.5`.
static KERAS: LazyLock<Regex> =
    LazyLock::new(|| expression(r"^\s*(?<step>\d+)/(?<total>\d+)\s+(?:━|\[[=>.])(?<rest>.*)"));
/// Log line of Hugging Face's Trainer: `{'loss': 0.5, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1}`.
static TRAINER: LazyLock<Regex> =
    LazyLock::new(|| expression(r"^\{'loss': '?(?<loss>[\d.eE+-]+)'?.*'learning_rate': '?(?<rate>[\d.eE+-]+)"));
/// Colours, and the backspaces of older versions of Keras.
static DECORATION: LazyLock<Regex> = LazyLock::new(|| expression(r"\x1b\[[0-9;?]*[A-Za-z]|\x08+"));
/// Words in the titles of bars that do not show training.
const OTHER_WORK: &[&str] =
    &["valid", "eval", "sanity", "test", "predict", "download", "load", "map", "token", "generat", "filter", "sav"];

/// Compiles an expression of this file; its tests cover all of them.
#[expect(clippy::unwrap_used, reason = "constants of this file")]
fn expression(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

/// Parser that follows the first bar of a training.
#[derive(Clone, Debug, Default)]
pub struct ProgressBarParser {
    /// Title of the bar without numbers, and its total.
    followed: Option<(String, u64)>,
    /// Name of the tool, for people.
    tool: Option<&'static str>,
    newest: u64,
}

impl ProgressBarParser {
    /// Parses a line; `None` without a step.
    pub fn parse(&mut self, line: &str) -> Option<StepValues> {
        let line = DECORATION.replace_all(line, "");
        if let Some(found) = TRAINER.captures(&line).filter(|_| self.followed.is_some()) {
            self.tool = Some("Hugging Face's Trainer");
            let number = |name: &str| found.name(name)?.as_str().parse().ok().filter(|number: &f64| number.is_finite());
            let (loss, learning_rate) = (number("loss"), number("rate"));
            return Some(StepValues { step: self.newest, loss, learning_rate, ..StepValues::default() });
        }
        let (bar, tool) = match (TQDM.captures(&line), KERAS.captures(&line)) {
            (Some(bar), _) => (bar, "tqdm"),
            (None, bar) => (bar?, "Keras"),
        };
        let named = |name: &str| bar.name(name).map_or("", |found| found.as_str());
        let title: String = named("title").chars().filter(|letter| !letter.is_ascii_digit()).collect();
        let title = title.trim().to_lowercase();
        let (step, total) = (named("step").parse().ok()?, named("total").parse().ok()?);
        if OTHER_WORK.iter().any(|work| title.contains(work)) {
            return None;
        }
        let rest = named("rest");
        if *self.followed.get_or_insert_with(|| (title.clone(), total)) != (title.clone(), total) {
            return None;
        }
        let tool = if title == "epoch" && rest.contains("v_num") { "Lightning" } else { tool };
        self.tool.get_or_insert(tool);
        self.newest = step;
        Some(StepValues { step, loss: loss_of(rest), ..StepValues::default() })
    }

    /// Note on the bar that was recognised, for people; `None` without one.
    pub fn note(&self) -> Option<String> {
        let (_, total) = self.followed.as_ref()?;
        Some(format!("steps from a progress bar of {} ({})", self.tool?, counted(*total, "step")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[&str]) -> (Vec<(u64, Option<f64>)>, Option<&'static str>) {
        let mut parser = ProgressBarParser::default();
        let found = lines.iter().filter_map(|line| parser.parse(line)).map(|found| (found.step, found.loss));
        (found.collect(), parser.tool)
    }

    #[test]
    fn training_bars_are_recognised_and_other_bars_are_ignored() {
        let tqdm = [
            "Downloading data: 100%|██████████| 5/5 [00:00<00:00]",
            "  0%|          | 0/1000 [00:00<?, ?it/s]",
            "  3%|▎         | 30/1000 [00:01<00:32, 29.87it/s]",
            "  3%|▎         | 31/1000 [00:01<00:32, 29.87it/s, loss=0.5, acc=1]",
            "100%|██████████| 20/20 [00:01<00:00, 19it/s]",
        ];
        assert_eq!(found(&tqdm), (vec![(0, None), (30, None), (31, Some(0.5))], Some("tqdm")));
        let lightning = [
            "Sanity Checking DataLoader 0: 100%|██████████| 2/2 [00:00<00:00, 90it/s]",
            "Epoch 0:  50%|█████     | 50/100 [00:01<00:01, 49.1it/s, v_num=3, train_loss=0.120]",
            "Validation DataLoader 0:  50%|█████     | 5/10 [00:00<00:00, 120it/s]",
            "Epoch 1:   1%|          | 1/100 [00:00<00:01, 49.1it/s, v_num=3, train_loss=0.110]",
        ];
        assert_eq!(found(&lightning), (vec![(50, Some(0.12)), (1, Some(0.11))], Some("Lightning")));
        let trainer = [
            "  1%|          | 10/1000 [00:02<03:20,  4.9it/s]",
            "{'loss': 2.31, 'grad_norm': 1.5, 'learning_rate': 4.95e-05, 'epoch': 0.08}",
            "  0%|          | 0/50 [00:00<?, ?it/s]",
            "{'eval_loss': 2.2, 'eval_runtime': 1.2, 'epoch': 0.1}",
        ];
        assert_eq!(found(&trainer), (vec![(10, None), (10, Some(2.31))], Some("Hugging Face's Trainer")));
        let keras = [
            "Epoch 1/5",
            "\u{1b}[1m 30/100\u{1b}[0m \u{1b}[32m━━━━━\u{1b}[0m\u{1b}[37m━━\u{1b}[0m \u{1b}[1m0s\u{1b}[0m 2ms/step - accuracy: 0.3 - loss: 2.3e-1",
        ];
        assert_eq!(found(&keras), (vec![(30, Some(0.23))], Some("Keras")));
        assert_eq!(found(&["31/100 [===>......] - ETA: 1s - loss: 0.5"]), (vec![(31, Some(0.5))], Some("Keras")));
        assert_eq!(found(&["step 3 of 5 [done]", "1/2 apples", "50%|x"]), (vec![], None));
    }
}
