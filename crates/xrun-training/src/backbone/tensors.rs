//! Names and shapes of the tensors of a `.safetensors` or `.pth` file, and their use by a family.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use pytorch_reader::PytorchReader;

use super::Convolution;
use xrun_core::files::tensors;
use xrun_core::printable;
use xrun_core::problem::nearest;

/// Counters of batch normalisation, which no forward pass needs.
const COUNTER: &str = "num_batches_tracked";
const MESSAGE_CHARACTERS_MAX: usize = 400;

/// Shapes of the tensors of a file by name, and the names that a family has used.
pub struct TensorShapes {
    shapes: BTreeMap<String, Vec<usize>>,
    used: BTreeSet<String>,
    /// Beginning of the names of the backbone: `resnet.`, or `state_dict.` of a checkpoint.
    prefix: String,
    /// Beginning of the names that the backbone lacks, after the prefix: the classifier.
    ignored: &'static [&'static str],
}

/// Returns whether a file is one of PyTorch, by its name.
pub fn is_pytorch(path: &Path) -> bool {
    matches!(path.extension().and_then(OsStr::to_str), Some("pth" | "pt" | "bin"))
}

impl TensorShapes {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// The file is missing, or cannot be read in this format. The message has no path.
    pub fn read(path: &Path) -> Result<Self, String> {
        match std::fs::metadata(path) {
            Ok(about) if about.is_file() => {}
            Ok(_) => return Err("is not a file".into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err("does not exist".into()),
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
        let shapes = match is_pytorch(path) {
            true => {
                let reader = PytorchReader::new(path).map_err(|error| {
                    format!("cannot be read: {}", printable::line(&error.to_string(), MESSAGE_CHARACTERS_MAX))
                })?;
                reader.into_tensors().into_iter().map(|(name, tensor)| (name, tensor.shape().to_vec())).collect()
            }
            false => tensors::read_header(path)?.into_iter().map(|(name, about)| (name, about.shape)).collect(),
        };
        Ok(Self::new(shapes))
    }

    pub(super) fn new(shapes: BTreeMap<String, Vec<usize>>) -> Self {
        Self { shapes, used: BTreeSet::new(), prefix: String::new(), ignored: &[] }
    }

    /// All names, as in the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shapes.keys().map(String::as_str)
    }

    /// Beginning before the name `marker` in the file, the shortest; `None` if no tensor has the name.
    pub fn prefix(&self, marker: &str) -> Option<&str> {
        let prefixes = self.names().filter_map(|name| name.strip_suffix(marker));
        prefixes.filter(|prefix| prefix.is_empty() || prefix.ends_with('.')).min_by_key(|prefix| prefix.len())
    }

    /// Takes the beginning before `marker` off the names that follow; returns whether there is such a tensor.
    pub fn enter(&mut self, marker: &str) -> bool {
        let found = self.prefix(marker).map(str::to_owned);
        let known = found.is_some();
        self.prefix = found.unwrap_or_default();
        known
    }

    /// Returns whether the file has a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.shapes.contains_key(&self.name(name))
    }

    /// Name in the file.
    pub(super) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Ignores the tensors whose names have one of these beginnings.
    pub fn ignore(&mut self, beginnings: &'static [&'static str]) {
        self.ignored = beginnings;
    }

    /// Shape of a tensor, which is then used.
    ///
    /// # Errors
    /// The file lacks it.
    pub fn shape(&mut self, name: &str) -> Result<Vec<usize>, String> {
        let name = self.name(name);
        let Some(shape) = self.shapes.get(&name) else {
            let unused = self.names().filter(|other| !self.used.contains(*other));
            let near = nearest(&name, unused).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(format!("lacks the tensor `{name}`{near}"));
        };
        self.used.insert(name);
        Ok(shape.clone())
    }

    /// Uses a tensor that must have this shape.
    ///
    /// # Errors
    /// The file lacks it, or it has another shape.
    pub fn expect(&mut self, name: &str, expected: &[usize]) -> Result<(), String> {
        let found = self.shape(name)?;
        match found == expected {
            true => Ok(()),
            false => Err(format!("has `{}` of shape {found:?}, expected {expected:?}", self.name(name))),
        }
    }

    /// Uses a kernel, `[outputs, inputs, size, size]` with any number of outputs, and its batch normalisation. A depthwise one has
    /// as many outputs as inputs.
    ///
    /// # Errors
    /// As [`Self::expect`].
    pub fn convolution(
        &mut self,
        [kernel, norm]: [&str; 2],
        inputs: usize,
        [size, stride]: [usize; 2],
        depthwise: bool,
    ) -> Result<Convolution, String> {
        let outputs = match depthwise {
            true => inputs,
            false => self.shape(kernel)?.first().copied().unwrap_or(0),
        };
        let (kernel_name, norm_name) = (self.name(kernel), self.name(norm));
        let convolution = Convolution {
            kernel: kernel_name,
            norm: norm_name,
            channels: [inputs, outputs],
            size,
            stride,
            depthwise,
            rectified: true,
        };
        self.expect(kernel, &convolution.shape())?;
        for part in ["running_mean", "running_var"] {
            self.expect(&format!("{norm}.{part}"), &[outputs])?;
        }
        self.norm(norm, outputs)?;
        Ok(convolution)
    }

    /// Uses scale and shift of a normalisation.
    ///
    /// # Errors
    /// As [`Self::expect`].
    pub fn norm(&mut self, name: &str, width: usize) -> Result<(), String> {
        ["weight", "bias"].iter().try_for_each(|part| self.expect(&format!("{name}.{part}"), &[width]))
    }

    /// First tensor of the backbone that no layer used.
    pub fn unused(&self) -> Option<&str> {
        self.names().find(|name| {
            let own = name.strip_prefix(self.prefix.as_str());
            own.is_some_and(|own| !own.ends_with(COUNTER) && !self.ignored.iter().any(|start| own.starts_with(start)))
                && !self.used.contains(*name)
        })
    }
}
