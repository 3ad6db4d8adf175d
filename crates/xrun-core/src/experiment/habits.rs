//! Which key does somebody mean who comes from another tool, and where does it stand?

use serde_json::Value;

use super::pipeline::{AnyModel, AnyPipeline};
use super::schema;
use super::shape::list;
use super::walk::join;
use crate::dataset::kind::AnyDataset;
use crate::settings::chosen::Family;

/// Names of PyTorch, Lightning, Hydra's examples, torchtune and Hugging Face's trainer, and ours.
pub const OTHER_NAMES: &[(&str, &str)] = &[
    ("lr", "learning_rate"),
    ("wd", "weight_decay"),
    ("bs", "batch_size"),
    ("batch", "batch_size"),
    ("per_device_train_batch_size", "batch_size"),
    ("num_workers", "workers"),
    ("n_workers", "workers"),
    ("dataloader_num_workers", "workers"),
    ("num_epochs", "epochs"),
    ("n_epochs", "epochs"),
    ("max_epochs", "epochs"),
    ("num_train_epochs", "epochs"),
    ("steps", "max_steps"),
    ("num_steps", "max_steps"),
    ("max_train_steps", "max_steps"),
    ("gradient_accumulation_steps", "accumulation"),
    ("accumulate_grad_batches", "accumulation"),
    ("grad_clip", "clip_norm"),
    ("max_norm", "clip_norm"),
    ("max_grad_norm", "clip_norm"),
    ("gradient_clip_val", "clip_norm"),
    ("clip_grad_norm", "clip_norm"),
    ("gradient_checkpointing", "activation_checkpointing"),
    ("warmup", "warmup_steps"),
    ("num_warmup_steps", "warmup_steps"),
    ("eps", "epsilon"),
    ("betas", "beta_1"),
    ("random_seed", "seed"),
    ("manual_seed", "seed"),
    ("prefetch_factor", "prefetch"),
    ("save_steps", "every_steps"),
    ("eval_steps", "every_steps"),
    ("img_size", "image_size"),
    ("imgsz", "image_size"),
    ("max_seq_len", "sequence_length"),
    ("max_length", "sequence_length"),
    ("early_stopping_patience", "patience"),
    ("early_stopping_threshold", "minimum_change"),
    ("min_delta", "minimum_change"),
    ("monitor", "metric"),
    ("metric_for_best_model", "metric"),
    ("load_best_model_at_end", "restore_best"),
    ("restore_best_weights", "restore_best"),
    ("temperature", "distillation_temperature"),
];

/// More places are not named.
const PLACES_MAX: usize = 6;

/// The key of ours that has this name elsewhere.
pub fn meant(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase().replace('-', "_");
    OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, ours)| *ours)
}

/// The sections that have a key of this name.
pub fn homes(schema: &Value, key: &str) -> Vec<String> {
    fn look(schema: &Value, path: &str, key: &str, homes: &mut Vec<String>) {
        for (name, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if name == key && !path.is_empty() {
                homes.push(path.to_owned());
            }
            look(part, &join(path, name), key, homes);
        }
    }
    let mut found = Vec::new();
    look(schema, "", key, &mut found);
    found
}

/// `` `seed` stands in `[experiment]` and `[dataset.synthetic-video]` ``; `None` where no section has the key.
pub fn where_it_stands(key: &str, homes: &[String]) -> Option<String> {
    let named: Vec<String> = homes.iter().take(PLACES_MAX).map(|home| format!("[{home}]")).collect();
    let more = if homes.len() > PLACES_MAX { format!(" and {} more", homes.len() - PLACES_MAX) } else { String::new() };
    (!homes.is_empty()).then(|| format!("`{key}` stands in {}{more}", list(named.iter().map(String::as_str), "and")))
}

/// Whether a section belongs to one kind of pipeline, model or data set.
fn is_of_a_kind(section: &str) -> bool {
    let first = section.split('.').next().unwrap_or_default();
    [<dyn AnyPipeline>::TITLE, <dyn AnyModel>::TITLE, <dyn AnyDataset>::TITLE]
        .iter()
        .any(|title| title.eq_ignore_ascii_case(first))
}

/// All keys that a word on the command line may stand for, whole: `training.epochs` for `epochs`. Where a section that all
/// experiments have knows the word, the kinds that know it, too, are not meant: `learning_rate` is the optimiser's.
pub fn whole_keys(word: &str) -> Vec<String> {
    let plain = word.to_lowercase().replace('-', "_");
    let key = meant(&plain).unwrap_or(&plain);
    let (of_kinds, shared): (Vec<String>, Vec<String>) =
        homes(schema::shared(), key).into_iter().partition(|home| is_of_a_kind(home));
    let homes = if shared.is_empty() { of_kinds } else { shared };
    homes.iter().map(|home| join(home, key)).collect()
}

/// Every key that takes a value, whole; for completions.
pub fn all_keys() -> Vec<String> {
    fn look(schema: &Value, path: &str, keys: &mut Vec<String>) {
        for (name, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let key = join(path, name);
            match part.get("properties") {
                Some(_) => look(part, &key, keys),
                None if key != "extends" => keys.push(key),
                None => {}
            }
        }
    }
    let mut keys = Vec::new();
    look(schema::shared(), "", &mut keys);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_home_of_a_name_is_found() {
        assert_eq!(whole_keys("epochs"), ["training.epochs"]);
        assert_eq!(whole_keys("lr"), ["optimizer.adamw.learning_rate", "optimizer.sgd.learning_rate"]);
        assert_eq!(whole_keys("nothing-like-it"), [""; 0]);
    }
}
