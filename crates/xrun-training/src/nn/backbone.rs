//! Pretrained backbone: convolutions of an [`Architecture`] with the weights of a file, into which batch normalisation is folded.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{Module, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::module::{conv2d, max_pool2d};
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use burn::tensor::{Device, TensorData};
use burn_store::burn_pack::Tensor as FileTensor;
use burn_store::{ModuleStore, PytorchStore, SafetensorsStore};

use super::graph::to_inner;
use super::pixels::tensor;
use super::step::TrainState;
use super::{Tensor, gradients};
use crate::backbone::tensors::is_pytorch;
use crate::backbone::{Architecture, Convolution, Normalisation, Unit};
use xrun_core::settings::backbone::PretrainedWeights;
use xrun_core::task::TaskError;
use xrun_data::transform::{PIXEL_DEVIATION, PIXEL_MEAN};

/// First id of the parameters, above those of the rest of a model.
const FIRST_ID: u64 = 1 << 32;

/// Pretrained network up to its last feature map.
#[derive(Module, Debug)]
pub struct Backbone {
    units: Vec<UnitLayers>,
    /// Architecture of the file.
    #[module(skip)]
    pub architecture: Architecture,
    #[module(skip)]
    frozen: bool,
    /// Learning rate over that of the rest of the model.
    #[module(skip)]
    learning_rate_factor: f64,
}

/// Layers of a [`Unit`], the convolution of its shortcut last.
#[derive(Module, Debug)]
pub struct UnitLayers {
    layers: Vec<Layer>,
}

/// Kernel `[outputs, inputs of a group, size, size]` and bias of a [`Convolution`].
#[derive(Module, Debug)]
pub struct Layer {
    weight: Param<Tensor<4>>,
    bias: Param<Tensor<1>>,
}

impl Backbone {
    /// Network with the weights of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(architecture: &Architecture, settings: &PretrainedWeights, device: &Device) -> Result<Self, TaskError> {
        let path = Path::new(&settings.weights);
        let read = || -> Result<Vec<UnitLayers>, String> {
            let file = open(path)?;
            let mut next = FIRST_ID;
            let mut layer = |convolution: &Convolution| {
                next += 2;
                let (kernel, bias) = fold(&file, convolution, architecture.epsilon)?;
                let (kernel, bias) =
                    (tensor(kernel, convolution.shape(), device), tensor(bias, [convolution.channels[1]], device));
                let id = |number: u64| ParamId::from(number);
                Ok::<Layer, String>(Layer {
                    weight: Param::initialized(id(next - 2), kernel.set_require_grad(!settings.frozen)),
                    bias: Param::initialized(id(next - 1), bias.set_require_grad(!settings.frozen)),
                })
            };
            let units = architecture.units.iter().map(|unit| {
                let layers = unit.layers.iter().chain(&unit.shortcut).map(&mut layer);
                Ok(UnitLayers { layers: layers.collect::<Result<_, String>>()? })
            });
            units.collect()
        };
        let units = read().map_err(|message| TaskError::file(path, message))?;
        Ok(Self {
            units,
            architecture: architecture.clone(),
            frozen: settings.frozen,
            learning_rate_factor: settings.learning_rate_factor,
        })
    }

    /// Last feature map `[n, channels, height, width]` of images `[n, 3, height, width]` of [`images`](super::pixels::images).
    /// That of a frozen network has no graph.
    pub fn features(&self, images: Tensor<4>) -> Tensor<4> {
        let [features] = self.maps(images, [self.architecture.stride()]);
        features
    }

    /// As [`Self::features`], the last feature map of each of these strides.
    pub fn maps<const N: usize>(&self, images: Tensor<4>, strides: [usize; N]) -> [Tensor<4>; N] {
        match self.frozen && images.is_autodiff() {
            true => self.valid().forward(to_inner(&images), strides),
            false => self.forward(images, strides),
        }
    }

    fn forward<const N: usize>(&self, images: Tensor<4>, strides: [usize; N]) -> [Tensor<4>; N] {
        let (mut value, mut stride) = (self.renormalise(images), 1);
        let mut maps = strides.map(|_| value.clone());
        for (unit, layers) in self.architecture.units.iter().zip(&self.units) {
            value = self.unit(unit, &layers.layers, value);
            stride *= unit.stride();
            if let Some(at) = strides.iter().position(|wanted| *wanted == stride) {
                maps[at] = value.clone();
            }
        }
        maps
    }

    /// Normalisation of the file's network in place of that of [`images`](super::pixels::images).
    fn renormalise(&self, images: Tensor<4>) -> Tensor<4> {
        let Normalisation { mean, deviation } = self.architecture.normalisation;
        let device = &images.device();
        let channels = |value: &dyn Fn(usize) -> f32| tensor((0..3).map(value).collect(), [1, 3, 1, 1], device);
        let scale = channels(&|channel| PIXEL_DEVIATION / deviation[channel]);
        let shift = channels(&|channel| (PIXEL_MEAN - mean[channel]) / deviation[channel]);
        images * scale + shift
    }

    fn unit(&self, unit: &Unit, layers: &[Layer], input: Tensor<4>) -> Tensor<4> {
        let convolutions = unit.layers.iter().zip(layers);
        let mut value = convolutions.fold(input.clone(), |value, (about, layer)| self.convolution(about, layer, value));
        if unit.residual {
            let shortcut = unit.shortcut.as_ref().zip(layers.last());
            value = value + shortcut.map_or(input.clone(), |(about, layer)| self.convolution(about, layer, input));
        }
        if unit.rectified {
            value = self.rectify(value);
        }
        match unit.pooled {
            true => max_pool2d(value, MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding([1, 1])),
            false => value,
        }
    }

    fn convolution(&self, about: &Convolution, layer: &Layer, input: Tensor<4>) -> Tensor<4> {
        let [_, _, height, width] = input.dims();
        let padding = |length: usize| match self.architecture.same_padding {
            true => {
                let needed = (length.div_ceil(about.stride) - 1) * about.stride + about.size;
                let all = needed.saturating_sub(length);
                (all / 2, all - all / 2)
            }
            false => (about.size / 2, about.size / 2),
        };
        let groups = if about.depthwise { about.channels[0] } else { 1 };
        let options = ConvOptions {
            stride: [about.stride; 2],
            padding: [padding(height), padding(width)],
            dilation: [1, 1],
            groups,
        };
        let value = conv2d(input, layer.weight.val(), Some(layer.bias.val()), options);
        if about.rectified { self.rectify(value) } else { value }
    }

    fn rectify(&self, value: Tensor<4>) -> Tensor<4> {
        match self.architecture.activation_max {
            Some(max) => value.clamp(0.0, max),
            None => burn::tensor::activation::relu(value),
        }
    }
}

/// Mean of a feature map over its cells, `[n, channels]`.
pub fn pooled(features: Tensor<4>) -> Tensor<2> {
    features.flatten::<3>(2, 3).mean_dim(2).squeeze_dim::<2>(2)
}

/// Updates a network whose backbone, if it has one, has a learning rate of its own.
///
/// # Errors
/// As [`TrainState::update`].
pub fn update<M: Module>(
    learning_rate: f64,
    mut gradients: GradientsParams,
    trained: &mut TrainState<M>,
    backbone: impl Fn(&M) -> Option<&Backbone>,
) -> Result<(), TaskError> {
    if let Some(backbone) = backbone(trained.network()?).filter(|backbone| !backbone.frozen) {
        let rate = learning_rate * backbone.learning_rate_factor;
        let own = gradients::take_module(&mut gradients, backbone);
        trained.update(rate, own)?;
    }
    trained.update(learning_rate, gradients)
}

/// Tensors of a file by name, whose values are still to be read.
fn open(path: &Path) -> Result<BTreeMap<String, FileTensor>, String> {
    match is_pytorch(path) {
        true => all(&mut PytorchStore::from_file(path).map_indices_contiguous(false)),
        false => all(&mut SafetensorsStore::from_file(path)),
    }
}

fn all<S: ModuleStore>(store: &mut S) -> Result<BTreeMap<String, FileTensor>, String> {
    store.get_all_tensors().cloned().map_err(|error| format!("cannot be read: {error}"))
}

/// Values of a tensor. Its shape is that of the architecture unless the file was replaced meanwhile.
fn values(file: &BTreeMap<String, FileTensor>, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
    let found = file.get(name).ok_or_else(|| format!("lacks the tensor `{name}`"))?;
    if found.shape.as_slice() != shape {
        return Err(format!("has `{name}` of shape {:?}, expected {shape:?}", found.shape.as_slice()));
    }
    let bytes = found.to_bytes().map_err(|error| format!("has a tensor `{name}` that cannot be read: {error:?}"))?;
    Ok(TensorData::from_bytes(bytes, found.shape.clone(), found.dtype).iter::<f32>().collect())
}

/// Kernel and bias of a convolution and the batch normalisation after it (Ioffe and Szegedy 2015) with its running statistics.
fn fold(
    file: &BTreeMap<String, FileTensor>,
    convolution: &Convolution,
    epsilon: f64,
) -> Result<(Vec<f32>, Vec<f32>), String> {
    let mut kernel = values(file, &convolution.kernel, &convolution.shape())?;
    let part = |name: &str| values(file, &format!("{}.{name}", convolution.norm), &convolution.channels[1..]);
    let (scale, shift) = (part("weight")?, part("bias")?);
    let (mean, variance) = (part("running_mean")?, part("running_var")?);
    let scales = scale
        .iter()
        .zip(&variance)
        .map(|(scale, variance)| f64::from(*scale) / (f64::from(*variance) + epsilon).sqrt());
    let scales: Vec<f64> = scales.collect();
    let each = kernel.len() / scales.len().max(1);
    for (channel, scale) in kernel.chunks_exact_mut(each.max(1)).zip(&scales) {
        channel.iter_mut().for_each(|value| *value = (f64::from(*value) * scale) as f32);
    }
    let bias = shift.iter().zip(&mean).zip(&scales);
    let bias = bias.map(|((shift, mean), scale)| (f64::from(*shift) - f64::from(*mean) * scale) as f32).collect();
    Ok((kernel, bias))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::pixels::images;
    use super::super::testing::{autodiff, close, json_numbers, plain, values};
    use super::*;
    use xrun_core::settings::backbone::Backbone as Settings;

    const SIDE: usize = 37;

    fn reference(name: &str) -> String {
        format!("{}/../../tests/reference/{name}", env!("CARGO_MANIFEST_DIR"))
    }

    /// As in `tests/reference/backbones.py`.
    fn pixels() -> Vec<u8> {
        (0..2 * SIDE * SIDE * 3).map(|number| ((number * number * 7 + number * 13) % 251) as u8).collect()
    }

    fn network(file: &str, frozen: bool, device: &Device) -> Backbone {
        let weights = PretrainedWeights { weights: reference(file), frozen, learning_rate_factor: 0.1 };
        let settings = match file.contains("lite") {
            true => Settings::EfficientNetLite(weights),
            false => Settings::ResNet(weights),
        };
        Backbone::read(&Architecture::of(&settings).unwrap(), settings.settings(), device).unwrap()
    }

    /// Feature maps of forward passes in plain operations of PyTorch with batch normalisation, `tests/reference/backbones.py`.
    #[test]
    fn feature_maps_equal_those_of_pytorch_on_the_same_files() {
        let all: Value = serde_json::from_str(include_str!("../../../../tests/reference/backbones.json")).unwrap();
        for (file, expected) in all.as_object().unwrap() {
            let network = network(file, true, &plain());
            let found = network.features(images(&pixels(), SIDE, &plain()));
            assert_eq!(
                found.dims()[..],
                json_numbers(&expected["shape"]).iter().map(|n| *n as usize).collect::<Vec<_>>()
            );
            close(&values(found), &json_numbers(&expected["features"]), 2e-5);
        }
    }

    #[test]
    fn a_frozen_backbone_has_no_graph_and_a_trained_one_gives_each_parameter_a_gradient_apart() {
        let images = || images(&pixels(), SIDE, &autodiff());
        let frozen = network("resnet_tiny.pth", true, &autodiff());
        assert!(!frozen.features(images()).is_autodiff());
        let trained = network("resnet_tiny.pth", false, &autodiff());
        let loss = pooled(trained.features(images())).sum();
        let mut all = GradientsParams::from_grads(loss.backward(), &trained);
        let count = all.len();
        let own = gradients::take_module(&mut all, &trained);
        assert_eq!((own.len(), all.len()), (count, 0));
        assert_eq!(count, 2 * trained.architecture.convolutions().count());
    }
}
