//! What may be said of a command that does all of the work itself?

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::signal::Signal;
use crate::task::metric::Better;
use crate::units::{Bytes, Span};

/// As many keys of one's own may a table have.
pub const KEYS_MAX: usize = 256;

/// A program of somebody else's, as an experiment: it is run, sampled, limited and recorded as `xrun watch` does it. A word
/// with `{limits.batch_size}` gets the value of that key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Command {
    /// The program and its words, passed as they are; there is no shell. `{KEY}` stands for the value of any key of the
    /// experiment (`{limits.batch_size}`, `{experiment.seed}`), `{values.NAME}` for one of its own, `{run}` for the folder of
    /// the results, `{checkpoint}` for `checkpoint`. Sizes are given in bytes, durations in seconds. `{{` and `}}` are braces.
    #[schemars(length(max = 1000), example = [
        "python3", "train.py", "--batch-size", "{limits.batch_size}", "--seed", "{experiment.seed}", "--out", "{run}",
    ])]
    pub program: Vec<String>,
    /// The program and words that go on from `checkpoint`, for `xrun resume`. Without it the command cannot be resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub resume: Option<Vec<String>>,
    /// The folder that it is run in. Relative to the experiment. Default: the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The file or folder that it saves to, such as `{run}/checkpoint.pt`. After a stop, the outcome says whether it was
    /// written; `xrun resume` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Finds steps in its output: a regular expression with a group `(?<step>…)`, and perhaps `(?<loss>…)`,
    /// `(?<learning_rate>…)` and others; `auto` for the progress bars of tqdm, Lightning, Hugging Face's Trainer and Keras,
    /// as without this key; `none` to leave the output alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<String>,
    /// A file of JSON lines with `step` and perhaps `loss`, to which it appends, in place of `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_file: Option<String>,
    /// A folder of event files that it writes for TensorBoard, in place of `steps`. Of a tag, all but letters, digits and `-`
    /// is `_` in the name of a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensorboard: Option<String>,
    /// The time between two looks at its memory; 10 ms at least.
    pub every: Span,
    /// What its first process is sent at a limit, so that it can save.
    pub signal: Signal,
    /// How long it may then take to save.
    pub grace: Span,
    /// The memory that the kernel lets it have, in a cgroup of its own: beyond it, it is killed. `limits.host_memory` needs
    /// no cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard_limit: Option<Bytes>,
    /// Knobs of its own, for `{values.NAME}`. They are swept as `pipeline.command.values.NAME`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = KEYS_MAX))]
    pub values: BTreeMap<String, Knob>,
    /// Numbers of its steps that measure the result, by name, and which way is better: `higher` or `lower`. The first by
    /// name chooses the best step.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub metrics: BTreeMap<String, Better>,
    /// Variables of its environment, besides those of this program.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = KEYS_MAX))]
    pub environment: BTreeMap<String, String>,
}

impl Default for Command {
    fn default() -> Self {
        Self {
            program: Vec::new(),
            resume: None,
            folder: None,
            checkpoint: None,
            steps: None,
            steps_file: None,
            tensorboard: None,
            every: Span(Duration::from_secs(1)),
            signal: Signal::Term,
            grace: Span(Duration::from_secs(30)),
            hard_limit: None,
            values: BTreeMap::new(),
            metrics: BTreeMap::new(),
            environment: BTreeMap::new(),
        }
    }
}

impl Command {
    /// Every text that may have placeholders, with the field that it stands in.
    pub fn texts(&self) -> impl Iterator<Item = (String, &str)> {
        let words = |field: &'static str, words: &'_ [String]| {
            let count = words.len();
            (0..count).map(move |at| format!("{field}.{at}")).collect::<Vec<_>>()
        };
        let resume = self.resume.as_deref().unwrap_or_default();
        let listed = words("program", &self.program).into_iter().zip(&self.program);
        let listed = listed.chain(words("resume", resume).into_iter().zip(resume));
        let single =
            [("checkpoint", &self.checkpoint), ("steps_file", &self.steps_file), ("tensorboard", &self.tensorboard)];
        let single = single.into_iter().filter_map(|(field, text)| Some((field.to_owned(), text.as_ref()?)));
        let variables = self.environment.iter().map(|(name, text)| (format!("environment.{name}"), text));
        listed.chain(single).chain(variables).map(|(field, text)| (field, text.as_str()))
    }
}

/// One value of a knob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Knob {
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a point.
    Float(f64),
    /// Text.
    Text(String),
}

impl JsonSchema for Knob {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Knob".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["boolean", "integer", "number", "string"] })
    }
}
