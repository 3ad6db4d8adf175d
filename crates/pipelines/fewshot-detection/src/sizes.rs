//! Number of parameters of the model from its settings, for the plan.

use super::assignment::strides;
use super::prepare::MAPS;
use super::settings::ReferenceDetector;
use xrun_training::backbone::Pretrained;

/// Number of parameters of a detector for query frames of side `image_size` that are trained; 0 `fixed_classes` are given by references.
pub fn parameters(
    model: &ReferenceDetector,
    backbone: Option<&Pretrained>,
    fixed_classes: usize,
    image_size: usize,
) -> u64 {
    // 3 x 3 convolution without a bias, and scale and shift of its normalisation.
    let block = |from: usize, to: usize| 9 * from * to + 2 * to;
    // 1 x 1 convolution with a bias.
    let point = |from: usize, to: usize| from * to + to;
    let (channels, pyramid) = (&model.channels, model.pyramid_channels);
    let inputs = std::iter::once(3).chain(channels.iter().copied());
    let stages: usize =
        inputs.zip(channels).map(|(from, to)| block(from, *to) + model.blocks_per_stage * block(*to, *to)).sum();
    let (stages, channels) = match backbone {
        Some(backbone) => (backbone.trained_parameters(), backbone.architecture.outputs_at(MAPS)),
        None => (stages, [channels[channels.len() - 2], channels[channels.len() - 1]]),
    };
    let lateral: usize = channels.iter().map(|from| point(*from, pyramid)).sum();
    let coarser = strides(image_size).len().saturating_sub(2);
    let head = (model.head_depth + coarser) * block(pyramid, pyramid) + point(pyramid, 5 + model.embedding_size);
    // Scale and shift of the cosine.
    (stages + lateral + head + 2 + fixed_classes * model.embedding_size) as u64
}
