//! Trials that share a probe: their experiments differ only in keys that do not affect memory, and in the number of steps.

use serde_json::Value;

use xrun_core::dataset::digest::digest;
use xrun_core::experiment::Experiment;

/// Sections and keys that change nothing in memory, or that a probe sets itself.
const IGNORED_KEYS: [&str; 16] = [
    "experiment.name",
    "experiment.description",
    "experiment.patch",
    "sweep",
    "launcher",
    "memory",
    "checkpoint.every_steps",
    "checkpoint.keep_last",
    "checkpoint.best",
    "limits.host_memory",
    "limits.device_memory",
    "training.epochs",
    "training.max_steps",
    "training.time_limit",
    "training.early_stopping",
    "training.schedule",
];
/// Names of keys that change nothing in memory in any section: of an optimiser, or among the values of a command.
const IGNORED_KEY_NAMES: [&str; 7] = ["learning_rate", "lr", "weight_decay", "beta_1", "beta_2", "epsilon", "seed"];
/// Digest that is equal where experiments share a probe.
pub fn probe_group(experiment: &Experiment) -> String {
    // Serialises: no map in it has keys other than strings.
    let mut value = serde_json::to_value(experiment).unwrap_or_default();
    strip(&mut value, "");
    digest(value.to_string().as_bytes())
}

fn strip(value: &mut Value, path: &str) {
    let Value::Object(keys) = value else { return };
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    keys.retain(|key, _| !IGNORED_KEYS.contains(&below(key).as_str()) && !IGNORED_KEY_NAMES.contains(&key.as_str()));
    keys.iter_mut().for_each(|(key, value)| strip(value, &below(key)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> String {
        probe_group(&toml::from_str(&format!("[pipeline.dummy]\nsteps_per_epoch = 7\n{text}")).unwrap())
    }

    #[test]
    fn a_key_that_cannot_change_memory_costs_no_probe() {
        for text in [
            "[experiment]\nseed = 7\nname = \"other\"\n",
            "[optimizer.adamw]\nlearning_rate = 0.5\nweight_decay = 0.2\n",
            "[training]\ntime_limit = \"1 h\"\n[training.schedule.cosine]\nwarmup_steps = 3\n",
            "[limits]\nhost_memory = \"1 GiB\"\n",
            "[memory]\nevery_steps = 3\n",
            "[training]\nepochs = 50\nmax_steps = 20\n",
        ] {
            assert_eq!(group(text), group(""), "{text}");
        }
    }

    #[test]
    fn keys_that_may_change_memory_are_probed() {
        for text in [
            "[limits]\nbatch_size = 64\n",
            "[limits]\nprefetch = 9\n",
            "[optimizer.sgd]\nmomentum = 0.9\n",
            "[training]\ngradient_accumulation = 2\n",
            "[experiment]\ndevice = \"cuda\"\n",
            "[cleanup]\nevery_steps = 1\n",
        ] {
            assert_ne!(group(text), group(""), "{text}");
        }
        assert_ne!(group("hold = \"1 MiB\"\n"), group(""));
    }
}
