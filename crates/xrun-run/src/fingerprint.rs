//! Fingerprint of an experiment: one digest of its settings, data and code.
//!
//! It covers every value of the resolved experiment except [`excluded_keys`], the digests of the data and of what was derived
//! from it, xrun's version, and the digests of its sources and its lock file. It does not cover the machine and the device,
//! which are compared by name.

use crate::plan::Plan;
use xrun_core::dataset::digest::digest;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::INITIAL_WEIGHTS;
use xrun_core::experiment::resolved::flat;
use xrun_core::settings::sections::TRACKERS;
use xrun_results::build_info::{build_info, code_digest, lock_digest};

/// Keys that change neither the numbers nor the memory of a run that does all its steps: name, device and how it is used, limits that
/// only stop it, and the probe.
///
/// Keys that change memory but no metric (buffers, cleanup, trace) are not excluded: memory is a result.
const EXCLUDED_KEYS: &[&str] = &[
    "experiment.name",
    "experiment.description",
    "experiment.device",
    "experiment.patch",
    "device.graphs",
    "training.time_limit",
    "limits.host_memory",
    "limits.device_memory",
    "memory.probe",
];

/// Returns [`EXCLUDED_KEYS`] and the keys of trackers.
pub fn excluded_keys() -> Vec<&'static str> {
    [EXCLUDED_KEYS, TRACKERS].concat()
}

/// Computes the fingerprint of a planned experiment.
pub fn fingerprint(plan: &Plan) -> String {
    let mut lines = setting_lines(&plan.experiment);
    // Sorted: the order differs between derived data that exists already and that which is made when the task opens.
    let mut data: Vec<String> =
        plan.facts.data_digests.iter().map(|(name, value)| format!("data {name} = {value}")).collect();
    data.sort();
    lines.extend(data);
    lines.push(format!("xrun {} {} {}", build_info().version, code_digest(), lock_digest()));
    digest(lines.join("\n").as_bytes())
}

/// Keys of the paths of data and weights, which are excluded as well: the digest of the content counts.
pub fn data_path_keys(experiment: &Experiment) -> Vec<String> {
    let weights = std::iter::once(INITIAL_WEIGHTS.to_owned());
    experiment.clone().paths().map(|(key, _)| key).chain(weights).collect()
}

/// Line for each value that counts, sorted by key.
fn setting_lines(experiment: &Experiment) -> Vec<String> {
    // Cannot fail: all maps have strings as keys.
    let values = flat(&serde_json::to_value(experiment).unwrap_or_default());
    let paths = data_path_keys(experiment);
    let counts = |key: &str| !excluded_keys().contains(&key) && !paths.iter().any(|path| path == key);
    values.into_iter().filter(|(key, _)| counts(key)).map(|(key, value)| format!("{key} = {value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;
    use xrun_core::experiment::{schema, shape};

    #[test]
    fn settings_that_change_numbers_or_memory_change_the_fingerprint() {
        let of = |text: &str| fingerprint(&plan_of(&format!("[pipeline.dummy]\n{text}")));
        let plain = of("");
        for same in [
            "[experiment]\nname = \"other\"\ndescription = \"words\"\ndevice = \"cpu\"\n",
            "[training]\ntime_limit = \"1 h\"\n",
            "[limits]\nhost_memory = \"1 GiB\"\ndevice_memory = \"2 GiB\"\n",
            "[limits]\nworkers = 1\n",
        ] {
            assert_eq!(of(same), plain, "{same}");
        }
        for other in [
            "[experiment]\nseed = 1\n",
            "[training]\nmax_steps = 5\n",
            "[limits]\nbatch_size = 16\n",
            "[cleanup]\nevery_steps = 3\n",
            "[memory]\nfail_on = \"growing\"\n",
        ] {
            assert_ne!(of(other), plain, "{other}");
        }
    }

    #[test]
    fn other_data_changes_the_fingerprint() {
        let mut plan = plan_of("[pipeline.dummy]\n");
        let before = fingerprint(&plan);
        plan.facts.data_digests.push(("coco".into(), "ab".into()));
        assert_ne!(fingerprint(&plan), before);
    }

    #[test]
    fn every_excluded_key_exists() {
        for key in excluded_keys() {
            assert!(shape::schema_at(schema::shared(), key).is_some(), "{key}");
        }
    }
}
