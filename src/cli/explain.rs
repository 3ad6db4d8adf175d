//! `xrun explain WORD`: an entry of the glossary.

use clap::Args;

use super::terminal::{Failure, Terminal};
use crate::problem::nearest;

const GLOSSARY: &str = include_str!("../../docs/glossary.md");

#[derive(Clone, Debug, Args)]
pub struct ExplainArguments {
    /// Word or verdict; all of them without it.
    word: Option<String>,
}

/// Words and meanings, in the order of the document.
fn entries() -> impl Iterator<Item = (&'static str, &'static str)> {
    let row = |line: &'static str| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ");
    GLOSSARY.lines().filter_map(row).filter(|(_, meaning)| *meaning != "meaning")
}

pub fn run(arguments: &ExplainArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let Some(asked) = &arguments.word else {
        let width = entries().map(|(word, _)| word.len()).max().unwrap_or_default();
        let lines: Vec<String> = entries().map(|(word, meaning)| format!("{word:width$}  {meaning}")).collect();
        terminal.print(&lines.join("\n"));
        return Ok(0);
    };
    let name = asked.trim().to_lowercase().replace([' ', '-'], "_");
    let found = entries().find(|(word, _)| word.replace([' ', '-'], "_") == name);
    let (word, meaning) = found.ok_or_else(|| {
        let hint = nearest(&name, entries().map(|(word, _)| word));
        let hint = hint.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Failure::Usage(format!("`{asked}` is not in the glossary{hint}"))
    })?;
    terminal.print(&format!("{word}: {meaning}"));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::ValueEnum;

    use super::entries;
    use crate::results::training_verdict::TrainingVerdictWord;
    use crate::verdict::VerdictWord;

    #[test]
    fn glossary_has_every_verdict_and_at_most_fifteen_other_words() {
        let words: Vec<&str> = entries().map(|(word, _)| word).collect();
        let on_memory = VerdictWord::value_variants().iter().map(|verdict| serde_json::to_value(verdict).unwrap());
        let on_training = TrainingVerdictWord::ALL.iter().map(|verdict| serde_json::json!(verdict.as_str()));
        let verdicts: BTreeSet<String> =
            on_memory.chain(on_training).filter_map(|name| name.as_str().map(ToOwned::to_owned)).collect();
        for name in &verdicts {
            assert!(words.contains(&name.as_str()), "{name}");
        }
        assert!(words.len() - verdicts.len() <= 15, "{words:?}");
    }
}
