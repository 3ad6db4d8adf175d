//! Tests of the quantised GPT-2 against transformers, of its gradients, ranges, merged weights and KV cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::module::Module;
use burn::optim::GradientsAccumulator;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;
use xrun_ops::{CpuKernels, next_token_loss};

use super::super::batch::TokenBatch;
use super::super::context::{QuantConfig, RangeObserver};
use super::super::precision::Precision;
use super::super::ranges::Ranges;
use super::super::recompute;
use super::super::settings::{self, BaseTraining, Granularity, LossTokens, MatmulDtype, Scheme, WeightScale};
use super::super::sizes::ParameterCounts;
use super::*;
use xrun_core::bounded::ledger::Ledger;
use xrun_data::question_answers::example::Example;
use xrun_training::nn::generate::{Completion, DecodeCache, GenerationLimits, complete};
use xrun_training::nn::matmul::ComputeDtype;
use xrun_training::nn::step::TrainState;
use xrun_training::nn::testing::{self, autodiff, close, json_numbers, plain, values};
use xrun_training::nn::transformer::{map_values, tokens};
use xrun_training::nn::{checkpoint_weights, gpt2_file};

const VOCABULARY: usize = 11;

fn tiny() -> Gpt2 {
    Gpt2 { layers: Some(2), heads: Some(2), hidden_size: Some(8), context_length: Some(8), ..Gpt2::default() }
}

fn settings() -> QatLanguageModel {
    QatLanguageModel { lora_rank: 2, ..QatLanguageModel::default() }
}

fn quant_config(settings: &QatLanguageModel) -> QuantConfig {
    QuantConfig { settings: settings.clone(), matmul: ComputeDtype::Float32 }
}

/// Bounds of all ranges, concatenated.
fn bounds(ranges: &Ranges) -> Vec<f32> {
    ranges.copies().into_iter().flat_map(|bounds| [values(bounds.low), values(bounds.high)].concat()).collect()
}

fn reference(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../..")).join("tests/reference").join(name)
}

fn reference_values() -> Value {
    serde_json::from_slice(&std::fs::read(reference("gpt2_tiny.json")).unwrap()).unwrap()
}

/// Reference model with the LoRA of the settings, whose second matrices are not zero.
fn network(settings: &QatLanguageModel) -> Gpt2Network {
    let mut network = new(settings, &tiny(), VOCABULARY, 1, &autodiff());
    gpt2_file::read(&mut network, &reference("gpt2_tiny.safetensors")).unwrap();
    for block in &mut network.h {
        for linear in block.projections_mut() {
            for lora in &mut linear.lora {
                lora.b = map_values(&lora.b, |b| b.add_scalar(0.3));
            }
        }
    }
    network
}

/// Batch of `texts`, padded with `eos_token` to eight tokens.
fn batch_of(texts: &[Vec<u32>], eos_token: u32) -> TokenBatch {
    let example = |tokens: &Vec<u32>| {
        Arc::new(Example { tokens: tokens.clone(), prompt_length: 1, answers: vec![], others: vec![] })
    };
    TokenBatch::new(&texts.iter().map(example).collect::<Vec<_>>(), 8, LossTokens::All, eos_token, "")
}

fn batch() -> TokenBatch {
    let all = reference_values();
    let rows = |name: &str| -> Vec<Vec<u32>> { serde_json::from_value(all[name].clone()).unwrap() };
    let texts: Vec<Vec<u32>> = rows("tokens")
        .into_iter()
        .zip(rows("targets"))
        .map(|(text, next)| [text, next[7..].to_vec()].concat())
        .collect();
    let mut batch = batch_of(&texts, 0);
    batch.loss_mask = vec![1.0 / 16.0; 16];
    batch
}

/// Loss and gradients by path of the parameter.
fn gradients(
    network: &Gpt2Network,
    settings: &QatLanguageModel,
    at: Option<usize>,
    ranges: &mut Ranges,
    recomputed: bool,
) -> (f32, Vec<(String, Vec<f32>)>) {
    gradients_of(&batch(), network, settings, at, ranges, recomputed)
}

fn gradients_of(
    batch: &TokenBatch,
    network: &Gpt2Network,
    settings: &QatLanguageModel,
    at: Option<usize>,
    ranges: &mut Ranges,
    recomputed: bool,
) -> (f32, Vec<(String, Vec<f32>)>) {
    let matmul = ComputeDtype::for_device(settings.matmul_dtype, &plain()).unwrap();
    let config = QuantConfig { settings: settings.clone(), matmul };
    let frozen = at.is_some() && config.base_frozen();
    let at = at.map(|at| (at, precisions(settings)[at]));
    let mut quant = QuantContext {
        config: &config,
        precision: at,
        ranges,
        observer: Some(RangeObserver::MovingAverage(text_positions(batch, &plain()))),
        frozen,
    };
    let mut into = GradientsAccumulator::new();
    let inputs = tokens(&batch.inputs, batch.size, batch.length, &autodiff());
    let loss_of = |logits| next_token_loss(logits, loss_targets(batch, None));
    let loss = recompute::backward(network, inputs, &mut quant, recomputed, loss_of, None, &mut into);
    (values(loss.total)[0], testing::gradients(network, into.grads()))
}

/// Oracle: transformers' GPT-2 on PyTorch, `tests/reference/gpt2_tiny.py`.
#[test]
fn logits_loss_and_gradients_equal_those_of_transformers() {
    let (all, settings) = (reference_values(), settings());
    let network = network(&settings);
    let mut ranges = Ranges::new(3, 2);
    let config = quant_config(&settings);
    let mut quant = QuantContext::new(&config, None, &mut ranges);
    let batch = batch();
    let logits = network.valid().forward(tokens(&batch.inputs, 2, 8, &plain()), &mut quant);
    close(&values(logits), &json_numbers(&all["logits"]), 2e-5);
    let (loss, gradients) = gradients(&network, &settings, None, &mut ranges, false);
    close(&[loss], &[all["loss"].as_f64().unwrap() as f32], 1e-5);
    for (name, expected) in all["gradients"].as_object().unwrap() {
        let (_, found) = gradients.iter().find(|(path, _)| path == name).unwrap_or_else(|| panic!("no {name}"));
        close(found, &json_numbers(expected), 1e-5);
    }
}

#[test]
fn weights_that_do_not_fit_are_refused_by_file_and_tensor() {
    let refusal = |model: Gpt2, file: &str| {
        let mut network = new(&settings(), &model, VOCABULARY, 1, &autodiff());
        gpt2_file::read(&mut network, &reference(file)).unwrap_err().to_string()
    };
    let weights = "gpt2_tiny.safetensors";
    for (model, file, named) in [
        (Gpt2 { hidden_size: Some(16), ..tiny() }, weights, vec!["layers", "hidden_size", "context_length"]),
        (Gpt2 { layers: Some(3), ..tiny() }, weights, vec!["`h.2."]),
        (Gpt2 { layers: Some(1), ..tiny() }, weights, vec!["`h.1.", "`layers`"]),
        (tiny(), "gpt2_tiny.json", vec![]),
    ] {
        let message = refusal(model, file);
        assert!(message.contains(file) && named.iter().all(|name| message.contains(name)), "{message}");
    }
}

#[test]
fn an_untied_output_and_an_unknown_tensor_are_refused() {
    let bytes = std::fs::read(reference("gpt2_tiny.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let embedding = file.tensor("transformer.wte.weight").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.safetensors");
    for (name, change, refusal) in [
        ("lm_head.weight", 0, None),
        ("transformer.h.0.attn.masked_bias", 0, None),
        ("lm_head.weight", 1, Some("`lm_head.weight` differs from `wte.weight`")),
        ("score.weight", 0, Some("`score.weight`")),
    ] {
        let mut data = embedding.data().to_vec();
        data[7] ^= change;
        let more = TensorView::new(Dtype::F32, embedding.shape().to_vec(), &data).unwrap();
        let tensors = file.tensors().into_iter().chain([(name.to_owned(), more)]);
        safetensors::serialize_to_file(tensors, None, &path).unwrap();
        let read = gpt2_file::read(&mut new(&settings(), &tiny(), VOCABULARY, 1, &autodiff()), &path);
        let message = read.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(message.is_empty(), refusal.is_none(), "{name}: {message}");
        assert!(message.contains(refusal.unwrap_or_default()), "{message}");
    }
}

#[test]
fn with_a_frozen_base_only_the_lora_of_the_precision_has_gradients() {
    let settings = settings();
    let network = network(&settings);
    let (_, found) = gradients(&network, &settings, Some(1), &mut Ranges::new(3, 2), false);
    assert_eq!(found.len(), 2 * 4 * 2, "A and B of four layers of two blocks");
    assert!(found.iter().all(|(path, _)| path.contains(".lora.1.")), "{:?}", found[0].0);
    assert!(found.iter().all(|(_, values)| values.iter().any(|value| *value != 0.0)));
}

#[test]
fn sizes_equal_the_parameters_that_the_network_has_and_trains() {
    for (base, weight_scale, granularity) in [
        (BaseTraining::Frozen, WeightScale::MinMax, Granularity::PerChannel),
        (BaseTraining::Frozen, WeightScale::Learned, Granularity::PerChannel),
        (BaseTraining::Trained, WeightScale::Learned, Granularity::PerTensor),
    ] {
        let settings = QatLanguageModel { base, weight_scale, weight_granularity: granularity, ..settings() };
        let (network, sizes) = (network(&settings), ParameterCounts::new(&settings, &tiny(), VOCABULARY));
        let mut trained = std::collections::BTreeMap::new();
        for at in 0..3 {
            let (_, found) = gradients(&network, &settings, Some(at), &mut Ranges::new(3, 2), false);
            trained.extend(found.into_iter().map(|(path, values)| (path, values.len() as u64)));
        }
        assert_eq!(sizes.trained(&settings), trained.values().sum::<u64>());
        // Full precision has scales without use.
        let unused = sizes.scales / 2;
        assert_eq!(sizes.base + sizes.lora + sizes.scales + unused, network.num_params() as u64);
    }
}

/// Each rounding changes a value by at most 2^-9 of it, and a gradient passes some dozens.
#[test]
fn matrix_products_in_bfloat16_approximate_those_in_float32() {
    let length = |values: &[f32]| values.iter().map(|value| value * value).sum::<f32>().sqrt();
    for (base, recomputed) in
        [(BaseTraining::Frozen, false), (BaseTraining::Trained, false), (BaseTraining::Trained, true)]
    {
        let wide = QatLanguageModel { base, ..settings() };
        let narrow = QatLanguageModel { matmul_dtype: MatmulDtype::Bfloat16, ..wide.clone() };
        let network = network(&wide);
        for at in [None, Some(1)] {
            let of = |settings| gradients(&network, settings, at, &mut Ranges::new(3, 2), recomputed);
            let ((loss, expected), (near, found)) = (of(&wide), of(&narrow));
            assert!((near - loss).abs() < 0.01 * loss && near != loss, "{near}, in 32 bits {loss}");
            assert_eq!(found.len(), expected.len());
            let all = |gradients: &[(String, Vec<f32>)]| -> Vec<f32> {
                gradients.iter().flat_map(|(_, values)| values.clone()).collect()
            };
            let (found, expected) = (all(&found), all(&expected));
            let apart: Vec<f32> = found.iter().zip(&expected).map(|(one, other)| one - other).collect();
            assert!(length(&apart) < 0.05 * length(&expected), "{} of {}", length(&apart), length(&expected));
        }
    }
}

#[test]
fn ranges_are_updated_by_text_and_not_by_padding() {
    for activation_granularity in [Granularity::PerTensor, Granularity::PerChannel] {
        let settings = QatLanguageModel { activation_granularity, weight_bits: vec![8], lora_rank: 0, ..settings() };
        let (network, config) = (network(&settings).valid(), quant_config(&settings));
        let at = Some((0, Precision { weights: 8, activations: 8, key_values: 8 }));
        let observed = |batch: &TokenBatch| {
            let mut ranges = Ranges::new(1, 2);
            let observer = Some(RangeObserver::MovingAverage(text_positions(batch, &plain())));
            let mut quant =
                QuantContext { config: &config, precision: at, ranges: &mut ranges, observer, frozen: true };
            network.hidden(tokens(&batch.inputs, batch.size, 8, &plain()), &mut quant);
            bounds(&ranges)
        };
        // The last token of a text is only a target.
        let [long, short] = [vec![1, 5, 9, 2, 2, 0, 10, 7, 4], vec![3, 3, 4, 8]];
        let expected = observed(&batch_of(&[long.clone(), short.clone()], 6));
        for filling in [0, 5, 9] {
            assert_eq!(
                observed(&batch_of(&[long.clone(), short.clone()], filling)),
                expected,
                "filled up with {filling}"
            );
        }
        let whole = batch_of(&[long, [short, vec![9; 5]].concat()], 6);
        assert_ne!(observed(&whole), expected, "the same tokens as text");
    }
}

/// Neither the other sequences of a batch nor padding change the logits of a token, which a KV cache requires.
#[test]
fn per_token_ranges_depend_on_one_token_alone() {
    let settings = QatLanguageModel {
        activation_ranges: settings::RangeSource::PerToken,
        activation_scheme: Scheme::Symmetric,
        weight_bits: vec![8, 4],
        activation_bits: vec![8, 4],
        kv_cache_bits: vec![8, 4],
        ..settings()
    };
    let (trained, config) = (network(&settings), quant_config(&settings));
    let plain_network = trained.valid();
    let logits = |texts: &[Vec<u32>], at: usize, filling| {
        let batch = batch_of(texts, filling);
        let mut ranges = Ranges::new(2, 2);
        let observer = Some(RangeObserver::MovingAverage(text_positions(&batch, &plain())));
        let at = Some((at, precisions(&settings)[at]));
        let mut quant = QuantContext { config: &config, precision: at, ranges: &mut ranges, observer, frozen: true };
        let all = values(plain_network.forward(tokens(&batch.inputs, batch.size, 8, &plain()), &mut quant));
        assert!(bounds(&ranges).is_empty());
        all[..4 * VOCABULARY].to_vec()
    };
    let [short, long] = [vec![3, 3, 4, 8, 1], vec![1, 5, 9, 2, 2, 0, 10, 7, 4]];
    let alone = logits(std::slice::from_ref(&short), 0, 6);
    close(&logits(&[short.clone(), long], 0, 9), &alone, 1e-5);
    let narrow = logits(std::slice::from_ref(&short), 1, 6);
    assert!(narrow.iter().zip(&alone).any(|(narrow, wide)| (narrow - wide).abs() > 1e-2), "fewer bits, other numbers");
    let mut unused = Ranges::new(2, 2);
    let (loss, saved) = gradients(&trained, &settings, Some(0), &mut unused, false);
    let (again, recomputed) = gradients(&trained, &settings, Some(0), &mut unused, true);
    close(&[again], &[loss], 1e-6);
    assert!(!saved.is_empty() && saved.iter().all(|(_, values)| values.iter().any(|value| *value != 0.0)));
    for ((path, saved), (other, recomputed)) in saved.iter().zip(&recomputed) {
        assert_eq!(path, other);
        close(recomputed, saved, 1e-5);
    }
}

#[test]
fn a_merged_model_has_the_logits_of_the_model_with_lora() {
    let granular = [(Granularity::PerChannel, Scheme::Symmetric), (Granularity::PerTensor, Scheme::Asymmetric)];
    for (weight_granularity, weight_scheme) in granular {
        let settings = QatLanguageModel {
            activation_bits: vec![32; 3],
            kv_cache_bits: vec![32; 3],
            weight_granularity,
            weight_scheme,
            ..settings()
        };
        let network = network(&settings).valid();
        let config = quant_config(&settings);
        let mut ranges = Ranges::new(3, 2);
        let batch = batch();
        for (at, precision) in precisions(&settings).into_iter().enumerate() {
            let mut quant = QuantContext::new(&config, Some((at, precision)), &mut ranges);
            let expected = values(network.forward(tokens(&batch.inputs, 2, 8, &plain()), &mut quant));
            let merged = with_weights(network.clone(), |linear| quant.merged_weight(linear));
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("merged.safetensors");
            checkpoint_weights::write(&merged, &path, "format", "pt").unwrap();
            // Read into an unquantised model without LoRA, as GPT-2's own weights are.
            let bare = QatLanguageModel { lora_rank: 0, ..settings.clone() };
            let mut read = new(&bare, &tiny(), VOCABULARY, 2, &autodiff());
            gpt2_file::read(&mut read, &path).unwrap();
            let mut whole = QuantContext { precision: None, ..quant };
            let found = values(read.valid().forward(tokens(&batch.inputs, 2, 8, &plain()), &mut whole));
            close(&found, &expected, 1e-4);
        }
    }
}

/// Batch of `count` sequences of five to nine tokens, from number `first` on.
fn sequences(first: u32, count: u32) -> TokenBatch {
    let text = |number: u32| (0..5 + number % 5).map(move |at| (at * 7 + number * 3 + at * number) % VOCABULARY as u32);
    batch_of(&(first..first + count).map(|number| text(number).collect()).collect::<Vec<Vec<u32>>>(), 6)
}

/// Settings that cover all combinations of quantizers, at 32, 8 and 4 bits.
fn all_settings() -> Vec<QatLanguageModel> {
    let four = QatLanguageModel { activation_bits: vec![32, 8, 4], kv_cache_bits: vec![32, 8, 4], ..settings() };
    let trained = QatLanguageModel { base: BaseTraining::Trained, ..four.clone() };
    let per_token = QatLanguageModel { activation_ranges: settings::RangeSource::PerToken, ..trained.clone() };
    vec![
        settings(),
        QatLanguageModel { activation_scheme: Scheme::Symmetric, ..four.clone() },
        QatLanguageModel { lora_quantised: false, kv_cache_bits: vec![32; 3], ..trained.clone() },
        QatLanguageModel { lora_rank: 0, weight_scheme: Scheme::Asymmetric, ..trained.clone() },
        QatLanguageModel {
            weight_granularity: Granularity::PerTensor,
            activation_granularity: Granularity::PerChannel,
            activation_scheme: Scheme::Symmetric,
            ..trained.clone()
        },
        QatLanguageModel { activation_granularity: Granularity::PerChannel, ..trained.clone() },
        QatLanguageModel { activation_scheme: Scheme::Symmetric, ..per_token.clone() },
        per_token,
        QatLanguageModel { weight_scale: WeightScale::Learned, ..trained },
    ]
}

type Found = (f32, Vec<(String, Vec<f32>)>);

/// Largest difference of two sets of gradients, relative to the largest gradient of the parameter. The denominator is at least
/// a hundredth of the largest gradient of all, because some are zero up to rounding: the bias of keys does not change attention.
fn relative_difference((_, one): &Found, (_, other): &Found) -> f32 {
    let largest = |values: &[f32]| values.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
    let least = 0.01 * other.iter().map(|(_, values)| largest(values)).fold(0.0, f32::max);
    assert_eq!(one.len(), other.len());
    let relative = one.iter().zip(other).map(|((path, one), (other_path, other))| {
        assert_eq!((path, one.len()), (other_path, other.len()));
        assert!(one.iter().all(|value| value.is_finite()), "{path}");
        let apart: Vec<f32> = one.iter().zip(other).map(|(one, other)| one - other).collect();
        largest(&apart) / largest(other).max(least)
    });
    relative.fold(0.0, f32::max)
}

/// Both kernels round differently, by some units in the last place. Quantisation removes this difference, or, at the boundary of
/// two levels, turns it into a whole step. Therefore:
/// 1. without quantised activations all gradients agree;
/// 2. with them, most passes of one sequence have no value at a boundary and agree as well;
/// 3. in the others some values are one step apart. Quantisation moves all values by up to half a step, which separates the
///    gradients further from those of unquantised activations than from each other.
#[test]
fn loss_ranges_and_gradients_equal_those_of_burns_operations() {
    const NEAR: f32 = 1e-4;
    for settings in all_settings() {
        let network = network(&settings);
        let unquantised =
            QatLanguageModel { activation_bits: vec![32; 3], kv_cache_bits: vec![32; 3], ..settings.clone() };
        for at in [None, Some(0), Some(1), Some(2)] {
            let quantised = at.is_some_and(|at| at > 0);
            let (mut agreed, mut all) = (0, 0);
            for batch in (0..8).map(|first| sequences(first, 1)).chain([sequences(3, 3), sequences(0, 40)]) {
                let run = |kernels: CpuKernels, settings: &QatLanguageModel| {
                    let mut ranges = Ranges::new(3, 2);
                    let found = kernels.scope(|| gradients_of(&batch, &network, settings, at, &mut ranges, false));
                    (found, bounds(&ranges))
                };
                let ((fused, ranges), (plain, expected)) =
                    (run(CpuKernels::Fused, &settings), run(CpuKernels::Plain, &settings));
                assert_ne!(fused, plain, "different kernels");
                let far = relative_difference(&fused, &plain);
                let agree = far < NEAR && (fused.0 - plain.0).abs() < 1e-5 * plain.0;
                if agree {
                    close(&ranges, &expected, 1e-5);
                }
                if !agree {
                    let step = relative_difference(&run(CpuKernels::Plain, &unquantised).0, &plain);
                    assert!(quantised && far < step, "{far}, {step}: {settings:?} {at:?}");
                }
                if batch.size == 1 {
                    (agreed, all) = (agreed + u32::from(agree), all + 1);
                }
            }
            assert!(2 * agreed > all, "{agreed} of {all}: {settings:?} {at:?}");
        }
    }
}

#[test]
fn neither_threads_nor_recomputation_change_a_bit() {
    let batch = sequences(0, 40);
    for settings in all_settings() {
        let network = network(&settings);
        for at in [None, Some(0), Some(2)] {
            let run = |threads: usize, recomputed: bool| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut ranges = Ranges::new(3, 2);
                let found = pool.install(|| gradients_of(&batch, &network, &settings, at, &mut ranges, recomputed));
                (found, bounds(&ranges))
            };
            let expected = run(1, false);
            assert!(!expected.0.1.is_empty());
            // With recomputation, too, ranges are updated once per batch.
            for (threads, recomputed) in [(2, false), (3, false), (2, true)] {
                assert!(run(threads, recomputed) == expected, "{threads} threads, recomputed: {recomputed}");
            }
        }
    }
}

#[test]
fn gradients_are_accumulated_and_the_teacher_has_the_logits_of_a_forward_pass() {
    let settings = settings();
    let (network, config, batch) = (network(&settings), quant_config(&settings), batch());
    let (mut ranges, mut into, mut teacher) = (Ranges::new(3, 2), GradientsAccumulator::new(), None);
    let mut quant =
        QuantContext { config: &config, precision: None, ranges: &mut ranges, observer: None, frozen: false };
    for _ in 0..2 {
        let inputs = tokens(&batch.inputs, batch.size, batch.length, &autodiff());
        let loss = |logits| next_token_loss(logits, loss_targets(&batch, None));
        recompute::backward(&network, inputs, &mut quant, false, loss, Some(&mut teacher), &mut into);
    }
    let expected = network.valid().forward(tokens(&batch.inputs, 2, 8, &plain()), &mut quant);
    assert_eq!(values(teacher.unwrap()), values(expected));
    let twice = testing::gradients(&network, into.grads());
    let (_, once) = gradients(&network, &settings, None, &mut ranges, false);
    for ((_, twice), (_, once)) in twice.iter().zip(&once) {
        close(twice, &once.iter().map(|value| value * 2.0).collect::<Vec<f32>>(), 1e-5);
    }
}

/// [`complete`] by a forward pass over the whole sequence for each token.
fn complete_without_cache(
    network: &Gpt2Network,
    prompt: &[u32],
    limits: GenerationLimits,
    quant: &mut QuantContext<'_>,
) -> Completion {
    let (mut all, mut probabilities) = (prompt.to_vec(), Vec::new());
    while all.len() < limits.length && all.len() < prompt.len() + limits.tokens {
        let numbers: Vec<i32> = all.iter().map(|token| *token as i32).collect();
        let logits = network.forward(tokens(&numbers, 1, all.len(), &plain()), quant).narrow(0, all.len() - 1, 1);
        let log = values(burn::tensor::activation::log_softmax(logits, 1));
        let likeliest = (0..log.len()).max_by(|one, other| log[*one].total_cmp(&log[*other])).unwrap();
        probabilities.push(f64::from(log[likeliest]));
        if likeliest as u32 == limits.eos_token {
            break;
        }
        all.push(likeliest as u32);
    }
    let mean_log_probability = probabilities.iter().sum::<f64>() / probabilities.len() as f64;
    Completion { tokens: all[prompt.len()..].to_vec(), mean_log_probability }
}

#[test]
fn completions_with_a_kv_cache_equal_those_without_at_every_precision() {
    let prompts: [&[u32]; 4] = [&[1, 5, 9], &[3], &[2, 2, 0, 10, 7, 4], &[4, 8, 1, 1, 9, 3, 5, 2]];
    let ledger = Ledger::default();
    let cache = DecodeCache::new(tiny().shape().decode_cache(1, prompts.len(), 8 + 5).register(&ledger));
    let mut lengths = std::collections::BTreeSet::new();
    for settings in all_settings() {
        let (network, config) = (network(&settings).valid(), quant_config(&settings));
        let mut ranges = Ranges::new(3, 2);
        for at in 0..3 {
            let batch = sequences(0, 40);
            let observer = Some(RangeObserver::MinMax(text_positions(&batch, &plain())));
            let at = Some((at, precisions(&settings)[at]));
            let mut quant =
                QuantContext { config: &config, precision: at, ranges: &mut ranges, observer, frozen: true };
            network.hidden(tokens(&batch.inputs, batch.size, batch.length, &plain()), &mut quant);
            quant.observer = None;
            for eos_token in [6, 10] {
                let limits = GenerationLimits { eos_token, tokens: 5, length: 8, sequences: prompts.len() };
                let not_captured = None::<(&TrainState<Gpt2Network>, u32)>;
                let completions = complete(&network, None, &prompts, limits, &cache, &mut quant, not_captured).unwrap();
                for (prompt, found) in prompts.iter().zip(&completions) {
                    let expected = complete_without_cache(&network, prompt, limits, &mut quant);
                    assert_eq!(found.tokens, expected.tokens, "{settings:?} {at:?} {prompt:?}");
                    let apart = (found.mean_log_probability - expected.mean_log_probability).abs();
                    assert!(apart < 1e-5 || prompt.len() == limits.length, "{apart}: {settings:?} {at:?} {prompt:?}");
                    lengths.insert(found.tokens.len());
                }
            }
        }
    }
    assert!(lengths.len() > 2, "some end early: {lengths:?}");
    let owner = &ledger.read()[0];
    assert!(owner.bytes == 0 && owner.peak_bytes <= owner.cap.bytes && owner.peak_bytes > 0, "{owner:?}");
}
