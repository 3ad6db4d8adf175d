//! Export of a trained model in the file formats of Hugging Face's transformers and PEFT.
//!
//! ```text
//! merged_lora_w8/   grid(W) + alpha / r · grid(A) grid(B), as floats    from_pretrained   export_merged
//! base/             W                                                   from_pretrained   export_components
//! on_grid_w8/       grid(W): values of an 8-bit grid, as floats         from_pretrained   export_components
//!     quantizers.safetensors, quantizers.json                           scales, zero points, ranges
//! lora_w8/          grid(A), grid(B)                                    PEFT, on top of on_grid_w8
//! ```
//! A sum of quantised matrices is not itself quantised: a merged model is no 8-bit model, and its name says `lora`. Programs
//! that read these files do not quantise activations, keys and values.

use std::path::Path;

use safetensors::tensor::{Dtype, View};
use serde_json::{Value, json};
use xrun_ops::QuantRange;

use super::context::{QuantConfig, QuantContext};
use super::network::{Gpt2Network, layers, with_weights};
use super::precision::{FULL_PRECISION, Precision};
use super::ranges::{KEYS, QUANTIZERS_PER_BLOCK, Ranges, VALUES};
use super::settings::{self, Layer, QatLanguageModel};
use xrun_core::files::write;
use xrun_core::task::TaskError;
use xrun_data::tokenizer::{END_OF_TEXT, Tokenizer};
use xrun_training::gpt2_shape::Gpt2Shape;
use xrun_training::nn::gpt2::Projection;
use xrun_training::nn::{Tensor, checkpoint_weights};

/// Model to export.
pub struct Export<'a> {
    /// Network on the inner device.
    pub network: Gpt2Network,
    /// Quantisation settings.
    pub config: &'a QuantConfig,
    /// Precisions in the order of the network's LoRA.
    pub precisions: &'a [Precision],
    /// Ranges of activations, by precision and quantizer.
    pub ranges: &'a mut Ranges,
    /// Tokenizer, whose files are written next to the weights.
    pub tokenizer: &'a Tokenizer,
}

/// Label of a precision in directory names: `w8` for weights of 8 bits, `full` for unquantised ones.
fn label(precision: Precision) -> String {
    match precision.weights {
        FULL_PRECISION => "full".into(),
        bits => format!("w{bits}"),
    }
}

impl Export<'_> {
    /// Writes the models that the settings ask for into the directory of a checkpoint, one at a time.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&mut self, directory: &Path) -> Result<(), TaskError> {
        let (merged, parts) = (self.config.settings.export_merged, self.config.settings.export_components);
        let lora = layers(&self.network, 0).any(|(_, linear)| !linear.lora.is_empty());
        if parts {
            self.write_model(&directory.join("base"), None, |quant, linear| quant.quantised_base(linear))?;
        }
        for (at, precision) in self.precisions.iter().copied().enumerate() {
            let (label, at) = (label(precision), Some((at, precision)));
            let on_grid = match precision.weights {
                FULL_PRECISION => "base".into(),
                _ => format!("on_grid_{label}"),
            };
            if merged && lora {
                let directory = directory.join(format!("merged_lora_{label}"));
                self.write_model(&directory, at, |quant, linear| quant.merged_weight(linear))?;
            }
            // Without LoRA, the merged model is the quantised base.
            if (parts || (merged && !lora)) && !directory.join(&on_grid).exists() {
                self.write_model(&directory.join(&on_grid), at, |quant, linear| quant.quantised_base(linear))?;
            }
            if parts {
                if precision.weights != FULL_PRECISION
                    || precision.activations != FULL_PRECISION
                    || precision.key_values != FULL_PRECISION
                {
                    self.write_quantizers(&directory.join(&on_grid), at)?;
                }
                if lora {
                    self.write_adapter(&directory.join(format!("lora_{label}")), &on_grid, at)?;
                }
            }
        }
        Ok(())
    }

    fn context(&mut self, at: Option<(usize, Precision)>) -> QuantContext<'_> {
        QuantContext::new(self.config, at, self.ranges)
    }

    /// Writes a directory that `GPT2LMHeadModel.from_pretrained` and `AutoTokenizer.from_pretrained` read.
    fn write_model(
        &mut self,
        directory: &Path,
        at: Option<(usize, Precision)>,
        weight: fn(&QuantContext<'_>, &Projection) -> Tensor<2>,
    ) -> Result<(), TaskError> {
        create_directory(directory)?;
        let network = self.network.clone();
        let vocabulary = network.embedding_matrix().dims()[0];
        let config = config(network.shape(), vocabulary, self.tokenizer.eos_token());
        let quant = self.context(at);
        let changed = with_weights(network, |linear| weight(&quant, linear));
        checkpoint_weights::write(&changed, &directory.join("model.safetensors"), "format", "pt")?;
        let (tokens, merges) = self.tokenizer.files();
        write_file(&directory.join("config.json"), &pretty_json(&config))?;
        write_file(&directory.join("vocab.json"), &tokens)?;
        write_file(&directory.join("merges.txt"), &merges)?;
        write_file(&directory.join("tokenizer_config.json"), &pretty_json(&tokenizer_config(self.network.shape())))
    }

    /// Writes the LoRA of a precision as a PEFT adapter, whose matrices are `[outputs, inputs]`.
    fn write_adapter(&mut self, directory: &Path, base: &str, at: Option<(usize, Precision)>) -> Result<(), TaskError> {
        create_directory(directory)?;
        let network = self.network.clone();
        let quant = self.context(at);
        let mut tensors = Vec::new();
        for block in 0..network.blocks() {
            for (layer, linear) in layers(&network, block) {
                let Some((a, b)) = quant.adapter(linear) else { continue };
                let name = format!("base_model.model.transformer.h.{block}.{}", parameter_path(layer));
                tensors.push((format!("{name}.lora_A.weight"), Floats::new(a.transpose())));
                tensors.push((format!("{name}.lora_B.weight"), Floats::new(b.transpose())));
            }
        }
        save(tensors, &directory.join("adapter_model.safetensors"))?;
        write_file(&directory.join("adapter_config.json"), &pretty_json(&adapter_config(&self.config.settings, base)))
    }

    /// Writes scales and zero points of a precision next to its base.
    fn write_quantizers(&mut self, directory: &Path, at: Option<(usize, Precision)>) -> Result<(), TaskError> {
        let Some((number, precision)) = at else { return Ok(()) };
        let network = self.network.clone();
        let mut tensors = Vec::new();
        let mut add = |name: String, (scale, zero): (Tensor<1>, Tensor<1>)| {
            tensors.push((format!("{name}_scale"), Floats::new(scale)));
            tensors.push((format!("{name}_zero_point"), Floats::new(zero)));
        };
        for block in 0..network.blocks() {
            for (quantizer, (layer, linear)) in layers(&network, block).enumerate() {
                let name = format!("h.{block}.{}", parameter_path(layer));
                if let Some(grid) = self.context(at).weight_scale(linear) {
                    add(format!("{name}.weight"), grid);
                }
                if let Some(grid) = self.activation_scale(number, precision.activations, block, quantizer) {
                    add(format!("{name}.input"), grid);
                }
            }
            for (quantizer, name) in [(KEYS, "key"), (VALUES, "value")] {
                if let Some(grid) = self.activation_scale(number, precision.key_values, block, quantizer) {
                    add(format!("h.{block}.attn.{name}"), grid);
                }
            }
        }
        save(tensors, &directory.join("quantizers.safetensors"))?;
        write_file(
            &directory.join("quantizers.json"),
            &pretty_json(&quantizer_config(&self.config.settings, precision)),
        )
    }

    /// Scale and zero point of an activation quantizer; `None` if it quantises nothing.
    fn activation_scale(
        &mut self,
        precision: usize,
        bits: u32,
        block: usize,
        quantizer: usize,
    ) -> Option<(Tensor<1>, Tensor<1>)> {
        if bits == FULL_PRECISION {
            return None;
        }
        let QuantRange { low, high } =
            self.ranges.range_mut(precision, block * QUANTIZERS_PER_BLOCK + quantizer).bounds()?.clone();
        Some(self.config.activation_quantizer(bits).scale_and_zero(low, high))
    }
}

/// Name of a layer in GPT-2's files, below its block.
fn parameter_path(layer: Layer) -> &'static str {
    match layer {
        Layer::AttentionInput => "attn.c_attn",
        Layer::AttentionOutput => "attn.c_proj",
        Layer::MlpInput => "mlp.c_fc",
        Layer::MlpOutput => "mlp.c_proj",
    }
}

/// Content of `config.json`. Training has no dropout.
fn config(shape: Gpt2Shape, vocabulary: usize, eos_token: u32) -> Value {
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": vocabulary,
        "n_positions": shape.context_length,
        "n_ctx": shape.context_length,
        "n_embd": shape.hidden_size,
        "n_layer": shape.layers,
        "n_head": shape.heads,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": true,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": eos_token,
        "eos_token_id": eos_token,
        "torch_dtype": "float32"
    })
}

fn tokenizer_config(shape: Gpt2Shape) -> Value {
    json!({
        "tokenizer_class": "GPT2Tokenizer",
        "model_max_length": shape.context_length,
        "add_prefix_space": false,
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "unk_token": END_OF_TEXT
    })
}

fn adapter_config(settings: &QatLanguageModel, base: &str) -> Value {
    let layers: Vec<&str> = settings.lora_layers.iter().map(|layer| parameter_path(*layer)).collect();
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

/// Content of `quantizers.json`, which documents the scales.
fn quantizer_config(settings: &QatLanguageModel, precision: Precision) -> Value {
    let bits = |bits: u32| if bits == FULL_PRECISION { Value::Null } else { bits.into() };
    let granularity = match settings.activation_ranges {
        settings::RangeSource::PerToken => json!("per-token"),
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
            "ranges": settings.activation_ranges
        },
        "key_value": {
            "bits": bits(precision.key_values),
            "scheme": settings.activation_scheme,
            "granularity": granularity,
            "ranges": settings.activation_ranges
        }
    })
}

/// 32-bit floats of a tensor as safetensors writes them.
struct Floats {
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Floats {
    fn new<const D: usize>(tensor: Tensor<D>) -> Self {
        let shape = tensor.dims().to_vec();
        Self { shape, bytes: tensor.into_data().iter::<f32>().flat_map(f32::to_le_bytes).collect() }
    }
}

impl View for Floats {
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

fn save(tensors: Vec<(String, Floats)>, path: &Path) -> Result<(), TaskError> {
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    safetensors::serialize_to_file(tensors, Some(metadata), path).map_err(|error| TaskError::file(path, error))
}

fn create_directory(directory: &Path) -> Result<(), TaskError> {
    std::fs::create_dir(directory).map_err(|error| TaskError::file(directory, error))
}

fn pretty_json(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), TaskError> {
    write::replace(path, bytes).map_err(|error| TaskError::file(path, error.source))
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
