//! The network: GPT-2 (Radford et al. 2019), with quantised linear layers.
//!
//! ```text
//! x = wte[token] + wpe[position];   each block: x += attn(ln_1(x)), x += mlp(ln_2(x));   logits = ln_f(x) wteᵀ
//! ```
//! Embeddings, normalisation and the output stay in full precision, as in LLM-QAT (Liu et al. 2023). Tokens stand one under
//! the other, `[batch * length, width]`, between the parts, so that a pass can stop and go on at any block.

use burn::module::{Module, ParamId};
use burn::tensor::Device;
use burn::tensor::{TensorData, module};
use xrun_ops::{Gelu, LossTargets, Teacher, gelu};

use super::batch::TokenBatch;
use super::linear::{LinearShape, QuantisedLinear};
use super::pass::{Pass, Rules};
use super::precision::precisions;
use super::settings::{Layer, Model, Settings, Shape};
use crate::nn::graph::without_graph;
use crate::nn::transformer::{DEVIATION, Embedding, LayerNorm, Layout, Tokens, attend, attend_packed, changed};
use crate::nn::{Tensor, parameters};

/// Attention of a block.
#[derive(Module, Debug)]
pub struct Attention {
    /// To queries, keys and values at once: `[width, 3 * width]`.
    pub c_attn: QuantisedLinear,
    /// From all heads back: `[width, width]`.
    pub c_proj: QuantisedLinear,
}

/// The two layers of a block that see one token each.
#[derive(Module, Debug)]
pub struct Mlp {
    /// To four widths: `[width, 4 * width]`.
    pub c_fc: QuantisedLinear,
    /// Back to one: `[4 * width, width]`.
    pub c_proj: QuantisedLinear,
}

/// Attention and the layers after it, each normalised before and added to what went in.
#[derive(Module, Debug)]
pub struct Block {
    /// Before attention.
    pub ln_1: LayerNorm,
    /// Attention over the tokens so far.
    pub attn: Attention,
    /// Before the layers of each token.
    pub ln_2: LayerNorm,
    /// Layers of each token by itself.
    pub mlp: Mlp,
}

/// See the file's head. The names of the fields are those of Hugging Face's files.
#[derive(Module, Debug)]
pub struct Gpt2 {
    /// A row for each token; the output multiplies by it, too.
    pub wte: Embedding,
    /// A row for each position.
    pub wpe: Embedding,
    /// The blocks, in the order in which a token goes through them.
    pub h: Vec<Block>,
    /// Before the output.
    pub ln_f: LayerNorm,
    #[module(skip)]
    heads: usize,
}

/// The tokens of a batch that are text, as [`super::pass::Observe`] takes them.
pub fn text(batch: &TokenBatch, plain: &Device) -> Tokens<1> {
    let numbers = batch.text();
    let count = numbers.len();
    Tokens::from_data(TensorData::new(numbers, [count]), plain)
}

/// The tokens that come next in a batch, and what they weigh.
pub fn targets(batch: &TokenBatch, teacher: Option<Teacher>) -> LossTargets {
    LossTargets { labels: batch.targets.clone(), weights: batch.weights.clone(), teacher }
}

impl Attention {
    fn forward(&self, input: Tensor<2>, heads: usize, at: &Layout, block: usize, pass: &mut Pass<'_>) -> Tensor<2> {
        let (width, factors) = (input.dims()[1], pass.rules.factors);
        let all = self.c_attn.forward(input, block, 0, pass);
        let output = match pass.quantises_keys() {
            true => {
                let [query, key, value] = [0, 1, 2].map(|number| all.clone().narrow(1, number * width, width));
                let key = pass.key_value(key, block, 4);
                let value = pass.key_value(value, block, 5);
                attend(query, key, value, heads, at, factors)
            }
            false => attend_packed(all, heads, at, factors),
        };
        self.c_proj.forward(output, block, 1, pass)
    }
}

impl Block {
    fn linears(&mut self) -> [(Layer, &mut QuantisedLinear); 4] {
        [
            (Layer::AttentionInput, &mut self.attn.c_attn),
            (Layer::AttentionOutput, &mut self.attn.c_proj),
            (Layer::MlpInput, &mut self.mlp.c_fc),
            (Layer::MlpOutput, &mut self.mlp.c_proj),
        ]
    }
}

impl Gpt2 {
    /// All first values follow from the seed.
    pub fn new(settings: &Settings, model: &Model, vocabulary: usize, seed: u32, device: &Device) -> Self {
        let Shape { layers, heads, width, context } = model.shape();
        let (count, rules) = (precisions(settings).len(), Rules::new(settings));
        let linear = |layer: Layer| {
            let (inputs, outputs) = (layer.inputs(width), layer.outputs(width));
            let rank = if settings.lora_layers.contains(&layer) { settings.lora_rank } else { 0 };
            let scales = match (rules.learned_scale, rules.weights_per_channel) {
                (false, _) => 0,
                (true, false) => 1,
                (true, true) => outputs,
            };
            QuantisedLinear::new(LinearShape { inputs, outputs, rank, precisions: count, scales }, device)
        };
        let block = || Block {
            ln_1: LayerNorm::new(width, device),
            attn: Attention { c_attn: linear(Layer::AttentionInput), c_proj: linear(Layer::AttentionOutput) },
            ln_2: LayerNorm::new(width, device),
            mlp: Mlp { c_fc: linear(Layer::MlpInput), c_proj: linear(Layer::MlpOutput) },
        };
        let network = Self {
            wte: Embedding::new(vocabulary, width, device),
            wpe: Embedding::new(context, width, device),
            h: (0..layers).map(|_| block()).collect(),
            ln_f: LayerNorm::new(width, device),
            heads,
        };
        let mut network = parameters::initialise_normal(network, seed, DEVIATION);
        let residual = 1.0 / (2.0 * layers as f32).sqrt();
        for block in &mut network.h {
            for (layer, linear) in block.linears() {
                if matches!(layer, Layer::AttentionOutput | Layer::MlpOutput) {
                    linear.weight = changed(&linear.weight, |weight| weight.mul_scalar(residual));
                }
                for lora in &mut linear.lora {
                    lora.b = changed(&lora.b, |b| b.zeros_like());
                }
            }
        }
        network
    }

    /// The device without a graph.
    pub fn plain_device(&self) -> Device {
        without_graph(&self.ln_f.bias.val()).device()
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.h.len()
    }

    /// The logarithms of learnt scales, of all precisions.
    pub fn scales(&self) -> Vec<ParamId> {
        let linears = self.h.iter().flat_map(|block| {
            [&block.attn.c_attn, &block.attn.c_proj, &block.mlp.c_fc, &block.mlp.c_proj]
                .map(|linear| &linear.scale_logarithms)
        });
        linears.flatten().map(|logarithm| logarithm.id).collect()
    }

    /// The weights that a pass multiplies by; for the leak that keeps them.
    pub fn quantised_weights(mut self, pass: &Pass<'_>) -> Vec<Tensor<2>> {
        self.h.iter_mut().flat_map(Block::linears).map(|(_, linear)| linear.merged_weight(pass)).collect()
    }

    /// With the weights of a pass in the place of its own: LoRA and grids are in them, and no longer beside them.
    pub fn merged(self, pass: &Pass<'_>) -> Self {
        self.with_weights(|linear| linear.merged_weight(pass))
    }

    /// With the weights of the base on the grid of a pass, and no LoRA.
    pub fn on_grid(self, pass: &Pass<'_>) -> Self {
        self.with_weights(|linear| linear.grid_weight(pass))
    }

    fn with_weights(mut self, weight: impl Fn(&QuantisedLinear) -> Tensor<2>) -> Self {
        for block in &mut self.h {
            for (_, linear) in block.linears() {
                let weight = weight(linear);
                linear.weight = linear.weight.clone().map(|_| weight);
                linear.lora = Vec::new();
                linear.scale_logarithms = Vec::new();
            }
        }
        self
    }

    /// The linear layers of a block, in the order of [`Layer::ALL`].
    pub fn layers(&self, block: usize) -> [(Layer, &QuantisedLinear); 4] {
        let Block { attn, mlp, .. } = &self.h[block];
        [
            (Layer::AttentionInput, &attn.c_attn),
            (Layer::AttentionOutput, &attn.c_proj),
            (Layer::MlpInput, &mlp.c_fc),
            (Layer::MlpOutput, &mlp.c_proj),
        ]
    }

    /// What the embedding makes of a token, `[vocabulary, width]`, without a graph.
    pub fn words(&self) -> Tensor<2> {
        without_graph(&self.wte.weight.val())
    }

    /// The numbers of its shape, read from the parameters.
    pub fn shape(&self) -> Shape {
        let [context, width] = self.wpe.weight.dims();
        Shape { layers: self.h.len(), heads: self.heads, width, context }
    }

    /// `[batch, length]` to `[batch * length, width]`.
    pub fn embed(&self, tokens: Tokens<2>, pass: &Pass<'_>) -> Tensor<2> {
        let [batch, length] = tokens.dims();
        let (words, places) = (pass.base(self.wte.weight.val()), pass.base(self.wpe.weight.val()));
        let width = words.dims()[1];
        let words = module::embedding(words, tokens);
        let places = places.narrow(0, 0, length).unsqueeze_dim::<3>(0);
        (words + places).reshape([batch * length, width])
    }

    /// One block; `[batch * length, width]` to the same.
    pub fn block(&self, number: usize, input: Tensor<2>, at: &Layout, pass: &mut Pass<'_>) -> Tensor<2> {
        let block = &self.h[number];
        let normal = block.ln_1.forward(input.clone(), pass.frozen);
        let middle = input + block.attn.forward(normal, self.heads, at, number, pass);
        let normal = block.ln_2.forward(middle.clone(), pass.frozen);
        let wide = gelu(block.mlp.c_fc.forward(normal, number, 2, pass), Gelu::Tanh);
        middle + block.mlp.c_proj.forward(wide, number, 3, pass)
    }

    /// What comes out of the blocks, `[n, width]`, to logits `[n, vocabulary]`.
    pub fn logits(&self, input: Tensor<2>, pass: &Pass<'_>) -> Tensor<2> {
        let normal = self.ln_f.forward(input, pass.frozen);
        pass.rules.factors.product(normal, pass.base(self.wte.weight.val()).transpose())
    }

    /// All blocks: `[batch, length]` to `[batch * length, width]`.
    pub fn hidden(&self, tokens: Tokens<2>, pass: &mut Pass<'_>) -> Tensor<2> {
        let [batch, length] = tokens.dims();
        let at = Layout::new(batch, length, &self.plain_device());
        let start = self.embed(tokens, pass);
        (0..self.blocks()).fold(start, |input, number| self.block(number, input, &at, pass))
    }

    /// The whole pass: `[batch, length]` to `[batch * length, vocabulary]`.
    pub fn forward(&self, tokens: Tokens<2>, pass: &mut Pass<'_>) -> Tensor<2> {
        let hidden = self.hidden(tokens, pass);
        self.logits(hidden, pass)
    }
}

#[cfg(test)]
#[path = "gpt2_tests.rs"]
mod tests;
