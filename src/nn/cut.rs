//! Where a graph of Burn is cut: its leaves are the results of a network that was computed in host memory.
//!
//! The network is no operation of Burn's `Dispatch` backend, which takes some from outside since 0.22. So what it says enters
//! Burn's graph as leaves. Burn computes losses and goes back to these leaves, and the tape takes their gradients back through the network.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Gradients as LeafGradients, TensorData};

use super::Tensor;
use super::planes::Planes;
use super::tape::{Gradients, Place, Tape, Value};

/// What lies behind the leaves of a graph. Whoever keeps a graph keeps this, too.
#[derive(Debug)]
pub struct Cut {
    tape: Tape,
    levels: Vec<Place>,
    leaves: Vec<Tensor<3>>,
}

/// Ends what a tape computed: levels of the same pictures and channels, of different height and width, become rows of cells
/// `[pictures, cells, channels]`, the cells of the first level first. The channels are split into tensors of these `widths`,
/// whose sum is their number. On a `device` with autodiff these are leaves, and the cut leads on from them.
pub fn cut(tape: Tape, levels: Vec<Value>, widths: &[usize], device: &Device) -> (Vec<Tensor<3>>, Option<Cut>) {
    let mut from = 0;
    let leaves = widths.iter().map(|&width| {
        let leaf = rows(&levels, from, width, device);
        from += width;
        leaf
    });
    let leaves: Vec<Tensor<3>> = leaves.collect();
    if !tape.records() {
        return (leaves, None);
    }
    let leaves: Vec<Tensor<3>> = leaves.into_iter().map(Tensor::require_grad).collect();
    let levels = levels.iter().map(Value::place).collect();
    (leaves.clone(), Some(Cut { tape, levels, leaves }))
}

impl Cut {
    /// Goes on back through the network from what Burn's backward pass found for the leaves, which it takes.
    pub fn back(self, found: &mut LeafGradients) -> Gradients {
        let gradients: Vec<Option<Tensor<3>>> = self.leaves.iter().map(|leaf| leaf.grad_remove(found)).collect();
        if gradients.iter().all(Option::is_none) {
            return Gradients::default();
        }
        let mut by_level: Vec<Planes> = self.levels.iter().map(|level| Planes::zeros(level.sizes)).collect();
        let mut from = 0;
        for (leaf, gradient) in self.leaves.iter().zip(gradients) {
            let width = leaf.dims()[2];
            if let Some(gradient) = gradient {
                let data = gradient.into_data();
                let values = data.as_slice().unwrap_or_else(|error| unreachable!("32-bit floats: {error:?}"));
                into_planes(values, &mut by_level, from, width);
            }
            from += width;
        }
        self.tape.back(self.levels.into_iter().zip(by_level).collect())
    }
}

/// Goes back from a loss, `[1]`, and on through what lies behind the leaves of its graph. `take` sees the gradients before.
pub fn back_through<M: Module>(
    loss: Tensor<1>,
    cuts: impl IntoIterator<Item = Cut>,
    network: &M,
    take: impl FnOnce(&mut LeafGradients),
) -> GradientsParams {
    let mut found = loss.backward();
    take(&mut found);
    let behind: Vec<Gradients> = cuts.into_iter().map(|cut| cut.back(&mut found)).collect();
    let mut all = GradientsParams::from_grads(found, network);
    behind.into_iter().for_each(|gradients| gradients.register(&mut all));
    all
}

/// Some channels of all cells of all pictures.
fn rows(levels: &[Value], from: usize, width: usize, device: &Device) -> Tensor<3> {
    let pictures = levels.first().map_or(0, |level| level.planes.sizes.pictures);
    let cells: usize = levels.iter().map(|level| level.planes.sizes.pixels()).sum();
    let mut values = vec![0.0; pictures * cells * width];
    for (picture, values) in values.chunks_exact_mut((cells * width).max(1)).enumerate() {
        let mut begin = 0;
        for level in levels {
            for channel in 0..width {
                let plane = level.planes.plane(from + channel, picture);
                for (row, value) in values[begin..].chunks_exact_mut(width).zip(plane) {
                    row[channel] = *value;
                }
            }
            begin += level.planes.sizes.pixels() * width;
        }
    }
    Tensor::from_data(TensorData::new(values, [pictures, cells, width]), device)
}

/// The way back of [`rows`].
fn into_planes(values: &[f32], levels: &mut [Planes], from: usize, width: usize) {
    let cells: usize = levels.iter().map(|level| level.sizes.pixels()).sum();
    for (picture, values) in values.chunks_exact((cells * width).max(1)).enumerate() {
        let mut begin = 0;
        for level in &mut *levels {
            let pixels = level.sizes.pixels();
            for channel in 0..width {
                let plane = level.plane_mut(from + channel, picture);
                for (row, value) in values[begin..].chunks_exact(width).zip(plane) {
                    *value = row[channel];
                }
            }
            begin += pixels * width;
        }
    }
}
