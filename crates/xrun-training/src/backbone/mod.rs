//! Pretrained backbones: the architecture of a file of weights, found from the names and shapes of its tensors, without Burn.
//!
//! A family is a file of this directory that maps a file to an [`Architecture`]; `nn::backbone` computes every architecture.

mod efficientnet_lite;
mod resnet;
pub mod tensors;

use std::path::Path;

use serde::Serialize;
use xrun_core::experiment::Experiment;
use xrun_core::problem::{Problem, Problems};
use xrun_core::settings::backbone::Backbone;
use xrun_core::task::TaskError;
use xrun_core::units::Bytes;

use tensors::TensorShapes;

/// Architecture of a file of weights: a sequence of units of convolutions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Architecture {
    /// Name of the network, such as "ResNet-50".
    pub name: String,
    /// Normalisation of images in its training.
    #[serde(flatten)]
    pub normalisation: Normalisation,
    /// Epsilon of its batch normalisation.
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
const FAMILIES: [Family; 2] = [resnet::FAMILY, efficientnet_lite::FAMILY];

/// Number of names in a message.
const NAMES_MAX: usize = 3;

impl Architecture {
    /// Architecture of the file of a backbone.
    ///
    /// # Errors
    /// The file cannot be read, or is not of this family.
    pub fn of(backbone: &Backbone) -> Result<Self, TaskError> {
        let path = Path::new(&backbone.settings().weights);
        Self::of_file(backbone.kind(), path).map_err(|message| TaskError::file(path, message))
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
        self.units.last().and_then(|unit| unit.layers.last()).map_or(0, |layer| layer.channels[1])
    }

    /// Pixels of the image along the side of a cell of the features.
    pub fn stride(&self) -> usize {
        self.units.iter().map(Unit::stride).product()
    }

    /// Numbers of channels of the last feature maps of these strides.
    pub fn outputs_at<const N: usize>(&self, strides: [usize; N]) -> [usize; N] {
        strides.map(|stride| self.clone().until(stride).outputs())
    }

    /// Part up to the last feature map of this stride.
    pub fn until(mut self, stride: usize) -> Self {
        let mut reached = 1;
        self.units.retain(|unit| {
            reached *= unit.stride();
            reached <= stride
        });
        self
    }

    /// All convolutions with their shortcuts.
    pub fn convolutions(&self) -> impl Iterator<Item = &Convolution> {
        self.units.iter().flat_map(|unit| unit.layers.iter().chain(&unit.shortcut))
    }

    /// Number of parameters, with batch normalisation folded into the convolutions.
    pub fn parameters(&self) -> usize {
        self.convolutions().map(|layer| layer.shape().iter().product::<usize>() + layer.channels[1]).sum()
    }

    /// Size in bytes of the outputs of all convolutions for square images of `side` pixels, which a backward pass needs; and of the
    /// largest unit's input and outputs, which a forward pass without autodiff needs.
    pub fn activation_bytes(&self, images: usize, side: usize) -> (u64, u64) {
        let (mut side, mut channels) = (side, 3);
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
        let bytes = |values: usize| (values * images * size_of::<f32>()) as u64;
        (bytes(all), bytes(largest))
    }

    /// Note of the plan: parameters, and memory of a micro-batch of square images.
    pub fn note(&self, frozen: bool, images: usize, side: usize) -> String {
        let (all, largest) = self.activation_bytes(images, side);
        let weights = Bytes((self.parameters() * size_of::<f32>()) as u64);
        let (trained, activations) = if frozen { ("frozen", largest) } else { ("trained", all) };
        format!(
            "{}, {trained}: {} features, weights {weights}, activations of {images} images of {side} pixels about {}",
            self.name,
            self.outputs(),
            Bytes(activations)
        )
    }
}

/// Adds a problem if the file of the backbone is missing or not of its family.
pub fn check(experiment: &Experiment, problems: &mut Problems) {
    let Some(backbone) = &experiment.backbone else { return };
    let path = &backbone.settings().weights;
    if let Err(message) = Architecture::of_file(backbone.kind(), Path::new(path)) {
        let problem = Problem::new(backbone.key("weights"), format!("{path} {message}"));
        problems.add(problem.help(HELP).as_disk_problem());
    }
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
