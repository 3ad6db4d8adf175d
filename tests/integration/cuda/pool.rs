//! Memory pool of a device: adapters go to the host and come back, free answers give back what they kept, and the pool does not grow.

use super::Machine;
use crate::workplace::{json, lines};

/// Nodes that keep what they can keep, and every step sampled. The encoder is no transformer, so that few kernels are compiled.
const FEDERATED: &str = include_str!("../../experiments/tiny/cuda-federated.toml");
const VISION_LANGUAGE: &str = include_str!("../../experiments/tiny/cuda-vision-language.toml");

/// Trains, and compares the least memory in use in the third epoch with that in the last one.
fn is_as_it_was(experiment: &str, last: u64) {
    let Some(machine) = Machine::new() else { return };
    machine.workplace.file("trial.toml", experiment);
    let output = machine.xrun(&["trial.toml", "--progress", "none"]);
    assert_eq!(output.code, 0, "{output:?}");
    let run = machine.workplace.latest("trial");
    assert_eq!(json(&run.join("summary.json"))["outcome"], "finished");
    let mut steps = lines(&run.join("memory.jsonl"));
    steps.retain(|line| line["point"] == "step");
    let least = |epoch: u64| {
        let of_epoch = steps.iter().filter(|line| line["epoch"] == epoch);
        of_epoch.map(|line| line["device"]["in_use"].as_u64().unwrap()).min().unwrap()
    };
    assert_eq!(least(3), least(last), "{steps:?}");
}

#[test]
fn rounds_of_nodes_leave_the_pool_as_it_was() {
    is_as_it_was(FEDERATED, 8);
}

#[test]
fn validations_with_free_answers_leave_the_pool_as_it_was() {
    is_as_it_was(VISION_LANGUAGE, 6);
}
