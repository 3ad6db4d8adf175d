//! Keys that may be changed for a run that was recorded, and the refusal of others.

use super::terminal::Failure;
use crate::experiment::overrides::overridden_key;
use crate::problem::{Problem, Problems};
use crate::settings::sections::TRACKERS;

/// Keys and sections that do not change the metrics of a run.
pub const WITHOUT_EFFECT: &[&str] = &[
    "limits.workers",
    "limits.prefetch",
    "limits.frame_cache",
    "limits.decode_memory",
    "limits.metrics_queue",
    "limits.log_queue",
    "cleanup.",
    "memory.",
    "checkpoint.every_steps",
    "checkpoint.keep_last",
];
/// Keys that a resume may change besides [`WITHOUT_EFFECT`] and [`TRACKERS`].
const BY_RESUME: &[&str] = &[
    "experiment.device",
    "device.graphs",
    "limits.batch_size",
    "limits.host_memory",
    "limits.device_memory",
    "limits.on_pressure",
    "limits.recover",
    "training.time_limit",
    "training.activation_checkpointing",
];

/// Keys and sections that a resume may change.
pub fn by_resume() -> Vec<&'static str> {
    [WITHOUT_EFFECT, BY_RESUME, TRACKERS].concat()
}

/// Returns true if a resume may change this key.
pub fn is_changeable(key: &str) -> bool {
    is_among(&by_resume(), key)
}

fn is_among(keys: &[&str], key: &str) -> bool {
    keys.iter().any(|may| key == *may || (may.ends_with('.') && key.starts_with(may)))
}

/// Refuses overrides of keys that are not in the list; `help` returns advice on a key and the text of its override.
pub fn refuse_keys(
    overrides: &[String],
    changeable: &[&str],
    message: &str,
    help: impl Fn(&str, &str) -> String,
) -> Result<(), Failure> {
    let mut problems = Problems::default();
    for text in overrides.iter().filter(|text| !is_among(changeable, overridden_key(text))) {
        let key = overridden_key(text);
        problems.add(Problem::new(key, message).help(help(key, text)));
    }
    Ok(problems.into_result()?)
}

/// Refuses overrides of keys that are not in the list, in which an entry with a final dot means a section. `message` follows
/// the key, and `alternative` is advice.
pub fn refuse_other_keys(
    overrides: &[String],
    changeable: &[&str],
    message: &str,
    alternative: &str,
) -> Result<(), Failure> {
    // `cleanup.*` for the section `cleanup.`.
    let keys: Vec<String> =
        changeable.iter().map(|key| (*key).to_owned() + if key.ends_with('.') { "*" } else { "" }).collect();
    let help = format!("{alternative}, or change one of: {}", keys.join(", "));
    refuse_keys(overrides, changeable, message, |_, _| help.clone())
}
