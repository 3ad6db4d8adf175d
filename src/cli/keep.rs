//! `xrun keep RUN`: copy a run, or the table of a sweep, to results/reference, in the form to be committed.

use std::path::{Component, Path, PathBuf};

use clap::{Args, ValueHint};

use super::resume::find_run;
use super::terminal::{Failure, Terminal};
use super::{RUN_HELP, Results};
use crate::export::keep::{self, KeepError};
use crate::files::layout::REFERENCE;
use crate::printable;
use crate::results::{read, run_name};
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
    let results = &arguments.results.directory;
    let named = Path::new(&arguments.run);
    if let Some(sweep) = run_name::sweep(results, named) {
        let experiment = sweep.parent().and_then(Path::parent).and_then(Path::file_name);
        let experiment = experiment.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let name = checked_name(arguments.name.as_ref().unwrap_or(&experiment))?;
        let kept = keep_with(|| keep::keep_table(&sweep, results, name, arguments.replace))?;
        return report(&kept, name, arguments, terminal);
    }
    let run = find_run(&arguments.results, &arguments.run)?;
    let manifest = read::manifest(&run).map_err(Failure::failed)?;
    let name = checked_name(arguments.name.as_ref().unwrap_or(&manifest.experiment))?;
    let kept = keep_with(|| keep::keep(&run, results, name, arguments.replace))?;
    if manifest.code.git_patch.is_some() {
        terminal.info("note: the run was started with uncommitted changes, which its manifest.json contains");
    }
    report(&kept, name, arguments, terminal)
}

fn checked_name(name: &String) -> Result<&str, Failure> {
    let mut parts = Path::new(name).components();
    let is_one = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) && !name.starts_with('.');
    let refused = || Failure::Usage(format!("--name {name}: expected the name of a directory, without `/`"));
    if is_one { Ok(name) } else { Err(refused()) }
}

fn keep_with(keep: impl FnOnce() -> Result<PathBuf, KeepError>) -> Result<PathBuf, Failure> {
    keep().map_err(|error| match error {
        KeepError::Exists { .. } | KeepError::Foreign { .. } | KeepError::NotKept { .. } => {
            Failure::Usage(error.to_string())
        }
        other => Failure::failed(other),
    })
}

fn report(kept: &Path, name: &str, arguments: &KeepArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let bytes = disk_usage(kept);
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
