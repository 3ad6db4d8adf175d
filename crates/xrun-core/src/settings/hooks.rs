//! Which programs are told how a run goes?

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Programs that are told how a run goes, each as `["program", "argument", …]`. No shell is in between. A JSON document is
/// on their standard input. A hook that fails never fails a run. Only a run of an experiment file starts them; `resume`
/// and `reproduce` do so with `--hooks`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// When the run has ended, whatever its outcome; after all others.
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub on_end: Vec<String>,
    /// When the verdict on memory becomes `growing` or `exceeded`: while the run goes on, or else at its end. Once in a
    /// process.
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub on_growing: Vec<String>,
    /// When a memory limit has ended the run.
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub on_limit: Vec<String>,
    /// When the run has failed, panicked or diverged.
    #[schemars(length(max = 64), inner(length(max = 4096)))]
    pub on_failed: Vec<String>,
    /// A hook that takes longer is ended, with all processes that it started.
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

impl Hooks {
    /// Nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
