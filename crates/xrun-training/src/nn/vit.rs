//! Vision Transformer (Dosovitskiy et al. 2021), with or without a class token; that of a file of weights has one.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::Device;

use super::Tensor;
use super::backbone::WeightFile;
use super::encoder_block::{Attention, EPSILON, EncoderBlock, Norm};
use super::transformer::parameter;
use crate::backbone::vit::{ATTENTION, CLASS, NORM, PATCHES, POSITIONS, Transformer, interpolate};

/// Patch and position embeddings.
#[derive(Module, Debug)]
pub struct Embeddings {
    /// Class token with its position, `[1, 1, width]`.
    class_token: Option<Param<Tensor<3>>>,
    /// Position embeddings of patches, `[1, patches, width]`.
    pub positions: Param<Tensor<3>>,
    /// Convolution of each patch to a token.
    pub patches: Conv2d,
}

/// Vision transformer.
#[derive(Module, Debug)]
pub struct VisionTransformer {
    /// Embeddings of the image's patches.
    pub embeddings: Embeddings,
    layer: Vec<EncoderBlock>,
    layernorm: Norm,
}

impl VisionTransformer {
    /// Transformer without a class token, whose initial values are still to be drawn by [`parameters`](super::parameters), for
    /// square images of `side` patches of `patch` pixels.
    pub fn new([side, patch]: [usize; 2], width: usize, [blocks, heads]: [usize; 2], device: &Device) -> Self {
        let embeddings = Embeddings {
            class_token: None,
            positions: parameter([1, side * side, width], 0.0, device),
            patches: patches(width, patch, device),
        };
        let layer = (0..blocks).map(|_| EncoderBlock::new(width, heads, device)).collect();
        Self { embeddings, layer, layernorm: Norm::new(width, EPSILON, device) }
    }

    /// Transformer with the weights of a file. LayerScale is folded into the layers before it.
    pub(super) fn read(about: &Transformer, file: &mut WeightFile<'_>) -> Result<Self, String> {
        let Transformer { width, hidden, patch_size: patch, positions, cells, .. } = *about;
        let name = |name: &str| format!("{}{name}", about.prefix);
        let mut class = file.values(&name(CLASS), &[1, 1, width])?;
        let all = file.values(&name(POSITIONS), &[1, positions * positions + 1, width])?;
        let (first, rest) = all.split_at(width);
        class.iter_mut().zip(first).for_each(|(class, position)| *class += position);
        let rest = interpolate(rest, width, positions, cells);
        let kernel = file.values(&name(&format!("{PATCHES}.weight")), &[width, 3, patch, patch])?;
        let bias = file.values(&name(&format!("{PATCHES}.bias")), &[width])?;
        let embeddings = Embeddings {
            class_token: Some(file.parameter(class, [1, 1, width])),
            positions: file.parameter(rest, [1, cells * cells, width]),
            patches: Conv2d {
                weight: file.parameter(kernel, [width, 3, patch, patch]),
                bias: Some(file.parameter(bias, [width])),
                ..patches(width, patch, file.device)
            },
        };
        let mut layer = Vec::with_capacity(about.blocks);
        for block in 0..about.blocks {
            let name = |part: &str| name(&format!("encoder.layer.{block}.{part}"));
            let scales = match about.names.scales {
                Some(names) => names.map(|part| file.values(&name(part), &[width])),
                None => [(); 2].map(|()| Ok(vec![1.0; width])),
            };
            let [attended, mixed] = scales;
            let (attended, mixed) = (attended?, mixed?);
            let [query, key, value, output] = ATTENTION.map(name);
            let square = [width, width];
            let attention = [
                linear(file, &query, square, None)?,
                linear(file, &key, square, None)?,
                linear(file, &value, square, None)?,
                linear(file, &output, square, Some(&attended))?,
            ];
            let [inner, outer] = about.names.mlp.map(name);
            let mlp =
                [linear(file, &inner, [width, hidden], None)?, linear(file, &outer, [hidden, width], Some(&mixed))?];
            let [before, after] = about.names.norms.map(name);
            let norms = [norm(file, &before, about)?, norm(file, &after, about)?];
            layer.push(EncoderBlock::of(norms, Attention::of(attention, about.heads), mlp));
        }
        Ok(Self { embeddings, layer, layernorm: norm(file, &name(NORM), about)? })
    }

    /// Encodes images `[n, 3, side, side]` as tokens `[n, patches, width]`, after the class token if there is one.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<3> {
        let patches = self.embeddings.patches.forward(images).flatten::<3>(2, 3).swap_dims(1, 2);
        let [count, _, width] = patches.dims();
        let tokens = patches + self.embeddings.positions.val();
        let tokens = match &self.embeddings.class_token {
            Some(class) => Tensor::cat(vec![class.val().expand([count, 1, width]), tokens], 1),
            None => tokens,
        };
        let hidden = self.layer.iter().fold(tokens, |hidden, block| block.forward(hidden));
        self.layernorm.forward(hidden)
    }
}

fn patches(width: usize, patch: usize, device: &Device) -> Conv2d {
    Conv2dConfig::new([3, width], [patch, patch]).with_stride([patch, patch]).init(device)
}

/// Linear layer, whose outputs are multiplied by `scales`.
fn linear(
    file: &mut WeightFile<'_>,
    name: &str,
    [inputs, outputs]: [usize; 2],
    scales: Option<&[f32]>,
) -> Result<Linear, String> {
    let weight = file.values(&format!("{name}.weight"), &[outputs, inputs])?;
    let bias = file.values(&format!("{name}.bias"), &[outputs])?;
    let scale = |output: usize| scales.map_or(1.0, |scales| scales[output]);
    // Burn's layers are `[inputs, outputs]`.
    let at = |at: usize| weight[at % outputs * inputs + at / outputs] * scale(at % outputs);
    let transposed = (0..inputs * outputs).map(at).collect();
    let bias = bias.iter().enumerate().map(|(output, bias)| bias * scale(output)).collect();
    Ok(Linear { weight: file.parameter(transposed, [inputs, outputs]), bias: Some(file.parameter(bias, [outputs])) })
}

fn norm(file: &mut WeightFile<'_>, name: &str, about: &Transformer) -> Result<Norm, String> {
    let [scale, shift] = ["weight", "bias"].map(|part| file.values(&format!("{name}.{part}"), &[about.width]));
    let (scale, shift) = (file.parameter(scale?, [about.width]), file.parameter(shift?, [about.width]));
    Ok(Norm::of(scale, shift, about.epsilon))
}
