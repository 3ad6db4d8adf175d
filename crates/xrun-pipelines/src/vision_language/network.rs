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
use burn::tensor::{TensorData, module};
use xrun_ops::{Gelu, gelu};

use super::settings::{Part, Settings, Shape};
use crate::nn::encoder_block;
use crate::nn::encoder_block::{EncoderBlock, Norm};
use crate::nn::graph::{has_graph, without_graph};
use crate::nn::matmul::Factors;
use crate::nn::transformer::{
    DEVIATION, Embedding, LayerNorm, Layout, Lora, Tokens, attend, attend_to_kept, by_head, changed, parameter, value,
};
use crate::nn::{Tensor, parameters};

/// Of the first positions of patches, whose first values have about this deviation, too.
const POSITION_DEVIATION: f64 = 0.5;

/// What is frozen, and how LoRA counts.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The vision transformer is a constant.
    pub vision_frozen: bool,
    /// The layer between the parts is a constant.
    pub projector_frozen: bool,
    /// The language part without its LoRA.
    pub language_frozen: bool,
    /// What LoRA is multiplied by.
    pub lora_scale: f32,
    /// Of products in the language part.
    pub factors: Factors,
}

impl Rules {
    /// Takes the rules from the settings; `factors` are those of products in the language part.
    pub fn new(settings: &Settings, factors: Factors) -> Self {
        let frozen = |part: Part| !settings.trained.contains(&part);
        Self {
            vision_frozen: frozen(Part::Vision),
            projector_frozen: frozen(Part::Projector),
            language_frozen: frozen(Part::Language) || settings.lora_rank > 0,
            lora_scale: (settings.lora_alpha / settings.lora_rank.max(1) as f64) as f32,
            factors,
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

/// A linear layer with a LoRA, or none.
#[derive(Module, Debug)]
pub struct Linear {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
    lora: Vec<Lora>,
}

/// Attention of a language block, with the names of Hugging Face's files.
#[derive(Module, Debug)]
pub struct Attention {
    c_attn: Linear,
    c_proj: Linear,
}

/// The two layers of a language block that see one token each.
#[derive(Module, Debug)]
pub struct Mlp {
    c_fc: Linear,
    c_proj: Linear,
}

/// A block of the language part.
#[derive(Module, Debug)]
pub struct Block {
    ln_1: LayerNorm,
    attn: Attention,
    ln_2: LayerNorm,
    mlp: Mlp,
}

/// GPT-2, with the names of Hugging Face's files.
#[derive(Module, Debug)]
pub struct Language {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
    #[module(skip)]
    heads: usize,
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
    pub language: Language,
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

impl Linear {
    fn new(inputs: usize, outputs: usize, rank: usize, device: &Device) -> Self {
        let lora = (rank > 0).then(|| Lora::new(inputs, rank, outputs, device));
        Self {
            weight: parameter([inputs, outputs], 0.0, device),
            bias: parameter([outputs], 0.0, device),
            lora: lora.into_iter().collect(),
        }
    }

    /// `[tokens, inputs]` to `[tokens, outputs]`.
    fn forward(&self, input: Tensor<2>, rules: &Rules) -> Tensor<2> {
        let Rules { language_frozen: frozen, factors, lora_scale, .. } = *rules;
        let input = factors.narrow(input);
        let product = input.clone().matmul(factors.narrow(value(&self.weight, frozen)));
        let output = factors.widen(product) + value(&self.bias, frozen).unsqueeze_dim::<2>(0);
        self.lora.iter().fold(output, |output, lora| {
            let change = input.clone().matmul(factors.narrow(lora.a.val())).matmul(factors.narrow(lora.b.val()));
            output + factors.widen(change).mul_scalar(lora_scale)
        })
    }
}

/// Keys and values of all tokens of a batch so far, by block: `[batch, heads, tokens, width / heads]` each.
#[derive(Debug, Default)]
pub struct KeptTokens {
    blocks: Vec<(Tensor<4>, Tensor<4>)>,
}

impl KeptTokens {
    /// What it holds.
    pub fn bytes(&self) -> u64 {
        let numbers =
            self.blocks.iter().map(|(keys, values)| keys.shape().num_elements() + values.shape().num_elements());
        (numbers.sum::<usize>() * size_of::<f32>()) as u64
    }
}

/// Which tokens a block sees beside the one at hand.
enum Sight<'a> {
    /// Those before it in its sequence; keys and values are kept where there is a place for them.
    Before(&'a Layout, Option<&'a mut KeptTokens>),
    /// One more token for each sequence sees those that were kept but the hidden ones, `[batch, tokens]`, and itself.
    Kept(&'a mut KeptTokens, &'a Tensor<2>),
}

impl Attention {
    fn forward(&self, input: Tensor<2>, block: usize, heads: usize, sight: &mut Sight<'_>, rules: &Rules) -> Tensor<2> {
        let width = input.dims()[1];
        let all = self.c_attn.forward(input, rules);
        let part = |number: usize| all.clone().narrow(1, number * width, width);
        let (query, key, value) = (part(0), part(1), part(2));
        let output = match sight {
            Sight::Before(at, kept) => {
                if let Some(kept) = kept {
                    kept.blocks.push((by_head(key.clone(), at.batch, heads), by_head(value.clone(), at.batch, heads)));
                }
                attend(query, key, value, heads, at, rules.factors)
            }
            Sight::Kept(kept, hidden) => {
                let batch = query.dims()[0];
                let (keys, values) = kept.blocks[block].clone();
                let keys = Tensor::cat(vec![keys, by_head(key, batch, heads)], 2);
                let values = Tensor::cat(vec![values, by_head(value, batch, heads)], 2);
                kept.blocks[block] = (keys.clone(), values.clone());
                attend_to_kept(query, keys, values, (*hidden).clone(), rules.factors)
            }
        };
        self.c_proj.forward(output, rules)
    }
}

impl Language {
    fn new(shape: &Shape, vocabulary: usize, rank: usize, device: &Device) -> Self {
        let Shape { width, layers, heads, context, .. } = *shape;
        let linear = |inputs: usize, outputs: usize| Linear::new(inputs, outputs, rank, device);
        let block = || Block {
            ln_1: LayerNorm::new(width, device),
            attn: Attention { c_attn: linear(width, 3 * width), c_proj: linear(width, width) },
            ln_2: LayerNorm::new(width, device),
            mlp: Mlp { c_fc: linear(width, 4 * width), c_proj: linear(4 * width, width) },
        };
        Self {
            wte: Embedding::new(vocabulary, width, device),
            wpe: Embedding::new(context, width, device),
            h: (0..layers).map(|_| block()).collect(),
            ln_f: LayerNorm::new(width, device),
            heads,
        }
    }

    /// What the embedding makes of a token, `[vocabulary, width]`, without a graph.
    pub fn words(&self) -> Tensor<2> {
        without_graph(&self.wte.weight.val())
    }

    /// Token numbers to `[.., width]`.
    fn word(&self, tokens: Tokens<2>, rules: &Rules) -> Tensor<3> {
        module::embedding(value(&self.wte.weight, rules.language_frozen), tokens)
    }

    fn blocks(&self, start: Tensor<2>, sight: &mut Sight<'_>, rules: &Rules) -> Tensor<2> {
        let frozen = rules.language_frozen;
        self.h.iter().enumerate().fold(start, |input, (number, block)| {
            let normal = block.ln_1.forward(input.clone(), frozen);
            let middle = input + block.attn.forward(normal, number, self.heads, sight, rules);
            let normal = block.ln_2.forward(middle.clone(), frozen);
            let wide = gelu(block.mlp.c_fc.forward(normal, rules), Gelu::Tanh);
            middle + block.mlp.c_proj.forward(wide, rules)
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
        let network = Self {
            vision: Vision::new(shape, image_size, device),
            projector: Projector { weight: parameter([inputs, shape.width], 0.0, device), shuffle },
            language: Language::new(shape, vocabulary, lora_rank, device),
        };
        let mut network = parameters::initialise_linear(network, seed);
        // What is added or stands side by side begins about equally large, or the smaller would not be seen: positions beside
        // patches, and image tokens beside words.
        let positions = &mut network.vision.embeddings.positions;
        let drawn = (2.0 / (positions.dims()[1] * positions.dims()[2]) as f64).sqrt();
        *positions = changed(positions, |positions| positions.mul_scalar(POSITION_DEVIATION / drawn));
        let projector = &mut network.projector.weight;
        *projector = changed(projector, |weight| weight.mul_scalar(DEVIATION));
        let language = &mut network.language;
        // A row of an embedding is no sum over the others: GPT-2's deviation, whatever their number.
        for rows in [&mut language.wte, &mut language.wpe] {
            let factor = DEVIATION * (rows.weight.dims()[0] as f64).sqrt();
            rows.weight = changed(&rows.weight, |weight| weight.mul_scalar(factor));
        }
        let residual = 1.0 / (2.0 * shape.layers as f64).sqrt();
        for block in &mut language.h {
            for linear in [&mut block.attn.c_proj, &mut block.mlp.c_proj] {
                linear.weight = changed(&linear.weight, |weight| weight.mul_scalar(residual));
            }
            for linear in [&mut block.attn.c_attn, &mut block.attn.c_proj, &mut block.mlp.c_fc, &mut block.mlp.c_proj] {
                for lora in &mut linear.lora {
                    lora.b = changed(&lora.b, |b| b.zeros_like());
                }
            }
        }
        network
    }

    /// The device without a graph.
    pub fn plain_device(&self) -> Device {
        without_graph(&self.projector.weight.val()).device()
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

    /// Image tokens `[batch, I, width]` and text `[batch, T]` to what comes out of the blocks, `[batch * (I + T), width]`.
    pub fn hidden(&self, image: Tensor<3>, text: Tokens<2>, rules: &Rules) -> Tensor<2> {
        self.hidden_and_kept(image, text, None, rules)
    }

    /// As [`Self::hidden`]; keeps the keys and values of all tokens.
    pub fn begin(&self, image: Tensor<3>, text: Tokens<2>, kept: &mut KeptTokens, rules: &Rules) -> Tensor<2> {
        self.hidden_and_kept(image, text, Some(kept), rules)
    }

    fn hidden_and_kept(
        &self,
        image: Tensor<3>,
        text: Tokens<2>,
        kept: Option<&mut KeptTokens>,
        rules: &Rules,
    ) -> Tensor<2> {
        let language = &self.language;
        let tokens = Tensor::cat(vec![image, language.word(text, rules)], 1);
        let [batch, length, width] = tokens.dims();
        let positions = value(&language.wpe.weight, rules.language_frozen).narrow(0, 0, length).unsqueeze_dim::<3>(0);
        let start = (tokens + positions).reshape([batch * length, width]);
        let at = Layout::new(batch, length, &self.plain_device());
        language.blocks(start, &mut Sight::Before(&at, kept), rules)
    }

    /// One more token of each sequence, `[batch]`, at its position: `[batch, width]`. `hidden` `[batch, tokens]` hides some of
    /// the tokens that were kept and of these, which are kept as well.
    pub fn go_on(
        &self,
        token: Tokens<1>,
        position: Tokens<1>,
        hidden: Tensor<2>,
        kept: &mut KeptTokens,
        rules: &Rules,
    ) -> Tensor<2> {
        let language = &self.language;
        let words = language.wte.weight.val().select(0, token);
        let start = words + language.wpe.weight.val().select(0, position);
        language.blocks(start, &mut Sight::Kept(kept, &hidden), rules)
    }

    /// What comes out of the blocks, `[n, width]`, to logits `[n, vocabulary]`.
    pub fn logits(&self, hidden: Tensor<2>, rules: &Rules) -> Tensor<2> {
        let frozen = rules.language_frozen;
        let normal = self.language.ln_f.forward(hidden, frozen);
        rules.factors.product(normal, value(&self.language.wte.weight, frozen).transpose())
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
