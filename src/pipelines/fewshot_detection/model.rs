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
//!
//! On the CPU everything up to the head's last convolution is computed in host memory, without Burn's operations
//! ([`super::cells_on_host`]).

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{GroupNorm, GroupNormConfig, PaddingConfig2d};
use burn::tensor::Device;
use burn::tensor::activation::relu;

use super::assignment::strides;
use super::cells_on_host;
use super::settings::Model;
use crate::nn::cut::Cut;
use crate::nn::fake_quantise::beside;
use crate::nn::group_normalise::group_normalise;
use crate::nn::normalise::normalise;
use crate::nn::{Tensor, one_pass};

/// Convolution, group normalisation, rectifier.
#[derive(Module, Debug)]
pub struct Block {
    pub(super) convolution: Conv2d,
    pub(super) norm: GroupNorm,
}

impl Block {
    fn new(channels: [usize; 2], stride: usize, groups: usize, device: &Device) -> Self {
        let convolution = Conv2dConfig::new(channels, [3, 3])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_bias(false)
            .init(device);
        Self { convolution, norm: GroupNormConfig::new(groups, channels[1]).init(device) }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        relu(group_normalise(&self.norm, self.convolution.forward(input)))
    }
}

/// Halves the picture, then adds to it.
#[derive(Module, Debug)]
pub struct Stage {
    pub(super) halve: Block,
    pub(super) residual: Vec<Block>,
}

/// See the file's head. The names of the fields are the names in `model.safetensors`.
#[derive(Module, Debug)]
pub struct ReferenceDetector {
    pub(super) stages: Vec<Stage>,
    pub(super) lateral_fine: Conv2d,
    pub(super) lateral_coarse: Conv2d,
    pub(super) tower: Vec<Block>,
    /// Objectness, four sides, embedding: `1 + 4 + D` channels.
    pub(super) outputs: Conv2d,
    /// What the cosine is multiplied by is the softplus of this, so that likeness always counts for a class.
    similarity_scale: Param<Tensor<1>>,
    similarity_bias: Param<Tensor<1>>,
    /// From the level of stride 16 to that of 32, and so on; for large pictures.
    pub(super) coarser: Vec<Block>,
    #[module(skip)]
    embedding: usize,
    /// Convolutions are computed again on the way back, in place of keeping what they gave. On the CPU.
    #[module(skip)]
    pub(super) recomputes: bool,
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
    /// What lies behind them, where their graph was cut.
    pub cut: Option<Cut>,
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
    cut: Option<Cut>,
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
            recomputes: false,
        };
        let mut model = crate::nn::parameters::initialise(model, seed);
        model.outputs = prior(model.outputs, settings.embedding, device);
        model
    }

    /// The same network with activation checkpointing or without. On a GPU, the device has it.
    pub fn recomputing(self, recomputes: bool) -> Self {
        Self { recomputes, ..self }
    }

    /// Pictures `[n, 3, S, S]`, S the `image_size`, scaled to about -1..1.
    pub fn dense(&self, pictures: Tensor<4>) -> Dense {
        let strides = strides(pictures.dims()[3]);
        Self::dense_of(self.raw(pictures, strides.len()), &strides)
    }

    /// Pictures of single objects `[m, 3, R, R]` to embeddings of length one `[m, D]`, the mean over all cells; and what lies
    /// behind them, where their graph was cut.
    pub fn embed(&self, pictures: Tensor<4>) -> (Tensor<2>, Option<Cut>) {
        Self::embedding_of(self.raw(pictures, 2))
    }

    /// What the head says of so many levels.
    pub(super) fn raw(&self, pictures: Tensor<4>, levels: usize) -> Raw {
        if !one_pass::is_for(&pictures) {
            return self.raw_by_burn(pictures, levels);
        }
        let (tensors, cells, cut) = cells_on_host::cells(self, pictures, levels, &[1, 4, self.embedding]);
        let [object, sides, embeddings] =
            <[Tensor<3>; 3]>::try_from(tensors).unwrap_or_else(|_| unreachable!("there is a tensor for each width"));
        Raw { object, sides, embeddings, cells, cut }
    }

    /// As [`Self::raw`], in Burn's operations, on any device.
    pub(super) fn raw_by_burn(&self, pictures: Tensor<4>, levels: usize) -> Raw {
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
        Raw { object: part(0, 1), sides: part(1, 4), embeddings: part(5, self.embedding), cells, cut: None }
    }

    /// What the head says of levels of these strides to what it means.
    pub(super) fn dense_of(raw: Raw, strides: &[usize]) -> Dense {
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
            cut: raw.cut,
        }
    }

    /// What the head says to the mean over cells. Each level weighs the same, however many cells it has.
    pub(super) fn embedding_of(raw: Raw) -> (Tensor<2>, Option<Cut>) {
        let cells = normalise(raw.embeddings, 2);
        let mean = |from, count| cells.clone().narrow(1, from, count).mean_dim(1).squeeze_dim::<2>(1);
        let (fine, coarse) = (raw.cells[0], raw.cells[1]);
        (normalise(mean(0, fine) + mean(fine, coarse), 1), raw.cut)
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
        let coarse = self.lateral_coarse.forward(value);
        let fine = self.lateral_fine.forward(fine.unwrap_or_else(|| unreachable!("the schema asks for four stages")));
        (fine + double(coarse.clone()), coarse)
    }

    fn head(&self, level: Tensor<4>) -> Tensor<4> {
        let value = self.tower.iter().fold(level, |value, block| block.forward(value));
        self.outputs.forward(value)
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
mod tests {
    use super::super::assignment::cells;
    use super::*;
    use crate::nn::tests::{autodiff, close, plain, values};

    fn tiny() -> Model {
        Model { channels: vec![4, 4, 4, 4], pyramid_channels: 4, norm_groups: 2, embedding: 2, ..Model::default() }
    }

    /// Up to half as long again as the picture, on the coarsest level of each size that is accepted.
    #[test]
    fn every_side_of_every_accepted_picture_has_a_gradient() {
        for size in (32..=2048).step_by(16) {
            let coarsest = *strides(size).last().unwrap();
            let wanted = [0.25 * size as f32, size as f32, 1.5 * size as f32];
            let logarithms = wanted.map(|side| (side / coarsest as f32).ln());
            let raw = Tensor::<3>::from_floats([[logarithms]], &autodiff()).require_grad();
            let found = sides(raw.clone(), coarsest);
            close(&values(found.clone()), &wanted, 1e-3 * size as f32);
            let gradients = found.sum().backward();
            close(&values(raw.grad(&gradients).unwrap()), &wanted, 1e-3 * size as f32);
        }
    }

    #[test]
    fn an_answer_far_too_large_or_small_is_finite_and_leads_back() {
        let raw = Tensor::<3>::from_floats([[[9.0, 60.0, -9.0]]], &autodiff()).require_grad();
        let found = sides(raw.clone(), 16);
        let end = 16.0 * 4.0f32.exp();
        close(&values(found.clone()), &[end * 6.0, end * 57.0, 16.0 * (-9.0f32).exp()], 0.1);
        let gradients = found.sum().backward();
        close(&values(raw.grad(&gradients).unwrap()), &[end, end, 16.0 * (-9.0f32).exp()], 1e-2);
    }

    #[test]
    fn likeness_is_multiplied_by_a_positive_number_that_begins_at_eight() {
        let model = ReferenceDetector::new(&tiny(), 96, 1, &autodiff());
        close(&values(softplus(model.similarity_scale.val())), &[8.0], 1e-6);
        let scales = values(softplus(Tensor::from_floats([-30.0, -1.0, 0.0, 100.0], &plain())));
        assert!(scales.iter().all(|scale| *scale > 0.0 && scale.is_finite()), "{scales:?}");
    }

    #[test]
    fn the_head_answers_for_every_cell_of_every_level() {
        for size in [32, 256, 272, 528] {
            let model = ReferenceDetector::new(&tiny(), size, 1, &autodiff());
            assert_eq!(model.coarser.len() + 2, strides(size).len());
            let dense = model.dense(Tensor::zeros([1, 3, size, size], &autodiff()));
            assert_eq!(dense.sides.dims(), [1, cells(size).len(), 4], "{size}");
            assert_eq!(dense.object.dims()[1], cells(size).len());
            assert_eq!(dense.embeddings.dims()[1], cells(size).len());
        }
    }
}
