//! The network in host memory on the CPU, forward and back, block by block: what [`super::gpt2`] says in Burn's operations.
//!
//! Burn records each of some sixty operations of a block, and computes each by itself. Here few operations, each with a way back
//! that is written by hand, share the threads. Nothing enters Burn's graph; gradients go straight to the optimiser.

use burn::optim::GradientsAccumulator;

use super::batch::TokenBatch;
use super::gpt2::{Block, Gpt2};
use super::linear_on_host::{self as linear, LinearKept, OnGrid};
use super::pass::Pass;
use crate::nn::causal_attention::{self as attention, Columns, Heads, Looked};
use crate::nn::fake_quantise::without_graph;
use crate::nn::host_gradients::HostGradients;
use crate::nn::matmul::Factors;
use crate::nn::next_token_loss::{Aim, NextTokenLoss};
use crate::nn::product::Into;
use crate::nn::row_norm::{self, Normal};
use crate::nn::rows::{Rows, numbers};
use crate::nn::transformer::LayerNorm;
use crate::nn::{Tensor, gelu, one_pass};

type Network = Gpt2;

/// Whether a pass is computed here: in 32-bit floats on the CPU. Learnt scales of weights are Burn's.
pub fn takes(network: &Network, pass: &Pass<'_>) -> bool {
    let learned = pass.rules.learned_scale && pass.weight_bits().is_some();
    pass.rules.factors == Factors::Float32 && !learned && one_pass::is_for(&network.ln_f.bias.val())
}

/// The logits of a batch, `[tokens, vocabulary]`, on the plain device. Nothing is kept.
pub fn logits(network: &Network, batch: &TokenBatch, pass: &mut Pass<'_>) -> Tensor<2> {
    let mut rows = embed(network, batch);
    for number in 0..network.blocks() {
        rows = Place::new(network, batch, number).forward(rows, pass).0;
    }
    output(network, &rows).0.tensor(&network.plain_device())
}

/// Adds the gradients of one batch's loss to `into`, as [`super::recompute::backward`] says.
pub fn backward(
    network: &Network,
    batch: &TokenBatch,
    pass: &mut Pass<'_>,
    recompute: bool,
    aim: Aim,
    teaches: Option<&mut Option<Tensor<2>>>,
    into: &mut GradientsAccumulator<Network>,
) -> NextTokenLoss {
    let plain = network.plain_device();
    let place = |number| Place::new(network, batch, number);
    let mut rows = embed(network, batch);
    let mut kept = Vec::with_capacity(network.blocks());
    for number in 0..network.blocks() {
        let input = if recompute { rows.clone() } else { Rows::default() };
        let (output, block) = place(number).forward(rows, pass);
        kept.push(if recompute { Kept::Input(input) } else { Kept::Block(Box::new(block)) });
        rows = output;
    }
    // Ranges have seen this batch; computed again, they are as they were.
    pass.observe = None;
    let (mut logits, mut last) = output(network, &rows);
    drop(rows);
    if let Some(teaches) = teaches {
        *teaches = Some(logits.clone().tensor(&plain));
    }
    let loss = aim.slopes(&mut logits, &plain);
    let mut found = HostGradients::new(plain.clone());
    let words = Rows::of(network.words());
    let mut gradient = Rows::zeros(logits.count(), words.width);
    gradient.product(&logits, words.matrix(), Into::Replaced);
    if !pass.frozen {
        found.add(network.wte.weight.id, Rows::crossed(&logits, &last.output));
    }
    drop((logits, std::mem::take(&mut last.output)));
    gradient = norm_back(&network.ln_f, &last.normal, gradient, pass, &mut found);
    into.accumulate(network, found.found());
    while let Some(block) = kept.pop() {
        let place = place(kept.len());
        let block = match block {
            Kept::Block(block) => *block,
            Kept::Input(input) => place.forward(input, pass).1,
        };
        let mut found = HostGradients::new(plain.clone());
        gradient = place.back(block, gradient, pass, &mut found);
        into.accumulate(network, found.found());
    }
    if !pass.frozen {
        let mut found = HostGradients::new(plain);
        embed_back(network, batch, &gradient, &mut found);
        into.accumulate(network, found.found());
    }
    forget_old_leaves(&loss);
    loss
}

/// Each parameter that the optimiser makes is a leaf of a graph. Burn 0.22 forgets those that are gone when some graph is gone
/// back through, and no other time: without this, each step would leave its leaves behind.
fn forget_old_leaves(loss: &NextTokenLoss) {
    Tensor::<1>::from_inner(loss.total.clone()).require_grad().mul_scalar(1.0).backward();
}

/// What is kept of a block until the way back comes to it.
enum Kept {
    /// It is computed again.
    Input(Rows),
    Block(Box<BlockKept>),
}

/// What the way back through a block needs.
struct BlockKept {
    normal_1: Normal,
    c_attn: LinearKept,
    /// Queries, keys and values beside each other.
    all: Rows,
    /// Keys and values on grids, if this pass has some for them.
    key: Option<OnGrid>,
    value: Option<OnGrid>,
    shares: Vec<f32>,
    attention: LinearKept,
    normal_2: Normal,
    c_fc: LinearKept,
    slopes: Vec<f32>,
    mlp: LinearKept,
}

/// What the way back through the last normalisation and the output needs.
struct Last {
    output: Rows,
    normal: Normal,
}

/// One block of the network, and how tokens lie in it.
struct Place<'a> {
    block: &'a Block,
    number: usize,
    heads: Heads,
}

impl<'a> Place<'a> {
    fn new(network: &'a Network, batch: &TokenBatch, number: usize) -> Self {
        let shape = network.shape();
        let heads = Heads { length: batch.length, count: shape.heads, size: shape.width / shape.heads };
        Self { block: &network.h[number], number, heads }
    }

    fn forward(&self, input: Rows, pass: &mut Pass<'_>) -> (Rows, BlockKept) {
        let (block, number) = (self.block, self.number);
        let (normal, normal_1) = norm(&block.ln_1, &input);
        let (all, c_attn) = linear::forward(&block.attn.c_attn, normal, number, 0, pass);
        let width = input.width;
        let key = key_value(&all, width, number, 4, pass);
        let value = key_value(&all, 2 * width, number, 5, pass);
        let (seen, shares) = attention::forward(looked(&all, key.as_ref(), value.as_ref()), self.heads);
        let (mut middle, attention) = linear::forward(&block.attn.c_proj, seen, number, 1, pass);
        middle.add(&input);
        drop(input);
        let (normal, normal_2) = norm(&block.ln_2, &middle);
        let (mut wide, c_fc) = linear::forward(&block.mlp.c_fc, normal, number, 2, pass);
        let slopes = gelu::in_place(&mut wide.values);
        let (mut output, mlp) = linear::forward(&block.mlp.c_proj, wide, number, 3, pass);
        output.add(&middle);
        (output, BlockKept { normal_1, c_attn, all, key, value, shares, attention, normal_2, c_fc, slopes, mlp })
    }

    /// The gradient of what went in, from that of what came out.
    fn back(&self, kept: BlockKept, mut gradient: Rows, pass: &Pass<'_>, into: &mut HostGradients) -> Rows {
        let block = self.block;
        let BlockKept { normal_1, c_attn, all, key, value, shares, attention, normal_2, c_fc, slopes, mlp } = kept;
        let mut wide = linear::back(&block.mlp.c_proj, mlp, &gradient, pass, into);
        wide.multiply_each(&slopes);
        drop(slopes);
        let normal = linear::back(&block.mlp.c_fc, c_fc, &wide, pass, into);
        drop(wide);
        gradient.add(&norm_back(&block.ln_2, &normal_2, normal, pass, into));
        let seen = linear::back(&block.attn.c_proj, attention, &gradient, pass, into);
        let looked = looked(&all, key.as_ref(), value.as_ref());
        let mut of_all = attention::back(looked, self.heads, &shares, &seen);
        drop((all, shares, seen));
        let width = gradient.width;
        for (part, from) in [(key, width), (value, 2 * width)] {
            if let Some(inside) = part.and_then(|part| part.inside) {
                let rows = of_all.values.chunks_exact_mut(3 * width).zip(inside.chunks_exact(width));
                rows.for_each(|(row, inside)| {
                    crate::nn::rows::change(&mut row[from..from + width], inside, |slope, inside| slope * inside);
                });
            }
        }
        let normal = linear::back(&block.attn.c_attn, c_attn, &of_all, pass, into);
        gradient.add(&norm_back(&block.ln_1, &normal_1, normal, pass, into));
        gradient
    }
}

/// Keys or values on a grid, if this pass has one for them.
fn key_value(all: &Rows, from: usize, block: usize, quantiser: usize, pass: &mut Pass<'_>) -> Option<OnGrid> {
    let bits = pass.at.map(|(_, precision)| precision.key_values).filter(|bits| *bits != super::precision::FULL)?;
    let mut rows = all.columns(from, all.width / 3);
    let inside = pass.on_host(&mut rows, Some(bits), block, quantiser);
    Some(OnGrid { rows, inside })
}

/// Keys and values from grids, or from beside the queries.
fn looked<'a>(all: &'a Rows, key: Option<&'a OnGrid>, value: Option<&'a OnGrid>) -> Looked<'a> {
    let width = all.width / 3;
    let part = |number: usize, on_grid: Option<&'a OnGrid>| match on_grid {
        Some(on_grid) => Columns { rows: &on_grid.rows, from: 0 },
        None => Columns { rows: all, from: number * width },
    };
    Looked { queries: part(0, None), keys: part(1, key), values: part(2, value) }
}

fn norm(norm: &LayerNorm, input: &Rows) -> (Rows, Normal) {
    let [scale, shift] = [&norm.weight, &norm.bias].map(|parameter| numbers(without_graph(&parameter.val())));
    row_norm::forward(input, &scale, &shift)
}

fn norm_back(norm: &LayerNorm, normal: &Normal, gradient: Rows, pass: &Pass<'_>, into: &mut HostGradients) -> Rows {
    let scale = numbers(without_graph(&norm.weight.val()));
    let (gradient, found) = row_norm::back(normal, &scale, gradient, !pass.frozen);
    if let Some(found) = found {
        into.add_vector(norm.weight.id, found.scale);
        into.add_vector(norm.bias.id, found.shift);
    }
    gradient
}

/// A row for each token: of its number, and of its place.
fn embed(network: &Network, batch: &TokenBatch) -> Rows {
    let (words, places) = (Rows::of(network.words()), Rows::of(without_graph(&network.wpe.weight.val())));
    let width = words.width;
    let mut rows = Rows::zeros(batch.inputs.len(), width);
    let tokens = rows.values.chunks_exact_mut(width).zip(&batch.inputs).enumerate();
    for (number, (row, token)) in tokens {
        let (token, place) = (*token as usize, number % batch.length);
        row.copy_from_slice(&words.values[token * width..][..width]);
        crate::nn::planes::add(row, &places.values[place * width..][..width]);
    }
    rows
}

/// The gradients of both embeddings.
fn embed_back(network: &Network, batch: &TokenBatch, gradient: &Rows, into: &mut HostGradients) {
    let width = gradient.width;
    let [[vocabulary, _], [context, _]] = [network.wte.weight.dims(), network.wpe.weight.dims()];
    let (mut words, mut places) = (Rows::zeros(vocabulary, width), Rows::zeros(context, width));
    for (number, (row, token)) in gradient.values.chunks_exact(width).zip(&batch.inputs).enumerate() {
        let (token, place) = (*token as usize, number % batch.length);
        crate::nn::planes::add(&mut words.values[token * width..][..width], row);
        crate::nn::planes::add(&mut places.values[place * width..][..width], row);
    }
    into.add(network.wte.weight.id, words);
    into.add(network.wpe.weight.id, places);
}

/// What comes out of the blocks, to logits.
fn output(network: &Network, rows: &Rows) -> (Rows, Last) {
    let (output, normal) = norm(&network.ln_f, rows);
    let words = Rows::of(network.words());
    let mut logits = Rows::zeros(output.count(), words.count());
    logits.product(&output, words.matrix().transposed(), Into::Replaced);
    (logits, Last { output, normal })
}
