//! How does a trained model leave for other programs? In the forms of Hugging Face's transformers and PEFT.
//!
//! ```text
//! merged_lora_w8/   grid(W) + alpha / r · grid(A) grid(B), as floats    from_pretrained   export_merged
//! base/             W                                                   from_pretrained   export_parts
//! on_grid_w8/       grid(W): values of an 8-bit grid, as floats         from_pretrained   export_parts
//!     quantisers.safetensors, quantisers.json                           scales, zero points, ranges
//! lora_w8/          grid(A), grid(B)                                    PEFT, on top of on_grid_w8
//! ```
//! A sum of matrices on grids is on no grid, so what is merged is no 8-bit model: its name says what it is. Activations,
//! keys and values are quantised by nobody who reads these files.

use std::path::Path;

use safetensors::tensor::{Dtype, View};
use serde_json::{Value, json};
use xrun_ops::QuantRange;

use super::context::{QuantContext, Rules};
use super::gpt2::Gpt2;
use super::precision::{FULL, Precision};
use super::ranges::{KEYS, QUANTISERS, Ranges, VALUES};
use super::settings::{self, Layer, Settings};
use super::weights;
use crate::gpt2_shape::Gpt2Shape;
use crate::nn::Tensor;
use xrun_core::files::write;
use xrun_core::task::TaskError;
use xrun_data::tokenizer::{END_OF_TEXT, Tokenizer};

/// What is written of, and how it is called.
pub struct Export<'a> {
    /// The plain one.
    pub network: Gpt2,
    /// What may be set of the task.
    pub settings: &'a Settings,
    /// How things are quantised.
    pub rules: &'a Rules,
    /// The precisions, in the order in which the network has them.
    pub precisions: &'a [Precision],
    /// Ranges of activations, by precision and place.
    pub ranges: &'a mut Ranges,
    /// What makes tokens of text; its files are written beside the weights.
    pub tokenizer: &'a Tokenizer,
}

/// `w8` of weights of eight bits, `full` of those that are not quantised.
fn label(precision: Precision) -> String {
    match precision.weights {
        FULL => "full".into(),
        bits => format!("w{bits}"),
    }
}

impl Export<'_> {
    /// Writes what the settings ask for into a checkpoint's folder, a network at a time.
    pub fn write(&mut self, directory: &Path) -> Result<(), TaskError> {
        let (merged, parts) = (self.settings.export_merged, self.settings.export_parts);
        let lora = self.network.layers(0).any(|(_, linear)| !linear.lora.is_empty());
        if parts {
            self.folder(&directory.join("base"), None, |network, pass| network.on_grid(pass))?;
        }
        for (at, precision) in self.precisions.iter().copied().enumerate() {
            let (label, at) = (label(precision), Some((at, precision)));
            let on_grid = match precision.weights {
                FULL => "base".into(),
                _ => format!("on_grid_{label}"),
            };
            if merged && lora {
                let folder = directory.join(format!("merged_lora_{label}"));
                self.folder(&folder, at, |network, pass| network.merged(pass))?;
            }
            // Without LoRA, what a pass multiplies by is the base on its grid.
            if (parts || (merged && !lora)) && !directory.join(&on_grid).exists() {
                self.folder(&directory.join(&on_grid), at, |network, pass| network.on_grid(pass))?;
            }
            if parts {
                if precision.weights != FULL || precision.activations != FULL || precision.key_values != FULL {
                    self.quantisers(&directory.join(&on_grid), at)?;
                }
                if lora {
                    self.adapter(&directory.join(format!("lora_{label}")), &on_grid, at)?;
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, at: Option<(usize, Precision)>) -> QuantContext<'_> {
        QuantContext { rules: self.rules, at, ranges: &mut *self.ranges, observe: None, frozen: true }
    }

    /// A folder that `GPT2LMHeadModel.from_pretrained` and `AutoTokenizer.from_pretrained` read.
    fn folder(
        &mut self,
        folder: &Path,
        at: Option<(usize, Precision)>,
        change: impl FnOnce(Gpt2, &QuantContext<'_>) -> Gpt2,
    ) -> Result<(), TaskError> {
        create(folder)?;
        let network = self.network.clone();
        let vocabulary = network.embedding_matrix().dims()[0];
        let config = config(network.shape(), vocabulary, self.tokenizer.end());
        let changed = change(network, &self.pass(at));
        weights::write(&changed, &folder.join("model.safetensors"))?;
        let (tokens, merges) = self.tokenizer.files();
        put(&folder.join("config.json"), &pretty(&config))?;
        put(&folder.join("vocab.json"), &tokens)?;
        put(&folder.join("merges.txt"), &merges)?;
        put(&folder.join("tokenizer_config.json"), &pretty(&tokenizer_config(self.network.shape())))
    }

    /// LoRA of a precision as PEFT has it: matrices of outputs by inputs, and to which layers they belong.
    fn adapter(&mut self, folder: &Path, base: &str, at: Option<(usize, Precision)>) -> Result<(), TaskError> {
        create(folder)?;
        let network = self.network.clone();
        let pass = self.pass(at);
        let mut tensors = Vec::new();
        for block in 0..network.blocks() {
            for (layer, linear) in network.layers(block) {
                let Some((a, b)) = linear.adapter(&pass) else { continue };
                let name = format!("base_model.model.transformer.h.{block}.{}", part(layer));
                tensors.push((format!("{name}.lora_A.weight"), Numbers::of(a.transpose())));
                tensors.push((format!("{name}.lora_B.weight"), Numbers::of(b.transpose())));
            }
        }
        save(tensors, &folder.join("adapter_model.safetensors"))?;
        put(&folder.join("adapter_config.json"), &pretty(&adapter_config(self.settings, base)))
    }

    /// The numbers of the grids of a precision, beside its base.
    fn quantisers(&mut self, folder: &Path, at: Option<(usize, Precision)>) -> Result<(), TaskError> {
        let Some((number, precision)) = at else { return Ok(()) };
        let network = self.network.clone();
        let mut tensors = Vec::new();
        let mut add = |name: String, (scale, zero): (Tensor<1>, Tensor<1>)| {
            tensors.push((format!("{name}_scale"), Numbers::of(scale)));
            tensors.push((format!("{name}_zero_point"), Numbers::of(zero)));
        };
        for block in 0..network.blocks() {
            for (quantiser, (layer, linear)) in network.layers(block).enumerate() {
                let name = format!("h.{block}.{}", part(layer));
                if let Some(grid) = linear.weight_scale(&self.pass(at)) {
                    add(format!("{name}.weight"), grid);
                }
                if let Some(grid) = self.range(number, precision.activations, block, quantiser) {
                    add(format!("{name}.input"), grid);
                }
            }
            for (quantiser, name) in [(KEYS, "key"), (VALUES, "value")] {
                if let Some(grid) = self.range(number, precision.key_values, block, quantiser) {
                    add(format!("h.{block}.attn.{name}"), grid);
                }
            }
        }
        save(tensors, &folder.join("quantisers.safetensors"))?;
        put(&folder.join("quantisers.json"), &pretty(&quantisers(self.settings, precision)))
    }

    /// Scale and zero point of a range that is held.
    fn range(&mut self, precision: usize, bits: u32, block: usize, quantiser: usize) -> Option<(Tensor<1>, Tensor<1>)> {
        if bits == FULL {
            return None;
        }
        let QuantRange { low, high } = self.ranges.of(precision, block * QUANTISERS + quantiser).bounds()?.clone();
        Some(self.rules.activation_grid(bits).scale_and_zero(low, high))
    }
}

/// A layer's name in GPT-2's files, below its block.
fn part(layer: Layer) -> &'static str {
    match layer {
        Layer::AttentionInput => "attn.c_attn",
        Layer::AttentionOutput => "attn.c_proj",
        Layer::MlpInput => "mlp.c_fc",
        Layer::MlpOutput => "mlp.c_proj",
    }
}

/// GPT-2's `config.json`. There was no dropout in training.
fn config(shape: Gpt2Shape, vocabulary: usize, end: u32) -> Value {
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": vocabulary,
        "n_positions": shape.context,
        "n_ctx": shape.context,
        "n_embd": shape.width,
        "n_layer": shape.layers,
        "n_head": shape.heads,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": true,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": end,
        "eos_token_id": end,
        "torch_dtype": "float32"
    })
}

fn tokenizer_config(shape: Gpt2Shape) -> Value {
    json!({
        "tokenizer_class": "GPT2Tokenizer",
        "model_max_length": shape.context,
        "add_prefix_space": false,
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "unk_token": END_OF_TEXT
    })
}

fn adapter_config(settings: &Settings, base: &str) -> Value {
    let layers: Vec<&str> = settings.lora_layers.iter().map(|layer| part(*layer)).collect();
    json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": format!("../{base}"),
        "r": settings.lora_rank,
        "lora_alpha": settings.lora_alpha,
        "lora_dropout": 0.0,
        "target_modules": layers,
        "fan_in_fan_out": true,
        "bias": "none",
        "inference_mode": true
    })
}

/// What the scales mean.
fn quantisers(settings: &Settings, precision: Precision) -> Value {
    let bits = |bits: u32| if bits == FULL { Value::Null } else { bits.into() };
    let granularity = match settings.ranges {
        settings::Ranges::PerToken => json!("per-token"),
        _ => json!(settings.activation_granularity),
    };
    json!({
        "formula": "level = clamp(round(x / scale) + zero_point, least, most); x' = (level - zero_point) * scale",
        "levels": "symmetric: least = -(2^(bits - 1) - 1), most = 2^(bits - 1) - 1; asymmetric: 0 to 2^bits - 1",
        "weight": {
            "bits": bits(precision.weights),
            "scheme": settings.weight_scheme,
            "granularity": settings.weight_granularity,
            "scale": settings.weight_scale,
            "shape": "[inputs, outputs]; a scale, or one for each output"
        },
        "input": {
            "bits": bits(precision.activations),
            "scheme": settings.activation_scheme,
            "granularity": granularity,
            "ranges": settings.ranges
        },
        "key_value": {
            "bits": bits(precision.key_values),
            "scheme": settings.activation_scheme,
            "granularity": granularity,
            "ranges": settings.ranges
        }
    })
}

/// 32-bit floats of a tensor, for a file.
struct Numbers {
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Numbers {
    fn of<const D: usize>(tensor: Tensor<D>) -> Self {
        let shape = tensor.dims().to_vec();
        Self { shape, bytes: tensor.into_data().iter::<f32>().flat_map(f32::to_le_bytes).collect() }
    }
}

impl View for Numbers {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        self.bytes.as_slice().into()
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

fn save(tensors: Vec<(String, Numbers)>, path: &Path) -> Result<(), TaskError> {
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    safetensors::serialize_to_file(tensors, Some(metadata), path).map_err(|error| TaskError::file(path, error))
}

fn create(folder: &Path) -> Result<(), TaskError> {
    std::fs::create_dir(folder).map_err(|error| TaskError::file(folder, error))
}

fn pretty(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), TaskError> {
    write::replace(path, bytes).map_err(|error| TaskError::file(path, error.source))
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
