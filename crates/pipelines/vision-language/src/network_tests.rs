//! Tests of the network against Hugging Face's `ViTModel` and `GPT2LMHeadModel`, `tests/reference/vision_language.py`.

use std::path::PathBuf;

use burn::module::ParamId;
use burn::optim::GradientsParams;
use burn::tensor::TensorData;
use serde_json::Value;
use xrun_ops::{LossTargets, next_token_loss};

use super::super::training::hidden_rows;
use super::super::weights;
use super::*;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy};
use xrun_training::nn::generate::{DecodeCache, GenerationLimits, complete};
use xrun_training::nn::gpt2_file;
use xrun_training::nn::step::TrainState;
use xrun_training::nn::testing::{assert_kernels_agree, changed as changed_network};
use xrun_training::nn::testing::{autodiff, close, json_numbers, plain, values};
use xrun_training::nn::transformer::tokens;

const SHAPE: ModelShape = ModelShape {
    patch_size: 4,
    vision_hidden_size: 8,
    vision_layers: 2,
    vision_heads: 2,
    pixel_shuffle: 2,
    hidden_size: 8,
    layers: 2,
    heads: 2,
    context_length: 32,
};
const SIDE: usize = 16;

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/reference")).join(name)
}

fn reference() -> Value {
    serde_json::from_str(include_str!("../../../../tests/reference/vision_language.json")).unwrap()
}

fn whole(all: &Value) -> Vec<i32> {
    all.as_array().unwrap().iter().map(|number| number.as_i64().unwrap() as i32).collect()
}

fn config() -> ForwardConfig {
    ForwardConfig::new(&VisionLanguage::default(), ComputeDtype::Float32)
}

/// Network with the weights of the reference, on the autodiff device.
fn network(all: &Value) -> VisionLanguageNetwork {
    let mut network = VisionLanguageNetwork::new(&SHAPE, None, [SIDE, 13, 0], 1, &autodiff());
    weights::read_vision(network.vision.as_mut().unwrap(), &file("vit_tiny.safetensors")).unwrap();
    gpt2_file::read(&mut network.language, &file("gpt2_vl_tiny.safetensors")).unwrap();
    let projector = TensorData::new(json_numbers(&all["projector"]), [32, 8]);
    network.projector.weight = map_values(&network.projector.weight, |old| Tensor::from_data(projector, &old.device()));
    network
}

fn images(all: &Value, device: &Device) -> Tensor<4> {
    let rgb: Vec<u8> = whole(&all["pictures"]).into_iter().map(|byte| byte as u8).collect();
    image_tensor(&rgb, SIDE, device)
}

/// All but the last token of each row.
fn inputs(all: &Value) -> Vec<i32> {
    whole(&all["tokens"]).chunks(10).flat_map(|row| row[..9].to_vec()).collect()
}

#[test]
fn patches_shuffle_and_image_tokens_equal_those_of_hugging_face() {
    let all = reference();
    let network = network(&all).valid();
    let patches = network.vision.as_ref().unwrap().forward(images(&all, &plain()));
    assert_eq!(patches.dims(), [2, 16, 8]);
    close(&values(patches.clone()), &json_numbers(&all["patches"]), 1e-4);
    close(&values(pixel_shuffle(patches, 2)), &json_numbers(&all["shuffled"]), 1e-4);
    close(&values(network.image_tokens(images(&all, &plain()), &config())), &json_numbers(&all["image_tokens"]), 1e-4);
}

#[test]
fn logits_loss_and_gradients_equal_those_of_hugging_face() {
    let all = reference();
    let network = network(&all);
    let image = network.image_tokens(images(&all, &autodiff()), &config());
    let hidden = network.hidden(image, tokens(&inputs(&all), 2, 9, &autodiff()), &config());
    let on_device = |numbers: Vec<i32>| {
        let count = numbers.len();
        Tokens::<1>::from_data(TensorData::new(numbers, [count]), &autodiff())
    };
    let places: Vec<usize> = (0..18).collect();
    let text = hidden.clone().select(0, on_device(hidden_rows(&places, 9, 4)));
    close(&values(network.logits(text, &config()).inner()), &json_numbers(&all["logits"]), 1e-4);
    // Logits of the targets that count.
    let labels = whole(&all["labels"]);
    let counted: Vec<usize> = places.into_iter().filter(|at| labels[*at] >= 0).collect();
    assert_eq!(counted.len() as u64, all["counted"].as_u64().unwrap());
    let logits = network.logits(hidden.select(0, on_device(hidden_rows(&counted, 9, 4))), &config());
    let (labels, weights) = (counted.iter().map(|at| labels[*at]).collect(), vec![1.0; counted.len()]);
    let loss = next_token_loss(logits, LossTargets { labels, weights, teacher: None }).total;
    let loss = loss.div_scalar(counted.len() as f32);
    for oracle in ["loss", "trl_loss"] {
        close(&values(loss.clone().inner()), &[all[oracle].as_f64().unwrap() as f32], 1e-5);
    }
    let gradients = GradientsParams::from_grads(loss.backward(), &network);
    let expected = |name: &str| json_numbers(&all["gradients"][name]);
    let matrix = |id: ParamId| values(gradients.get::<2>(id).unwrap());
    close(&matrix(network.projector.weight.id), &expected("projector"), 1e-4);
    close(&matrix(network.language.wte.weight.id), &expected("transformer.wte.weight"), 1e-4);
    let patches = values(gradients.get::<4>(network.vision.as_ref().unwrap().embeddings.patches.weight.id).unwrap());
    close(&patches, &expected("embeddings.patch_embeddings.projection.weight"), 1e-4);
}

#[test]
fn fused_operations_give_the_outputs_and_gradients_of_burns() {
    // The second shape has more patches and tokens than one tile of the attention kernel.
    let odd = ModelShape {
        vision_hidden_size: 12,
        vision_layers: 1,
        vision_heads: 3,
        pixel_shuffle: 3,
        hidden_size: 20,
        layers: 1,
        heads: 5,
        context_length: 96,
        ..SHAPE
    };
    let all = VisionLanguage::default();
    let frozen = VisionLanguage {
        trainable: vec![Component::Projector, Component::Language],
        lora_rank: 2,
        ..VisionLanguage::default()
    };
    let [wide, narrow] = [ComputeDtype::Float32, ComputeDtype::Bfloat16];
    // At a tie between two bfloat16 numbers, which are 1/256 apart, the last bit decides the rounding.
    for (shape, side, batch, length, settings, matmul, tolerance) in [
        (SHAPE, 16, 2, 9, &all, wide, 2e-5),
        (odd, 36, 3, 70, &all, wide, 2e-5),
        (odd, 36, 1, 5, &frozen, wide, 2e-5),
        (SHAPE, 16, 2, 9, &all, narrow, 2e-2),
    ] {
        let vocabulary = 13;
        let network = VisionLanguageNetwork::new(&shape, None, [side, vocabulary, settings.lora_rank], 1, &autodiff());
        let (network, config) = (changed_network(network), ForwardConfig::new(settings, matmul));
        let rgb: Vec<u8> = (0..batch * side * side * 3).map(|at| (at * 31 % 256) as u8).collect();
        let text: Vec<i32> = (0..batch * length).map(|at| (at * 5 % vocabulary) as i32).collect();
        let image_tokens = shape.image_tokens(side);
        let places: Vec<usize> = (0..batch * length).collect();
        let rows = TensorData::new(hidden_rows(&places, length, image_tokens), [batch * length]);
        assert_kernels_agree(&network, tolerance, |network| {
            let image = network.image_tokens(image_tensor(&rgb, side, &autodiff()), &config);
            let hidden = network.hidden(image, tokens(&text, batch, length, &autodiff()), &config);
            let hidden = hidden.select(0, Tokens::<1>::from_data(rows.clone(), &autodiff()));
            let logits = network.logits(hidden.clone(), &config);
            let labels = text.iter().map(|token| (token + 1) % vocabulary as i32).collect();
            let weights = places.iter().map(|at| (at % 3) as f32 / 2.0).collect();
            let loss = next_token_loss(logits.clone(), LossTargets { labels, weights, teacher: None }).total;
            (vec![hidden, logits], loss)
        });
    }
}

#[test]
fn greedy_answers_to_prompts_of_unequal_lengths_equal_those_of_hugging_face() {
    let all = reference();
    let network = network(&all).valid();
    let ledger = Ledger::default();
    let cache = Buffer::new("decode_cache", Policy::Refuse, Cap { items: 1, bytes: 1 << 20 });
    let cache = DecodeCache::new(cache.register(&ledger));
    let rows: Vec<Vec<u32>> =
        whole(&all["tokens"]).chunks(10).map(|row| row.iter().map(|token| *token as u32).collect()).collect();
    let lengths = whole(&all["prompt_lengths"]);
    let prompts: Vec<&[u32]> = rows.iter().zip(&lengths).map(|(row, length)| &row[..*length as usize]).collect();
    assert_ne!(prompts[0].len(), prompts[1].len());
    let image = || network.image_tokens(images(&all, &plain()), &config());
    let limits = GenerationLimits { eos_token: 0, tokens: 8, length: 28, sequences: 2 };
    let answers = |limits: GenerationLimits| -> Vec<Vec<u32>> {
        let not_captured = None::<(&TrainState<VisionLanguageNetwork>, u32)>;
        let (language, prefix) = (&network.language, Some(image()));
        let answers = complete(language, prefix, &prompts, limits, &cache, &mut &config(), not_captured);
        answers.unwrap().into_iter().map(|answer| answer.tokens).collect()
    };
    let found = answers(limits);
    let expected: Vec<Vec<u32>> =
        whole(&all["generated"]).chunks(8).map(|row| row.iter().map(|token| *token as u32).collect()).collect();
    assert_eq!(found, expected);
    assert_eq!(ledger.read()[0].bytes, 0, "the KV cache is released");
    // The end token ends each answer at its first occurrence.
    let eos_token = expected[0][3];
    let ended = answers(GenerationLimits { eos_token, ..limits });
    let until = |row: &Vec<u32>| row.iter().take_while(|token| **token != eos_token).copied().collect::<Vec<u32>>();
    assert_eq!(ended, expected.iter().map(until).collect::<Vec<_>>());
    // An answer ends at the last position.
    let short = answers(GenerationLimits { length: 6, ..limits });
    assert_eq!((short[0].len(), short[1].len()), (6 - prompts[0].len(), 6 - prompts[1].len()));
}

#[test]
fn a_file_of_another_shape_is_refused_by_file_and_key() {
    let vision = |shape: ModelShape, side: usize| {
        let mut network = VisionLanguageNetwork::new(&shape, None, [side, 13, 0], 1, &autodiff());
        weights::read_vision(network.vision.as_mut().unwrap(), &file("vit_tiny.safetensors")).unwrap_err().to_string()
    };
    for (message, expected) in [
        (vision(SHAPE, 24), "`embeddings.position_embeddings`"),
        (vision(ModelShape { vision_layers: 1, ..SHAPE }, SIDE), "`vision_layers`"),
        (vision(ModelShape { vision_layers: 3, ..SHAPE }, SIDE), "layer.2."),
        (vision(ModelShape { vision_hidden_size: 12, ..SHAPE }, SIDE), "vision_hidden_size"),
    ] {
        assert!(message.contains(expected) && message.contains("vit_tiny.safetensors"), "{message}");
    }
}

#[test]
fn the_initial_network_depends_on_the_seed_and_its_lora_has_no_effect() {
    let made =
        |rank: usize, seed: u32| VisionLanguageNetwork::new(&SHAPE, None, [SIDE, 13, rank], seed, &autodiff()).valid();
    let all = reference();
    let hidden = |network: &VisionLanguageNetwork| {
        let image = network.image_tokens(images(&all, &plain()), &config());
        values(network.hidden(image, tokens(&inputs(&all), 2, 9, &plain()), &config()))
    };
    assert_eq!(hidden(&made(0, 1)), hidden(&made(0, 1)));
    assert_ne!(hidden(&made(0, 1)), hidden(&made(0, 2)));
    let mut with_lora = made(2, 1);
    let output = hidden(&with_lora);
    for block in &mut with_lora.language.h {
        block.projections_mut().into_iter().for_each(|linear| linear.lora.clear());
    }
    assert_eq!(output, hidden(&with_lora));
}
