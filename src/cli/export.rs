//! `xrun export RUN --to tensorboard`: export a run for other tools.

use clap::ValueEnum;

use std::path::Path;

use super::ExportArguments;
use super::resume::recorded_experiment;
use super::terminal::{Failure, Terminal};
use crate::export::tensorboard;
use crate::files::{layout, write};
use crate::printable;
use crate::report::{self, run_report};
use crate::results::timestamp;
use crate::results::{index, read, run_name};
use crate::run::evaluate::{self, CheckpointChoice};
use crate::run::weights;
use crate::units::pluralize;

pub fn run(arguments: &ExportArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let Some(to) = arguments.to else {
        let named = To::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let all: Vec<String> = named
            .map(|value| {
                let about = value.get_help().map(|about| format!(" ({about})")).unwrap_or_default();
                format!("`--to {}`{about}", value.get_name())
            })
            .collect();
        return Err(Failure::Usage(format!("--to is missing: {}", all.join(" or "))));
    };
    let run = index::find(&arguments.results.directory, &arguments.run).map_err(|error| {
        // The files of a sweep are tables already.
        match run_name::sweep(&arguments.results.directory, Path::new(&arguments.run)) {
            Some(sweep) => Failure::Usage(format!(
                "{} is a sweep, and a run is exported; the table of its trials is {}, its runs are in {}",
                printable::line(&arguments.run, 200),
                sweep.join(layout::TABLE_CSV).display(),
                sweep.join(layout::TRIALS).display()
            )),
            None => error.into(),
        }
    })?;
    if to != To::Weights && arguments.checkpoint != CheckpointChoice::Best {
        return Err(Failure::Usage("--checkpoint chooses the weights of --to weights".into()));
    }
    if to == To::Report {
        return report(&run, arguments, terminal);
    }
    let own = run.join(layout::EXPORT);
    if arguments.output.is_none() && std::fs::symlink_metadata(&own).is_ok_and(|found| found.is_symlink()) {
        let own = own.display();
        return Err(Failure::Failed(format!(
            "{own} is a symlink, which is not followed; choose a directory with --output DIR"
        )));
    }
    let output = arguments.output.clone().unwrap_or(own);
    write::create_directories(&output).map_err(Failure::failed)?;
    match to {
        To::Weights => weights(&run, &output, arguments, terminal),
        To::Tensorboard | To::Report => events(&run, &output, arguments.json, terminal),
    }
}

/// Format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum To {
    /// Event file for TensorBoard.
    Tensorboard,
    /// Weights of a checkpoint with a configuration and, for common architectures, a PyTorch module that loads them.
    Weights,
    /// The page report.html of the run, written again.
    Report,
}

fn report(run: &Path, arguments: &ExportArguments, terminal: &Terminal) -> Result<u8, Failure> {
    if arguments.output.is_some() {
        return Err(Failure::Usage("--to report writes into the run; --output is for the other formats".into()));
    }
    let mut view = run_report::open(run).map_err(Failure::failed)?;
    // An active or killed run has no verdict yet.
    view.judge_if_missing();
    for damage in report::write_view(&view).map_err(Failure::failed)? {
        terminal.info(&format!("damaged: {damage}"));
    }
    let page = run.join(layout::REPORT).display().to_string();
    terminal.answer(arguments.json, &serde_json::json!({ "report": page }), || page.clone());
    Ok(0)
}

fn weights(run: &Path, output: &Path, arguments: &ExportArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let manifest = read::manifest(run).map_err(Failure::failed)?;
    let checkpoint = evaluate::select_checkpoint(run, &manifest, arguments.checkpoint).map_err(Failure::Failed)?;
    let experiment = recorded_experiment(run, &[])?.experiment;
    let written = weights::export(run, &manifest, &experiment, &checkpoint, output).map_err(Failure::failed)?;
    let paths: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
    terminal.answer(arguments.json, &serde_json::json!({ "step": checkpoint.step, "paths": paths }), || {
        format!("{}\ncheckpoint after step {}", paths.join("\n"), checkpoint.step)
    });
    Ok(0)
}

fn events(run: &Path, output: &Path, json: bool, terminal: &Terminal) -> Result<u8, Failure> {
    let started = read::manifest(run).ok().and_then(|manifest| timestamp::seconds_of(&manifest.started));
    let (path, written) = tensorboard::export(run, output, started.unwrap_or_default()).map_err(Failure::failed)?;
    if written.skipped.lines > 0 {
        terminal.info(&format!("skipped {}", pluralize(written.skipped.lines, "damaged line")));
    }
    written.skipped.damage.iter().for_each(|damage| terminal.info(&format!("damaged: {damage}")));
    if written.tags_left_out {
        terminal.info("omitted metrics beyond the limits of a chart (length of a name, number of charts)");
    }
    let path = path.display().to_string();
    match json {
        true => terminal.json(&serde_json::json!({
            "path": path, "events": written.events, "tags": written.tags.len(), "lines_left_out": written.skipped.lines,
            "line_damage": Vec::from_iter(&written.skipped.damage),
        })),
        false => terminal.print(&format!(
            "{path}: {}, {}",
            pluralize(written.events, "event"),
            pluralize(written.tags.len() as u64, "chart")
        )),
    }
    Ok(0)
}
