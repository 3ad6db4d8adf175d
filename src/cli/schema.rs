//! `xrun schema`: print the JSON Schema of experiment files or of a record.

use super::SchemaArguments;
use super::terminal::{Failure, Terminal};
use crate::experiment::schema;
use crate::schemas;

pub fn run(arguments: &SchemaArguments, terminal: &Terminal) -> Result<u8, Failure> {
    if arguments.record == "experiment" {
        terminal.json(&schema::schema());
        return Ok(0);
    }
    let records = schemas::record_schemas();
    match records.iter().find(|(name, _)| *name == arguments.record) {
        Some((_, schema)) => terminal.json(schema),
        None => {
            let names: Vec<&str> = records.iter().map(|(name, _)| *name).collect();
            let known = names.join(", ");
            return Err(Failure::Usage(format!("unknown record `{}` (known: experiment, {known})", arguments.record)));
        }
    }
    Ok(0)
}
