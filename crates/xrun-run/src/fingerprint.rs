//! Are two experiments the same? One digest over what is asked for and the code that answers.
//!
//! In it: every value of the resolved experiment but [`LEFT_OUT`], the digests of the data and of what was made of it, xrun's
//! version, the digest of its sources and of its lock file. Not in it: the machine and the device, which are compared by name.

use crate::plan::Plan;
use xrun_core::dataset::digest::digest;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::read::INITIAL_WEIGHTS;
use xrun_core::experiment::resolved::flat;
use xrun_results::built::{built, code_digest, lock_digest};

/// Keys that change neither the numbers nor the memory of a run that does all its steps: what it is called, where it
/// runs, limits that only stop it, the look ahead at what it will need, and who is told of it.
///
/// What moves memory is not left out, though it does not change a metric: buffers, cleanup and the trace are what a
/// result of xrun is about.
pub const LEFT_OUT: &[&str] = &[
    "experiment.name",
    "experiment.description",
    "experiment.device",
    "experiment.patch",
    "experiment.tensorboard",
    "training.time_limit",
    "limits.host_memory",
    "limits.device_memory",
    "memory.probe",
    "hooks.on_end",
    "hooks.on_growing",
    "hooks.on_limit",
    "hooks.on_failed",
    "hooks.time_limit",
];

/// The fingerprint of a planned experiment.
pub fn fingerprint(plan: &Plan) -> String {
    let mut lines = asked(&plan.experiment);
    // What is made when the task is opened comes behind the others, and what is kept already before them.
    let mut data: Vec<String> =
        plan.facts.data_digests.iter().map(|(name, value)| format!("data {name} = {value}")).collect();
    data.sort();
    lines.extend(data);
    lines.push(format!("xrun {} {} {}", built().version, code_digest(), lock_digest()));
    digest(lines.join("\n").as_bytes())
}

/// Keys that say where the data and the weights to start from lie: like [`LEFT_OUT`], they change nothing, as the data's digest counts.
pub fn places_of_data(experiment: &Experiment) -> Vec<String> {
    let (mut dataset, mut pipeline) = (experiment.dataset.clone(), experiment.pipeline.clone());
    let of_data = dataset.iter_mut().flat_map(|dataset| dataset.paths().map(|(key, _)| key).collect::<Vec<_>>());
    let weights = std::iter::once(INITIAL_WEIGHTS.to_owned());
    of_data.chain(pipeline.paths().map(|(key, _)| key)).chain(weights).collect()
}

/// A line for each value that counts, sorted by key.
fn asked(experiment: &Experiment) -> Vec<String> {
    // Serialises: no map in it has keys other than strings.
    let values = flat(&serde_json::to_value(experiment).unwrap_or_default());
    let places = places_of_data(experiment);
    let counts = |key: &str| !LEFT_OUT.contains(&key) && !places.iter().any(|place| place == key);
    values.into_iter().filter(|(key, _)| counts(key)).map(|(key, value)| format!("{key} = {value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;
    use xrun_core::experiment::{schema, shape};

    #[test]
    fn what_changes_numbers_or_memory_changes_the_fingerprint() {
        let of = |text: &str| fingerprint(&plan_of(&format!("[pipeline.dummy]\n{text}")));
        let plain = of("");
        for same in [
            "[experiment]\nname = \"other\"\ndescription = \"words\"\ndevice = \"cpu\"\n",
            "[training]\ntime_limit = \"1 h\"\n",
            "[limits]\nhost_memory = \"1 GiB\"\ndevice_memory = \"2 GiB\"\n",
            "[limits]\nworkers = 1\n",
            "[hooks]\non_end = [\"true\"]\n",
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
    fn other_data_is_another_experiment() {
        let mut plan = plan_of("[pipeline.dummy]\n");
        let before = fingerprint(&plan);
        plan.facts.data_digests.push(("coco".into(), "ab".into()));
        assert_ne!(fingerprint(&plan), before);
    }

    #[test]
    fn every_key_that_is_left_out_exists() {
        for key in LEFT_OUT {
            assert!(shape::at(schema::shared(), key).is_some(), "{key}");
        }
    }
}
