//! Federated adapters on a device with a memory pool: adapters go to the host and come back, and the pool does not grow.

use serde_json::Value;

use super::Machine;
use crate::workplace::{json, text, unsealed};

/// Nodes that keep what they can keep, and every step sampled. The encoder is no transformer, so that few kernels are compiled.
const FEDERATED: &str = r#"
[experiment]
seed = 5
device = "cuda"
[pipeline.federated-adapters]
nodes = 2
node_optimizer = "kept"
proximal = 0.1
[pipeline.federated-adapters.server.momentum]
[model.audio-adapters]
encoder = "statistics"
bands = 16
pooled = { hidden = [8], output_size = 8 }
tokens = { hidden = [], latents = 2, output_size = 8 }
pool_heads = 2
[dataset.sound-clips.generated]
classes = 2
clips_per_class = 5
other_clips_per_class = 5
[training]
epochs = 8
batch_size = 2
[limits]
workers = 0
[validation]
at_start = false
every_epochs = 8
batches = 1
[memory]
probe = false
"#;

#[test]
fn rounds_of_nodes_leave_the_pool_as_it_was() {
    let Some(machine) = Machine::new() else { return };
    machine.workplace.file("federated.toml", FEDERATED);
    let said = machine.xrun(&["federated.toml", "--progress", "none"]);
    assert_eq!(said.code, 0, "{said:?}");
    let run = machine.workplace.latest("federated");
    assert_eq!(json(&run.join("summary.json"))["outcome"], "finished");
    let memory = text(&run.join("memory.jsonl"));
    let in_use: Vec<(u64, u64)> = memory
        .lines()
        .map(|line| serde_json::from_str::<Value>(&unsealed(line)).unwrap())
        .filter(|line| line["point"] == "step")
        .map(|line| (line["epoch"].as_u64().unwrap(), line["device"]["in_use"].as_u64().unwrap()))
        .collect();
    let least = |epoch: u64| in_use.iter().filter(|(of, _)| *of == epoch).map(|(_, bytes)| *bytes).min().unwrap();
    assert_eq!(least(3), least(8), "{in_use:?}");
}
