//! Identity and cache file of the encoder that a run without `weights` trains on public classes.

use std::path::PathBuf;

use super::settings::{AudioAdapters, EncoderKind, FederatedAdapters};
use xrun_core::dataset::cache;
use xrun_core::dataset::digest::digest;
use xrun_core::task::DerivedFile;
use xrun_core::units::pluralize;

/// Version of the pretraining, to be increased with each change of its result.
const VERSION: u32 = 3;
const SUBDIRECTORY: &str = "encoders";

/// Digest of everything that determines the encoder; `data` is the digest of the clips.
fn identity(settings: &FederatedAdapters, model: &AudioAdapters, data: &str, seed: u32) -> String {
    let AudioAdapters { bands, frames, patch_size, stride, hidden_size, layers, heads, .. } = model;
    let shape = [bands, frames, patch_size, stride, hidden_size, layers, heads];
    digest(format!("{VERSION} {shape:?} {} {data} {seed}", settings.pretraining_steps).as_bytes())
}

/// File of the encoder in xrun's cache.
pub fn path(settings: &FederatedAdapters, model: &AudioAdapters, data: &str, seed: u32) -> PathBuf {
    let identity = identity(settings, model, data, seed);
    cache::directory().join(SUBDIRECTORY).join(format!("{}.safetensors", &identity[..16]))
}

/// Description of the encoder for the plan; `None` if it is not trained.
pub fn made(settings: &FederatedAdapters, model: &AudioAdapters, data: &str, seed: u32) -> Option<DerivedFile> {
    let is_trained = model.encoder != EncoderKind::Statistics && model.weights.is_none();
    is_trained.then(|| {
        let steps = pluralize(settings.pretraining_steps, "step");
        let how =
            format!("the encoder is trained on public classes first, {steps}; later runs reuse it from the cache");
        DerivedFile { name: "encoder", path: path(settings, model, data, seed), how }
    })
}
