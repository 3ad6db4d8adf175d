//! Names of compared runs by what differs between them, and their settings.

use std::collections::BTreeMap;

use serde_json::Value;

use super::KeyDifference;
use crate::resolved::{format_rounded, short_keys};
use xrun_core::printable;

/// Key of the command line of a watched command, among the values of its experiment.
pub const COMMAND: &str = "command";
/// Key of the seed: runs that differ in it only are repeats.
pub const SEED: &str = "experiment.seed";
/// Keys that change no number.
const NAMES: [&str; 2] = ["experiment.name", "experiment.description"];

/// Maximum number of keys in a name.
const KEYS_MAX: usize = 3;
const VALUE_CHARACTERS_MAX: usize = 24;
/// Maximum length of a command line in a name; of a longer one, only words that differ are named.
const COMMAND_CHARACTERS_MAX: usize = 28;
const NAME_CHARACTERS_MAX: usize = 56;

/// Name of each run by what differs: `lr 0.005, epochs 3`. `experiments` has the name of each run's experiment.
pub fn labels(experiments: &[&str], differences: &[KeyDifference]) -> Vec<String> {
    let mut keys: Vec<&KeyDifference> =
        differences.iter().filter(|one| !NAMES.contains(&one.key.as_str()) && one.key != SEED).collect();
    let many = keys.len() > KEYS_MAX;
    // The seed is named last, and only where it can be told apart from other differences.
    keys.extend(differences.iter().find(|one| one.key == SEED).filter(|_| !many));
    let named = many && experiments.windows(2).any(|pair| pair[0] != pair[1]);
    let short = short_keys(&keys.iter().map(|one| one.key.as_str()).collect::<Vec<_>>());
    let label = |run: usize| {
        if named {
            return experiments[run].to_owned();
        }
        let parts: Vec<String> =
            keys.iter().zip(&short).filter_map(|(one, key)| part(one, key, run)).take(KEYS_MAX).collect();
        parts.join(", ")
    };
    let labels: Vec<String> = (0..experiments.len()).map(label).collect();
    let alone = |at: usize| labels.iter().filter(|other| **other == labels[at]).count() == 1;
    let unique = |(at, label): (usize, &String)| {
        let label = match (label.is_empty(), alone(at)) {
            (false, true) => label.clone(),
            (true, _) => format!("run {}", at + 1),
            (false, false) => format!("{label} (run {})", at + 1),
        };
        printable::line(&label, NAME_CHARACTERS_MAX)
    };
    labels.iter().enumerate().map(unique).collect()
}

/// Part of a name for one key; `None` if the run does not have the key.
fn part(difference: &KeyDifference, short: &str, run: usize) -> Option<String> {
    let value = difference.values[run].as_ref()?;
    if difference.key == COMMAND {
        return Some(command(difference, run));
    }
    let short = if short.ends_with("learning_rate") { "lr" } else { short };
    match value {
        // A kind without settings.
        Value::Object(keys) if keys.is_empty() => Some(short.to_owned()),
        _ => Some(format!("{short} {}", printable::line(&format_rounded(value), VALUE_CHARACTERS_MAX))),
    }
}

/// Command line, or of a long one the words that not all commands have, with the option before each.
fn command(difference: &KeyDifference, run: usize) -> String {
    let lines: Vec<Vec<&str>> = difference.values.iter().map(words).collect();
    let own = &lines[run];
    let whole = own.join(" ");
    if whole.chars().count() <= COMMAND_CHARACTERS_MAX {
        return whole;
    }
    let everywhere = |word: &str| lines.iter().all(|line| line.contains(&word));
    let mut shown = String::from("…");
    for (at, word) in own.iter().enumerate().filter(|(_, word)| !everywhere(word)) {
        let option = at.checked_sub(1).map(|before| own[before]).filter(|before| before.starts_with('-'));
        shown.extend(option.filter(|option| everywhere(option)).map(|option| format!(" {option}")));
        shown.push_str(&format!(" {word}"));
    }
    if shown.len() == "…".len() { String::new() } else { shown }
}

fn words(value: &Option<Value>) -> Vec<&str> {
    let words = value.as_ref().and_then(Value::as_array);
    words.map_or_else(Vec::new, |words| words.iter().filter_map(Value::as_str).collect())
}

/// Number of the setting of each run, from 1 in the order of the runs: repeats with another seed have the same one.
pub fn settings(experiments: &[BTreeMap<String, Value>]) -> Vec<usize> {
    let mut known: Vec<Vec<(&String, &Value)>> = Vec::new();
    experiments
        .iter()
        .map(|experiment| {
            let affects = |key: &str| key != SEED && !NAMES.contains(&key);
            let values: Vec<_> = experiment.iter().filter(|(key, _)| affects(key)).collect();
            // A run without a readable experiment repeats no other.
            let at = known.iter().position(|one| !values.is_empty() && *one == values);
            at.unwrap_or_else(|| {
                known.push(values);
                known.len() - 1
            }) + 1
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differences(values: &[(&str, &[Value])]) -> Vec<KeyDifference> {
        let some =
            |values: &[Value]| values.iter().map(|value| Some(value.clone()).filter(|one| !one.is_null())).collect();
        values.iter().map(|(key, values)| KeyDifference { key: (*key).into(), values: some(values) }).collect()
    }

    const EXPERIMENTS: [&str; 3] = ["one", "two", "three"];

    fn labels(count: usize, differences: &[KeyDifference]) -> Vec<String> {
        super::labels(&EXPERIMENTS[..count], differences)
    }

    #[test]
    fn a_run_is_named_by_the_keys_that_differ() {
        let rate = ("optimizer.adamw.learning_rate", &[json!(0.001), json!(0.005)][..]);
        let epochs = ("training.epochs", &[json!(4), json!(3)][..]);
        assert_eq!(labels(2, &differences(&[rate, epochs])), ["lr 0.001, epochs 4", "lr 0.005, epochs 3"]);
        let name = ("experiment.name", &[json!("a"), json!("b")][..]);
        let seed = (SEED, &[json!(1), json!(2)][..]);
        assert_eq!(labels(2, &differences(&[name, seed])), ["seed 1", "seed 2"]);
    }

    #[test]
    fn equal_runs_are_told_apart_by_their_numbers_and_unlike_ones_by_their_experiments() {
        assert_eq!(labels(2, &[]), ["run 1", "run 2"]);
        let epochs = ("training.epochs", &[json!(4), json!(3), json!(3)][..]);
        let shown = labels(3, &differences(&[epochs]));
        assert_eq!(shown, ["epochs 4", "epochs 3 (run 2)", "epochs 3 (run 3)"]);
        let values = [json!(1), Value::Null];
        let many = ["a", "b", "c", "d"].map(|key| (key, &values[..]));
        assert_eq!(labels(2, &differences(&many)), ["one", "two"]);
    }

    #[test]
    fn commands_are_named_by_the_words_that_differ() {
        let short = [json!(["python", "tq.py"]), json!(["python", "tq.py", "--leak"])];
        assert_eq!(labels(2, &differences(&[(COMMAND, &short)])), ["python tq.py", "python tq.py --leak"]);
        let long = |rate: &str| json!(["python", "/home/ada/project/train.py", "--epochs", "30", "--lr", rate]);
        let shown = labels(2, &differences(&[(COMMAND, &[long("0.1"), long("0.2")])]));
        assert_eq!(shown, ["… --lr 0.1", "… --lr 0.2"]);
    }

    #[test]
    fn runs_that_differ_in_the_seed_have_one_setting() {
        let run = |epochs: u64, seed: u64| {
            BTreeMap::from([("training.epochs".to_owned(), json!(epochs)), (SEED.to_owned(), json!(seed))])
        };
        assert_eq!(settings(&[run(1, 1), run(2, 1), run(1, 2), BTreeMap::new(), BTreeMap::new()]), [1, 2, 1, 3, 4]);
    }
}
