//! Which encoder does a run without `weights` train on public classes, and where is it kept?

use std::path::PathBuf;

use super::settings::{EncoderKind, Model, Settings};
use xrun_core::dataset::cache;
use xrun_core::dataset::digest::digest;
use xrun_core::task::DerivedFile;
use xrun_core::units::counted;

/// A change to what is trained needs a new number.
const VERSION: u32 = 3;
const FOLDER: &str = "encoders";

/// What identifies the encoder before it is made; `data` is the digest of the clips.
fn identity(settings: &Settings, model: &Model, data: &str, seed: u32) -> String {
    let Model { bands, frames, patch, stride, width, layers, heads, .. } = model;
    let shape = [bands, frames, patch, stride, width, layers, heads];
    digest(format!("{VERSION} {shape:?} {} {data} {seed}", settings.pretraining_steps).as_bytes())
}

/// The file that keeps the encoder, below xrun's cache.
pub fn path(settings: &Settings, model: &Model, data: &str, seed: u32) -> PathBuf {
    let identity = identity(settings, model, data, seed);
    cache::folder().join(FOLDER).join(format!("{}.safetensors", &identity[..16]))
}

/// The encoder, where it is trained and not read from a file.
pub fn made(settings: &Settings, model: &Model, data: &str, seed: u32) -> Option<DerivedFile> {
    let is_trained = model.encoder != EncoderKind::Statistics && model.weights.is_none();
    is_trained.then(|| {
        let steps = counted(settings.pretraining_steps, "step");
        let how =
            format!("the encoder is trained on public classes first, {steps}; it is kept, and later runs take it");
        DerivedFile { name: "encoder", path: path(settings, model, data, seed), how }
    })
}
