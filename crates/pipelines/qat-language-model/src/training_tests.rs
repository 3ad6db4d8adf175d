//! Tests of training steps: passes, gradients, clipping, learned scales and fused operations.

use std::path::Path;

use super::*;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::Experiment;
use xrun_core::task::Task;
use xrun_data::question_answers::generate::generate_in;
use xrun_data::question_answers::settings::Generated;
use xrun_training::nn::{flat, testing};

const STEPS_BEFORE: u64 = 6;

type QatTask = ModuleTask<QatLanguageModule>;

fn opened(directory: &Path, policy: &str) -> QatTask {
    opened_with(directory, &format!("policy = {policy:?}"), "")
}

/// Opens a task whose experiment ends with `sections`; `pipeline` are keys of its table.
fn opened_with(directory: &Path, pipeline: &str, sections: &str) -> QatTask {
    let generated = Generated { articles: 3, paragraphs_per_article: 2, ..Generated::default() };
    let (path, _) = generate_in(&generated, directory).unwrap();
    let text = format!(
        "[pipeline.qat-language-model]
        sequence_length = 48
        weight_bits = [32, 3, 2]
        activation_bits = [32, 8, 8]
        kv_cache_bits = [32, 8, 8]
        {pipeline}
        pretraining_steps = {STEPS_BEFORE}
        calibration_batches = 1
        activation_ranges = \"frozen\"
        lora_rank = 2
        [model.gpt2]
        layers = 1
        heads = 2
        hidden_size = 16
        context_length = 48
        [dataset.question-answers]
        source = \"file\"
        path = {path:?}
        vocabulary_size = 300
        [training]
        epochs = 10
        gradient_accumulation = 2
        batch_size = 2
        [limits]
        workers = 0
        prefetch = 1
        {sections}"
    );
    let experiment: Experiment = toml::from_str(&text).unwrap();
    let mut task = testing::opened(&experiment, &Ledger::default(), 1, open);
    for step in 1..=STEPS_BEFORE {
        task.train_step(step, 0.05, &mut Entered::default()).unwrap();
    }
    task
}

#[derive(Default)]
struct Entered(Vec<&'static str>);

impl Phases for Entered {
    fn enter(&mut self, name: &'static str) {
        self.0.push(name);
    }
}

impl Entered {
    fn count(&self, name: &str) -> usize {
        self.0.iter().filter(|entered| **entered == name).count()
    }
}

/// A step has two batches. In a sandwich the pass that trains the widest precision provides the teacher's logits.
#[test]
fn only_a_narrow_precision_alone_needs_a_pass_of_the_teacher() {
    let directory = tempfile::tempdir().unwrap();
    let passes = |policy: &str, steps: u64| {
        let (mut task, mut entered) = (opened(directory.path(), policy), Entered::default());
        for step in 1..=steps {
            task.train_step(STEPS_BEFORE + step, 1e-3, &mut entered).unwrap();
        }
        (entered.count("forward_backward"), entered.count("teacher"))
    };
    assert_eq!(passes("cyclic", 3), (6, 4), "full, 3 bits, 2 bits");
    assert_eq!(passes("sandwich", 3), (18, 0));
}

#[test]
fn losses_and_gradients_of_a_sandwich_are_sums_over_its_precisions() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = opened(directory.path(), "sandwich");
    task.module.calibrate(&task.trained.inner().unwrap(), &task.trained.device.inner).unwrap();
    task.trained.clip_norm = None;
    let (mut losses, mut parts, mut squares) = (0.0, Vec::new(), 0.0);
    for at in 0..3 {
        let mut phases = Entered::default();
        let mut step = Step::new(1, &task.trained, &mut phases);
        for number in 2 * STEPS_BEFORE..2 * STEPS_BEFORE + 2 {
            let batch = task.module.validation.batches.training_batch(number).unwrap();
            step.accumulator.divisor += batch.loss_target_count();
            let pass = PrecisionPass { precision: Some(at), gradient_set: 0, is_teacher: false };
            task.module.forward_backward(&batch, &[pass], &mut step).unwrap();
        }
        let mut accumulator = step.accumulator;
        let divisor = accumulator.divisor;
        let (_, norm) = task.trained.mean_and_clip(&mut accumulator).unwrap();
        let fetched = accumulator.fetch(norm);
        for number in fetched.values {
            match number.name {
                "loss" => losses += number.sum / divisor,
                name => parts.push((name, number.sum / divisor)),
            }
        }
        squares += fetched.norm.unwrap().powi(2);
    }
    task.trained.clip_norm = Some(1e9);
    let report = task.train_step(STEPS_BEFORE + 1, 0.0, &mut Entered::default()).unwrap();
    let close = |found: f64, expected: f64| {
        assert!((found - expected).abs() < 1e-4 * expected, "{found}, expected {expected}");
        assert!(expected > 1e-4);
    };
    assert_eq!(report.kind, "sandwich");
    close(report.loss, losses);
    close(report.gradient_norm.unwrap(), squares.sqrt());
    // Two batches of each pass.
    for (name, passes) in [("cross_entropy", 3), ("divergence", 2)] {
        let all: Vec<f64> = parts.iter().filter(|(part, _)| *part == name).map(|(_, value)| *value).collect();
        assert_eq!(all.len(), 2 * passes, "{name}");
        let found = report.values.iter().find(|(part, _)| *part == name).unwrap().1;
        close(found, all.iter().sum::<f64>() / passes as f64);
    }
}

/// Values of parameters by path.
fn parameters(network: &Network) -> Vec<(String, Vec<f32>)> {
    let values = flat::to_host(network);
    flat::parameter_ranges(network).into_iter().map(|(path, range)| (path, values[range].to_vec())).collect()
}

/// Distance of the parameters whose paths contain `name` from their values in `before`.
fn moved(after: &[(String, Vec<f32>)], before: &[(String, Vec<f32>)], name: &str) -> f64 {
    let pairs = after.iter().zip(before).filter(|((path, _), _)| path.contains(name));
    let squares = pairs.flat_map(|((_, one), (_, other))| one.iter().zip(other));
    squares.map(|(one, other)| f64::from(one - other).powi(2)).sum::<f64>().sqrt()
}

const SGD: &str = "[optimizer.sgd]\nmomentum = 0.0\nlearning_rate = 1.0";

/// The clip norm is far below any norm: each precision moves by exactly the clip norm.
#[test]
fn each_precision_of_a_sandwich_is_clipped_by_its_own_norm() {
    const MOST: f64 = 1e-3;
    let directory = tempfile::tempdir().unwrap();
    let mut task = opened_with(directory.path(), "policy = \"sandwich\"", SGD);
    task.trained.clip_norm = Some(MOST);
    let before = parameters(task.trained.network().unwrap());
    let report = task.train_step(STEPS_BEFORE + 1, 1.0, &mut Entered::default()).unwrap();
    let after = parameters(task.trained.network().unwrap());
    assert!(report.gradient_norm.unwrap() > 10.0 * MOST, "{report:?}");
    for name in [".lora.0.", ".lora.1.", ".lora.2."] {
        let distance = moved(&after, &before, name);
        assert!((distance - MOST).abs() < 1e-2 * MOST, "{name} by {distance}");
    }
    assert_eq!(moved(&after, &before, ".weight"), 0.0, "the base is frozen");
}

#[test]
fn learned_scales_have_their_own_learning_rate() {
    let directory = tempfile::tempdir().unwrap();
    let distances = |factor: &str| {
        let pipeline =
            format!("policy = \"cyclic\"\nweight_scale = \"learned\"\nscale_learning_rate_factor = {factor}");
        let mut task = opened_with(directory.path(), &pipeline, SGD);
        let mut entered = Entered::default();
        task.train_step(STEPS_BEFORE + 1, 0.0, &mut entered).unwrap();
        let before = parameters(task.trained.network().unwrap());
        task.train_step(STEPS_BEFORE + 2, 1e-3, &mut entered).unwrap();
        let after = parameters(task.trained.network().unwrap());
        (moved(&after, &before, ".scale_logarithms.1"), moved(&after, &before, ".lora.1."))
    };
    let ((one, lora), (four, same), (none, still)) = (distances("1.0"), distances("4.0"), distances("0.0"));
    assert!(one > 0.0 && lora > 0.0);
    assert!((four - 4.0 * one).abs() < 1e-2 * four, "{one} and {four}");
    assert_eq!(none, 0.0);
    assert_eq!((lora, lora), (same, still));
}
