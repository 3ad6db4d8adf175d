//! Network: backbone, feature pyramid, reference encoder, prototype-conditioned dense head.
//!
//! ```text
//! image -> four stages (strides 2, 4, 8, 16) -> pyramid (strides 8, 16, …) -> tower -> per cell: objectness, box, embedding
//! reference -> the same network -> mean of the embeddings of its cells -> mean over views: prototype of the class
//! class of a cell: scaled cosine of its embedding and each prototype
//! ```
//! Prototypes of fixed classes are parameters, in place of references.
//!
//! A pretrained backbone may take the place of the four stages.
//!
//! Large images have coarser levels, each computed from the previous one, so that no object spans many cells (as in RetinaNet and
//! FCOS). Group normalisation has no running statistics, so that splitting a batch does not change the result.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::Device;
use xrun_ops::{conv1x1, normalise};

use super::assignment::strides;
use super::prepare::MAPS;
use super::settings::ReferenceDetector;
use xrun_training::nn::Tensor;
use xrun_training::nn::backbone::Backbone;
use xrun_training::nn::conv_block::ConvBlock;
use xrun_training::nn::graph::autodiff_like;
use xrun_training::nn::parameters::{Deviation, initialise};

/// Output of a 1 x 1 convolution with a bias.
fn pointwise(convolution: &Conv2d, input: Tensor<4>) -> Tensor<4> {
    let bias = convolution.bias.as_ref().map_or_else(|| unreachable!("`point` makes a bias"), Param::val);
    conv1x1(input, convolution.weight.val(), bias)
}

/// Block of stride 2, and residual blocks.
#[derive(Module, Debug)]
pub struct Stage {
    halve: ConvBlock,
    residual: Vec<ConvBlock>,
}

/// Detector of classes that are given by references. The names of the fields are those of the tensors in `model.safetensors`.
#[derive(Module, Debug)]
pub struct DetectorNetwork {
    /// Pretrained network in place of the stages.
    pub backbone: Option<Backbone>,
    stages: Vec<Stage>,
    lateral_fine: Conv2d,
    lateral_coarse: Conv2d,
    tower: Vec<ConvBlock>,
    /// Objectness, four sides, embedding: `1 + 4 + D` channels.
    outputs: Conv2d,
    /// Scale of the cosine before softplus, which keeps it positive.
    similarity_scale: Param<Tensor<1>>,
    similarity_bias: Param<Tensor<1>>,
    /// Blocks from stride 16 to 32, and so on, for large images.
    coarser: Vec<ConvBlock>,
    /// Prototypes of any length of fixed classes, `[classes, D]`; `None` if classes are given by references.
    classes: Option<Param<Tensor<2>>>,
    #[module(skip)]
    embedding: usize,
}

/// Outputs of the network for each cell, the finest level first.
#[derive(Debug)]
pub struct Dense {
    /// Objectness logits, `[n, cells]`.
    pub object: Tensor<2>,
    /// Distances to left, top, right, bottom in pixels, `[n, cells, 4]`.
    pub sides: Tensor<3>,
    /// Embeddings of length one, `[n, cells, D]`.
    pub embeddings: Tensor<3>,
}

/// Outputs of the head's last convolution, the finest level first.
#[derive(Debug)]
pub struct HeadOutput {
    /// Objectness logits, `[n, cells, 1]`.
    object: Tensor<3>,
    /// Logarithms of sides in strides, `[n, cells, 4]`.
    sides: Tensor<3>,
    /// Embeddings of any length, `[n, cells, D]`.
    embeddings: Tensor<3>,
    /// Number of cells of each level.
    cells: Vec<usize>,
}

/// Initial objectness: the fraction of cells with an object (Lin et al. 2017).
const PRIOR: f32 = 0.02;
/// Limit of the exponential of sides, as a logarithm of strides: 54 cells, where the square has 16 of the coarsest level. Beyond it
/// sides are linear, so that they stay finite and have a gradient.
const LOG_SIDE_MAX: f32 = 4.0;
/// Initial scale of the cosine.
const SCALE: f32 = 8.0;

impl DetectorNetwork {
    /// Network for query frames of side `image_size`. Initial values depend on the seed alone.
    pub fn new(settings: &ReferenceDetector, image_size: usize, seed: u32, device: &Device) -> Self {
        Self::with_features(settings, None, None, image_size, seed, device)
    }

    /// As [`Self::new`], on a pretrained backbone in place of the stages if there is one, with a number of fixed classes if they are.
    pub fn with_features(
        settings: &ReferenceDetector,
        backbone: Option<Backbone>,
        fixed_classes: Option<usize>,
        image_size: usize,
        seed: u32,
        device: &Device,
    ) -> Self {
        let groups = settings.norm_groups;
        let block = |from, to, stride| ConvBlock::new([from, to], stride, groups, device);
        let point = |from, to, bias| Conv2dConfig::new([from, to], [1, 1]).with_bias(bias).init(device);
        let mut from = 3;
        let count = settings.channels.len();
        let stages = settings.channels[..if backbone.is_some() { 0 } else { count }]
            .iter()
            .map(|&to| {
                let halve = block(from, to, 2);
                from = to;
                Stage { halve, residual: (0..settings.blocks_per_stage).map(|_| block(to, to, 1)).collect() }
            })
            .collect();
        let pyramid = settings.pyramid_channels;
        let own = [settings.channels[count - 2], settings.channels[count - 1]];
        let [fine, coarse] = backbone.as_ref().map_or(own, |backbone| backbone.architecture.outputs_at(MAPS));
        let scalar = |value: f32| Param::from_tensor(Tensor::from_floats([value], device));
        let model = Self {
            backbone: None,
            stages,
            lateral_fine: point(fine, pyramid, true),
            lateral_coarse: point(coarse, pyramid, true),
            tower: (0..settings.head_depth).map(|_| block(pyramid, pyramid, 1)).collect(),
            outputs: point(pyramid, 5 + settings.embedding_size, true),
            similarity_scale: scalar(SCALE + (-(-SCALE).exp()).ln_1p()), // softplus brings it back
            similarity_bias: scalar(-4.0),
            coarser: strides(image_size)[2..].iter().map(|_| block(pyramid, pyramid, 2)).collect(),
            classes: fixed_classes
                .map(|count| Param::from_tensor(Tensor::zeros([count, settings.embedding_size], device))),
            embedding: settings.embedding_size,
        };
        let mut model = initialise(model, seed, Deviation::FanIn);
        model.outputs = with_prior(model.outputs, settings.embedding_size, device);
        Self { backbone, ..model }
    }

    /// Outputs for normalised images `[n, 3, S, S]`, S the `image_size`.
    pub fn dense(&self, images: Tensor<4>) -> Dense {
        let strides = strides(images.dims()[3]);
        Self::dense_from(self.head_output(images, strides.len()), &strides)
    }

    /// Embeddings of length one, `[m, D]`, of normalised images of single objects, `[m, 3, R, R]`: the mean over all cells.
    pub fn embed(&self, images: Tensor<4>) -> Tensor<2> {
        Self::mean_embedding(self.head_output(images, 2))
    }

    /// Outputs of the head on a number of levels.
    fn head_output(&self, images: Tensor<4>, levels: usize) -> HeadOutput {
        let (fine, coarse) = self.pyramid(images);
        let mut maps = vec![fine, coarse];
        for block in self.coarser.iter().take(levels.saturating_sub(2)) {
            maps.extend(maps.last().map(|map| block.forward(map.clone())));
        }
        let flat: Vec<Tensor<3>> =
            maps.into_iter().map(|map| self.head(map).flatten::<3>(2, 3).swap_dims(1, 2)).collect();
        let cells = flat.iter().map(|level| level.dims()[1]).collect();
        let all = Tensor::cat(flat, 1);
        let channels = |from, count| all.clone().narrow(2, from, count);
        HeadOutput { object: channels(0, 1), sides: channels(1, 4), embeddings: channels(5, self.embedding), cells }
    }

    /// Converts outputs of the head on levels with these strides.
    fn dense_from(raw: HeadOutput, strides: &[usize]) -> Dense {
        let mut from = 0;
        let by_level = raw.cells.iter().zip(strides).map(|(&cells, &stride)| {
            let level = sides(raw.sides.clone().narrow(1, from, cells), stride);
            from += cells;
            level
        });
        Dense {
            sides: Tensor::cat(by_level.collect(), 1),
            object: raw.object.squeeze_dim::<2>(2),
            embeddings: normalise(raw.embeddings),
        }
    }

    /// Mean over the cells of two levels, which have equal weights.
    fn mean_embedding(raw: HeadOutput) -> Tensor<2> {
        let cells = normalise(raw.embeddings);
        let mean = |from, count| cells.clone().narrow(1, from, count).mean_dim(1).squeeze_dim::<2>(1);
        let (fine, coarse) = (raw.cells[0], raw.cells[1]);
        normalise(mean(0, fine) + mean(fine, coarse))
    }

    /// Prototypes of length one, `[ways, D]`, of embeddings `[ways * views, D]` in the order of the ways.
    pub fn prototypes(embeddings: Tensor<2>, ways: usize) -> Tensor<2> {
        let [count, length] = embeddings.dims();
        normalise(embeddings.reshape([ways, count / ways, length]).mean_dim(1).squeeze_dim::<2>(1))
    }

    /// Learned prototypes of length one, `[classes, D]`; `None` if classes are given by references.
    pub fn class_prototypes(&self) -> Option<Tensor<2>> {
        self.classes.as_ref().map(|rows| normalise(rows.val()))
    }

    /// Class logits of each cell, `[n, cells, ways]`.
    pub fn similarity(&self, embeddings: Tensor<3>, prototypes: Tensor<2>) -> Tensor<3> {
        let [count, cells, length] = embeddings.dims();
        let ways = prototypes.dims()[0];
        let cosine = embeddings.reshape([count * cells, length]).matmul(prototypes.transpose());
        let scale = softplus(self.similarity_scale.val()).reshape([1, 1]);
        let bias = self.similarity_bias.val().reshape([1, 1]);
        (cosine * scale + bias).reshape([count, cells, ways])
    }

    /// Feature maps of strides 8 and 16, `[n, pyramid_channels, S / stride, S / stride]`.
    fn pyramid(&self, images: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        if let Some(backbone) = &self.backbone {
            let maps = backbone.maps(images, MAPS);
            // A frozen backbone gives constants of the inner device.
            let weight = self.lateral_fine.weight.val();
            let [fine, coarse] = maps.map(|map| if map.is_autodiff() { map } else { autodiff_like(map, &weight) });
            let coarse = pointwise(&self.lateral_coarse, coarse);
            return (pointwise(&self.lateral_fine, fine) + upsample_nearest_2x(coarse.clone()), coarse);
        }
        let mut value = images;
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
            pointwise(&self.lateral_fine, fine.unwrap_or_else(|| unreachable!("the schema requires four stages")));
        (fine + upsample_nearest_2x(coarse.clone()), coarse)
    }

    fn head(&self, level: Tensor<4>) -> Tensor<4> {
        let value = self.tower.iter().fold(level, |value, block| block.forward(value));
        pointwise(&self.outputs, value)
    }
}

/// Converts logarithms of sides in strides to sides in pixels.
fn sides(logarithms: Tensor<3>, stride: usize) -> Tensor<3> {
    let beyond = logarithms.clone().sub_scalar(LOG_SIDE_MAX).clamp_min(0.0);
    logarithms.clamp_max(LOG_SIDE_MAX).exp() * beyond.add_scalar(1.0).mul_scalar(stride as f32)
}

/// Softplus, `ln(1 + exp(value))`, in the form that does not overflow.
fn softplus(value: Tensor<1>) -> Tensor<1> {
    value.clone().clamp_min(0.0) + value.abs().neg().exp().log1p()
}

/// Nearest-neighbour upsampling by a factor of 2.
fn upsample_nearest_2x(value: Tensor<4>) -> Tensor<4> {
    let [count, channels, height, width] = value.dims();
    value.reshape([count * channels, height, 1, width, 1]).expand([count * channels, height, 2, width, 2]).reshape([
        count,
        channels,
        height * 2,
        width * 2,
    ])
}

/// Initialises the last convolution with small weights and the objectness [`PRIOR`].
fn with_prior(mut outputs: Conv2d, embedding: usize, device: &Device) -> Conv2d {
    outputs.weight = outputs.weight.map(|weight| {
        autodiff_like(weight.clone().inner().mul_scalar(0.1), &weight).set_require_grad(weight.is_autodiff())
    });
    let mut bias = vec![0.0f32; 5 + embedding];
    bias[0] = (PRIOR / (1.0 - PRIOR)).ln();
    outputs.bias = outputs
        .bias
        .map(|old| old.map(|_| Tensor::from_floats(&bias[..], device).set_require_grad(device.is_autodiff())));
    outputs
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
