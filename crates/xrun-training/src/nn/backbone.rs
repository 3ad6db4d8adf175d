//! Pretrained backbone: layers of an [`Architecture`] with the weights of a file, into which batch normalisation is folded.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{Module, Param, ParamId};
use burn::tensor::module::{conv2d, max_pool2d};
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use burn::tensor::{Device, TensorData};
use burn_store::burn_pack::Tensor as FileTensor;
use burn_store::{ModuleStore, PytorchStore, SafetensorsStore};

use super::Tensor;
use super::graph::to_inner;
use super::pixels::tensor;
use super::vit::VisionTransformer;
use crate::backbone::tensors::is_pytorch;
use crate::backbone::{Architecture, Convolution, Convolutions, Layers, Normalisation, Pretrained, Unit};
use xrun_core::task::TaskError;
use xrun_data::transform::{PIXEL_DEVIATION, PIXEL_MEAN};

/// First id of the parameters, above those of the rest of a model.
const FIRST_ID: u64 = 1 << 32;

/// Pretrained network up to its last feature map.
#[derive(Module, Debug)]
pub struct Backbone {
    units: Vec<UnitLayers>,
    transformer: Option<VisionTransformer>,
    /// Architecture of the file.
    #[module(skip)]
    pub architecture: Architecture,
    #[module(skip)]
    pub(super) frozen: bool,
    /// Learning rate over that of the rest of the model.
    #[module(skip)]
    pub(super) learning_rate_factor: f64,
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
    pub fn read(
        Pretrained { architecture, weights: settings }: &Pretrained,
        device: &Device,
    ) -> Result<Self, TaskError> {
        let path = Path::new(&settings.weights);
        let read = || -> Result<(Vec<UnitLayers>, Option<VisionTransformer>), String> {
            let mut file = WeightFile { tensors: open(path)?, next: FIRST_ID, frozen: settings.frozen, device };
            match &architecture.layers {
                Layers::Convolutions(about) => {
                    let mut layer = |convolution: &Convolution| {
                        let (kernel, bias) = fold(&file, convolution, about.epsilon)?;
                        Ok::<Layer, String>(Layer {
                            weight: file.parameter(kernel, convolution.shape()),
                            bias: file.parameter(bias, [convolution.channels[1]]),
                        })
                    };
                    let units = about.units.iter().map(|unit| {
                        let layers = unit.layers.iter().chain(&unit.shortcut).map(&mut layer);
                        Ok::<_, String>(UnitLayers { layers: layers.collect::<Result<_, String>>()? })
                    });
                    Ok((units.collect::<Result<_, String>>()?, None))
                }
                Layers::Transformer(about) => Ok((Vec::new(), Some(VisionTransformer::read(about, &mut file)?))),
            }
        };
        let (units, transformer) = read().map_err(|message| TaskError::file(path, message))?;
        Ok(Self {
            units,
            transformer,
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
        self.compute(images, |network, images| network.forward(images, strides))
    }

    /// Features of images for a classifier, `[n, pooled outputs]`: the mean of the feature map over its cells, but of a transformer
    /// the class token, beside which DINOv2 has the mean.
    pub fn pooled(&self, images: Tensor<4>) -> Tensor<2> {
        self.compute(images, |network, images| match (&network.architecture.layers, &network.transformer) {
            (Layers::Transformer(about), Some(layers)) => {
                let tokens = layers.forward(images);
                let class = tokens.clone().narrow(1, 0, 1).squeeze_dim::<2>(1);
                if about.mean_of_patches { Tensor::cat(vec![class, pooled(feature_map(tokens))], 1) } else { class }
            }
            _ => {
                let [features] = network.forward(images, [network.architecture.stride()]);
                pooled(features)
            }
        })
    }

    /// Features of normalised images, of a frozen network without a graph.
    fn compute<T>(&self, images: Tensor<4>, features: impl FnOnce(&Self, Tensor<4>) -> T) -> T {
        match self.frozen && images.is_autodiff() {
            true => features(&self.valid(), self.renormalise(to_inner(&images))),
            false => features(self, self.renormalise(images)),
        }
    }

    fn forward<const N: usize>(&self, images: Tensor<4>, strides: [usize; N]) -> [Tensor<4>; N] {
        let mut maps = strides.map(|_| images.clone());
        match (&self.architecture.layers, &self.transformer) {
            (Layers::Convolutions(about), _) => {
                let (mut value, mut stride) = (images, 1);
                for (unit, layers) in about.units.iter().zip(&self.units) {
                    value = about.unit(unit, &layers.layers, value);
                    stride *= unit.stride();
                    if let Some(at) = strides.iter().position(|wanted| *wanted == stride) {
                        maps[at] = value.clone();
                    }
                }
            }
            (Layers::Transformer(_), Some(layers)) => maps.fill(feature_map(layers.forward(images))),
            (Layers::Transformer(_), None) => {}
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
}

impl Convolutions {
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
        let padding = |length: usize| match self.same_padding {
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
        match self.activation_max {
            Some(max) => value.clamp(0.0, max),
            None => burn::tensor::activation::relu(value),
        }
    }
}

/// Feature map `[n, width, side, side]` of tokens `[n, 1 + side², width]` after the first, the class token.
fn feature_map(tokens: Tensor<3>) -> Tensor<4> {
    let [count, tokens_count, width] = tokens.dims();
    let side = (tokens_count - 1).isqrt();
    tokens.narrow(1, 1, side * side).swap_dims(1, 2).reshape([count, width, side, side])
}

/// Mean of a feature map over its cells, `[n, channels]`.
pub fn pooled(features: Tensor<4>) -> Tensor<2> {
    features.flatten::<3>(2, 3).mean_dim(2).squeeze_dim::<2>(2)
}

/// Tensors of a file by name, whose values are still to be read, and what their parameters have in common.
pub(super) struct WeightFile<'a> {
    tensors: BTreeMap<String, FileTensor>,
    next: u64,
    frozen: bool,
    pub(super) device: &'a Device,
}

fn open(path: &Path) -> Result<BTreeMap<String, FileTensor>, String> {
    match is_pytorch(path) {
        true => all(&mut PytorchStore::from_file(path).map_indices_contiguous(false)),
        false => all(&mut SafetensorsStore::from_file(path)),
    }
}

fn all<S: ModuleStore>(store: &mut S) -> Result<BTreeMap<String, FileTensor>, String> {
    store.get_all_tensors().cloned().map_err(|error| format!("cannot be read: {error}"))
}

impl WeightFile<'_> {
    /// Values of a tensor. Its shape is that of the architecture unless the file was replaced meanwhile.
    ///
    /// # Errors
    /// The file lacks it, it has another shape, or it cannot be read.
    pub(super) fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let found = self.tensors.get(name).ok_or_else(|| format!("lacks the tensor `{name}`"))?;
        if found.shape.as_slice() != shape {
            return Err(format!("has `{name}` of shape {:?}, expected {shape:?}", found.shape.as_slice()));
        }
        let bytes =
            found.to_bytes().map_err(|error| format!("has a tensor `{name}` that cannot be read: {error:?}"))?;
        Ok(TensorData::from_bytes(bytes, found.shape.clone(), found.dtype).iter::<f32>().collect())
    }

    /// Parameter with the next id.
    pub(super) fn parameter<const D: usize>(&mut self, values: Vec<f32>, shape: [usize; D]) -> Param<Tensor<D>> {
        self.next += 1;
        let value = tensor(values, shape, self.device).set_require_grad(!self.frozen);
        Param::initialized(ParamId::from(self.next - 1), value)
    }
}

/// Kernel and bias of a convolution and the batch normalisation after it (Ioffe and Szegedy 2015) with its running statistics.
fn fold(file: &WeightFile<'_>, convolution: &Convolution, epsilon: f64) -> Result<(Vec<f32>, Vec<f32>), String> {
    let mut kernel = file.values(&convolution.kernel, &convolution.shape())?;
    let part = |name: &str| file.values(&format!("{}.{name}", convolution.norm), &convolution.channels[1..]);
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
    use burn::optim::GradientsParams;
    use serde_json::{Value, json};

    use super::super::gradients;
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
        let (kind, heads) = match file.split('_').next() {
            Some("efficientnet") => ("efficientnet-lite", None),
            Some("resnet") => ("resnet", None),
            _ => ("vit", Some(2)),
        };
        let settings = json!({ "weights": reference(file), "frozen": frozen });
        let mut settings: Settings = serde_json::from_value(json!({ kind: settings })).unwrap();
        if let Settings::Vit(settings) = &mut settings {
            settings.heads = heads;
        }
        let architecture = Architecture::of(&settings, side(file)).unwrap();
        Backbone::read(&Pretrained { architecture, weights: settings.settings() }, device).unwrap()
    }

    /// Sides of the images that the transformers see are multiples of their patches.
    fn side(file: &str) -> usize {
        if file.starts_with("vit") || file.starts_with("dinov2") { 24 } else { SIDE }
    }

    /// Feature maps of forward passes in plain operations of PyTorch with batch normalisation and LayerScale, equal to those of Hugging
    /// Face's transformers, with interpolated positions: `tests/reference/backbones.py`.
    #[test]
    fn feature_maps_equal_those_of_pytorch_on_the_same_files() {
        let all: Value = serde_json::from_str(include_str!("../../../../tests/reference/backbones.json")).unwrap();
        for (file, expected) in all.as_object().unwrap() {
            let network = network(file, true, &plain());
            let side = side(file);
            let images = images(&pixels()[..2 * side * side * 3], side, &plain());
            let found = network.features(images.clone());
            assert_eq!(
                found.dims()[..],
                json_numbers(&expected["shape"]).iter().map(|n| *n as usize).collect::<Vec<_>>()
            );
            close(&values(found), &json_numbers(&expected["features"]), 2e-5);
            if let Some(pooled) = expected.get("pooled") {
                close(&values(network.pooled(images)), &json_numbers(pooled), 2e-5);
            }
        }
    }

    #[test]
    fn a_frozen_backbone_has_no_graph_and_a_trained_one_gives_each_parameter_a_gradient_apart() {
        // Two tensors of each convolution, and of the tiny network's three of the embeddings, two blocks and the last normalisation.
        for (file, expected) in [("resnet_tiny.pth", 2 * 12), ("dinov2_tiny.bin", 4 + 2 * 16 + 2)] {
            let side = side(file);
            let images = || images(&pixels()[..2 * side * side * 3], side, &autodiff());
            let frozen = network(file, true, &autodiff());
            assert!(!frozen.features(images()).is_autodiff() && !frozen.pooled(images()).is_autodiff());
            let trained = network(file, false, &autodiff());
            let loss = trained.pooled(images()).powi_scalar(2).sum();
            let mut all = GradientsParams::from_grads(loss.backward(), &trained);
            let count = all.len();
            let own = gradients::take_module(&mut all, &trained);
            assert_eq!((own.len(), all.len()), (count, 0));
            assert_eq!(count, expected, "{file}");
            assert_eq!(trained.num_params(), trained.architecture.parameters(), "{file}");
        }
    }
}
