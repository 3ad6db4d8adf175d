//! Pipelines without a model: `dummy` for tests of the runner, `command` for a program of the user.

pub mod command;
pub mod dummy;

use crate::experiment::pipeline::Pipeline;
use crate::settings::command::Command;
use dummy::settings::Dummy;

/// Registers both kinds.
pub fn register_kinds() {
    Pipeline::register::<Command>();
    Pipeline::register::<Dummy>();
}
