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
    use crate::verdict::VerdictWord;
    use crate::verdict::training::TrainingVerdictWord;

    #[test]
    fn glossary_has_every_verdict_and_few_other_words() {
        let words: Vec<&str> = entries().map(|(word, _)| word).collect();
        let name = |verdict: serde_json::Result<serde_json::Value>| verdict.unwrap().as_str().unwrap().to_owned();
        let memory = VerdictWord::value_variants().iter().map(|verdict| name(serde_json::to_value(verdict)));
        let training = TrainingVerdictWord::value_variants().iter().map(|verdict| name(serde_json::to_value(verdict)));
        let verdicts: BTreeSet<String> = memory.chain(training).collect();
        for verdict in &verdicts {
            assert!(words.contains(&verdict.as_str()), "{verdict}");
        }
        assert!(words.len() - verdicts.len() <= 15, "{words:?}");
    }
}
