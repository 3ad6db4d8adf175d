//! The vision-language model on a device with a memory pool: free answers give back what they kept, and the pool does not grow.

use serde_json::Value;

use super::Machine;
use crate::workplace::{json, text, unsealed};

const SMALL: &str = r#"
[experiment]
seed = 5
device = "cuda"
[pipeline.vision-language]
sequence_length = 120
max_new_tokens = 2
generated_answers = 2
grey_images = false
[model.vision-language]
vision_hidden_size = 8
vision_layers = 1
vision_heads = 1
hidden_size = 8
layers = 1
heads = 1
[dataset.image-text]
image_size = 16
[dataset.image-text.generated]
examples = 8
held_out_examples = 8
unseen_examples = 8
image_size = 32
[training]
epochs = 6
batch_size = 4
[limits]
workers = 0
batch_size = 4
[validation]
at_start = false
every_epochs = 2
batches = 1
[memory]
probe = false
"#;

#[test]
fn validations_with_free_answers_leave_the_pool_as_it_was() {
    let Some(machine) = Machine::new() else { return };
    machine.workplace.file("seeing.toml", SMALL);
    let said = machine.xrun(&["seeing.toml", "--progress", "none"]);
    assert_eq!(said.code, 0, "{said:?}");
    let run = machine.workplace.latest("seeing");
    assert_eq!(json(&run.join("summary.json"))["outcome"], "finished");
    let memory = text(&run.join("memory.jsonl"));
    let in_use: Vec<(u64, u64)> = memory
        .lines()
        .map(|line| serde_json::from_str::<Value>(&unsealed(line)).unwrap())
        .filter(|line| line["point"] == "step")
        .map(|line| (line["epoch"].as_u64().unwrap(), line["device"]["in_use"].as_u64().unwrap()))
        .collect();
    let least = |epoch: u64| in_use.iter().filter(|(of, _)| *of == epoch).map(|(_, bytes)| *bytes).min().unwrap();
    assert_eq!(least(3), least(6), "{in_use:?}");
}
