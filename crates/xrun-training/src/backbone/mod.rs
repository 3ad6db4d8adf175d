//! Pretrained backbones: the architecture of a file of weights, found from the names and shapes of its tensors, without Burn.
//!
//! A family is a file of this directory that maps a file to an [`Architecture`]; `nn::backbone` computes every architecture.

mod efficientnet_lite;
mod resnet;
pub mod tensors;
pub mod vit;

use std::path::Path;

use serde::Serialize;
use xrun_core::experiment::Experiment;
use xrun_core::problem::{Problem, Problems};
use xrun_core::settings::backbone::{Backbone, PretrainedWeights};
use xrun_core::task::TaskError;
use xrun_core::units::Bytes;

use tensors::TensorShapes;
use vit::Transformer;

/// Architecture of a file of weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Architecture {
    /// Name of the network, such as "ResNet-50".
    pub name: String,
    /// Normalisation of images in its training.
    #[serde(flatten)]
    pub normalisation: Normalisation,
    /// Layers from the image to the features.
    #[serde(flatten)]
    pub layers: Layers,
}

/// Layers of an [`Architecture`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Layers {
    /// Convolutional network.
    Convolutions(Convolutions),
    /// Vision transformer.
    Transformer(Transformer),
}

/// Sequence of units of convolutions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Convolutions {
    /// Epsilon of batch normalisation.
    #[serde(skip)]
    pub epsilon: f64,
    /// Padding of TensorFlow's "SAME": the odd pixel is after the image. Otherwise half of the kernel on both sides.
    pub same_padding: bool,
    /// Upper limit of activations: 6 for ReLU6.
    pub activation_max: Option<f32>,
    /// Units from the image to the features.
    pub units: Vec<Unit>,
}

/// Mean and standard deviation of 8-bit red, green and blue in a network's training, as numbers from 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Normalisation {
    /// Values that become 0.
    pub mean: [f32; 3],
    /// Differences that become 1.
    pub deviation: [f32; 3],
}

impl Normalisation {
    /// Statistics of ImageNet.
    const IMAGENET: Self = Self { mean: [123.675, 116.28, 103.53], deviation: [58.395, 57.12, 57.375] };
    /// Values from -1 to 1.
    const HALF: Self = Self { mean: [127.5; 3], deviation: [127.5; 3] };
}

/// Convolutions in a sequence, with a shortcut from the input of the first to the output of the last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unit {
    /// Convolutions in the order of the forward pass.
    pub layers: Vec<Convolution>,
    /// Convolution of the shortcut, if it has one.
    pub shortcut: Option<Convolution>,
    /// True if the input, or the output of the shortcut, is added to the output of the layers.
    pub residual: bool,
    /// True if the sum is rectified.
    pub rectified: bool,
    /// True if maximum pooling (3 x 3, stride 2) follows.
    pub pooled: bool,
}

/// Convolution, batch normalisation and, if `rectified`, ReLU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Convolution {
    /// Name of the kernel in the file.
    #[serde(skip)]
    pub kernel: String,
    /// Beginning of the names of its batch normalisation in the file.
    #[serde(skip)]
    pub norm: String,
    /// Input and output channels.
    pub channels: [usize; 2],
    /// Side of the kernel.
    pub size: usize,
    /// Stride.
    pub stride: usize,
    /// True if each channel has a kernel of its own.
    pub depthwise: bool,
    /// True if the output is rectified.
    pub rectified: bool,
}

impl Unit {
    /// Layers without a shortcut.
    fn plain(layers: Vec<Convolution>) -> Self {
        Self { layers, shortcut: None, residual: false, rectified: false, pooled: false }
    }

    /// Product of the strides.
    pub fn stride(&self) -> usize {
        self.layers.iter().map(|layer| layer.stride).product::<usize>() * if self.pooled { 2 } else { 1 }
    }
}

impl Convolution {
    /// Shape of the kernel, `[outputs, inputs of a group, size, size]`.
    pub fn shape(&self) -> [usize; 4] {
        let [inputs, outputs] = self.channels;
        [outputs, if self.depthwise { 1 } else { inputs }, self.size, self.size]
    }
}

impl Convolutions {
    /// All convolutions with their shortcuts.
    pub fn all(&self) -> impl Iterator<Item = &Convolution> {
        self.units.iter().flat_map(|unit| unit.layers.iter().chain(&unit.shortcut))
    }

    fn outputs(&self) -> usize {
        self.units.last().and_then(|unit| unit.layers.last()).map_or(0, |layer| layer.channels[1])
    }

    /// Number of outputs of all convolutions for an image, and of the largest unit's input and outputs.
    fn activations(&self, mut side: usize) -> (usize, usize) {
        let mut channels = 3;
        let (mut all, mut largest) = (0, 0);
        for unit in &self.units {
            let mut unit_values = channels * side * side;
            for layer in &unit.layers {
                side = side.div_ceil(layer.stride);
                channels = layer.channels[1];
                unit_values += channels * side * side;
                all += channels * side * side;
            }
            if unit.shortcut.is_some() {
                unit_values += channels * side * side;
                all += channels * side * side;
            }
            largest = largest.max(unit_values);
            if unit.pooled {
                side = side.div_ceil(2);
            }
        }
        (all, largest)
    }
}

/// Architecture of the backbone's family.
type Read = fn(&mut TensorShapes) -> Result<Architecture, String>;

/// Family of networks, whose table is `[backbone.NAME]`.
struct Family {
    name: &'static str,
    /// Names of a tensor that only this family has, each with the library that writes them.
    markers: &'static [(&'static str, &'static str)],
    read: Read,
}

/// All families, a line each.
const FAMILIES: [Family; 3] = [resnet::FAMILY, efficientnet_lite::FAMILY, vit::FAMILY];

/// Number of names in a message.
const NAMES_MAX: usize = 3;

impl Architecture {
    /// Architecture of the file of a backbone for square images of `side` pixels.
    ///
    /// # Errors
    /// The file cannot be read, or is not of this family.
    pub fn of(backbone: &Backbone, side: usize) -> Result<Self, TaskError> {
        let path = backbone.settings().weights;
        let failed = |message| TaskError::file(Path::new(&path), message);
        let found = Self::of_file(backbone.kind(), Path::new(&path)).map_err(failed)?;
        found.at(backbone, "image_size", side).map_err(|problem| failed(problem.message))
    }

    /// Architecture for square images of `side` pixels, the value of `key`.
    fn at(mut self, backbone: &Backbone, key: &str, side: usize) -> Result<Self, Problem> {
        if let Some(stride) = backbone.settings().stride {
            let (name, whole) = (self.name.clone(), self.stride());
            self = self.until(stride);
            if self.stride() != stride || self.outputs() == 0 {
                let message = format!("{name} has no features of stride {stride}");
                return Err(Problem::new(backbone.key("stride"), message)
                    .help(format!("write a power of two from 4 to {whole}")));
            }
        }
        if let (Layers::Transformer(layers), Backbone::Vit(settings)) = (&mut self.layers, backbone) {
            layers.heads = settings.heads.unwrap_or(layers.heads);
            layers.cells = side / layers.patch_size;
            let (width, heads, patch) = (layers.width, layers.heads, layers.patch_size);
            let wrong = |key: &str, message: String, help: String| {
                Err(Problem::new(key, message).help(help).related(backbone.key("weights")))
            };
            if heads == 0 || !width.is_multiple_of(heads) {
                let message =
                    format!("the {width} features of the file are not divisible into {heads} attention heads");
                let help = "write `num_attention_heads` of the network's `config.json`";
                return wrong(&backbone.key("heads"), message, help.into());
            }
            if !side.is_multiple_of(patch) {
                let near = ((side + patch / 2) / patch).max(1) * patch;
                let message = format!("{side} pixels are not divisible into patches of {patch}");
                return wrong(key, message, format!("write {near}"));
            }
        }
        Ok(self)
    }

    fn of_file(kind: &str, path: &Path) -> Result<Self, String> {
        let mut tensors = TensorShapes::read(path)?;
        let family = FAMILIES.iter().find(|family| family.name == kind);
        let family = family.ok_or_else(|| format!("is for `{kind}`, which no family reads"))?;
        if !family.markers.iter().any(|(marker, _)| tensors.enter(marker)) {
            return Err(unknown_names(family, &tensors));
        }
        let architecture = (family.read)(&mut tensors)?;
        match tensors.unused() {
            Some(name) => Err(format!("has the tensor `{name}`, which {} lacks", architecture.name)),
            None => Ok(architecture),
        }
    }

    /// Number of channels of the features.
    pub fn outputs(&self) -> usize {
        match &self.layers {
            Layers::Convolutions(layers) => layers.outputs(),
            Layers::Transformer(layers) => layers.width,
        }
    }

    /// Number of pooled features of an image.
    pub fn pooled_outputs(&self) -> usize {
        match &self.layers {
            Layers::Transformer(layers) if layers.mean_of_patches => 2 * layers.width,
            _ => self.outputs(),
        }
    }

    /// Pixels of the image along the side of a cell of the features.
    pub fn stride(&self) -> usize {
        match &self.layers {
            Layers::Convolutions(layers) => layers.units.iter().map(Unit::stride).product(),
            Layers::Transformer(layers) => layers.patch_size,
        }
    }

    /// Numbers of channels of the last feature maps of these strides.
    pub fn outputs_at<const N: usize>(&self, strides: [usize; N]) -> [usize; N] {
        strides.map(|stride| self.clone().until(stride).outputs())
    }

    /// Part up to the last feature map of this stride.
    pub fn until(mut self, stride: usize) -> Self {
        if let Layers::Convolutions(layers) = &mut self.layers {
            let mut reached = 1;
            layers.units.retain(|unit| {
                reached *= unit.stride();
                reached <= stride
            });
        }
        self
    }

    /// Number of parameters, with batch normalisation and LayerScale folded into the layers before them.
    pub fn parameters(&self) -> usize {
        match &self.layers {
            Layers::Convolutions(layers) => {
                layers.all().map(|layer| layer.shape().iter().product::<usize>() + layer.channels[1]).sum()
            }
            Layers::Transformer(layers) => layers.parameters(),
        }
    }

    /// Size in bytes of the outputs of all layers for square images of `side` pixels, which a backward pass needs; and of the
    /// largest unit's input and outputs, which a forward pass without autodiff needs.
    pub fn activation_bytes(&self, images: usize, side: usize) -> (u64, u64) {
        let (all, largest) = match &self.layers {
            Layers::Convolutions(layers) => layers.activations(side),
            Layers::Transformer(layers) => layers.activations(),
        };
        let bytes = |values: usize| (values * images * size_of::<f32>()) as u64;
        (bytes(all), bytes(largest))
    }
}

/// Backbone of an experiment.
#[derive(Clone, Debug)]
pub struct Pretrained {
    /// Layers of the file.
    pub architecture: Architecture,
    /// Settings of the file.
    pub weights: PretrainedWeights,
}

impl Pretrained {
    /// Backbone of an experiment for square images of `side` pixels, if it has one.
    ///
    /// # Errors
    /// The file cannot be read, or is not of its family.
    pub fn of(experiment: &Experiment, side: usize) -> Result<Option<Self>, TaskError> {
        let Some(backbone) = &experiment.backbone else { return Ok(None) };
        Ok(Some(Self { architecture: Architecture::of(backbone, side)?, weights: backbone.settings() }))
    }

    /// Number of parameters that are trained.
    pub fn trained_parameters(&self) -> usize {
        if self.weights.frozen { 0 } else { self.architecture.parameters() }
    }

    /// Note of the plan: parameters, and memory of a micro-batch of square images.
    pub fn note(&self, images: usize, side: usize) -> String {
        let Self { architecture: about, weights } = self;
        let (all, largest) = about.activation_bytes(images, side);
        let bytes = Bytes((about.parameters() * size_of::<f32>()) as u64);
        let (trained, activations) = if weights.frozen { ("frozen", largest) } else { ("trained", all) };
        format!(
            "{}, {trained}: {} features, weights {bytes}, activations of {images} images of {side} pixels about {}",
            about.name,
            about.outputs(),
            Bytes(activations)
        )
    }
}

/// Adds a problem if the file of the backbone is missing or not of its family, or if its patches do not divide square images of
/// `side` pixels, the value of `key`. Returns the architecture.
pub fn check(experiment: &Experiment, key: &str, side: usize, problems: &mut Problems) -> Option<Architecture> {
    let backbone = experiment.backbone.as_ref()?;
    let path = backbone.settings().weights;
    let problem = match Architecture::of_file(backbone.kind(), Path::new(&path)) {
        Ok(found) => match found.at(backbone, key, side) {
            Ok(found) => return Some(found),
            Err(problem) => problem,
        },
        Err(message) => Problem::new(backbone.key("weights"), format!("{path} {message}")).help(HELP).as_disk_problem(),
    };
    problems.add(problem);
    None
}

const HELP: &str =
    "name a file of weights, `.safetensors` or `.pth`; relative paths start at the directory of this TOML file";

/// Message for a file whose names are not those of the family.
fn unknown_names(expected: &Family, tensors: &TensorShapes) -> String {
    let names: Vec<String> = tensors.names().take(NAMES_MAX).map(|name| format!("`{name}`")).collect();
    let known = |family: &Family| {
        let markers: Vec<String> =
            family.markers.iter().map(|(marker, library)| format!("`{marker}` ({library})")).collect();
        format!("[backbone.{}] {}", family.name, markers.join(", "))
    };
    let is_of = |family: &&Family| family.markers.iter().any(|(marker, _)| tensors.prefix(marker).is_some());
    match FAMILIES.iter().find(is_of) {
        Some(other) => {
            format!("has the names of [backbone.{}], not of [backbone.{}]", other.name, expected.name)
        }
        None => {
            let families: Vec<String> = FAMILIES.iter().map(known).collect();
            format!("has the names of no known network: {}, …; known are {}", names.join(", "), families.join("; "))
        }
    }
}

#[cfg(test)]
#[path = "backbone_tests.rs"]
mod tests;
