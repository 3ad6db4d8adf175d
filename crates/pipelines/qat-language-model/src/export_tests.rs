//! Tests of exports against transformers and PEFT, and of the quantisation levels of exported weights.

use std::collections::BTreeMap;
use std::path::PathBuf;

use burn::module::{Module, Param};
use burn::tensor::TensorData;
use safetensors::SafeTensors;

use super::super::network;
use super::super::precision::precisions;
use super::super::settings::Gpt2;
use super::*;
use xrun_data::tokenizer::Words;
use xrun_training::nn::gpt2::Block;
use xrun_training::nn::gpt2_file;
use xrun_training::nn::matmul::ComputeDtype;
use xrun_training::nn::testing::{autodiff, close, json_numbers, plain, values};
use xrun_training::nn::transformer::tokens;

/// LoRA rank of `tests/reference/merged_gpt2.py`.
const RANK: usize = 2;

fn settings() -> QatLanguageModel {
    QatLanguageModel {
        weight_bits: vec![32, 4],
        activation_bits: vec![32, 32],
        kv_cache_bits: vec![32, 32],
        lora_rank: RANK,
        export_merged: true,
        export_components: true,
        ..QatLanguageModel::default()
    }
}

fn reference() -> Value {
    serde_json::from_str(include_str!("../../../../tests/reference/merged_gpt2.json")).unwrap()
}

fn model(settings: &QatLanguageModel) -> Gpt2Network {
    let tiny =
        Gpt2 { layers: Some(2), heads: Some(2), hidden_size: Some(8), context_length: Some(8), ..Gpt2::default() };
    network::new(settings, &tiny, 11, 1, &autodiff())
}

fn read(settings: &QatLanguageModel, path: &Path) -> Gpt2Network {
    let mut network = model(settings);
    gpt2_file::read(&mut network, path).unwrap();
    network.valid()
}

/// Reference model with the LoRA of the script.
fn network(settings: &QatLanguageModel) -> Gpt2Network {
    let path =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../..")).join("tests/reference/gpt2_tiny.safetensors");
    let mut network = read(settings, &path);
    let drawn = |[rows, columns]: [usize; 2], factor: f64, function: fn(f64) -> f64, phase: f64| {
        let value = |at: usize| {
            let angle = 0.7 * (at / columns) as f64 + 1.3 * (at % columns) as f64;
            (factor * function(phase + angle)) as f32
        };
        let values: Vec<f32> = (0..rows * columns).map(value).collect();
        Param::from_tensor(Tensor::<2>::from_data(TensorData::new(values, [rows, columns]), &plain()))
    };
    for (number, linear) in network.h.iter_mut().flat_map(Block::projections_mut).enumerate() {
        for lora in &mut linear.lora {
            lora.a = drawn(lora.a.dims(), 0.5, f64::sin, 1.0 + number as f64);
            lora.b = drawn(lora.b.dims(), 0.05, f64::cos, 2.0 + number as f64);
        }
    }
    network
}

fn exported(settings: &QatLanguageModel) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let config = QuantConfig { settings: settings.clone(), matmul: ComputeDtype::Float32 };
    let precisions = precisions(settings);
    let tokenizer = Tokenizer::learn(&Words::default(), 257).unwrap();
    let network = network(settings);
    let mut ranges = Ranges::new(precisions.len(), 2);
    let (config, precisions, ranges) = (&config, &precisions[..], &mut ranges);
    let mut export = Export { network, config, precisions, ranges, tokenizer: &tokenizer };
    export.write(directory.path()).unwrap();
    directory
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Shape and values by name.
fn tensors(path: PathBuf) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let floats = |data: &[u8]| data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    file.iter().map(|(name, tensor)| (name.to_owned(), (tensor.shape().to_vec(), floats(tensor.data())))).collect()
}

fn record(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn logits(directory: PathBuf) -> Vec<f32> {
    let settings = QatLanguageModel { lora_rank: 0, ..settings() };
    let network = read(&settings, &directory.join("model.safetensors"));
    let known: Value = serde_json::from_str(include_str!("../../../../tests/reference/gpt2_tiny.json")).unwrap();
    let rows: Vec<Vec<i32>> = serde_json::from_value(known["tokens"].clone()).unwrap();
    let mut ranges = Ranges::new(2, 2);
    let config = QuantConfig { settings, matmul: ComputeDtype::Float32 };
    let mut quant = QuantContext::new(&config, None, &mut ranges);
    values(network.forward(tokens(&rows.concat(), 2, 8, &plain()), &mut quant))
}

/// Oracle: PyTorch, transformers and PEFT, `tests/reference/merged_gpt2.py`.
#[test]
fn merged_model_scales_and_adapter_equal_those_of_transformers_and_peft() {
    let (directory, expected) = (exported(&settings()), reference());
    let all = ["base", "lora_full", "lora_w4", "merged_lora_full", "merged_lora_w4", "on_grid_w4"];
    assert_eq!(names(directory.path()), all);
    close(&logits(directory.path().join("merged_lora_w4")), &json_numbers(&expected["logits"]), 1e-4);
    let bytes = std::fs::read(directory.path().join("merged_lora_w4/model.safetensors")).unwrap();
    let (_, head) = SafeTensors::read_metadata(&bytes).unwrap();
    let one: Option<std::collections::HashMap<String, String>> = Some([("format".to_owned(), "pt".to_owned())].into());
    assert_eq!(head.metadata(), &one, "the order of several entries would be random");
    let scales = tensors(directory.path().join("on_grid_w4/quantizers.safetensors"));
    assert_eq!(scales.len(), 2 * 8, "activations are not quantised");
    for (name, expected) in expected["scales"].as_object().unwrap() {
        close(&scales[&format!("{name}_scale")].1, &json_numbers(expected), 1e-6);
        assert!(scales[&format!("{name}_zero_point")].1.iter().all(|zero| *zero == 0.0));
    }
    let adapter = tensors(directory.path().join("lora_w4/adapter_model.safetensors"));
    assert_eq!(adapter.len(), expected["adapter"].as_object().unwrap().len());
    for (name, expected) in expected["adapter"].as_object().unwrap() {
        let (shape, values) = &adapter[name];
        assert_eq!(&serde_json::json!(shape), &expected["shape"], "{name}");
        close(values, &json_numbers(&expected["values"]), 2e-6);
    }
    let found = record(directory.path().join("lora_w4/adapter_config.json"));
    for (name, expected) in expected["adapter_config"].as_object().unwrap() {
        assert_eq!(&found[name], expected, "{name}");
    }
    assert_eq!(found["base_model_name_or_path"], "../on_grid_w4");
    assert_eq!(found["target_modules"], serde_json::json!(["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]));
    let found = record(directory.path().join("merged_lora_w4/config.json"));
    for (name, expected) in expected["config"].as_object().unwrap() {
        assert_eq!(&found[name], expected, "{name}");
    }
}

/// A merged file once had as many distinct values per column as rows although its name claimed 4 bits.
#[test]
fn only_models_named_on_grid_have_quantised_weights() {
    for (weight_scale, symmetric) in [
        (settings::WeightScale::MinMax, true),
        (settings::WeightScale::MinMax, false),
        (settings::WeightScale::Learned, true),
    ] {
        let weight_scheme = if symmetric { settings::Scheme::Symmetric } else { settings::Scheme::Asymmetric };
        let directory = exported(&QatLanguageModel { weight_scale, weight_scheme, ..settings() });
        let scales = tensors(directory.path().join("on_grid_w4/quantizers.safetensors"));
        // All values of the layers are levels of the quantizer of their column.
        let on_grid = |name: &str| {
            let weights = tensors(directory.path().join(name).join("model.safetensors"));
            let names: Vec<&String> =
                weights.keys().filter(|name| scales.contains_key(&format!("{name}_scale"))).collect();
            assert_eq!(names.len(), 8);
            names.into_iter().all(|name| {
                let (scale, zero) = (&scales[&format!("{name}_scale")].1, &scales[&format!("{name}_zero_point")].1);
                let (least, most) = if symmetric { (-7.0, 7.0) } else { (0.0, 15.0) };
                weights[name].1.iter().enumerate().all(|(at, value)| {
                    let level = value / scale[at % scale.len()] + zero[at % scale.len()];
                    (level - level.round()).abs() < 1e-3 && (least..=most).contains(&level.round())
                })
            })
        };
        assert!(on_grid("on_grid_w4"));
        assert!(!on_grid("merged_lora_w4") && !on_grid("base"));
    }
}

#[test]
fn without_lora_only_the_quantised_base_is_exported() {
    let settings = QatLanguageModel { lora_rank: 0, export_components: false, ..settings() };
    let directory = exported(&settings);
    assert_eq!(names(directory.path()), ["base", "on_grid_w4"]);
    let files = ["config.json", "merges.txt", "model.safetensors", "tokenizer_config.json", "vocab.json"];
    assert_eq!(names(&directory.path().join("on_grid_w4")), files);
    let directory = exported(&QatLanguageModel { export_components: true, ..settings });
    assert_eq!(names(&directory.path().join("on_grid_w4")).len(), files.len() + 2, "with scales");
}
