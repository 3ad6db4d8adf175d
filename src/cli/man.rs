//! `xrun man`: manual pages.

use clap::CommandFactory;
use clap_mangen::roff::{Roff, bold, roman};

use super::terminal::{Failure, Terminal};
use super::{CommandLine, ManArguments};
use crate::invocation;

const ENVIRONMENT: &[(&str, &str)] = &[
    ("XRUN_CACHE", "Directory of generated data and cached probes. Default: ~/.cache/xrun."),
    ("XDG_STATE_HOME", "Directory of the key that signs this user's own results directories. Default: ~/.local/state."),
    (
        "XRUN__SECTION__KEY",
        "Value of the experiment, with two underscores between section and key: XRUN__LIMITS__WORKERS=2. It overrides \
         the file, and -s overrides it.",
    ),
    ("NO_COLOR", "Disables colours if set and not empty."),
    ("CUDA_VISIBLE_DEVICES", "GPUs that are visible, also for cuda:N."),
];

const FILES: &[(&str, &str)] = &[
    ("FILE.toml", "Experiment. `xrun new` prints one with every key, `xrun schema` its JSON Schema."),
    ("results/<experiment>/<run>/", "Run: records, metrics, memory samples, checkpoints, report.html."),
    ("results/<experiment>/latest", "Symlink to the newest run."),
    ("results/<experiment>/<run>/summary.json", "Outcome of the run, written last."),
    ("~/.cache/xrun", "Generated data and cached probes."),
    ("~/.local/state/xrun/key", "Key that signs this user's own results directories."),
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
                Failure::Usage(format!("unknown subcommand `{name}`; see {} --help", invocation::program()))
            })?,
    };
    let mut page = Vec::new();
    let whole = arguments.subcommand.is_none();
    clap_mangen::Man::new(command).render(&mut page).map_err(Failure::failed)?;
    if whole {
        list("ENVIRONMENT", ENVIRONMENT).to_writer(&mut page).map_err(Failure::failed)?;
        list("FILES", FILES).to_writer(&mut page).map_err(Failure::failed)?;
    }
    terminal.print(&String::from_utf8_lossy(&page));
    Ok(0)
}
