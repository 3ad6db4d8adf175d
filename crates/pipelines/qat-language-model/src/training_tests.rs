//! Tests of training steps: passes, gradients, clipping, learned scales and fused operations.

use std::path::Path;

use burn::module::{ModuleVisitor, Param};
use xrun_ops::CpuKernels;

use super::*;
use crate::settings::LossTokens;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::task::Task;
use xrun_data::question_answers::example::Example;
use xrun_data::question_answers::generate::generate_in;
use xrun_data::question_answers::settings::Generated;
use xrun_training::nn::testing::values;

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
    let ledger = Ledger::default();
    let (_, prepared) = experiment.prepare(&ledger).unwrap();
    let prepared: Prepared = prepared.into_parts().unwrap();
    let mut task =
        open(prepared, Opening { experiment: &experiment, device: DeviceKind::Cpu, ledger: &ledger, first_step: 1 })
            .unwrap();
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
            step.accumulator.add_to_divisor(batch.loss_targets());
            let pass = Pass { precision: Some(at), gradient_set: 0, is_teacher: false };
            task.module.forward_backward(&batch, pass, &mut None, &mut step).unwrap();
        }
        let mut accumulator = step.accumulator;
        let divisor = accumulator.divisor();
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

/// Values of parameters by path, and the path of the visitor.
struct All(Vec<(String, Vec<f32>)>, Vec<String>);

impl All {
    fn of(network: &Network) -> Self {
        let mut all = Self(Vec::new(), Vec::new());
        network.visit(&mut all);
        all
    }

    /// Distance of the parameters whose paths contain `name` from their values in `before`.
    fn moved(&self, before: &Self, name: &str) -> f64 {
        let pairs = self.0.iter().zip(&before.0).filter(|((path, _), _)| path.contains(name));
        let squares = pairs.flat_map(|((_, one), (_, other))| one.iter().zip(other));
        squares.map(|(one, other)| f64::from(one - other).powi(2)).sum::<f64>().sqrt()
    }
}

impl ModuleVisitor for All {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.1.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.1.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push((self.1.join("."), values(param.val())));
    }
}

const SGD: &str = "[optimizer.sgd]\nmomentum = 0.0\nlearning_rate = 1.0";

/// The clip norm is far below any norm: each precision moves by exactly the clip norm.
#[test]
fn each_precision_of_a_sandwich_is_clipped_by_its_own_norm() {
    const MOST: f64 = 1e-3;
    let directory = tempfile::tempdir().unwrap();
    let mut task = opened_with(directory.path(), "policy = \"sandwich\"", SGD);
    task.trained.clip_norm = Some(MOST);
    let before = All::of(task.trained.network().unwrap());
    let report = task.train_step(STEPS_BEFORE + 1, 1.0, &mut Entered::default()).unwrap();
    let after = All::of(task.trained.network().unwrap());
    assert!(report.gradient_norm.unwrap() > 10.0 * MOST, "{report:?}");
    for name in [".lora.0.", ".lora.1.", ".lora.2."] {
        let moved = after.moved(&before, name);
        assert!((moved - MOST).abs() < 1e-2 * MOST, "{name} by {moved}");
    }
    assert_eq!(after.moved(&before, ".weight"), 0.0, "the base is frozen");
}

#[test]
fn learned_scales_have_their_own_learning_rate() {
    let directory = tempfile::tempdir().unwrap();
    let moved = |factor: &str| {
        let pipeline =
            format!("policy = \"cyclic\"\nweight_scale = \"learned\"\nscale_learning_rate_factor = {factor}");
        let mut task = opened_with(directory.path(), &pipeline, SGD);
        let mut entered = Entered::default();
        task.train_step(STEPS_BEFORE + 1, 0.0, &mut entered).unwrap();
        let before = All::of(task.trained.network().unwrap());
        task.train_step(STEPS_BEFORE + 2, 1e-3, &mut entered).unwrap();
        let after = All::of(task.trained.network().unwrap());
        (after.moved(&before, ".scale_logarithms.1"), after.moved(&before, ".lora.1."))
    };
    let ((one, lora), (four, same), (none, still)) = (moved("1.0"), moved("4.0"), moved("0.0"));
    assert!(one > 0.0 && lora > 0.0);
    assert!((four - 4.0 * one).abs() < 1e-2 * four, "{one} and {four}");
    assert_eq!(none, 0.0);
    assert_eq!((lora, lora), (same, still));
}

/// Example of twelve tokens, the last `tokens` of which count.
fn counting(tokens: usize) -> Arc<Example> {
    let text: Vec<u32> = (0..12).map(|at| (at * 7 + tokens as u32) % 50).collect();
    let prompt = text.len() - tokens;
    Arc::new(Example { tokens: text, prompt_length: prompt, answers: vec![], others: vec![] })
}

/// Mean gradients of one step over `batches` at a precision, by path of the parameter.
fn mean_gradients(task: &mut QatTask, at: Option<usize>, batches: &[TokenBatch]) -> (Vec<(String, Vec<f32>)>, f64) {
    let mut phases = Entered::default();
    let mut step = Step::new(1, &task.trained, &mut phases);
    for batch in batches {
        step.accumulator.add_to_divisor(batch.loss_targets());
        let pass = Pass { precision: at, gradient_set: 0, is_teacher: false };
        task.module.forward_backward(batch, pass, &mut None, &mut step).unwrap();
    }
    let mut accumulator = step.accumulator;
    let divisor = accumulator.divisor();
    task.trained.clip_norm = Some(1.0);
    let (gradients, _) = task.trained.mean_and_clip(&mut accumulator).unwrap();
    let mut found = Gradients(gradients, Vec::new(), Vec::new());
    task.trained.network().unwrap().visit(&mut found);
    (found.1, divisor)
}

struct Gradients(burn::optim::GradientsParams, Vec<(String, Vec<f32>)>, Vec<String>);

impl ModuleVisitor for Gradients {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.2.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.2.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.0.get::<D>(param.id) {
            self.1.push((self.2.join("."), values(gradient)));
        }
    }
}

#[test]
fn batches_of_one_and_nine_tokens_have_the_gradients_of_one_batch_of_ten() {
    let directory = tempfile::tempdir().unwrap();
    let mut task = opened(directory.path(), "cyclic");
    task.module.calibrate(&task.trained.inner().unwrap(), &task.trained.device.inner).unwrap();
    let batch = |examples: &[Arc<Example>]| TokenBatch::new(examples, 16, LossTokens::Answer, 0, "");
    let (few, many, none) = (counting(1), counting(9), counting(0));
    let together = batch(&[few.clone(), many.clone()]);
    let apart = [batch(&[few]), batch(&[many])];
    let with_nothing = [batch(&[none]), together.clone()];
    assert_eq!(
        [&apart[0], &apart[1], &together, &with_nothing[0]].map(TokenBatch::loss_targets),
        [1.0, 9.0, 10.0, 0.0]
    );
    // The base in full precision, the widest precision, and one with a teacher.
    for at in [None, Some(0), Some(2)] {
        for recompute in [false, true] {
            task.module.recompute = recompute;
            let (expected, divisor) = mean_gradients(&mut task, at, std::slice::from_ref(&together));
            assert_eq!(divisor, 10.0);
            for batches in [&apart[..], &with_nothing] {
                let (found, _) = mean_gradients(&mut task, at, batches);
                assert_eq!(found.len(), expected.len());
                for ((name, found), (_, expected)) in found.iter().zip(&expected) {
                    xrun_training::nn::testing::close(found, expected, 1e-5);
                    assert!(found.iter().all(|value| value.is_finite()), "{name}");
                }
            }
        }
    }
}

/// The base is frozen and each precision has its own LoRA, so the widest one is trained independently and unquantised: both
/// trainings differ by rounding alone. At two and three bits a value at the boundary of two levels may be rounded either way,
/// after which the trainings diverge.
#[test]
fn fifty_steps_of_fused_operations_are_fifty_of_burns() {
    const STEPS: u64 = 50;
    let directory = tempfile::tempdir().unwrap();
    let trained = |kernels: CpuKernels| {
        kernels.scope(|| {
            let mut task = opened(directory.path(), "cyclic");
            let steps = STEPS_BEFORE + 1..=STEPS_BEFORE + STEPS;
            steps.map(|step| task.train_step(step, 2e-3, &mut Entered::default()).unwrap()).collect::<Vec<_>>()
        })
    };
    let (fused, plain) = (trained(CpuKernels::Fused), trained(CpuKernels::Plain));
    for (fused, plain) in fused.iter().zip(&plain) {
        let most = if fused.kind == "full" { 1e-4 } else { 1e-2 };
        let (found, expected) = (fused.loss, plain.loss);
        assert!((found - expected).abs() < most * expected, "{}: {found}, by Burn {expected}", fused.kind);
    }
    let losses = |reports: &[StepReport]| reports.iter().map(|report| report.loss).collect::<Vec<f64>>();
    assert_ne!(losses(&fused), losses(&plain), "different kernels");
}
