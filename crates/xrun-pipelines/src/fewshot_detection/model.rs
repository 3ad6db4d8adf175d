//! The network: backbone, pyramid, reference encoder, prototype-conditioned dense head.
//!
//! ```text
//! picture -> four stages (strides 2, 4, 8, 16) -> pyramid (strides 8, 16, …) -> tower -> per cell: object? box, embedding
//! reference -> the same network -> mean of its cells' embeddings -> mean over views: the class's prototype
//! class of a cell: scaled cosine of its embedding and each prototype
//! ```
//! Large pictures have coarser levels, each made from the one before, so that no object is many cells across (RetinaNet and
//! FCOS have them, too). Group normalisation keeps no statistics between steps, so a batch that is split gives the same
//! result.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::Device;
use xrun_ops::conv1x1;

use super::assignment::strides;
use super::settings::Model;
use crate::nn::Tensor;
use crate::nn::block::Block;
use crate::nn::graph::beside;
use crate::nn::normalise::normalise;

/// A 1 x 1 convolution with its bias.
fn pointwise(convolution: &Conv2d, input: Tensor<4>) -> Tensor<4> {
    let bias = convolution.bias.as_ref().map_or_else(|| unreachable!("`point` makes a bias"), Param::val);
    conv1x1(input, convolution.weight.val(), bias)
}

/// Halves the picture, then adds to it.
#[derive(Module, Debug)]
pub struct Stage {
    halve: Block,
    residual: Vec<Block>,
}

/// See the file's head. The names of the fields are the names in `model.safetensors`.
#[derive(Module, Debug)]
pub struct ReferenceDetector {
    stages: Vec<Stage>,
    lateral_fine: Conv2d,
    lateral_coarse: Conv2d,
    tower: Vec<Block>,
    /// Objectness, four sides, embedding: `1 + 4 + D` channels.
    outputs: Conv2d,
    /// What the cosine is multiplied by is the softplus of this, so that likeness always counts for a class.
    similarity_scale: Param<Tensor<1>>,
    similarity_bias: Param<Tensor<1>>,
    /// From the level of stride 16 to that of 32, and so on; for large pictures.
    coarser: Vec<Block>,
    #[module(skip)]
    embedding: usize,
}

/// What the head says of each cell; the fine level first.
#[derive(Debug)]
pub struct Dense {
    /// Logits `[n, cells]`.
    pub object: Tensor<2>,
    /// Distances to left, top, right, bottom in pixels, `[n, cells, 4]`.
    pub sides: Tensor<3>,
    /// Of length one, `[n, cells, D]`.
    pub embeddings: Tensor<3>,
}

/// What comes out of the head's last convolution; the fine level first.
#[derive(Debug)]
pub struct Raw {
    /// Logits `[n, cells, 1]`.
    object: Tensor<3>,
    /// Logarithms of sides, in strides, `[n, cells, 4]`.
    sides: Tensor<3>,
    /// Of any length, `[n, cells, D]`.
    embeddings: Tensor<3>,
    /// How many cells each level has.
    cells: Vec<usize>,
}

/// An object is rare: the share of cells that have one before anything is learnt (Lin et al. 2017).
const PRIOR: f32 = 0.02;
/// Logarithm of sides, in strides, up to which they are exponential: 54 cells, where a square is 16 of the coarsest. Beyond
/// they grow in proportion: a finite number with a gradient that leads back.
const LOG_SIDE_MAX: f32 = 4.0;
/// What a cosine is multiplied by at first.
const SCALE: f32 = 8.0;

impl ReferenceDetector {
    /// For query pictures of side `image_size`. All first values follow from the seed.
    pub fn new(settings: &Model, image_size: usize, seed: u32, device: &Device) -> Self {
        let groups = settings.norm_groups;
        let block = |from, to, stride| Block::new([from, to], stride, groups, device);
        let point = |from, to, bias| Conv2dConfig::new([from, to], [1, 1]).with_bias(bias).init(device);
        let mut from = 3;
        let stages = settings
            .channels
            .iter()
            .map(|&to| {
                let halve = block(from, to, 2);
                from = to;
                Stage { halve, residual: (0..settings.blocks_per_stage).map(|_| block(to, to, 1)).collect() }
            })
            .collect();
        let pyramid = settings.pyramid_channels;
        let count = settings.channels.len();
        let scalar = |value: f32| Param::from_tensor(Tensor::from_floats([value], device));
        let model = Self {
            stages,
            lateral_fine: point(settings.channels[count - 2], pyramid, true),
            lateral_coarse: point(settings.channels[count - 1], pyramid, true),
            tower: (0..settings.head_depth).map(|_| block(pyramid, pyramid, 1)).collect(),
            outputs: point(pyramid, 5 + settings.embedding, true),
            similarity_scale: scalar(SCALE + (-(-SCALE).exp()).ln_1p()), // softplus brings it back
            similarity_bias: scalar(-4.0),
            coarser: strides(image_size)[2..].iter().map(|_| block(pyramid, pyramid, 2)).collect(),
            embedding: settings.embedding,
        };
        let mut model = crate::nn::parameters::initialise(model, seed);
        model.outputs = prior(model.outputs, settings.embedding, device);
        model
    }

    /// Pictures `[n, 3, S, S]`, S the `image_size`, scaled to about -1..1.
    pub fn dense(&self, pictures: Tensor<4>) -> Dense {
        let strides = strides(pictures.dims()[3]);
        Self::dense_of(self.raw(pictures, strides.len()), &strides)
    }

    /// Pictures of single objects `[m, 3, R, R]` to embeddings of length one `[m, D]`, the mean over all cells.
    pub fn embed(&self, pictures: Tensor<4>) -> Tensor<2> {
        Self::embedding_of(self.raw(pictures, 2))
    }

    /// The output of the head for so many levels.
    fn raw(&self, pictures: Tensor<4>, levels: usize) -> Raw {
        let (fine, coarse) = self.pyramid(pictures);
        let mut maps = vec![fine, coarse];
        for block in self.coarser.iter().take(levels.saturating_sub(2)) {
            maps.extend(maps.last().map(|map| block.forward(map.clone())));
        }
        let flat: Vec<Tensor<3>> =
            maps.into_iter().map(|map| self.head(map).flatten::<3>(2, 3).swap_dims(1, 2)).collect();
        let cells = flat.iter().map(|level| level.dims()[1]).collect();
        let all = Tensor::cat(flat, 1);
        let part = |from, width| all.clone().narrow(2, from, width);
        Raw { object: part(0, 1), sides: part(1, 4), embeddings: part(5, self.embedding), cells }
    }

    /// What the head says of levels of these strides to what it means.
    fn dense_of(raw: Raw, strides: &[usize]) -> Dense {
        let mut from = 0;
        let by_level = raw.cells.iter().zip(strides).map(|(&cells, &stride)| {
            let level = sides(raw.sides.clone().narrow(1, from, cells), stride);
            from += cells;
            level
        });
        Dense {
            sides: Tensor::cat(by_level.collect(), 1),
            object: raw.object.squeeze_dim::<2>(2),
            embeddings: normalise(raw.embeddings, 2),
        }
    }

    /// What the head says to the mean over cells. Each level weighs the same, however many cells it has.
    fn embedding_of(raw: Raw) -> Tensor<2> {
        let cells = normalise(raw.embeddings, 2);
        let mean = |from, count| cells.clone().narrow(1, from, count).mean_dim(1).squeeze_dim::<2>(1);
        let (fine, coarse) = (raw.cells[0], raw.cells[1]);
        normalise(mean(0, fine) + mean(fine, coarse), 1)
    }

    /// Embeddings `[ways * views, D]`, the views of one way together, to prototypes of length one `[ways, D]`.
    pub fn prototypes(embeddings: Tensor<2>, ways: usize) -> Tensor<2> {
        let [count, length] = embeddings.dims();
        normalise(embeddings.reshape([ways, count / ways, length]).mean_dim(1).squeeze_dim::<2>(1), 1)
    }

    /// Logits `[n, cells, ways]` that a cell shows the class of a prototype.
    pub fn similarity(&self, embeddings: Tensor<3>, prototypes: Tensor<2>) -> Tensor<3> {
        let [count, cells, length] = embeddings.dims();
        let ways = prototypes.dims()[0];
        let cosine = embeddings.reshape([count * cells, length]).matmul(prototypes.transpose());
        let scale = softplus(self.similarity_scale.val()).reshape([1, 1]);
        let bias = self.similarity_bias.val().reshape([1, 1]);
        (cosine * scale + bias).reshape([count, cells, ways])
    }

    /// Levels of strides 8 and 16, `[n, pyramid, S / stride, S / stride]`.
    fn pyramid(&self, pictures: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let mut value = pictures;
        let mut fine = None;
        for (number, stage) in self.stages.iter().enumerate() {
            value = stage.halve.forward(value);
            for block in &stage.residual {
                value = value.clone() + block.forward(value);
            }
            if number + 2 == self.stages.len() {
                fine = Some(value.clone());
            }
        }
        let coarse = pointwise(&self.lateral_coarse, value);
        let fine =
            pointwise(&self.lateral_fine, fine.unwrap_or_else(|| unreachable!("the schema asks for four stages")));
        (fine + double(coarse.clone()), coarse)
    }

    fn head(&self, level: Tensor<4>) -> Tensor<4> {
        let value = self.tower.iter().fold(level, |value, block| block.forward(value));
        pointwise(&self.outputs, value)
    }
}

/// Logarithms of sides, in strides, to sides in pixels.
fn sides(logarithms: Tensor<3>, stride: usize) -> Tensor<3> {
    let beyond = logarithms.clone().sub_scalar(LOG_SIDE_MAX).clamp_min(0.0);
    logarithms.clamp_max(LOG_SIDE_MAX).exp() * beyond.add_scalar(1.0).mul_scalar(stride as f32)
}

/// `ln(1 + exp(value))`, in the form that does not overflow.
fn softplus(value: Tensor<1>) -> Tensor<1> {
    value.clone().clamp_min(0.0) + value.abs().neg().exp().log1p()
}

/// Twice as high and wide, each value four times.
fn double(value: Tensor<4>) -> Tensor<4> {
    let [count, channels, height, width] = value.dims();
    value.reshape([count * channels, height, 1, width, 1]).expand([count * channels, height, 2, width, 2]).reshape([
        count,
        channels,
        height * 2,
        width * 2,
    ])
}

/// Weak first outputs, and the objectness of [`PRIOR`].
fn prior(mut outputs: Conv2d, embedding: usize, device: &Device) -> Conv2d {
    outputs.weight = outputs
        .weight
        .map(|weight| beside(weight.clone().inner().mul_scalar(0.1), &weight).set_require_grad(weight.is_autodiff()));
    let mut bias = vec![0.0f32; 5 + embedding];
    bias[0] = (PRIOR / (1.0 - PRIOR)).ln();
    outputs.bias = outputs
        .bias
        .map(|old| old.map(|_| Tensor::from_floats(&bias[..], device).set_require_grad(device.is_autodiff())));
    outputs
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
