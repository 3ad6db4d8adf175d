//! `xrun completions SHELL`: shell completion scripts.
//!
//! The scripts are clap's, with pipelines, records, subcommands and keys as possible values. Runs and tags are not known when
//! a script is written: the shell calls `xrun completions --runs` for them.

use std::collections::BTreeSet;
use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command, CommandFactory};
use clap_complete::Shell;

use super::terminal::{Failure, Terminal};
use super::{CommandLine, RESULTS};
use crate::experiment::key_lookup;
use crate::experiment::pipeline::Pipeline;
use crate::invocation;
use crate::printable;
use crate::results::{index, read};
use crate::schemas;

/// Largest number of runs that are offered.
const RUNS_MAX: usize = 200;
/// Largest number of tags that are offered.
const TAGS_MAX: usize = 200;

/// Names of the subcommands that have an option, or take a run if `option` is `None`.
fn subcommands_with(option: Option<&str>) -> Vec<String> {
    let takes = |argument: &Arg| match option {
        Some(option) => argument.get_long() == Some(option),
        None => argument.is_positional() && argument.get_value_names().is_some_and(|names| names == ["RUN"]),
    };
    let command = CommandLine::command();
    let with = command.get_subcommands().filter(|subcommand| subcommand.get_arguments().any(takes));
    with.map(|subcommand| subcommand.get_name().to_owned()).collect()
}

/// Completes runs and tags, and adds no space after `key=`. `PROGRAM`, `RUN_SUBCOMMANDS` and `TAG_SUBCOMMANDS` are
/// placeholders in the scripts.
const BASH: &str = r#"
_PROGRAM_and_runs() {
    _PROGRAM "$@"
    local here="${COMP_WORDS[COMP_CWORD]}"
    case "${COMP_WORDS[COMP_CWORD-1]}" in
        -s|--set) compopt -o nospace; return ;;
        --tag) COMPREPLY=($(compgen -W "$(PROGRAM completions bash --tags 2>/dev/null)" -- "$here")); return ;;
    esac
    case "${COMP_WORDS[1]}" in
        RUN_SUBCOMMANDS)
            if [[ "$here" != -* ]]; then
                COMPREPLY+=($(compgen -W "$(PROGRAM completions bash --runs 2>/dev/null)" -- "$here"))
            fi ;;
    esac
}
complete -F _PROGRAM_and_runs -o bashdefault -o default PROGRAM
"#;

const FISH: &str = "
complete -c PROGRAM -n '__fish_seen_subcommand_from RUN_SUBCOMMANDS' -k -a '(PROGRAM completions fish --runs 2>/dev/null)'
complete -c PROGRAM -n '__fish_seen_subcommand_from TAG_SUBCOMMANDS' -l tag -x -a '(PROGRAM completions fish --tags 2>/dev/null)'
";

/// Replacement for the last lines of clap's script.
const ZSH: &str = r#"
_PROGRAM_and_runs() {
    local subcommand="$words[2]" here="$words[CURRENT]"
    local -i at=$CURRENT
    if (( at > 2 )) && [[ "$subcommand" == *.toml ]]; then
        # Complete like PROGRAM run FILE.
        words=(PROGRAM run "${(@)words[2,-1]}")
        (( CURRENT += 1 ))
    fi
    if [[ "$words[CURRENT-1]" == --tag ]]; then
        compadd -- ${(f)"$(PROGRAM completions zsh --tags 2>/dev/null)"}
        return
    fi
    _PROGRAM "$@"
    local -i answer=$?
    if (( at == 2 )) && [[ "$here" != -* ]]; then
        _files && answer=0
    fi
    case "$subcommand" in
        RUN_SUBCOMMANDS)
            if (( at > 2 )) && [[ "$here" != -* ]]; then
                compadd -V runs -- ${(f)"$(PROGRAM completions zsh --runs 2>/dev/null)"} && answer=0
            fi ;;
    esac
    return answer
}
if [ "$funcstack[1]" = "_PROGRAM" ]; then
    _PROGRAM_and_runs "$@"
fi
compdef _PROGRAM_and_runs PROGRAM
"#;
/// Beginning of those last lines.
const ZSH_LAST: &str = "\nif [ \"$funcstack[1]\" = \"_PROGRAM\" ]; then\n";

#[derive(Clone, Debug, Args)]
pub struct CompletionsArguments {
    /// Shell.
    shell: Shell,
    /// Print the names of runs, for the scripts.
    #[arg(long, hide = true)]
    runs: bool,
    /// Print the tags of runs, for the scripts.
    #[arg(long, hide = true, conflicts_with = "runs")]
    tags: bool,
}

pub fn run(arguments: &CompletionsArguments, terminal: &Terminal) -> Result<u8, Failure> {
    if arguments.runs {
        terminal.print(&runs(Path::new(RESULTS)).join("\n"));
        return Ok(0);
    }
    if arguments.tags {
        terminal.print(&tags(Path::new(RESULTS)).join("\n"));
        return Ok(0);
    }
    let program = invocation::program();
    let filled = |script: &str, separator: &str| {
        let replace = |script: String, name, option| script.replace(name, &subcommands_with(option).join(separator));
        let script = replace(script.replace("PROGRAM", program), "RUN_SUBCOMMANDS", None);
        replace(script, "TAG_SUBCOMMANDS", Some("tag"))
    };
    let mut script = Vec::new();
    // clap's script for zsh would take the first word as FILE and never complete a subcommand.
    let mut command = offered(&CommandLine::command(), arguments.shell != Shell::Zsh);
    clap_complete::generate(arguments.shell, &mut command, program, &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match arguments.shell {
        Shell::Bash => script.push_str(&filled(BASH, "|")),
        Shell::Fish => {
            script.push_str(&fish_values(&command));
            script.push_str(&filled(FISH, " "));
        }
        Shell::Zsh => {
            script.truncate(script.find(&filled(ZSH_LAST, "")).unwrap_or(script.len()));
            script.push_str(&filled(ZSH, "|"));
        }
        _ => {}
    }
    terminal.print(&script);
    Ok(0)
}

/// Completions of positional values, which clap's script for fish lacks.
fn fish_values(command: &Command) -> String {
    let mut text = String::new();
    for subcommand in command.get_subcommands() {
        for positional in subcommand.get_positionals() {
            let values = positional.get_value_parser().possible_values().into_iter().flatten();
            let values: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
            if !values.is_empty() {
                let (name, values, program) = (subcommand.get_name(), values.join(" "), invocation::program());
                text.push_str(&format!(
                    "complete -c {program} -n '__fish_seen_subcommand_from {name}' -f -a '{values}'\n"
                ));
            }
        }
    }
    text
}

/// Names of runs, newest first.
fn runs(results: &Path) -> Vec<String> {
    let named = |entry: &index::RunEntry| format!("{}/{}", entry.experiment, entry.run);
    let newest = index::newest_first(results, None).take(RUNS_MAX);
    std::iter::once("latest".to_owned()).chain(newest.map(|entry| named(&entry))).collect()
}

/// Tags of the newest runs, sorted and without duplicates. Tags that need shell quoting are omitted.
fn tags(results: &Path) -> Vec<String> {
    let newest = index::directories_newest_first(results).take(RUNS_MAX);
    let tags = newest.flat_map(|(_, run)| read::notes(&run).unwrap_or_default().tags);
    let plain: BTreeSet<String> = tags.filter(|tag| printable::shell_word(tag) == *tag).collect();
    plain.into_iter().take(TAGS_MAX).collect()
}

/// Command line without hidden parts and with possible values. The positionals of the program itself are included only if
/// `with_positionals` is true.
fn offered(command: &Command, with_positionals: bool) -> Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let arguments = arguments.filter(|argument| with_positionals || !argument.is_positional());
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let mut offered = Command::new(leaked(command.get_name().to_owned()))
        .args(arguments.cloned().map(with_values))
        .subcommands(subcommands.map(|subcommand| offered(subcommand, true)));
    if let Some(about) = command.get_about() {
        offered = offered.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        offered = offered.version(leaked(version.to_owned()));
    }
    offered
}

fn with_values(argument: Arg) -> Arg {
    let values: Vec<String> = match argument.get_id().as_str() {
        "set" => key_lookup::all_keys().into_iter().map(|key| format!("{key}=")).collect(),
        "solve" => key_lookup::all_keys(),
        "pipeline" => Pipeline::names().map(str::to_owned).collect(),
        "record" => {
            let records = schemas::record_schemas().into_iter().map(|(name, _)| name.to_owned());
            std::iter::once("experiment".to_owned()).chain(records).collect()
        }
        "subcommand" => CommandLine::command().get_subcommands().map(|of| of.get_name().to_owned()).collect(),
        _ => return argument,
    };
    let values: Vec<&'static str> = values.into_iter().map(leaked).collect();
    argument.value_parser(PossibleValuesParser::new(values))
}

/// Leaks a name, since clap needs a static lifetime. The program ends when the script is written.
fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}
