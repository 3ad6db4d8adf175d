//! The network: backbone, pyramid, reference encoder, prototype-conditioned dense head.
//!
//! ```text
//! picture -> four stages (strides 2, 4, 8, 16) -> pyramid (strides 8 and 16) -> tower -> per cell: object? box, embedding
//! reference -> the same network -> mean of its cells' embeddings -> mean over views: the class's prototype
//! class of a cell: scaled cosine of its embedding and each prototype
//! ```
//! Group normalisation keeps no statistics between steps, so a batch that is split gives the same result.

use burn::DispatchDevice;
use burn::module::{Module, Param, ParamId};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{GroupNorm, GroupNormConfig, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend as BurnBackend;

use super::assignment::STRIDES;
use super::settings::Model;
use crate::nn::normalise::normalise;
use crate::nn::{Backend, Tensor};

/// Convolution, group normalisation, rectifier.
#[derive(Module, Debug)]
pub struct Block<B: BurnBackend> {
    convolution: Conv2d<B>,
    norm: GroupNorm<B>,
}

impl Block<Backend> {
    fn new(channels: [usize; 2], stride: usize, groups: usize, device: &DispatchDevice) -> Self {
        let convolution = Conv2dConfig::new(channels, [3, 3])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_bias(false)
            .init(device);
        Self { convolution, norm: GroupNormConfig::new(groups, channels[1]).init(device) }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        relu(self.norm.forward(self.convolution.forward(input)))
    }
}

/// Halves the picture, then adds to it.
#[derive(Module, Debug)]
pub struct Stage<B: BurnBackend> {
    halve: Block<B>,
    residual: Vec<Block<B>>,
}

/// See the file's head. The names of the fields are the names in `model.safetensors`.
#[derive(Module, Debug)]
pub struct ReferenceDetector<B: BurnBackend> {
    stages: Vec<Stage<B>>,
    lateral_fine: Conv2d<B>,
    lateral_coarse: Conv2d<B>,
    tower: Vec<Block<B>>,
    /// Objectness, four sides, embedding: `1 + 4 + D` channels.
    outputs: Conv2d<B>,
    similarity_scale: Param<burn::tensor::Tensor<B, 1>>,
    similarity_bias: Param<burn::tensor::Tensor<B, 1>>,
    #[module(skip)]
    embedding: usize,
}

/// What the head says of each cell; the fine level first.
#[derive(Clone, Debug)]
pub struct Dense {
    /// Logits `[n, cells]`.
    pub object: Tensor<2>,
    /// Distances to left, top, right, bottom in pixels, `[n, cells, 4]`.
    pub sides: Tensor<3>,
    /// Of length one, `[n, cells, D]`.
    pub embeddings: Tensor<3>,
}

/// An object is rare: the share of cells that have one before anything is learnt (Lin et al. 2017).
const PRIOR: f32 = 0.02;
/// Logarithm of sides, in strides; keeps the exponential finite.
const LOG_SIDE_MAX: f32 = 4.0;

impl ReferenceDetector<Backend> {
    /// All first values follow from the seed.
    pub fn new(settings: &Model, seed: u32, device: &DispatchDevice) -> Self {
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
        let scalar =
            |value: f32| Param::initialized(ParamId::new(), Tensor::from_floats([value], device).require_grad());
        let model = Self {
            stages,
            lateral_fine: point(settings.channels[count - 2], pyramid, true),
            lateral_coarse: point(settings.channels[count - 1], pyramid, true),
            tower: (0..settings.head_depth).map(|_| block(pyramid, pyramid, 1)).collect(),
            outputs: point(pyramid, 5 + settings.embedding, true),
            similarity_scale: scalar(8.0),
            similarity_bias: scalar(-4.0),
            embedding: settings.embedding,
        };
        let mut model = crate::nn::parameters::initialise(model, seed);
        model.outputs = prior(model.outputs, settings.embedding, device);
        model
    }

    /// Pictures `[n, 3, S, S]`, scaled to about -1..1.
    pub fn dense(&self, pictures: Tensor<4>) -> Dense {
        let (fine, coarse) = self.pyramid(pictures);
        let levels = [self.head(fine), self.head(coarse)];
        let parts: Vec<(Tensor<2>, Tensor<3>, Tensor<3>)> =
            levels.into_iter().zip(STRIDES).map(|(level, stride)| self.split(level, stride)).collect();
        let [(object, sides, embeddings), (object_coarse, sides_coarse, embeddings_coarse)] =
            <[_; 2]>::try_from(parts).unwrap_or_else(|_| unreachable!("two levels"));
        Dense {
            object: Tensor::cat(vec![object, object_coarse], 1),
            sides: Tensor::cat(vec![sides, sides_coarse], 1),
            embeddings: normalise(Tensor::cat(vec![embeddings, embeddings_coarse], 1), 2),
        }
    }

    /// Pictures of single objects `[m, 3, R, R]` to embeddings of length one `[m, D]`: the mean over all cells.
    pub fn embed(&self, pictures: Tensor<4>) -> Tensor<2> {
        let (fine, coarse) = self.pyramid(pictures);
        let part = |level: Tensor<4>| {
            let [count, _, height, width] = level.dims();
            let length = self.embedding;
            // Each level weighs the same, however many cells it has.
            normalise(self.head(level).narrow(1, 5, length).reshape([count, length, height * width]), 1)
                .mean_dim(2)
                .squeeze_dim::<2>(2)
        };
        normalise(part(fine) + part(coarse), 1)
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
        let scale = self.similarity_scale.val().reshape([1, 1]);
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
        let coarse = self.lateral_coarse.forward(value);
        let fine = self.lateral_fine.forward(fine.unwrap_or_else(|| unreachable!("the schema asks for four stages")));
        (fine + double(coarse.clone()), coarse)
    }

    fn head(&self, level: Tensor<4>) -> Tensor<4> {
        let value = self.tower.iter().fold(level, |value, block| block.forward(value));
        self.outputs.forward(value)
    }

    /// `[n, 5 + D, h, w]` to what it means.
    fn split(&self, level: Tensor<4>, stride: usize) -> (Tensor<2>, Tensor<3>, Tensor<3>) {
        let [count, channels, height, width] = level.dims();
        let cells = height * width;
        let flat = level.reshape([count, channels, cells]).swap_dims(1, 2);
        let object = flat.clone().narrow(2, 0, 1).squeeze_dim::<2>(2);
        let sides = flat.clone().narrow(2, 1, 4).clamp(-LOG_SIDE_MAX, LOG_SIDE_MAX).exp().mul_scalar(stride as f32);
        (object, sides, flat.narrow(2, 5, self.embedding))
    }
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
fn prior(mut outputs: Conv2d<Backend>, embedding: usize, device: &DispatchDevice) -> Conv2d<Backend> {
    outputs.weight = outputs.weight.map(|weight| Tensor::from_inner(weight.inner().mul_scalar(0.1)).require_grad());
    let mut bias = vec![0.0f32; 5 + embedding];
    bias[0] = (PRIOR / (1.0 - PRIOR)).ln();
    outputs.bias = outputs.bias.map(|old| old.map(|_| Tensor::from_floats(&bias[..], device).require_grad()));
    outputs
}
