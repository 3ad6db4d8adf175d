//! Entry of the program: parses the command line, runs the subcommand, and returns the exit code.

use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches};

use super::terminal::{self, Failure, Terminal};
use super::{Command, CommandLine, Progress, command_line, generate, typo, watch};
use crate::stop::{end_on_sent_faults, fail_writes_at_size_limit};
use crate::{invocation, panics};

/// Runs the command line of this process and returns the exit code.
pub fn main() -> ExitCode {
    ExitCode::from(run_from_args())
}

/// Runs the command line of this process and returns the exit code as a number.
pub fn run_from_args() -> u8 {
    generate::complete();
    let arguments = typo::insert_set_options(std::env::args_os().collect());
    if arguments.get(1).is_some_and(|word| word == "--help-all") {
        Terminal::default().print(&command_line(true).render_help().to_string());
        return 0;
    }
    // clap has not read the option yet when it fails.
    let json = arguments.iter().skip(1).take_while(|word| *word != "--").any(|word| word == "--json");
    let own = if arguments.get(1).is_some_and(|word| word == "watch") { watch::OWN_CODES } else { 0 };
    let usage = |message| own + fail(&Failure::Usage(message), json, Terminal::default());
    let second = arguments.get(2).map(AsRef::as_ref);
    if let Some((word, meant)) =
        arguments.get(1).and_then(|word| Some((word, typo::intended_subcommand(word, second)?)))
    {
        let word = word.to_string_lossy();
        return usage(format!("no such file `{word}`; did you mean the subcommand `{meant}`?"));
    }
    let matches = command_line(false).try_get_matches_from(&arguments);
    let parsed = matches.and_then(|matches| Ok((CommandLine::from_arg_matches(&matches)?, emits_events(&matches))));
    let (line, events) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => match typo::suggest_key(&error, &arguments) {
            Some(message) => return usage(message),
            None if json && error.use_stderr() => {
                let message = error.render().to_string();
                return usage(message.trim_start_matches("error: ").trim_end().to_owned());
            }
            // clap's own exit would not add `own`.
            None if error.use_stderr() => {
                let _ = error.print();
                return own + crate::exit::EXIT_BAD_INPUT;
            }
            None => error.exit(),
        },
    };
    panics::install_hook();
    fail_writes_at_size_limit();
    end_on_sent_faults();
    let code = panics::caught(|| dispatch(line, json, events, own)).unwrap_or_else(|panic| {
        let terminal = Terminal::default();
        terminal.error(&format!("{} panicked: {panic}", invocation::program()));
        terminal.error(&format!("this is a bug in {}; results written so far are intact", invocation::program()));
        crate::exit::EXIT_PANIC
    });
    terminal::final_exit_code(code)
}

/// Returns whether the messages on stderr are JSON.
fn emits_events(matches: &ArgMatches) -> bool {
    let of_command = matches.subcommand().map_or(matches, |(_, of_command)| of_command);
    matches!(of_command.try_get_one("progress"), Ok(Some(Progress::Json)))
}

/// Reports a failure, with `--json` on stdout too, and returns its exit code.
fn fail(failure: &Failure, json: bool, terminal: Terminal) -> u8 {
    if json {
        terminal.json(&failure.as_json());
    }
    failure.report(&terminal)
}

/// Runs a command. `own` is added to the code of a failure.
fn dispatch(line: CommandLine, json: bool, events: bool, own: u8) -> u8 {
    let terminal = Terminal::default();
    let command = line.command.unwrap_or(Command::Run(line.run));
    command.run(&terminal).unwrap_or_else(|failure| own + fail(&failure, json, Terminal { events, ..terminal }))
}
