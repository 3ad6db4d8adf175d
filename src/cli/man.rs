//! `xrun man`: the manual page.

use clap::CommandFactory;
use clap_mangen::roff::{Roff, bold, roman};

use super::terminal::{Failure, Terminal};
use super::{CommandLine, ManArguments};
use crate::invocation;

const ENVIRONMENT: &[(&str, &str)] = &[
    ("XRUN_CACHE", "Where generated data is kept; ~/.cache/xrun when not set."),
    (
        "XDG_STATE_HOME",
        "Where the key is kept by which folders are known to be this user's own; ~/.local/state when not set.",
    ),
    (
        "XRUN__SECTION__KEY",
        "A value of the experiment, with two underscores between section and key: XRUN__LIMITS__WORKERS=2. It wins over \
         the file, and -s wins over it.",
    ),
    ("NO_COLOR", "No colours, when set to anything."),
    ("CUDA_VISIBLE_DEVICES", "Which GPUs there are, for cuda:N too."),
];

const FILES: &[(&str, &str)] = &[
    ("FILE.toml", "An experiment; the subcommand new prints one with every key, schema its JSON Schema."),
    ("results/<experiment>/<run>/", "What a run leaves: records, lines, checkpoints, report.html."),
    ("results/<experiment>/latest", "A link to the newest run."),
    ("results/<experiment>/<run>/summary.json", "How the run ended; written last."),
    ("~/.cache/xrun", "Generated data."),
    ("~/.local/state/xrun/key", "By which folders are known to be this user's own."),
];

fn list(title: &str, entries: &[(&str, &str)]) -> Roff {
    let mut section = Roff::new();
    section.control("SH", [title]);
    for (name, meaning) in entries {
        section.control("TP", []);
        section.text([bold(*name)]);
        section.text([roman(*meaning)]);
    }
    section
}

pub fn run(arguments: &ManArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let mut command = CommandLine::command();
    command.build();
    let command = match &arguments.subcommand {
        None => command,
        Some(name) => command
            .find_subcommand(name)
            .cloned()
            .map(|subcommand| subcommand.version(env!("CARGO_PKG_VERSION")))
            .ok_or_else(|| {
                Failure::Usage(format!("there is no subcommand `{name}`; see {} --help", invocation::program()))
            })?,
    };
    let mut page = Vec::new();
    let whole = arguments.subcommand.is_none();
    clap_mangen::Man::new(command).render(&mut page).map_err(Failure::failed)?;
    if whole {
        list("ENVIRONMENT", ENVIRONMENT).to_writer(&mut page).map_err(Failure::failed)?;
        list("FILES", FILES).to_writer(&mut page).map_err(Failure::failed)?;
    }
    terminal.answer(&String::from_utf8_lossy(&page));
    Ok(0)
}
