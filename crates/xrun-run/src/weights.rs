//! Export of a checkpoint's weights with a configuration and, for common architectures, a PyTorch module that loads them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::evaluate::{SelectedCheckpoint, training_metrics};
use xrun_core::experiment::Experiment;
use xrun_core::files::write::WriteError;
use xrun_core::files::{file, layout, sums, write};
use xrun_results::format::Manifest;
use xrun_results::read;

/// File of the configuration.
pub const CONFIG: &str = "config.json";
/// File of the PyTorch module.
pub const MODULE: &str = "model.py";

/// Writes `model.safetensors`, `config.json` and, if the pipeline has one, `model.py` into a directory; returns their paths.
///
/// # Errors
/// A file cannot be read or written, or exists in a directory that is not the run's own.
pub fn export(
    run: &Path,
    manifest: &Manifest,
    experiment: &Experiment,
    checkpoint: &SelectedCheckpoint,
    output: &Path,
) -> Result<Vec<PathBuf>, WriteError> {
    write::create_directories(output)?;
    let own = output == run.join(layout::EXPORT);
    let module = experiment.pipeline.pytorch_module(experiment);
    let names = &[layout::WEIGHTS, CONFIG, MODULE][..2 + usize::from(module.is_some())];
    if !own {
        write::check_absent(output, names)?;
    }
    let mut config = json!({
        "format": "xrun",
        "architecture": experiment.model.as_ref().map(|model| model.name()),
        "run": manifest.run_id(),
        "step": checkpoint.step,
        "metrics": training_metrics(run, checkpoint.step),
        "pytorch": module.as_ref().map(|_| MODULE),
    });
    // A damaged record is reported by `xrun show`.
    let classes = read::classes(run).unwrap_or_default();
    if let Some(config) = config.as_object_mut() {
        if !classes.is_empty() {
            config.insert("classes".into(), classes.iter().map(|result| Value::from(&*result.class)).collect());
        }
        let named = module.as_ref().map_or(Value::Null, |module| module.config.clone());
        config.extend(named.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
        let table = |value: serde_json::Result<Value>| value.unwrap_or_default();
        config.insert("model".into(), table(serde_json::to_value(&experiment.model)));
        config.insert("pipeline".into(), table(serde_json::to_value(&experiment.pipeline)));
    }
    let weights = output.join(layout::WEIGHTS);
    let from = checkpoint.path.join(layout::WEIGHTS);
    let mut bytes = write::with_path(&from, file::open(&from))?;
    write::replace_with(&weights, |out| std::io::copy(&mut bytes, out).map(drop))?;
    let mut written = vec![weights, output.join(CONFIG)];
    let text = format!("{}\n", serde_json::to_string_pretty(&config).unwrap_or_default());
    write::replace(&written[1], text.as_bytes())?;
    if let Some(module) = module {
        written.push(output.join(MODULE));
        write::replace(&written[2], module.source.as_bytes())?;
    }
    if own {
        sums::record(output, names);
    }
    Ok(written)
}
