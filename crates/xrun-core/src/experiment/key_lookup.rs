//! Key names of other tools, former keys, and lookup of the sections that have a key.

use serde_json::Value;

use super::pipeline::{AnyModel, AnyPipeline};
use super::schema;
use super::shape::list;
use super::validate::join;
use crate::dataset::kind::AnyDataset;
use crate::settings::variant::RegisteredKind;

/// Names in PyTorch, Lightning, Hydra's examples, torchtune, Hugging Face, Optuna and Ray Tune, each with the key of xrun.
pub const NAMES_ELSEWHERE: &[(&str, &str)] = &[
    ("lr", "learning_rate"),
    ("wd", "weight_decay"),
    ("decay", "weight_decay"),
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
    ("gradient_accumulation_steps", "gradient_accumulation"),
    ("accumulate_grad_batches", "gradient_accumulation"),
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
    ("early_stopping_threshold", "min_delta"),
    ("monitor", "metric"),
    ("metric_for_best_model", "metric"),
    ("load_best_model_at_end", "restore_best"),
    ("restore_best_weights", "restore_best"),
    ("micro_batch", "micro_batch_size"),
    ("max_tokens", "max_new_tokens"),
    ("hidden_dim", "hidden_size"),
    ("width", "hidden_size"),
    ("d_model", "hidden_size"),
    ("n_embd", "hidden_size"),
    ("context", "context_length"),
    ("block_size", "context_length"),
    ("n_positions", "context_length"),
    ("n_layer", "layers"),
    ("num_layers", "layers"),
    ("num_hidden_layers", "layers"),
    ("n_head", "heads"),
    ("num_heads", "heads"),
    ("num_attention_heads", "heads"),
    ("n_trials", "trials"),
    ("num_samples", "trials"),
    ("n_startup_trials", "startup_trials"),
    ("goal", "direction"),
    ("episodes", "batches"),
    ("limit_val_batches", "batches"),
    ("val_split", "validation_fraction"),
    ("validation_split", "validation_fraction"),
    ("min_lr_ratio", "final_lr_fraction"),
    ("cwd", "working_directory"),
];

/// Former keys of xrun, each with its present name.
pub const FORMER_KEYS: &[(&str, &str)] = &[
    ("accumulation", "gradient_accumulation"),
    ("max_answer_tokens", "max_new_tokens"),
    ("answer_tokens", "max_new_tokens"),
    ("samples", "trials"),
    ("startup", "startup_trials"),
    ("better", "direction"),
    ("pictures", "images"),
    ("validation_share", "validation_fraction"),
    ("part_size", "micro_batch_size"),
    ("on_broken", "on_invalid"),
    ("minimum_change", "min_delta"),
    ("final_share", "final_lr_fraction"),
    ("final_fraction", "final_lr_fraction"),
    ("decay_share", "decay_fraction"),
    ("each_phase", "per_stage"),
    ("per_phase", "per_stage"),
    ("decoding", "decode_memory"),
    ("parts_every_samples", "components_every_samples"),
    ("answer_form", "answer_format"),
    ("picture_size", "image_size"),
    ("num_aug", "augmentations"),
    ("key_value_bits", "kv_cache_bits"),
    ("ranges", "activation_ranges"),
    ("export_parts", "export_components"),
    ("loss_on", "loss_tokens"),
    ("free_answers", "generated_answers"),
    ("grey_pictures", "grey_images"),
    ("trained", "trainable"),
    ("bytes_in_all", "total_bytes"),
    ("patch", "patch_size"),
    ("embedding", "embedding_size"),
    ("vision_width", "vision_hidden_size"),
    ("targets", "target_embeddings"),
    ("decay", "decay_parameters"),
    ("mode", "method"),
    ("folder", "working_directory"),
];

/// Maximum number of sections in a message.
const SECTIONS_MAX: usize = 6;

/// Keys of xrun for a name in another tool or a former key, the likeliest first.
pub fn keys_for(name: &str) -> impl Iterator<Item = &'static str> {
    let name = name.to_lowercase().replace('-', "_");
    NAMES_ELSEWHERE.iter().chain(FORMER_KEYS).filter(move |(other, _)| *other == name).map(|(_, key)| *key)
}

/// Sections that have a key of this name.
pub fn sections_with_key(schema: &Value, key: &str) -> Vec<String> {
    fn collect(schema: &Value, path: &str, key: &str, sections: &mut Vec<String>) {
        for (name, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if name == key && !path.is_empty() {
                sections.push(path.to_owned());
            }
            collect(part, &join(path, name), key, sections);
        }
    }
    let mut found = Vec::new();
    collect(schema, "", key, &mut found);
    found
}

/// Help such as `` `seed` is a key of `[experiment]` and `[dataset.synthetic-video]` ``; `None` for no sections.
pub fn section_help(key: &str, sections: &[String]) -> Option<String> {
    let named: Vec<String> = sections.iter().take(SECTIONS_MAX).map(|section| format!("[{section}]")).collect();
    let more = match sections.len().saturating_sub(SECTIONS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = list(named.iter().map(String::as_str), "and");
    (!sections.is_empty()).then(|| format!("`{key}` is a key of {named}{more}"))
}

/// Returns whether a section belongs to one pipeline, model or data set; other sections are shared by all experiments.
fn is_specific(section: &str) -> bool {
    let first = section.split('.').next().unwrap_or_default();
    [<dyn AnyPipeline>::SECTION, <dyn AnyModel>::SECTION, <dyn AnyDataset>::SECTION]
        .iter()
        .any(|name| name.eq_ignore_ascii_case(first))
}

/// Dotted keys that a bare name on the command line may mean: `training.epochs` for `epochs`. Sections that all experiments
/// share take precedence over those of kinds: `learning_rate` is the optimiser's.
pub fn dotted_keys(word: &str) -> Vec<String> {
    let name = word.to_lowercase().replace('-', "_");
    let own = sections_with_key(schema::shared(), &name);
    let (key, sections) = match keys_for(&name).next() {
        Some(key) if own.is_empty() => (key, sections_with_key(schema::shared(), key)),
        _ => (name.as_str(), own),
    };
    let (of_kinds, shared): (Vec<String>, Vec<String>) = sections.into_iter().partition(|section| is_specific(section));
    let sections = if shared.is_empty() { of_kinds } else { shared };
    sections.iter().map(|section| join(section, key)).collect()
}

/// All dotted keys that take a value, for completions.
pub fn all_keys() -> Vec<String> {
    fn collect(schema: &Value, path: &str, keys: &mut Vec<String>) {
        for (name, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let key = join(path, name);
            match part.get("properties") {
                Some(_) => collect(part, &key, keys),
                None if key != "extends" => keys.push(key),
                None => {}
            }
        }
    }
    let mut keys = Vec::new();
    collect(schema::shared(), "", &mut keys);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_completed_to_dotted_keys() {
        assert_eq!(dotted_keys("epochs"), ["training.epochs"]);
        assert_eq!(dotted_keys("lr"), ["optimizer.adamw.learning_rate", "optimizer.sgd.learning_rate"]);
        assert_eq!(dotted_keys("decay"), ["optimizer.adamw.weight_decay", "optimizer.sgd.weight_decay"]);
        assert_eq!(dotted_keys("folder"), ["pipeline.command.working_directory"]);
        assert_eq!(dotted_keys("nothing-like-it"), [""; 0]);
    }
}
