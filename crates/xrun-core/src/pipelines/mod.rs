//! Pipelines without a model: `dummy` for tests of the runner, `command` for a program of the user.

pub mod command;
pub mod dummy;

use crate::experiment::kinds::Kinds;
use crate::settings::command::Command;
use dummy::settings::Dummy;

/// Both kinds, for the registration.
pub fn kinds() -> Kinds {
    Kinds::default().pipeline::<Command>().pipeline::<Dummy>()
}
