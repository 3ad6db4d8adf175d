//! Pipelines without a model: `dummy` for tests of the runner, `command` for a program of the user.

pub mod command;
pub mod dummy;

use crate::experiment::kinds::Kinds;

/// Both kinds, for the registration.
pub fn kinds() -> Kinds {
    Kinds::default().pipeline::<command::Command>().pipeline::<dummy::Dummy>()
}
