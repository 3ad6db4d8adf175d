//! The targets of all classes on the device.

use burn::tensor::{Int, TensorData};

use super::adapters::Conditioning;
use crate::nn::Tensor;
use crate::nn::normalise::normalise;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Holding, Ledger};
use xrun_data::sound_clips::targets::Targets;

/// Of all classes of the data, in its order; without a graph.
#[derive(Debug)]
pub struct TargetTensors {
    /// `[classes, D]`, and `[classes, L * D]`.
    all: Conditioning,
    _held: Holding,
}

impl TargetTensors {
    /// Moves them to the plain device.
    pub fn new(targets: Targets, plain: &burn::tensor::Device, buffer: &Buffer, ledger: &Ledger) -> Self {
        let held = buffer.register(ledger);
        held.set(buffer.cap.items, buffer.cap.bytes);
        let (pooled, tokens) = (targets.shape.pooled_width, targets.shape.token_numbers());
        let classes = targets.pooled.len() / pooled.max(1);
        let tensor =
            |values: Vec<f32>, width: usize| Tensor::from_data(TensorData::new(values, [classes, width]), plain);
        let all =
            Conditioning { pooled: tensor(targets.pooled, pooled), tokens: tensor(targets.prompt_embeds, tokens) };
        Self { all, _held: held }
    }

    /// Of the classes of some clips: `[clips, D]`, `[clips, L * D]`, on the plain device.
    pub fn of(&self, classes: &[u32]) -> Conditioning {
        let numbers: Vec<i32> = classes.iter().map(|class| *class as i32).collect();
        let numbers = TensorData::new(numbers, [classes.len()]);
        let at = burn::tensor::Tensor::<1, Int>::from_data(numbers, &self.all.pooled.device());
        let of = |all: &Tensor<2>| all.clone().select(0, at.clone());
        Conditioning { pooled: of(&self.all.pooled), tokens: of(&self.all.tokens) }
    }

    /// Cosines of outputs with the targets of all classes, `[clips, classes]`; on the plain device.
    pub fn cosines(&self, outputs: Conditioning) -> Conditioning {
        let cosine =
            |output: Tensor<2>, all: &Tensor<2>| normalise(output, 1).matmul(normalise(all.clone(), 1).transpose());
        Conditioning {
            pooled: cosine(outputs.pooled, &self.all.pooled),
            tokens: cosine(outputs.tokens, &self.all.tokens),
        }
    }
}
