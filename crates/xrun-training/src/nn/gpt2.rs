//! GPT-2 (Radford et al. 2019), generic over the arithmetic of its linear layers, with a KV cache.
//!
//! ```text
//! x = wte[token] + wpe[position];   each block: x += attn(ln_1(x)), x += mlp(ln_2(x));   logits = ln_f(x) wteᵀ
//! ```
//! Between the layers tokens are rows, `[batch * length, width]`, so that a forward pass can stop and resume at any block.
//! The names of the fields are those of Hugging Face's files.

use burn::module::{Module, Param};
use burn::tensor::Device;
use xrun_ops::{Gelu, embedding, gelu, in_place};

use super::Tensor;
use super::graph::to_inner;
use super::matmul::ComputeDtype;
use super::transformer::{
    BatchLayout, Embedding, LayerNorm, Lora, Tokens, attend, attend_packed, attend_to_cache, by_head, map_values,
    parameter, value,
};
use crate::gpt2_shape::Gpt2Shape;

/// Linear layer of a block.
#[derive(Module, Debug)]
pub struct Projection {
    /// `[inputs, outputs]`
    pub weight: Param<Tensor<2>>,
    /// `[outputs]`
    pub bias: Param<Tensor<1>>,
    /// One LoRA for each precision, or none.
    pub lora: Vec<Lora>,
    /// Logarithms of the weight's learnt scales over their initial values, `[1]` or `[outputs]`; one for each precision, or none.
    pub scale_logarithms: Vec<Param<Tensor<1>>>,
}

/// State and arithmetic of a forward pass through the blocks.
pub trait ForwardContext {
    /// Returns whether all parameters but those of LoRA are constants.
    fn frozen(&self) -> bool;

    /// Element type of the operands of matrix products.
    fn matmul(&self) -> ComputeDtype;

    /// Output of a projection, `[tokens, inputs]` to `[tokens, outputs]`; `layer` is its index in [`Block::projections`].
    fn project(&mut self, projection: &Projection, input: Tensor<2>, block: usize, layer: usize) -> Tensor<2>;

    /// Returns whether [`Self::keys_and_values`] changes anything.
    fn changes_keys(&self) -> bool {
        false
    }

    /// Keys and values of a block as attention uses them, `[tokens, width]` each.
    fn keys_and_values(&mut self, keys_values: [Tensor<2>; 2], _block: usize) -> [Tensor<2>; 2] {
        keys_values
    }
}

/// Attention of a block.
#[derive(Module, Debug)]
pub struct Attention {
    /// Queries, keys and values together: `[width, 3 * width]`.
    pub c_attn: Projection,
    /// Output of all heads: `[width, width]`.
    pub c_proj: Projection,
}

/// Feed-forward layers of a block.
#[derive(Module, Debug)]
pub struct Mlp {
    /// `[width, 4 * width]`
    pub c_fc: Projection,
    /// `[4 * width, width]`
    pub c_proj: Projection,
}

/// Attention and feed-forward layers, each with normalisation before it and a residual connection around it.
#[derive(Module, Debug)]
pub struct Block {
    /// Normalisation before attention.
    pub ln_1: LayerNorm,
    /// Attention to this token and those before it.
    pub attn: Attention,
    /// Normalisation before the feed-forward layers.
    pub ln_2: LayerNorm,
    /// Feed-forward layers.
    pub mlp: Mlp,
}

/// The network.
#[derive(Module, Debug)]
pub struct Gpt2Network {
    /// Embedding of each token, and the output's weight.
    pub wte: Embedding,
    /// Embedding of each position.
    pub wpe: Embedding,
    /// Blocks, in the order of a forward pass.
    pub h: Vec<Block>,
    /// Normalisation before the output.
    pub ln_f: LayerNorm,
    #[module(skip)]
    heads: usize,
}

/// Keys and values of the tokens of a batch so far.
#[derive(Clone, Debug)]
pub enum KvCache {
    /// By block, `[batch, heads, tokens, width / heads]` each.
    Growing(Vec<[Tensor<4>; 2]>),
    /// In memory of their own, which a captured pass writes: by block, tables with a row for each position, and their shape
    /// `[positions, batch, heads, width / heads]`.
    Fixed(Vec<[Tensor<1>; 2]>, [usize; 4]),
}

/// Tokens that a token attends to.
#[derive(Debug)]
pub enum AttentionMode<'a> {
    /// Itself and those before it in its sequence; their keys and values are added to the cache if there is one.
    Causal(&'a BatchLayout, Option<&'a mut KvCache>),
    /// Itself and the cached tokens, except those that the mask hides, for one more token of each sequence. Its keys and values are
    /// added to the cache.
    Cached(&'a mut KvCache, &'a CachePosition),
}

/// Place of one more token of each sequence in a cache.
#[derive(Clone, Debug)]
pub struct CachePosition {
    /// Number of tokens before it, `[1]`.
    pub row: Tokens<1>,
    /// Additive mask of the tokens in the cache and this one, `[batch, tokens]`; of all positions if the memory is fixed.
    pub mask: Tensor<2>,
}

impl KvCache {
    /// Cache of zeros in fixed memory for `batch` sequences of at most `positions` tokens: that of `old` if it fits.
    pub fn fixed(network: &Gpt2Network, positions: usize, batch: usize, old: Option<Self>) -> Self {
        let Gpt2Shape { layers, heads, hidden_size, .. } = network.shape();
        let shape = [positions, batch, heads, hidden_size / heads];
        let table = || in_place::fixed(Tensor::zeros([shape.iter().product::<usize>()], &network.inner_device()));
        match old {
            Some(old) if matches!(&old, Self::Fixed(_, known) if *known == shape) => {
                // Hidden positions count nothing, unless they are not a number.
                in_place::clear(&old.tables());
                old
            }
            other => {
                drop(other);
                Self::Fixed((0..layers).map(|_| [table(), table()]).collect(), shape)
            }
        }
    }

    /// Size of all keys and values.
    pub fn bytes(&self) -> u64 {
        let numbers: usize = match self {
            Self::Growing(blocks) => blocks.iter().flatten().map(|tensor| tensor.shape().num_elements()).sum(),
            Self::Fixed(tables, shape) => 2 * tables.len() * shape.iter().product::<usize>(),
        };
        (numbers * size_of::<f32>()) as u64
    }

    /// Fixed memory.
    pub fn tables(&self) -> Vec<Tensor<1>> {
        match self {
            Self::Growing(_) => Vec::new(),
            Self::Fixed(tables, _) => tables.iter().flatten().cloned().collect(),
        }
    }

    /// Appends keys and values of more tokens, `[batch, heads, n, width / heads]`, or the first ones if there is no `row` for them; returns
    /// those of all tokens of the block.
    fn append(&mut self, block: usize, more: [Tensor<4>; 2], row: Option<&Tokens<1>>) -> [Tensor<4>; 2] {
        let blocks = match self {
            Self::Growing(blocks) => blocks,
            Self::Fixed(tables, shape) => {
                let row = row.cloned().unwrap_or_else(|| Tokens::zeros([1], &tables[block][0].device()));
                for (table, more) in tables[block].iter().zip(more) {
                    in_place::put(table, more.permute([2, 0, 1, 3]).reshape([-1]), &row);
                }
                return tables[block].clone().map(|table| table.reshape(*shape).permute([1, 2, 0, 3]));
            }
        };
        let Some(cached) = blocks.get_mut(block) else {
            blocks.push(more.clone());
            return more;
        };
        let [keys, values] = cached.clone();
        let [more_keys, more_values] = more;
        *cached = [Tensor::cat(vec![keys, more_keys], 2), Tensor::cat(vec![values, more_values], 2)];
        cached.clone()
    }
}

impl Projection {
    /// Layer whose matrices are zero, with `precisions` LoRAs and sets of learnt scales; a rank or a number of scales of 0 makes none.
    pub fn zeros(
        [inputs, outputs]: [usize; 2],
        precisions: usize,
        rank: usize,
        scales: usize,
        device: &Device,
    ) -> Self {
        let count = |size: usize| if size == 0 { 0 } else { precisions };
        Self {
            weight: parameter([inputs, outputs], 0.0, device),
            bias: parameter([outputs], 0.0, device),
            lora: (0..count(rank)).map(|_| Lora::new(inputs, rank, outputs, device)).collect(),
            scale_logarithms: (0..count(scales)).map(|_| parameter([scales], 0.0, device)).collect(),
        }
    }
}

impl Block {
    /// Linear layers, in the order of a forward pass.
    pub fn projections(&self) -> [&Projection; 4] {
        [&self.attn.c_attn, &self.attn.c_proj, &self.mlp.c_fc, &self.mlp.c_proj]
    }

    /// Linear layers, in the order of a forward pass.
    pub fn projections_mut(&mut self) -> [&mut Projection; 4] {
        [&mut self.attn.c_attn, &mut self.attn.c_proj, &mut self.mlp.c_fc, &mut self.mlp.c_proj]
    }
}

impl Gpt2Network {
    /// Network whose matrices are zero. `projection` makes a linear layer of a block from its index and `[inputs, outputs]`.
    pub fn zeros(
        shape: Gpt2Shape,
        vocabulary: usize,
        projection: impl Fn(usize, [usize; 2]) -> Projection,
        device: &Device,
    ) -> Self {
        let Gpt2Shape { layers, heads, hidden_size: width, context_length: context } = shape;
        let block = || Block {
            ln_1: LayerNorm::new(width, device),
            attn: Attention { c_attn: projection(0, [width, 3 * width]), c_proj: projection(1, [width, width]) },
            ln_2: LayerNorm::new(width, device),
            mlp: Mlp { c_fc: projection(2, [width, 4 * width]), c_proj: projection(3, [4 * width, width]) },
        };
        Self {
            wte: Embedding::new(vocabulary, width, device),
            wpe: Embedding::new(context, width, device),
            h: (0..layers).map(|_| block()).collect(),
            ln_f: LayerNorm::new(width, device),
            heads,
        }
    }

    /// Multiplies the drawn weights that end a residual branch by `residual`, and zeroes the second matrix of each LoRA.
    pub fn initialise(&mut self, residual: f64) {
        for block in &mut self.h {
            for (layer, projection) in block.projections_mut().into_iter().enumerate() {
                if layer % 2 == 1 {
                    projection.weight = map_values(&projection.weight, |weight| weight.mul_scalar(residual));
                }
                for lora in &mut projection.lora {
                    lora.b = map_values(&lora.b, |b| b.zeros_like());
                }
            }
        }
    }

    /// Device of the network without autodiff.
    pub fn inner_device(&self) -> Device {
        to_inner(&self.ln_f.bias.val()).device()
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.h.len()
    }

    /// Shape, read from the parameters.
    pub fn shape(&self) -> Gpt2Shape {
        let [context, width] = self.wpe.weight.dims();
        Gpt2Shape { layers: self.h.len(), heads: self.heads, hidden_size: width, context_length: context }
    }

    /// Weight of the token embedding and of the output, `[vocabulary, width]`, without its graph.
    pub fn embedding_matrix(&self) -> Tensor<2> {
        to_inner(&self.wte.weight.val())
    }

    /// Embeddings of tokens, `[batch, length]` to `[batch, length, width]`, without those of their positions.
    pub fn token_embeddings(&self, tokens: Tokens<2>, context: &impl ForwardContext) -> Tensor<3> {
        embedding(value(&self.wte.weight, context.frozen()), tokens)
    }

    /// Embeddings with those of the positions from 0 added: `[batch, length, width]` to `[batch * length, width]`.
    pub fn add_positions(&self, embeddings: Tensor<3>, context: &impl ForwardContext) -> Tensor<2> {
        let [batch, length, width] = embeddings.dims();
        let positions = value(&self.wpe.weight, context.frozen()).narrow(0, 0, length).unsqueeze_dim::<3>(0);
        (embeddings + positions).reshape([batch * length, width])
    }

    /// Input of the first block, `[batch, length]` to `[batch * length, width]`.
    pub fn embed(&self, tokens: Tokens<2>, context: &impl ForwardContext) -> Tensor<2> {
        self.add_positions(self.token_embeddings(tokens, context), context)
    }

    /// Output of a block, `[tokens, width]` to the same.
    pub fn block(
        &self,
        number: usize,
        input: Tensor<2>,
        mode: &mut AttentionMode<'_>,
        context: &mut impl ForwardContext,
    ) -> Tensor<2> {
        let (Block { ln_1, attn, ln_2, mlp }, frozen) = (&self.h[number], context.frozen());
        let qkv = context.project(&attn.c_attn, ln_1.forward(input.clone(), frozen), number, 0);
        let attended = self.attend(qkv, number, mode, context);
        let middle = input + context.project(&attn.c_proj, attended, number, 1);
        let hidden = context.project(&mlp.c_fc, ln_2.forward(middle.clone(), frozen), number, 2);
        middle + context.project(&mlp.c_proj, gelu(hidden, Gelu::Tanh), number, 3)
    }

    /// Attention of a block: queries, keys and values `[tokens, 3 * width]` to `[tokens, width]`.
    fn attend(
        &self,
        qkv: Tensor<2>,
        block: usize,
        mode: &mut AttentionMode<'_>,
        context: &mut impl ForwardContext,
    ) -> Tensor<2> {
        let (heads, matmul) = (self.heads, context.matmul());
        if let (AttentionMode::Causal(layout, None), false) = (&mode, context.changes_keys()) {
            return attend_packed(qkv, heads, layout, matmul);
        }
        let width = qkv.dims()[1] / 3;
        let [query, key, value] = [0, 1, 2].map(|part| qkv.clone().narrow(1, part * width, width));
        let keys_values = context.keys_and_values([key, value], block);
        let by_head = |batch: usize| keys_values.clone().map(|rows| by_head(rows, batch, heads));
        match mode {
            AttentionMode::Causal(layout, cache) => {
                if let Some(cache) = cache {
                    cache.append(block, by_head(layout.batch), None);
                }
                let [key, value] = keys_values;
                attend(query, key, value, heads, layout, matmul)
            }
            AttentionMode::Cached(cache, CachePosition { row, mask }) => {
                let [keys, values] = cache.append(block, by_head(query.dims()[0]), Some(row));
                attend_to_cache(query, keys, values, mask.clone(), matmul)
            }
        }
    }

    /// Output of the last block for embeddings without positions, `[batch, length, width]` to `[batch * length, width]`. Keys
    /// and values are added to the cache if there is one.
    pub fn hidden_of_embeddings(
        &self,
        embeddings: Tensor<3>,
        cache: Option<&mut KvCache>,
        context: &mut impl ForwardContext,
    ) -> Tensor<2> {
        let [batch, length, _] = embeddings.dims();
        let layout = BatchLayout::new(batch, length, &self.inner_device());
        let start = self.add_positions(embeddings, context);
        let mode = &mut AttentionMode::Causal(&layout, cache);
        (0..self.blocks()).fold(start, |input, number| self.block(number, input, mode, context))
    }

    /// Output of the last block, `[batch, length]` to `[batch * length, width]`.
    pub fn hidden(&self, tokens: Tokens<2>, context: &mut impl ForwardContext) -> Tensor<2> {
        self.hidden_of_embeddings(self.token_embeddings(tokens, context), None, context)
    }

    /// Output of the last block for one more token of each sequence, `[batch]`, at its position in the sequence: `[batch, width]`. It is
    /// added to the cache at `place`.
    pub fn decode(
        &self,
        token: Tokens<1>,
        position: Tokens<1>,
        place: &CachePosition,
        cache: &mut KvCache,
        context: &mut impl ForwardContext,
    ) -> Tensor<2> {
        let start = self.wte.weight.val().select(0, token) + self.wpe.weight.val().select(0, position);
        let mode = &mut AttentionMode::Cached(cache, place);
        (0..self.blocks()).fold(start, |input, number| self.block(number, input, mode, context))
    }

    /// Logits of outputs of the last block, `[n, width]` to `[n, vocabulary]`.
    pub fn logits(&self, hidden: Tensor<2>, context: &impl ForwardContext) -> Tensor<2> {
        let frozen = context.frozen();
        let normalised = self.ln_f.forward(hidden, frozen);
        let matmul = context.matmul();
        matmul.linear(matmul.operand(normalised), value(&self.wte.weight, frozen).transpose(), None)
    }

    /// Logits of all tokens: `[batch, length]` to `[batch * length, vocabulary]`.
    pub fn forward(&self, tokens: Tokens<2>, context: &mut impl ForwardContext) -> Tensor<2> {
        let hidden = self.hidden(tokens, context);
        self.logits(hidden, context)
    }
}
