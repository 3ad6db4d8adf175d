//! `[pipeline.command]`: an external training program.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::signal::Signal;
use crate::settings;
use crate::task::metric::Direction;
use crate::units::{Bytes, Span};

/// Maximum number of free keys in a table.
pub const KEYS_MAX: usize = 256;

settings! {
    /// An external training program as an experiment: it is run, sampled, limited and recorded as by `xrun watch`. Placeholders
    /// such as `{limits.batch_size}` in its arguments are replaced by the value of the key.
    pub struct Command {
        /// The program and its arguments, without a shell. `{KEY}` is replaced by the value of a key of the experiment
        /// (`{limits.batch_size}`, `{experiment.seed}`), `{values.NAME}` by a value of this table, `{run}` by the run directory,
        /// `{checkpoint}` by `checkpoint`. An argument of an empty value is left out. Sizes are in bytes, durations in seconds. `{{` and
        /// `}}` are literal braces.
        #[schemars(length(max = 1000), example = vec![
            "python3", "train.py", "--batch-size", "{limits.batch_size}", "--seed", "{experiment.seed}", "--out", "{run}",
        ])]
        pub program: Vec<String> = Vec::new(),
        /// The program and arguments that continue from `checkpoint`, for `xrun resume`. Without it the run cannot be resumed.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(length(max = 1000))]
        pub resume: Option<Vec<String>> = None,
        /// Working directory, relative to the experiment file. Default: the current directory.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub working_directory: Option<String> = None,
        /// The file or directory that the program saves to, such as `{run}/checkpoint.pt`. The outcome of a stopped run states
        /// whether it was written; `xrun resume` needs it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub checkpoint: Option<String> = None,
        /// Detection of steps in the program's output: a regular expression with a group `(?<step>…)`, and optionally
        /// `(?<loss>…)`, `(?<learning_rate>…)` and others; `auto`, the default, for the progress bars and log lines of common
        /// trainers; `none` to ignore the output.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub steps: Option<String> = None,
        /// JSON Lines file with `step` and optionally `loss` that the program appends to, in place of `steps`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub steps_file: Option<String> = None,
        /// Interval between memory samples, at least 10 ms.
        pub every: Span = Span(Duration::from_secs(1)),
        /// Explain growth if the program is a Python program: the line that adds, the object that holds, and the usual repair. An
        /// agent in its processes, found through PYTHONPATH, records allocations for some steps once growth is suspected.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub explain: bool = false,
        /// Signal to the program's first process at a limit, so that it can save a checkpoint.
        pub signal: Signal = Signal::Term,
        /// Time after the signal before the program is killed.
        pub grace: Span = Span(Duration::from_secs(30)),
        /// Memory limit of a cgroup for the program, beyond which the kernel kills it. `limits.host_memory` needs no cgroup.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub hard_limit: Option<Bytes> = None,
        /// Free parameters for `{values.NAME}`; a sweep addresses them as `pipeline.command.values.NAME`.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        #[schemars(extend("maxProperties" = KEYS_MAX))]
        pub values: BTreeMap<String, ParameterValue> = BTreeMap::new(),
        /// Metrics among the numbers of its steps, with the better direction: `higher` or `lower`. The alphabetically first one
        /// selects the best step.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        #[schemars(extend("maxProperties" = 64))]
        pub metrics: BTreeMap<String, Direction> = BTreeMap::new(),
        /// Environment variables in addition to the inherited ones.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        #[schemars(extend("maxProperties" = KEYS_MAX))]
        pub environment: BTreeMap<String, String> = BTreeMap::new(),
    }
}

impl Command {
    /// All texts that may contain placeholders, with their field names.
    pub fn texts(&self) -> impl Iterator<Item = (String, &str)> {
        let fields = |field: &'static str, arguments: &'_ [String]| {
            let count = arguments.len();
            (0..count).map(move |at| format!("{field}.{at}")).collect::<Vec<_>>()
        };
        let resume = self.resume.as_deref().unwrap_or_default();
        let listed = fields("program", &self.program).into_iter().zip(&self.program);
        let listed = listed.chain(fields("resume", resume).into_iter().zip(resume));
        let single = [("checkpoint", &self.checkpoint), ("steps_file", &self.steps_file)];
        let single = single.into_iter().filter_map(|(field, text)| Some((field.to_owned(), text.as_ref()?)));
        let variables = self.environment.iter().map(|(name, text)| (format!("environment.{name}"), text));
        listed.chain(single).chain(variables).map(|(field, text)| (field, text.as_str()))
    }
}

/// Value of a free parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParameterValue {
    /// `true` or `false`.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
}

impl JsonSchema for ParameterValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Knob".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["boolean", "integer", "number", "string"] })
    }
}
