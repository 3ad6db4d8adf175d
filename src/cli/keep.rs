//! `xrun keep RUN`: copy a run, or the table of a sweep, in the form to be committed or published.

use std::path::{Component, Path, PathBuf};

use clap::{Args, ValueHint};

use super::resume::find_run;
use super::terminal::{Failure, Terminal};
use super::{RUN_HELP, Results};
use crate::export::keep::{self, KeepError, KeepOptions};
use crate::files::layout::REFERENCE;
use crate::results::{read, run_name};
use crate::run::remove::disk_usage;
use crate::units::{Bytes, pluralize};

#[derive(Clone, Debug, Args)]
pub struct KeepArguments {
    #[arg(help = RUN_HELP, default_value = "latest", value_hint = ValueHint::DirPath)]
    run: String,
    /// Name of the copy. Default: the name of the experiment.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Directory above the copy. Default: `reference` in the directory of all results.
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// Replace an older copy of this name.
    #[arg(long)]
    replace: bool,
    /// Include the lines of the memory trace, with which `xrun verdict` judges the copy anew.
    #[arg(long)]
    with_trace: bool,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &KeepArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let results = &arguments.results.directory;
    let parent = arguments.output.clone().unwrap_or_else(|| results.join(REFERENCE));
    let (replace, with_trace) = (arguments.replace, arguments.with_trace);
    let named = Path::new(&arguments.run);
    if let Some(sweep) = run_name::sweep(results, named) {
        let experiment = sweep.parent().and_then(Path::parent).and_then(Path::file_name);
        let experiment = experiment.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let name = checked_name(arguments.name.as_ref().unwrap_or(&experiment))?;
        let options = KeepOptions { path: &parent.join(name), replace, with_trace };
        let kept = keep::keep_table(&sweep, options).map_err(failure)?;
        return report(&kept, arguments, terminal);
    }
    let run = find_run(&arguments.results, &arguments.run)?;
    let manifest = read::manifest(&run).map_err(Failure::failed)?;
    let name = checked_name(arguments.name.as_ref().unwrap_or(&manifest.experiment))?;
    let (kept, lines_left_out) =
        keep::keep(&run, KeepOptions { path: &parent.join(name), replace, with_trace }).map_err(failure)?;
    if lines_left_out > 0 {
        terminal.info(&format!("skipped {}", pluralize(lines_left_out, "damaged line")));
    }
    if manifest.code.git_patch.is_some() {
        terminal.info("note: the run was started with uncommitted changes, which the copy lacks");
    }
    report(&kept, arguments, terminal)
}

fn checked_name(name: &String) -> Result<&str, Failure> {
    let mut parts = Path::new(name).components();
    let is_one = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) && !name.starts_with('.');
    let refused = || Failure::Usage(format!("--name {name}: expected the name of a directory, without `/`"));
    if is_one { Ok(name) } else { Err(refused()) }
}

fn failure(error: KeepError) -> Failure {
    match error {
        KeepError::Refused(why) => Failure::Usage(why),
        other => Failure::failed(other),
    }
}

fn report(kept: &Path, arguments: &KeepArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let bytes = disk_usage(kept);
    if arguments.json {
        let name = kept.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let name = if arguments.output.is_some() { name } else { format!("{REFERENCE}/{name}") };
        terminal.json(&serde_json::json!({ "path": kept.display().to_string(), "name": name, "bytes": bytes }));
        return Ok(0);
    }
    terminal.print(&format!("{} ({})", kept.display(), Bytes(bytes)));
    Ok(0)
}
