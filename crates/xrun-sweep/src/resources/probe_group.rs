//! Trials that share a probe: their experiments differ only in keys that do not affect memory, and in the number of steps.

use serde_json::Value;

use xrun_core::dataset::digest::digest;
use xrun_core::experiment::Experiment;

/// Sections and keys that change nothing in memory, or that a probe sets itself.
const IGNORED_KEYS: [&str; 15] = [
    "experiment.name",
    "experiment.description",
    "experiment.patch",
    "sweep",
    "launcher",
    "hooks",
    "memory",
    "checkpoint.every_steps",
    "checkpoint.keep_last",
    "checkpoint.best",
    "limits.host_memory",
    "limits.device_memory",
    "training.time_limit",
    "training.early_stopping",
    "training.schedule",
];
/// Names of keys that change nothing in memory in any section: of an optimiser, or among the values of a command.
const IGNORED_KEY_NAMES: [&str; 7] = ["learning_rate", "lr", "weight_decay", "beta_1", "beta_2", "epsilon", "seed"];
/// Keys that set the number of steps: they change the forecast and not the probe.
const LENGTH: [&str; 2] = ["training.epochs", "training.max_steps"];

/// Digests that experiments have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeGroup {
    /// Equal where experiments share a probe.
    pub probe: String,
    /// Equal where they share a forecast as well, since they train equally long.
    pub forecast: String,
}

impl ProbeGroup {
    /// The group of an experiment.
    pub fn new(experiment: &Experiment) -> Self {
        // Serialises: no map in it has keys other than strings.
        let mut value = serde_json::to_value(experiment).unwrap_or_default();
        strip(&mut value, "", &|path, name| IGNORED_KEYS.contains(&path) || IGNORED_KEY_NAMES.contains(&name));
        let forecast = digest(value.to_string().as_bytes());
        strip(&mut value, "", &|path, _| LENGTH.contains(&path));
        Self { probe: digest(value.to_string().as_bytes()), forecast }
    }
}

fn strip(value: &mut Value, path: &str, goes: &dyn Fn(&str, &str) -> bool) {
    let Value::Object(keys) = value else { return };
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    keys.retain(|key, _| !goes(&below(key), key));
    keys.iter_mut().for_each(|(key, value)| strip(value, &below(key), goes));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> ProbeGroup {
        ProbeGroup::new(
            &toml::from_str::<Experiment>(&format!("[pipeline.dummy]\nsteps_per_epoch = 7\n{text}")).unwrap(),
        )
    }

    #[test]
    fn a_key_that_cannot_change_memory_costs_no_probe() {
        for text in [
            "[experiment]\nseed = 7\nname = \"other\"\n",
            "[optimizer.adamw]\nlearning_rate = 0.5\nweight_decay = 0.2\n",
            "[training]\ntime_limit = \"1 h\"\n[training.schedule.cosine]\nwarmup_steps = 3\n",
            "[limits]\nhost_memory = \"1 GiB\"\n",
            "[memory]\nevery_steps = 3\n",
        ] {
            assert_eq!(group(text), group(""), "{text}");
        }
    }

    #[test]
    fn another_length_is_another_forecast_by_the_same_probe() {
        let (short, long) = (group(""), group("[training]\nepochs = 50\n"));
        assert_eq!(short.probe, long.probe);
        assert_ne!(short.forecast, long.forecast);
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
            assert_ne!(group(text).probe, group("").probe, "{text}");
        }
        let held = ProbeGroup::new(
            &toml::from_str::<Experiment>("[pipeline.dummy]\nsteps_per_epoch = 7\nhold = \"1 MiB\"\n").unwrap(),
        );
        assert_ne!(held.probe, group("").probe);
    }
}
