//! `xrun generate`: schemas, manual pages and shell completions, for editors and packages.

use std::collections::BTreeSet;
use std::path::Path;

use clap::{Args, Command, CommandFactory, Subcommand};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;

use super::terminal::{Failure, Terminal};
use super::{CommandLine, RESULTS};
use crate::experiment::pipeline::Pipeline;
use crate::experiment::{key_lookup, schema};
use crate::results::{index, read};
use crate::{invocation, printable, schemas};

#[derive(Clone, Debug, Args)]
pub struct GenerateArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Print the JSON Schema of experiment files or of a record of the results.
    Schema {
        /// Record, such as manifest, metrics or verdict.
        #[arg(default_value = "experiment")]
        record: String,
    },
    /// Print the manual page of the program or of a subcommand.
    Man {
        /// Subcommand. Default: the page of the program.
        subcommand: Option<String>,
    },
    /// Print the script that completes command lines in a shell: bash, zsh, fish, elvish or powershell.
    Completions {
        /// Shell.
        shell: String,
    },
}

pub fn run(arguments: &GenerateArguments, terminal: &Terminal) -> Result<u8, Failure> {
    match &arguments.what {
        What::Schema { record } => terminal.json(&schema_of(record)?),
        What::Man { subcommand } => terminal.print(&manual(subcommand.as_deref())?),
        What::Completions { shell } => terminal.print(&completions(shell)?),
    }
    Ok(0)
}

fn schema_of(record: &str) -> Result<serde_json::Value, Failure> {
    if record == "experiment" {
        return Ok(schema::schema());
    }
    let records = schemas::record_schemas();
    let names: Vec<&str> = records.iter().map(|(name, _)| *name).collect();
    let unknown = format!("unknown record `{record}` (known: experiment, {})", names.join(", "));
    let found = records.into_iter().find(|(name, _)| *name == record);
    found.map(|(_, schema)| schema).ok_or(Failure::Usage(unknown))
}

fn manual(subcommand: Option<&str>) -> Result<String, Failure> {
    let mut command = CommandLine::command();
    command.build();
    if let Some(name) = subcommand {
        let unknown = || Failure::Usage(format!("unknown subcommand `{name}`; see {} --help", invocation::program()));
        command = command.find_subcommand(name).cloned().ok_or_else(unknown)?.version(env!("CARGO_PKG_VERSION"));
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(Failure::failed)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Variable with which the script calls the program for completions.
const COMPLETE: &str = "COMPLETE";

fn completions(shell: &str) -> Result<String, Failure> {
    let shells = Shells::builtins();
    let known: Vec<&str> = shells.names().collect();
    let completer = shells.completer(shell);
    let completer =
        completer.ok_or_else(|| Failure::Usage(format!("unknown shell `{shell}` (known: {})", known.join(", "))))?;
    let (program, mut script) = (invocation::program(), Vec::new());
    completer.write_registration(COMPLETE, program, program, program, &mut script).map_err(Failure::failed)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Answers a shell that asks for completions by its variable, and ends the process then.
pub fn complete() {
    clap_complete::CompleteEnv::with_factory(completed).var(COMPLETE).complete();
}

/// Command line with the candidates of its values.
fn completed() -> Command {
    fn with_candidates(mut command: Command) -> Command {
        let subcommands: Vec<String> = command.get_subcommands().map(|of| of.get_name().to_owned()).collect();
        for name in subcommands {
            command = command.mut_subcommand(name, with_candidates);
        }
        command.mut_args(|argument| {
            let is_run = argument.get_value_names().is_some_and(|names| names == ["RUN"]);
            let candidates = match argument.get_id().as_str() {
                _ if is_run => ArgValueCandidates::new(|| candidates(runs(Path::new(RESULTS)))),
                "tag" => ArgValueCandidates::new(|| candidates(tags(Path::new(RESULTS)))),
                "set" => ArgValueCandidates::new(|| {
                    candidates(key_lookup::all_keys().into_iter().map(|key| format!("{key}=")))
                }),
                "solve" => ArgValueCandidates::new(|| candidates(key_lookup::all_keys())),
                "pipeline" => ArgValueCandidates::new(|| candidates(Pipeline::names().map(str::to_owned))),
                _ => return argument,
            };
            argument.add(candidates)
        })
    }
    with_candidates(CommandLine::command())
}

fn candidates(values: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    values.into_iter().map(CompletionCandidate::new).collect()
}

/// Largest number of runs, and of tags, that are offered.
const OFFERED_MAX: usize = 200;

/// Names of runs, newest first.
fn runs(results: &Path) -> Vec<String> {
    let newest = index::newest_first(results, None).take(OFFERED_MAX);
    let named = newest.map(|entry| format!("{}/{}", entry.experiment, entry.run));
    std::iter::once("latest".to_owned()).chain(named).collect()
}

/// Tags of the newest runs, sorted and without duplicates. Tags that need shell quoting are omitted.
fn tags(results: &Path) -> Vec<String> {
    let newest = index::directories_newest_first(results).take(OFFERED_MAX);
    let tags = newest.flat_map(|(_, run)| read::notes(&run).unwrap_or_default().tags);
    let plain: BTreeSet<String> = tags.filter(|tag| printable::shell_word(tag) == *tag).collect();
    plain.into_iter().take(OFFERED_MAX).collect()
}
