//! `[hooks]`: programs to run on events of a run.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Programs to run on events of a run, each as `["program", "argument", …]`, without a shell. They receive a JSON document
/// on stdin. A failing hook does not fail the run. `resume` and `reproduce` run hooks only with `--hooks`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// On the end of a run with any outcome, after all other hooks.
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub on_end: Vec<String>,
    /// On the first memory verdict `growing` or `exceeded`, during the run or at its end. At most once per process.
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub on_growing: Vec<String>,
    /// On the end of a run by a memory limit.
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub on_limit: Vec<String>,
    /// On a run that failed, panicked or diverged.
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub on_failed: Vec<String>,
    /// Time limit of a hook, after which it is killed with all its child processes.
    pub time_limit: Span,
}

impl Default for Hooks {
    fn default() -> Self {
        let none = Vec::new;
        Self {
            on_end: none(),
            on_growing: none(),
            on_limit: none(),
            on_failed: none(),
            time_limit: Span(Duration::from_secs(30)),
        }
    }
}
