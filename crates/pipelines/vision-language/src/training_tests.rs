//! Tests of training steps: masks, micro-batches, frozen parts, fused operations and validation.

use xrun_ops::CpuKernels;

use super::super::prepare::tests::Made;
use super::*;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::Experiment;
use xrun_core::task::Task;
use xrun_training::nn::flat;
use xrun_training::nn::testing::{Silent, opened};

struct Run(Made);

impl Run {
    fn new() -> Self {
        Self(Made::new())
    }

    fn experiment(&self, pipeline: &str, selective: &str, sections: &str) -> Experiment {
        let path = &self.0.path;
        let text = format!(
            "[pipeline.vision-language]
            max_new_tokens = 8
            sequence_length = 120
            {pipeline}
            [pipeline.vision-language.selective]
            {selective}
            [model.vision-language]
            vision_hidden_size = 16
            vision_layers = 1
            vision_heads = 2
            hidden_size = 16
            layers = 1
            heads = 2
            [dataset.image-text]
            source = \"messages\"
            path = {path:?}
            image_size = 16
            validation_fraction = 0.2
            [optimizer.sgd]
            learning_rate = 0.1
            momentum = 0.0
            [training]
            epochs = 100
            {sections}"
        );
        toml::from_str(&text).unwrap()
    }

    fn open(&self, experiment: &Experiment) -> ModuleTask<VisionLanguageModule> {
        opened(experiment, &Ledger::default(), 1, open)
    }

    /// Losses of `steps` steps and the parameters after them.
    fn trained(&self, pipeline: &str, selective: &str, sections: &str, steps: u64) -> (Vec<f64>, Vec<f32>) {
        let mut task = self.open(&self.experiment(pipeline, selective, sections));
        let losses = (1..=steps).map(|step| step_of(&mut task, step).loss).collect();
        (losses, flat::to_host(&task.trained.inner().unwrap()))
    }
}

fn step_of(task: &mut ModuleTask<VisionLanguageModule>, step: u64) -> StepReport {
    task.train_step(step, 0.1, &mut Silent).unwrap()
}

const BATCH: &str = "batch_size = 8\n[limits]\nworkers = 0\nbatch_size = 8";

#[test]
fn a_mask_with_weight_one_equals_no_mask_to_the_bit() {
    let run = Run::new();
    let none = run.trained("", "mask = \"none\"", BATCH, 3);
    let weighed = run.trained("", "mask = \"structure\"\nschedule = \"always\"\nstructure_weight = 1.0", BATCH, 3);
    assert_eq!(none, weighed);
    let masked = run.trained("", "mask = \"structure\"\nschedule = \"always\"", BATCH, 3);
    assert_ne!(none.0, masked.0);
    let after = run.trained("", "mask = \"structure\"\nschedule = \"after\"\nafter_step = 2", BATCH, 3);
    assert_eq!((none.0[0], none.0[1]), (after.0[0], after.0[1]));
    assert_ne!(none.0[2], after.0[2], "the mask is on from the third step");
}

#[test]
fn neither_micro_batches_nor_logits_without_weight_change_a_step() {
    let run = Run::new();
    let selective = "schedule = \"always\"";
    let whole = run.trained("", selective, BATCH, 2);
    for (pipeline, sections) in [
        ("", "batch_size = 8\n[limits]\nworkers = 0\nbatch_size = 3"),
        ("", "batch_size = 4\ngradient_accumulation = 2\n[limits]\nworkers = 0\nbatch_size = 4"),
        ("", "batch_size = 1\ngradient_accumulation = 8\n[limits]\nworkers = 2\nbatch_size = 1"),
        ("logits = \"all\"", BATCH),
    ] {
        let split = run.trained(pipeline, selective, sections, 2);
        for (one, other) in whole.0.iter().zip(&split.0) {
            assert!((one - other).abs() < 1e-5, "{pipeline} {sections}: {one} and {other}");
        }
        let far = whole.1.iter().zip(&split.1).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
        assert!(far < 1e-5, "{pipeline} {sections}: parameters are {far} apart");
    }
}

/// The kernels differ by rounding. AdamW normalises gradients, which turns those that are zero up to rounding into full steps;
/// after 50 steps the losses still agree to a thousandth.
#[test]
fn losses_of_fifty_steps_with_fused_operations_follow_those_of_burns() {
    let run = Run::new();
    let losses = |kernels: CpuKernels| {
        let mut experiment = run.experiment("", "schedule = \"after\"\nafter_step = 25", BATCH);
        experiment.optimizer = toml::from_str("[adamw]\nlearning_rate = 0.003").unwrap();
        kernels.scope(|| {
            let mut task = run.open(&experiment);
            let step = |step| task.train_step(step, 0.003, &mut Silent).unwrap().loss;
            (1..=50).map(step).collect::<Vec<f64>>()
        })
    };
    let (fused, plain) = (losses(CpuKernels::Fused), losses(CpuKernels::Plain));
    assert_ne!(fused, plain, "different kernels");
    assert!(fused[24] < 0.9 * fused[0], "{fused:?}");
    for (step, (fused, plain)) in fused.iter().zip(&plain).enumerate() {
        assert!((fused - plain).abs() <= 1e-3 * plain, "step {}: {fused} and {plain}", step + 1);
    }
}

#[test]
fn frozen_parts_stay_to_the_bit_and_the_others_are_trained() {
    let run = Run::new();
    for (pipeline, learnt) in [
        ("trainable = [\"projector\"]", vec!["projector"]),
        ("trainable = [\"vision\"]", vec!["vision"]),
        ("trainable = [\"language\"]", vec!["language"]),
        ("trainable = [\"vision\", \"projector\"]", vec!["vision", "projector"]),
        ("trainable = [\"language\"]\nlora_rank = 2", vec!["lora"]),
        ("trainable = [\"projector\", \"language\"]\nlora_rank = 2", vec!["projector", "lora"]),
    ] {
        let mut task = run.open(&run.experiment(pipeline, "mask = \"none\"", BATCH));
        let network = task.trained.inner().unwrap();
        let (before, places) = (flat::to_host(&network), flat::parameter_ranges(&network));
        // The first step moves only LoRA's second matrices, which are initialised to zero.
        (1..=2).for_each(|step| drop(step_of(&mut task, step)));
        let after = flat::to_host(&task.trained.inner().unwrap());
        for (name, range) in places {
            let is_learnt = learnt.iter().any(|part| match *part {
                "lora" => name.contains(".lora."),
                part => name.starts_with(part) && !name.contains(".lora."),
            });
            let moved = before[range.clone()] != after[range];
            assert_eq!(moved, is_learnt, "{pipeline}: {name}");
        }
    }
}

#[test]
fn prompts_are_inputs_but_no_targets() {
    let run = Run::new();
    let ModuleTask { mut module, trained, .. } = run.open(&run.experiment("", "mask = \"none\"", BATCH));
    let batch = module.validation.first_batch().unwrap();
    let mut loss = |batch: &ExampleBatch| {
        let mut phases = Silent;
        let mut step = Step::new(1, &trained, &mut phases);
        module.train(batch, &mut step).unwrap();
        step.accumulator.fetch(None).values[0].sum
    };
    let mut changed = batch.clone();
    let prompt = (0..changed.length).find(|at| changed.kinds[*at].is_some()).unwrap();
    changed.targets[..prompt].fill(7);
    assert_eq!(loss(&batch), loss(&changed), "labels of the prompt");
    changed.inputs[1] = 9;
    assert_ne!(loss(&batch), loss(&changed), "inputs of the prompt");
}

#[test]
fn a_validation_reports_metrics_and_captioned_images() {
    let run = Run::new();
    let mut task =
        run.open(&run.experiment("generated_answers = 2", "", &format!("{BATCH}\n[validation]\nimages = 1")));
    let report = task.validate(&mut Silent).unwrap();
    let metric = |name: &str| report.metrics.iter().find(|(known, _)| known == name).and_then(|(_, value)| *value);
    let vocabulary = task.module.validation.batches.store.tokenizer.size() as f64;
    for name in ["loss_value", "loss_key", "loss_structure", "loss_all"] {
        let loss = metric(name).unwrap();
        assert!((loss - vocabulary.ln()).abs() < 1.0, "{name} of an untrained model is {loss}");
    }
    assert_eq!(metric("valid_json"), Some(0.0));
    assert_eq!(metric("field_accuracy"), Some(0.0));
    assert_eq!(metric("field_accuracy_unseen"), None, "files of messages have no unseen pairs");
    assert_eq!(metric("field_shape"), Some(0.0), "{:?}", report.metrics);
    let [(image, caption)] = report.images.as_slice() else { panic!("one image was requested") };
    assert_eq!((image.width, image.height), (16, 16));
    assert!(caption.contains('✗') && caption.contains("⟦{"), "{caption}");
}
