//! `xrun keep RUN`: copy a result to results/reference, in the form to be committed.

use std::path::{Component, Path};

use clap::{Args, ValueHint};

use super::resume::find_run;
use super::terminal::{Failure, Terminal};
use super::{RUN_HELP, Results};
use crate::export::keep::{self, KeepError};
use crate::files::layout::REFERENCE;
use crate::printable;
use crate::results::read;
use crate::run::remove::disk_usage;
use crate::units::Bytes;

#[derive(Clone, Debug, Args)]
pub struct KeepArguments {
    #[arg(help = RUN_HELP, default_value = "latest", value_hint = ValueHint::DirPath)]
    run: String,
    /// Name of the copy in results/reference. Default: the name of the experiment.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Replace an older copy of this name.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &KeepArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let run = find_run(&arguments.results, &arguments.run)?;
    let manifest = read::manifest(&run).map_err(Failure::failed)?;
    let name = arguments.name.as_ref().unwrap_or(&manifest.experiment);
    let mut parts = Path::new(name).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) || name.starts_with('.') {
        return Err(Failure::Usage(format!("--name {name}: expected the name of a directory, without `/`")));
    }
    let kept =
        keep::keep(&run, &arguments.results.directory, name, arguments.replace).map_err(|error| match error {
            KeepError::Exists { .. } | KeepError::NotKept { .. } => Failure::Usage(error.to_string()),
            other => Failure::failed(other),
        })?;
    if manifest.code.git_patch.is_some() {
        terminal.info("note: the run was started with uncommitted changes, which its manifest.json contains");
    }
    let bytes = disk_usage(&kept);
    if arguments.json {
        terminal.json(&serde_json::json!({
            "path": kept.display().to_string(), "name": format!("{REFERENCE}/{name}"), "bytes": bytes,
        }));
        return Ok(0);
    }
    let word = printable::shell_word(&kept.to_string_lossy());
    terminal.print(&format!("{} ({}); commit it: git add {word}", kept.display(), Bytes(bytes)));
    Ok(0)
}
