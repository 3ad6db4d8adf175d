//! The pipelines that train no model: `dummy` computes nothing, `command` is somebody else's program.

pub mod command;
pub mod dummy;

use crate::experiment::kinds::Kinds;

/// Both.
pub fn kinds() -> Kinds {
    Kinds::default().pipeline::<command::Command>().pipeline::<dummy::Dummy>()
}
