//! Target vectors of the classes: read from a safetensors file, or drawn.

use std::path::Path;

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

use super::library::Library;
use super::settings::LoaderSettings;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::dataset::digest::digest_of_numbers;
use xrun_core::dataset::error::DataError;
use xrun_core::files::file;
use xrun_core::printable;
use xrun_core::seed::generator;

/// Maximum size of a file of targets.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Suffixes of the names of a class's tensors: `CATEGORY.prompt_embeds`.
const PROMPT_EMBEDS: &str = "prompt_embeds";
const POOLED_PROMPT_EMBEDS: &str = "pooled_prompt_embeds";

/// Shape of the target of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetShape {
    /// Number of vectors of `prompt_embeds`: L.
    pub tokens: usize,
    /// Number of elements of each: D.
    pub width: usize,
    /// Number of elements of `pooled_prompt_embeds`: D'.
    pub pooled_width: usize,
}

impl TargetShape {
    /// Number of elements of `prompt_embeds`: L times D.
    pub const fn prompt_embeds_len(self) -> usize {
        self.tokens * self.width
    }
}

/// The targets of all classes, in the order of [`Library::classes`].
#[derive(Clone, Debug, PartialEq)]
pub struct TargetEmbeddings {
    /// Shape of the target of each class.
    pub shape: TargetShape,
    /// `[classes, tokens, width]`, row by row.
    pub prompt_embeds: Vec<f32>,
    /// `[classes, pooled_width]`, row by row.
    pub pooled: Vec<f32>,
    /// SHA-256 of all numbers, in hexadecimal.
    pub digest: String,
}

impl TargetEmbeddings {
    /// Reads the file that the settings name, or draws a vector for each word with this seed: the target of a class is the sum
    /// of the vectors of its words, divided by the square root of their number.
    ///
    /// # Errors
    /// The file has no targets for a class, or of another shape.
    pub fn open(loader: &LoaderSettings, library: &Library, shape: TargetShape, seed: u32) -> Result<Self, DataError> {
        let (prompt_embeds, pooled) = match &loader.targets {
            Some(path) => read(path, library, shape)?,
            None => drawn(library, shape, seed),
        };
        let digest = digest_of_numbers(prompt_embeds.iter().chain(&pooled));
        Ok(Self { shape, prompt_embeds, pooled, digest })
    }
}

/// Buffer of the targets on the host.
pub fn buffer(library: &Library, shape: TargetShape) -> Buffer {
    let items = library.classes.len() as u64;
    let bytes = items * ((shape.prompt_embeds_len() + shape.pooled_width) * size_of::<f32>()) as u64;
    Buffer::new("targets", Policy::Refuse, Cap { items, bytes }).because("what a model is to give for each class")
}

fn drawn(library: &Library, shape: TargetShape, seed: u32) -> (Vec<f32>, Vec<f32>) {
    let (mut prompt_embeds, mut pooled) = (Vec::new(), Vec::new());
    for class in &library.classes {
        let scale = (1.0 / class.words.len() as f64).sqrt();
        let of = |kind: &str, count: usize| {
            let mut sum = vec![0.0; count];
            for word in &class.words {
                sum.iter_mut().zip(normal(seed, kind, word, count)).for_each(|(sum, number)| *sum += number);
            }
            sum.into_iter().map(|sum: f64| (sum * scale) as f32).collect::<Vec<f32>>()
        };
        prompt_embeds.extend(of(PROMPT_EMBEDS, shape.prompt_embeds_len()));
        pooled.extend(of(POOLED_PROMPT_EMBEDS, shape.pooled_width));
    }
    (prompt_embeds, pooled)
}

/// Numbers of a word, normally distributed with mean 0 and deviation 1: Box and Muller (1958).
fn normal(seed: u32, kind: &str, word: &str, count: usize) -> Vec<f64> {
    use rand::RngExt;
    let random = &mut generator(seed, &format!("target {kind} {word}"), 0);
    (0..count)
        .map(|_| {
            // 1 minus a number below 1: the logarithm is finite.
            let (u1, u2): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
            libm::sqrt(-2.0 * libm::log(u1)) * libm::cos(std::f64::consts::TAU * u2)
        })
        .collect()
}

fn read(path: &Path, library: &Library, shape: TargetShape) -> Result<(Vec<f32>, Vec<f32>), DataError> {
    let failed = |message: String| DataError::file(path, message);
    let bytes = file::bytes(path, FILE_BYTES_MAX).map_err(|error| failed(format!("cannot be read: {error}")))?;
    let tensors =
        SafeTensors::deserialize(&bytes).map_err(|error| failed(format!("is no safetensors file: {error}")))?;
    let (mut prompt_embeds, mut pooled) = (Vec::new(), Vec::new());
    for class in &library.classes {
        let add = |kind: &str, expected: &[usize], to: &mut Vec<f32>| {
            let name = format!("{}.{kind}", class.name);
            to.extend(tensor(&tensors, &name, expected).map_err(failed)?);
            Ok::<(), DataError>(())
        };
        add(PROMPT_EMBEDS, &[shape.tokens, shape.width], &mut prompt_embeds)?;
        add(POOLED_PROMPT_EMBEDS, &[shape.pooled_width], &mut pooled)?;
    }
    Ok((prompt_embeds, pooled))
}

/// Numbers of a tensor as floats of 32 bits.
fn tensor(tensors: &SafeTensors<'_>, name: &str, expected: &[usize]) -> Result<Vec<f32>, String> {
    let shown = printable::line(name, 200);
    let found = tensors.tensor(name).map_err(|_| {
        format!("has no tensor `{shown}`; each class of the data set needs `CATEGORY.{PROMPT_EMBEDS}` and `CATEGORY.{POOLED_PROMPT_EMBEDS}`")
    })?;
    if found.shape() != expected {
        return Err(format!(
            "`{shown}` has the shape {:?}, expected {expected:?}, which is what the adapters of `model.audio-adapters` give",
            found.shape()
        ));
    }
    let data = found.data();
    let numbers: Vec<f32> = match found.dtype() {
        Dtype::F32 => data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Dtype::F64 => data.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32).collect(),
        Dtype::BF16 => data.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
        Dtype::F16 => data.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
        other => return Err(format!("`{shown}` has numbers of the type {other:?}, expected F32, F64, F16 or BF16")),
    };
    match numbers.iter().position(|number| !number.is_finite()) {
        Some(at) => Err(format!("`{shown}`: number {at} is {}", numbers[at])),
        None => Ok(numbers),
    }
}

#[cfg(test)]
#[path = "targets_tests.rs"]
mod tests;
