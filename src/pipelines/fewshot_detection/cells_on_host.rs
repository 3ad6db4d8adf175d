//! The network up to what its head says of each cell, in host memory: what [`super::model`] says in Burn's operations, in few
//! that are each written as one ([`crate::nn::tape`]).

use burn::tensor::TensorData;

use super::model::{Block, ReferenceDetector};
use crate::nn::cut::{Cut, cut};
use crate::nn::fake_quantise::has_graph;
use crate::nn::planes::{Planes, Sizes};
use crate::nn::tape::{Tape, Value};
use crate::nn::{Backend, Tensor};

/// What the head says of so many levels of pictures `[n, 3, S, S]`, 32-bit floats on the CPU, as tensors `[n, cells, width]` of
/// these `widths`, with the number of cells of each level; and what lies behind these tensors, if they are leaves of a graph.
pub fn cells(
    network: &ReferenceDetector<Backend>,
    pictures: Tensor<4>,
    levels: usize,
    widths: &[usize],
) -> (Vec<Tensor<3>>, Vec<usize>, Option<Cut>) {
    let (device, records) = (pictures.device(), has_graph(&pictures));
    let (mut tape, pictures) = Tape::new(planes(pictures), records);
    let [fine, coarse] = pyramid(network, &mut tape, pictures);
    let mut maps = vec![fine, coarse];
    for coarser in network.coarser.iter().take(levels.saturating_sub(2)) {
        let next = maps.last().map(|map| block(&mut tape, coarser, map));
        maps.extend(next);
    }
    let heads: Vec<Value> = maps.into_iter().map(|map| head(network, &mut tape, map)).collect();
    let counts = heads.iter().map(|head| head.planes.sizes.pixels()).collect();
    let (tensors, behind) = cut(tape, heads, widths, &device);
    (tensors, counts, behind)
}

fn planes(pictures: Tensor<4>) -> Planes {
    let [count, channels, height, width] = pictures.dims();
    let data: TensorData = pictures.into_data();
    let values = data.as_slice().unwrap_or_else(|error| unreachable!("they are 32-bit floats: {error:?}"));
    Planes::of_pictures(values, Sizes { channels, pictures: count, height, width })
}

fn block(tape: &mut Tape, block: &Block<Backend>, input: &Value) -> Value {
    tape.block(&block.convolution, &block.norm, input)
}

/// Levels of strides 8 and 16.
fn pyramid(network: &ReferenceDetector<Backend>, tape: &mut Tape, pictures: Value) -> [Value; 2] {
    let mut value = pictures;
    let mut before = value.clone();
    for stage in &network.stages {
        before = value.clone();
        value = block(tape, &stage.halve, &value);
        for residual in &stage.residual {
            let more = block(tape, residual, &value);
            value = tape.sum(&value, &more);
        }
    }
    let coarse = tape.point(&network.lateral_coarse, &value);
    let fine = tape.point(&network.lateral_fine, &before);
    let doubled = tape.doubled(&coarse);
    [tape.sum(&fine, &doubled), coarse]
}

fn head(network: &ReferenceDetector<Backend>, tape: &mut Tape, level: Value) -> Value {
    let value = network.tower.iter().fold(level, |value, convolution| block(tape, convolution, &value));
    tape.point(&network.outputs, &value)
}
