//! Targets of all classes on the device.

use burn::tensor::{Int, TensorData};

use super::network::Conditioning;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Ledger, Registration};
use xrun_data::sound_clips::targets::TargetEmbeddings;
use xrun_ops::normalise;
use xrun_training::nn::Tensor;

/// Targets of all classes of the data, in its order, on the inner device.
#[derive(Debug)]
pub struct TargetTensors {
    /// Targets `[classes, D]` of the pooled output and `[classes, L * D]` of the tokens.
    all: Conditioning,
    _held: Registration,
}

impl TargetTensors {
    /// Moves the targets to the inner device.
    pub fn new(targets: TargetEmbeddings, device: &burn::tensor::Device, buffer: &Buffer, ledger: &Ledger) -> Self {
        let held = buffer.register(ledger);
        held.set(buffer.cap.items, buffer.cap.bytes);
        let (pooled, tokens) = (targets.shape.pooled_width, targets.shape.prompt_embeds_len());
        let classes = targets.pooled.len() / pooled.max(1);
        let tensor =
            |values: Vec<f32>, width: usize| Tensor::from_data(TensorData::new(values, [classes, width]), device);
        let all = Conditioning {
            pooled: tensor(targets.pooled, pooled),
            token_embeds: tensor(targets.prompt_embeds, tokens),
        };
        Self { all, _held: held }
    }

    /// Targets of clips by their classes: `[clips, D]` and `[clips, L * D]`.
    pub fn select(&self, classes: &[u32]) -> Conditioning {
        self.select_on_device(burn::tensor::Tensor::from_data(Self::data(classes), &self.all.pooled.device()))
    }

    /// Classes of clips for [`Self::select_on_device`].
    pub fn data(classes: &[u32]) -> TensorData {
        TensorData::new(classes.iter().map(|class| *class as i32).collect(), [classes.len()])
    }

    /// As [`Self::select`], of classes on the inner device.
    pub fn select_on_device(&self, classes: burn::tensor::Tensor<1, Int>) -> Conditioning {
        let select = |all: &Tensor<2>| all.clone().select(0, classes.clone());
        Conditioning { pooled: select(&self.all.pooled), token_embeds: select(&self.all.token_embeds) }
    }

    /// Cosine similarities of outputs of the inner device and the targets of all classes, `[clips, classes]`.
    pub fn cosines(&self, outputs: Conditioning) -> Conditioning {
        let cosine = |output: Tensor<2>, all: &Tensor<2>| normalise(output).matmul(normalise(all.clone()).transpose());
        Conditioning {
            pooled: cosine(outputs.pooled, &self.all.pooled),
            token_embeds: cosine(outputs.token_embeds, &self.all.token_embeds),
        }
    }
}
