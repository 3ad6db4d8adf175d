//! Number of parameters of the adapters and sizes of their inputs, from the settings alone, for the plan.

use super::settings::{AdapterShape, AudioAdapters, Part};
use xrun_data::sound_clips::targets::TargetShape;

/// Part of a parameter, by its path such as `pooled.hidden.0.linear.weight`.
pub fn part_of(path: &str) -> Part {
    match (path.contains(".pooling."), path.starts_with("pooled.")) {
        (true, _) => Part::Pooling,
        (false, true) => Part::Pooled,
        (false, false) => Part::Tokens,
    }
}

/// Number of parameters of both adapters.
pub fn parameters(model: &AudioAdapters) -> u64 {
    Part::ALL.into_iter().map(|part| parameters_of(part, model)).sum()
}

/// Number of parameters of a part.
pub fn parameters_of(part: Part, model: &AudioAdapters) -> u64 {
    match part {
        Part::Pooled => layer_parameters(model, &model.pooled),
        Part::Tokens => layer_parameters(model, &model.tokens),
        Part::Pooling => pooling_parameters(&model.pooled) + pooling_parameters(&model.tokens),
    }
}

fn layer_parameters(model: &AudioAdapters, shape: &AdapterShape) -> u64 {
    let mut width = model.encoder_width();
    let mut count = 0;
    for wide in &shape.hidden {
        count += linear(width, *wide) + 2 * *wide as u64;
        width = *wide;
    }
    count + linear(width, shape.output_size)
}

fn pooling_parameters(shape: &AdapterShape) -> u64 {
    (shape.latents * shape.output_size) as u64 + 4 * linear(shape.output_size, shape.output_size)
}

fn linear(inputs: usize, outputs: usize) -> u64 {
    (inputs * outputs + outputs) as u64
}

/// Shape of the targets of the outputs.
pub fn targets(model: &AudioAdapters) -> TargetShape {
    TargetShape {
        tokens: model.tokens.latents,
        width: model.tokens.output_size,
        pooled_width: model.pooled.output_size,
    }
}

/// Number of elements of the embedding of a clip.
pub fn embedding(model: &AudioAdapters) -> u64 {
    (model.encoder_tokens() * model.encoder_width()) as u64
}

/// Bytes of a clip on the device: samples, embedding and targets.
pub fn on_device(model: &AudioAdapters, samples: usize) -> u64 {
    let targets = targets(model);
    (samples as u64 + embedding(model) + (targets.prompt_embeds_len() + targets.pooled_width) as u64) * 4
}
