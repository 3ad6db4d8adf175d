//! The network: a vision transformer, a projector and GPT-2, in the way of nanoVLM.
//!
//! ```text
//! picture [3, S, S] -> patches -> vision transformer [(S/p)², Wv] -> pixel shuffle [(S/p/r)², r² Wv] -> projector [I, W]
//! [I image tokens; T text tokens] + positions -> GPT-2's blocks, each token sees those before it -> logits = ln_f(x) wteᵀ
//! ```
//! Dosovitskiy et al. 2021 (ViT, here without a class token), Shi et al. 2016 (pixel shuffle), Radford et al. 2019 (GPT-2), Hu
//! et al. 2021 (LoRA).

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::Device;
use burn::tensor::TensorData;

use super::settings::{Part, Settings, Shape};
use crate::nn::encoder_block;
use crate::nn::encoder_block::{EncoderBlock, Norm};
use crate::nn::gpt2::{ForwardContext, Gpt2, Projection};
use crate::nn::graph::{has_graph, to_inner};
use crate::nn::matmul::MatmulPrecision;
use crate::nn::transformer::{INIT_DEVIATION, Tokens, map_values, parameter, value};
use crate::nn::{Tensor, parameters};

/// Of the first positions of patches, whose first values have about this deviation, too.
const POSITION_DEVIATION: f64 = 0.5;

/// Frozen parts of the network, and the arithmetic of its language part.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The vision transformer is a constant.
    pub vision_frozen: bool,
    /// The layer between the parts is a constant.
    pub projector_frozen: bool,
    /// The language part without its LoRA.
    pub language_frozen: bool,
    /// Factor of LoRA, `alpha / rank`.
    pub lora_scale: f32,
    /// Of products in the language part.
    pub matmul: MatmulPrecision,
}

impl Rules {
    /// Takes the rules from the settings; `matmul` are those of products in the language part.
    pub fn new(settings: &Settings, matmul: MatmulPrecision) -> Self {
        let frozen = |part: Part| !settings.trained.contains(&part);
        Self {
            vision_frozen: frozen(Part::Vision),
            projector_frozen: frozen(Part::Projector),
            language_frozen: frozen(Part::Language) || settings.lora_rank > 0,
            lora_scale: (settings.lora_alpha / settings.lora_rank.max(1) as f64) as f32,
            matmul,
        }
    }
}

/// What makes tokens of patches.
#[derive(Module, Debug)]
pub struct Embeddings {
    /// `[1, patches, width]`
    pub positions: Param<Tensor<3>>,
    patches: Conv2d,
}

/// The vision transformer.
#[derive(Module, Debug)]
pub struct Vision {
    /// What makes tokens of the picture's patches.
    pub embeddings: Embeddings,
    layer: Vec<EncoderBlock>,
    layernorm: Norm,
}

/// From what the vision part sees to tokens of the language part.
#[derive(Module, Debug)]
pub struct Projector {
    /// `[shuffle² * vision width, width]`
    weight: Param<Tensor<2>>,
    #[module(skip)]
    shuffle: usize,
}

/// See the file's head.
#[derive(Module, Debug)]
pub struct VisionLanguage {
    /// Sees the picture.
    pub vision: Vision,
    projector: Projector,
    /// Writes the text.
    pub language: Gpt2,
}

/// Pictures of `side` pixels, 8-bit RGB row by row, as the network takes them: `[batch, 3, side, side]` from -1 to 1.
pub fn pictures(rgb: &[u8], side: usize, device: &Device) -> Tensor<4> {
    let pixels = side * side;
    let batch = rgb.len() / (3 * pixels);
    let mut values = vec![0.0_f32; rgb.len()];
    for (picture, into) in rgb.chunks_exact(3 * pixels).zip(values.chunks_exact_mut(3 * pixels)) {
        for (at, pixel) in picture.chunks_exact(3).enumerate() {
            for (channel, byte) in pixel.iter().enumerate() {
                into[channel * pixels + at] = (f32::from(*byte) / 255.0 - 0.5) / 0.5;
            }
        }
    }
    Tensor::from_data(TensorData::new(values, [batch, 3, side, side]), device)
}

/// Tokens of `shuffle` x `shuffle` neighbours become one, as nanoVLM does it: `[batch, n, width]` of a square to
/// `[batch, n / shuffle², shuffle² * width]`.
fn pixel_shuffle(tokens: Tensor<3>, shuffle: usize) -> Tensor<3> {
    let [batch, count, width] = tokens.dims();
    let side = count.isqrt();
    let small = side / shuffle;
    tokens.reshape([batch, small, shuffle, small, shuffle * width]).permute([0, 1, 3, 2, 4]).reshape([
        batch,
        small * small,
        shuffle * shuffle * width,
    ])
}

impl Vision {
    fn new(shape: &Shape, image_size: usize, device: &Device) -> Self {
        let Shape { patch, vision_width: width, vision_layers, vision_heads, .. } = *shape;
        let embeddings = Embeddings {
            positions: parameter([1, shape.patches(image_size), width], 0.0, device),
            patches: Conv2dConfig::new([3, width], [patch, patch]).with_stride([patch, patch]).init(device),
        };
        let layer = (0..vision_layers).map(|_| EncoderBlock::new(width, vision_heads, device)).collect();
        Self { embeddings, layer, layernorm: Norm::new(width, encoder_block::EPSILON, device) }
    }

    /// `[batch, 3, side, side]` to `[batch, patches, vision width]`.
    fn forward(&self, pictures: Tensor<4>) -> Tensor<3> {
        let patches = self.embeddings.patches.forward(pictures).flatten::<3>(2, 3).swap_dims(1, 2);
        let start = patches + self.embeddings.positions.val();
        let hidden = self.layer.iter().fold(start, |hidden, block| block.forward(hidden));
        self.layernorm.forward(hidden)
    }
}

impl ForwardContext for &Rules {
    fn frozen(&self) -> bool {
        self.language_frozen
    }

    fn matmul(&self) -> MatmulPrecision {
        self.matmul
    }

    fn project(&mut self, projection: &Projection, input: Tensor<2>, _block: usize, _layer: usize) -> Tensor<2> {
        let Rules { language_frozen: frozen, matmul, lora_scale, .. } = **self;
        let input = matmul.operand(input);
        let product = input.clone().matmul(matmul.operand(value(&projection.weight, frozen)));
        let output = matmul.output(product) + value(&projection.bias, frozen).unsqueeze_dim::<2>(0);
        projection.lora.iter().fold(output, |output, lora| {
            let change = input.clone().matmul(matmul.operand(lora.a.val())).matmul(matmul.operand(lora.b.val()));
            output + matmul.output(change).mul_scalar(lora_scale)
        })
    }
}

impl VisionLanguage {
    /// All first values follow from the seed.
    pub fn new(
        shape: &Shape,
        image_size: usize,
        vocabulary: usize,
        lora_rank: usize,
        seed: u32,
        device: &Device,
    ) -> Self {
        let shuffle = shape.pixel_shuffle;
        let inputs = shuffle * shuffle * shape.vision_width;
        let projection = |_, sizes| Projection::zeros(sizes, 1, lora_rank, 0, device);
        let network = Self {
            vision: Vision::new(shape, image_size, device),
            projector: Projector { weight: parameter([inputs, shape.width], 0.0, device), shuffle },
            language: Gpt2::zeros(shape.language(), vocabulary, projection, device),
        };
        let mut network = parameters::initialise_linear(network, seed);
        // What is added or stands side by side begins about equally large, or the smaller would not be seen: positions beside
        // patches, and image tokens beside words.
        let positions = &mut network.vision.embeddings.positions;
        let drawn = (2.0 / (positions.dims()[1] * positions.dims()[2]) as f64).sqrt();
        *positions = map_values(positions, |positions| positions.mul_scalar(POSITION_DEVIATION / drawn));
        let projector = &mut network.projector.weight;
        *projector = map_values(projector, |weight| weight.mul_scalar(INIT_DEVIATION));
        let language = &mut network.language;
        // A row of an embedding is no sum over the others: GPT-2's deviation, whatever their number.
        for rows in [&mut language.wte, &mut language.wpe] {
            let factor = INIT_DEVIATION * (rows.weight.dims()[0] as f64).sqrt();
            rows.weight = map_values(&rows.weight, |weight| weight.mul_scalar(factor));
        }
        language.initialise(1.0 / (2.0 * shape.layers as f64).sqrt());
        network
    }

    /// The device without a graph.
    pub fn inner_device(&self) -> Device {
        to_inner(&self.projector.weight.val()).device()
    }

    /// Pictures, as [`pictures`] makes them, to `[batch, image tokens, width]`. A frozen vision part builds no graph.
    pub fn image_tokens(&self, pictures: Tensor<4>, rules: &Rules) -> Tensor<3> {
        let features = match rules.vision_frozen && has_graph(&self.projector.weight.val()) {
            true => self.vision.valid().forward(pictures.inner()),
            false => self.vision.forward(pictures),
        };
        let features = pixel_shuffle(features, self.projector.shuffle);
        let [batch, count, width] = features.dims();
        let weight = value(&self.projector.weight, rules.projector_frozen);
        let tokens = features.reshape([batch * count, width]).matmul(weight);
        let width = tokens.dims()[1];
        tokens.reshape([batch, count, width])
    }

    /// Output of the last block, `[batch * (I + T), width]`, for image tokens `[batch, I, width]` before text `[batch, T]`.
    pub fn hidden(&self, image: Tensor<3>, text: Tokens<2>, rules: &Rules) -> Tensor<2> {
        let (language, mut context) = (&self.language, rules);
        let embeddings = Tensor::cat(vec![image, language.token_embeddings(text, &context)], 1);
        language.hidden_of_embeddings(embeddings, None, &mut context)
    }

    /// Logits of outputs of the last block, `[n, width]` to `[n, vocabulary]`.
    pub fn logits(&self, hidden: Tensor<2>, rules: &Rules) -> Tensor<2> {
        self.language.logits(hidden, &rules)
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
