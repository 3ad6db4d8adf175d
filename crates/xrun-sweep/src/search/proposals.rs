//! The trials that method `tpe` chose: `proposals.jsonl`, a line for each, written before its run begins.
//!
//! A trial never changes, even where a resumed sweep has other results.

use std::path::Path;

use crate::records::search::{Proposal, Search, SearchMethod, TpeSearch};
use crate::records::sweep::SweepRecord;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::{LineWriter, WriteError};
use xrun_results::format::VERSION;
use xrun_results::read;
use xrun_results::read::ReadError;

/// Adds the trials that were chosen to those of the record.
///
/// # Errors
/// The file cannot be read, is damaged, or has trials that the record cannot have.
pub fn read_into(sweep: &Path, record: &mut SweepRecord) -> Result<(), ReadError> {
    let path = sweep.join(layout::PROPOSALS);
    let Some(Search { method: SearchMethod::Tpe(TpeSearch { space, .. }), trials: samples, .. }) =
        record.search.clone()
    else {
        return Ok(());
    };
    let lines = match read::lines::<Proposal>(path.clone()) {
        Err(error) if error.is_missing() => return Ok(()),
        lines => lines?,
    };
    for proposal in lines {
        let (proposal, next) = (proposal?, record.trials.len() as u64 + 1);
        if proposal.trial != next || proposal.values.len() != record.keys.len() || next > samples {
            let message = format!("line {next} is not trial {next} of {samples} with {} values", record.keys.len());
            return Err(ReadError::content(&path, &message));
        }
        // A key may name a program: only what the sweep's own file lists is run.
        if !space.iter().zip(&proposal.values).all(|(dimension, value)| dimension.has(value)) {
            return Err(ReadError::content(&path, &format!("line {next} has a value that the search cannot choose")));
        }
        add(record, proposal);
    }
    Ok(())
}

fn add(record: &mut SweepRecord, proposal: Proposal) {
    record.trials.push(proposal.values);
    record.order.push([proposal.trial, 1]);
}

/// Writes a trial down and adds it to the record.
///
/// # Errors
/// The file cannot be written.
pub fn append(
    sweep: &Path,
    record: &mut SweepRecord,
    values: Vec<serde_json::Value>,
    based_on: Vec<u64>,
) -> Result<(), WriteError> {
    let proposal = Proposal { version: VERSION, trial: record.trials.len() as u64 + 1, values, based_on };
    let buffer = write::lines("sweep_proposals", 1);
    let mut writer = LineWriter::open(&Ledger::default(), &buffer, &sweep.join(layout::PROPOSALS))?;
    writer.record(&proposal)?;
    writer.sync()?;
    add(record, proposal);
    Ok(())
}
