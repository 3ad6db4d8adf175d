//! Network: a vision transformer, a projector and GPT-2, after nanoVLM.
//!
//! ```text
//! image [3, S, S] -> patches -> vision transformer [(S/p)², Wv] -> pixel shuffle [(S/p/r)², r² Wv] -> projector [I, W]
//! [I image tokens; T text tokens] + positions -> GPT-2's blocks with causal attention -> logits = ln_f(x) wteᵀ
//! ```
//! Dosovitskiy et al. 2021 (ViT, here without a class token), Shi et al. 2016 (pixel shuffle), Radford et al. 2019 (GPT-2), Hu
//! et al. 2021 (LoRA). A pretrained backbone may take the place of the vision transformer: the cells of its feature map are the patches.

use burn::module::{Module, Param};
use burn::tensor::{Device, TensorData};

use super::settings::{Component, ModelShape, VisionLanguage};
use xrun_data::transform::{PIXEL_DEVIATION, PIXEL_MEAN};
use xrun_training::nn::Tensor;
use xrun_training::nn::backbone::Backbone;
use xrun_training::nn::gpt2::{ForwardContext, Gpt2Network, Projection};
use xrun_training::nn::graph::{has_graph, to_inner};
use xrun_training::nn::matmul::ComputeDtype;
use xrun_training::nn::parameters::{Deviation, initialise};
use xrun_training::nn::pixels::plane_data;
use xrun_training::nn::transformer::{INIT_DEVIATION, Tokens, map_values, parameter, value};
use xrun_training::nn::vit::VisionTransformer;

/// Initial standard deviation of position embeddings of patches, similar to that of the patch embeddings.
const POSITION_DEVIATION: f64 = 0.5;

/// Frozen parts of the network, and the arithmetic of its language part.
#[derive(Clone, Debug)]
pub struct ForwardConfig {
    /// True if the vision transformer is a constant.
    pub vision_frozen: bool,
    /// True if the projector is a constant.
    pub projector_frozen: bool,
    /// True if the language part, LoRA excluded, is a constant.
    pub language_frozen: bool,
    /// Factor of LoRA, `alpha / rank`.
    pub lora_scale: f32,
    /// Element type of the operands of matrix products in the language part.
    pub matmul: ComputeDtype,
}

impl ForwardConfig {
    /// Configuration of the settings; `matmul` is the element type of matrix products in the language part.
    pub fn new(settings: &VisionLanguage, matmul: ComputeDtype) -> Self {
        let frozen = |component: Component| !settings.trainable.contains(&component);
        Self {
            vision_frozen: frozen(Component::Vision),
            projector_frozen: frozen(Component::Projector),
            language_frozen: frozen(Component::Language) || settings.lora_rank > 0,
            lora_scale: (settings.lora_alpha / settings.lora_rank.max(1) as f64) as f32,
            matmul,
        }
    }
}

/// Projector of vision features to image tokens of the language part.
#[derive(Module, Debug)]
pub struct Projector {
    /// Weight, `[shuffle² * vision width, width]`.
    weight: Param<Tensor<2>>,
    #[module(skip)]
    shuffle: usize,
    /// Number of image tokens of an image.
    #[module(skip)]
    tokens: usize,
}

/// Vision-language model; the head of the file has its data flow.
#[derive(Module, Debug)]
pub struct VisionLanguageNetwork {
    /// Vision transformer of the image, unless there is a backbone.
    pub vision: Option<VisionTransformer>,
    /// Pretrained network in its place.
    pub backbone: Option<Backbone>,
    projector: Projector,
    /// Language model of the text.
    pub language: Gpt2Network,
}

/// Converts 8-bit RGB images `[batch, side, side, 3]` to a tensor `[batch, 3, side, side]` with values from -1 to 1.
pub fn image_tensor(rgb: &[u8], side: usize, device: &Device) -> Tensor<4> {
    Tensor::from_data(image_data(rgb, side), device)
}

/// Values of [`image_tensor`].
pub fn image_data(rgb: &[u8], side: usize) -> TensorData {
    plane_data(rgb, side, |value| (value / 255.0 - 0.5) / 0.5)
}

/// Mean and range of values of pixels that become 0 and 1 in [`image_data`].
const HALF: f32 = 127.5;

/// Merges `shuffle` x `shuffle` neighbouring tokens of a square into one, as nanoVLM does: `[batch, n, width]` to
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

impl ForwardContext for &ForwardConfig {
    fn frozen(&self) -> bool {
        self.language_frozen
    }

    fn matmul(&self) -> ComputeDtype {
        self.matmul
    }

    fn project(&mut self, projection: &Projection, input: Tensor<2>, _block: usize, _layer: usize) -> Tensor<2> {
        let ForwardConfig { language_frozen: frozen, matmul, lora_scale, .. } = **self;
        let input = matmul.operand(input);
        let (weight, bias) = (value(&projection.weight, frozen), value(&projection.bias, frozen));
        let output = matmul.linear(input.clone(), weight, Some(bias));
        projection.lora.iter().fold(output, |output, lora| {
            let change = input.clone().matmul(matmul.operand(lora.a.val())).matmul(matmul.operand(lora.b.val()));
            output + matmul.output(change).mul_scalar(lora_scale)
        })
    }
}

impl VisionLanguageNetwork {
    /// Network with initial weights drawn from `seed`. A pretrained backbone, if there is one, takes the place of the vision
    /// transformer; `shape` then has its cells and features.
    pub fn new(
        shape: &ModelShape,
        backbone: Option<Backbone>,
        [image_size, vocabulary, lora_rank]: [usize; 3],
        seed: u32,
        device: &Device,
    ) -> Self {
        let ModelShape { patch_size: patch, vision_hidden_size: width, vision_layers, vision_heads, .. } = *shape;
        let shuffle = shape.pixel_shuffle;
        let inputs = shuffle * shuffle * shape.vision_hidden_size;
        let projection = |_, sizes| Projection::zeros(sizes, 1, lora_rank, 0, device);
        let network = Self {
            vision: backbone.is_none().then(|| {
                VisionTransformer::new([image_size / patch, patch], width, [vision_layers, vision_heads], device)
            }),
            backbone: None,
            projector: Projector {
                weight: parameter([inputs, shape.hidden_size], 0.0, device),
                shuffle,
                tokens: shape.image_tokens(image_size),
            },
            language: Gpt2Network::zeros(shape.language(), vocabulary, projection, device),
        };
        let mut network = initialise(network, seed, Deviation::Inputs);
        // Summands and concatenated tokens need similar initial magnitudes, or the larger ones drown the smaller: positions and
        // patches, image tokens and text tokens.
        if let Some(vision) = &mut network.vision {
            let positions = &mut vision.embeddings.positions;
            let drawn = (2.0 / (positions.dims()[1] * positions.dims()[2]) as f64).sqrt();
            *positions = map_values(positions, |positions| positions.mul_scalar(POSITION_DEVIATION / drawn));
        }
        let projector = &mut network.projector.weight;
        *projector = map_values(projector, |weight| weight.mul_scalar(INIT_DEVIATION));
        let language = &mut network.language;
        // A row of an embedding is no sum over rows: GPT-2's deviation, whatever their number.
        for rows in [&mut language.wte, &mut language.wpe] {
            let factor = INIT_DEVIATION * (rows.weight.dims()[0] as f64).sqrt();
            rows.weight = map_values(&rows.weight, |weight| weight.mul_scalar(factor));
        }
        language.initialise(1.0 / (2.0 * shape.layers as f64).sqrt());
        Self { backbone, ..network }
    }

    /// Inner (non-autodiff) device of the parameters.
    pub fn inner_device(&self) -> Device {
        to_inner(&self.projector.weight.val()).device()
    }

    /// Number of image tokens of an image.
    pub fn image_token_count(&self) -> usize {
        self.projector.tokens
    }

    /// Encodes images of [`image_tensor`] as image tokens `[batch, image tokens, width]`. A frozen vision part builds no graph.
    pub fn image_tokens(&self, images: Tensor<4>, config: &ForwardConfig) -> Tensor<3> {
        let features = match (&self.vision, &self.backbone) {
            (Some(vision), _) if config.vision_frozen && has_graph(&self.projector.weight.val()) => {
                vision.valid().forward(images.inner())
            }
            (Some(vision), _) => vision.forward(images),
            (None, Some(backbone)) => {
                // As `pixels::images` normalises them.
                let images =
                    images.mul_scalar(HALF / PIXEL_DEVIATION).add_scalar((HALF - PIXEL_MEAN) / PIXEL_DEVIATION);
                backbone.features(images).flatten::<3>(2, 3).swap_dims(1, 2)
            }
            (None, None) => images.flatten::<3>(2, 3), // one of the two is there
        };
        let features = pixel_shuffle(features, self.projector.shuffle);
        let [batch, count, width] = features.dims();
        let weight = value(&self.projector.weight, config.projector_frozen);
        let tokens = features.reshape([batch * count, width]).matmul(weight);
        let width = tokens.dims()[1];
        tokens.reshape([batch, count, width])
    }

    /// Output of the last block, `[batch * (I + T), width]`, for image tokens `[batch, I, width]` followed by text `[batch, T]`.
    pub fn hidden(&self, image: Tensor<3>, text: Tokens<2>, config: &ForwardConfig) -> Tensor<2> {
        let (language, mut context) = (&self.language, config);
        let embeddings = Tensor::cat(vec![image, language.token_embeddings(text, &context)], 1);
        language.hidden_of_embeddings(embeddings, None, &mut context)
    }

    /// Logits `[n, vocabulary]` of outputs of the last block `[n, width]`.
    pub fn logits(&self, hidden: Tensor<2>, config: &ForwardConfig) -> Tensor<2> {
        self.language.logits(hidden, &config)
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
