//! The gradients of a step do not depend on how its frames are split into batches and micro-batches.

use burn::optim::GradientsParams;
use xrun_ops::CpuKernels;

use super::*;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::kind::Dataset;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::settings::sections::Limits;
use xrun_core::task::Task;
use xrun_data::coco::Coco;
use xrun_data::micro_batches;
use xrun_data::synthetic_video::generate::generate_in;
use xrun_training::nn::pixels::images;
use xrun_training::nn::step::StepAccumulator;
use xrun_training::nn::testing::{self, Silent};

type FewshotTask = ModuleTask<FewshotDetectionModule>;

/// Task on generated data with two held-out classes, at its first step.
fn opened(overrides: &str) -> FewshotTask {
    opened_with(overrides, 2)
}

/// As [`opened`], with a number of held-out classes.
fn opened_with(overrides: &str, held_out: usize) -> FewshotTask {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "[pipeline.fewshot-detection]
        n_way = 2
        n_query = 5
        augmentations = 1
        image_size = 64
        reference_size = 16
        triplet_batch_size = 4
        {overrides}
        [model.reference-detector]
        channels = [8, 8, 16, 16]
        pyramid_channels = 16
        embedding_size = 8
        [dataset.synthetic-video]
        train_classes = 4
        validation_classes = {held_out}
        videos_per_class = 2
        frames_per_video = 6
        references_per_class = 3
        frame_size = 64
        [limits]
        workers = 0
        prefetch = 1"
    );
    let mut experiment: Experiment = toml::from_str(&text).unwrap();
    let path = generate_in(experiment.dataset.as_ref().unwrap().settings().unwrap(), directory.path()).unwrap();
    let path = Some(path.to_str().unwrap().to_owned());
    experiment.dataset = Some(Dataset::new(Coco { path, ..Coco::default() }));
    let mut task = testing::opened(&experiment, &Ledger::default(), 1, |prepared: Prepared, opening| {
        // All images are read while the directory exists; the same four batches are repeated.
        let all: Vec<HostBatch> = (0..4).map(|number| prepared.batches.training_batch(number).unwrap()).collect();
        open_with(prepared, Arc::new(move |number: u64| Ok(all[number as usize % all.len()].clone())), opening)
    });
    task.trained.clip_norm = Some(1.0);
    task
}

fn episode(task: &mut FewshotTask) -> DetectionBatch {
    match &*task.feed.next().unwrap() {
        HostBatch::Detection(batch) => batch.clone(),
        HostBatch::Triplet(_) => panic!("the first batches are episodes"),
    }
}

/// Mean gradients of the batches of a step, and its count.
fn gradients(task: &FewshotTask, batches: &[DetectionBatch]) -> (Vec<f32>, usize) {
    let mut phases = Silent;
    let mut step = Step::new(1, &task.trained, &mut phases);
    for batch in batches {
        task.module.detection(batch, &mut step).unwrap();
    }
    let network = task.trained.network().unwrap();
    let divisor = step.accumulator.divisor as usize;
    let (gradients, _) = task.trained.mean_and_clip(&mut step.accumulator).unwrap();
    (flat(network, gradients), divisor)
}

fn flat(network: &Network, gradients: GradientsParams) -> Vec<f32> {
    testing::gradients(network, gradients).into_iter().flat_map(|(_, values)| values).collect()
}

fn within(found: &[f32], expected: &[f32], tolerance: f32) {
    assert!(expected.len() > 1000 && found.len() == expected.len());
    let largest = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f32::max);
    assert!(largest < tolerance, "difference {largest}; the global norm is one");
}

/// Splits batches into micro-batches of `size` frames on a number of threads.
fn split(task: &mut FewshotTask, micro_batch_size: usize, threads: usize) {
    let limits = Limits { micro_batch_size, threads, ..Limits::default() };
    let buffer = micro_batches::gradient_buffer(task.trained.parameters(), &limits);
    let executor = MicroBatchExecutor::new(DeviceKind::Cpu, &limits, &buffer, &Ledger::default()).unwrap();
    task.module.executor = Arc::new(executor);
}

#[test]
fn the_gradients_of_an_episode_do_not_depend_on_micro_batches_and_their_bits_not_on_threads() {
    let mut task = opened("");
    let batch = episode(&mut task);
    let (expected, positives) = CpuKernels::Plain.scope(|| in_one_graph(&task, &batch));
    for micro_batch_size in [32, 1, 3, 7] {
        let [alone, together] = [1, 4].map(|threads| {
            split(&mut task, micro_batch_size, threads);
            gradients(&task, std::slice::from_ref(&batch))
        });
        assert!(alone == together && alone.1 == positives, "{micro_batch_size}");
        // Burn's operations round differently than the fused kernels of the micro-batches.
        within(&alone.0, &expected, 5e-5);
    }
}

/// Mean gradients of an episode whose references and queries are in one graph of Burn's operations.
fn in_one_graph(task: &FewshotTask, batch: &DetectionBatch) -> (Vec<f32>, usize) {
    let (network, settings, device) =
        (task.trained.network().unwrap(), &task.module.settings, &task.trained.device.autodiff);
    let references = images(&batch.reference_pixels, settings.reference_size, device);
    let prototypes = DetectorNetwork::prototypes(network.embed(references), batch.classes.len());
    let queries = images(&batch.query_pixels, settings.image_size, device);
    let dense = network.dense(queries);
    let similarity = network.similarity(dense.embeddings.clone(), prototypes);
    let targets = targets(batch.queries.iter().map(|query| &*query.truths), settings.image_size);
    let divisor = targets.positives;
    let data = target_data(targets, batch.queries.len(), batch.classes.len()).to_vec();
    let inputs = &mut Inputs::on_host(data, &task.trained.device.autodiff);
    let loss = detection_loss(settings, dense, similarity, inputs, &task.module.origins).total();
    let mut accumulator = StepAccumulator::new(1);
    accumulator.divisor += divisor as f64;
    accumulator.backward(network, loss);
    let (gradients, _) = task.trained.mean_and_clip(&mut accumulator).unwrap();
    (flat(network, gradients), divisor)
}

#[test]
fn a_step_of_two_episodes_divides_by_the_count_of_both() {
    let mut task = opened("");
    let batches: Vec<DetectionBatch> = (0..2).map(|_| episode(&mut task)).collect();
    let sums = |batches: &[DetectionBatch]| {
        let mut phases = Silent;
        let mut step = Step::new(1, &task.trained, &mut phases);
        for batch in batches {
            task.module.detection(batch, &mut step).unwrap();
        }
        let divisor = step.accumulator.divisor;
        (step.accumulator.fetch(None).values.iter().map(|number| number.sum).sum::<f64>(), divisor)
    };
    let [(one, few), (two, many)] = [sums(&batches[..1]), sums(&batches[1..])];
    let expected = (one + two) / (few + many);
    let mut task = opened("");
    task.accumulation = 2;
    let report = task.train_step(1, 0.0, &mut Silent).unwrap();
    assert!((report.loss - expected).abs() < 1e-5 * expected, "{}, expected {expected}", report.loss);
    assert!((one / few - two / many).abs() > 1e-3 * expected, "the mean of the means would differ");
}

/// Triplets are mined within each batch; their sum is divided by the count of the step.
#[test]
fn triplet_losses_of_several_batches_are_divided_by_the_count_of_all() {
    let sums = |task: &mut FewshotTask, batches: usize| {
        let mut phases = Silent;
        let mut step = Step::new(1, &task.trained, &mut phases);
        for _ in 0..batches {
            match &*task.feed.next().unwrap() {
                HostBatch::Triplet(batch) => task.module.triplets(batch, &mut step).unwrap(),
                HostBatch::Detection(_) => panic!("all are triplets"),
            }
        }
        let divisor = step.accumulator.divisor;
        (step.accumulator.fetch(None).values.iter().map(|number| number.sum).sum::<f64>(), divisor)
    };
    for mining in ["given", "batch-hard"] {
        let overrides = format!("triplet_ratio = 1.0\ntriplet_mining = {mining:?}");
        let (sum, divisor) = sums(&mut opened(&overrides), 2);
        assert_eq!(divisor, if mining == "given" { 8.0 } else { 24.0 });
        let mut task = opened(&overrides);
        task.accumulation = 2;
        let report = task.train_step(1, 0.0, &mut Silent).unwrap();
        let expected = sum / divisor;
        assert!((report.loss - expected).abs() < 1e-5 * expected, "{}, expected {expected}", report.loss);
    }
}

/// Losses of 50 detection steps on one thread, since kernels are selected for a thread.
fn trained(kernels: CpuKernels) -> Vec<f64> {
    kernels.scope(|| {
        let mut task = opened("triplet_ratio = 0.0");
        split(&mut task, 3, 1);
        (1..=50).map(|number| task.train_step(number, 3e-4, &mut Silent).unwrap().loss).collect()
    })
}

/// Rounding differs by 1e-7 of a value. Adam normalises gradients, however small, and ReLU is discontinuous, so differences grow with
/// each step: the first steps are compared tightly, all of them loosely, and the curves by their ends.
#[test]
fn fifty_steps_with_fused_and_with_plain_kernels_learn_the_same() {
    let (fused, plain) = (trained(CpuKernels::Fused), trained(CpuKernels::Plain));
    let differences: Vec<f64> = fused.iter().zip(&plain).map(|(one, other)| (one / other - 1.0).abs()).collect();
    let max = |steps: &[f64]| steps.iter().copied().fold(0.0, f64::max);
    let mean = |steps: &[f64]| steps.iter().sum::<f64>() / steps.len() as f64;
    assert!(max(&differences[..5]) < 1e-5, "{differences:?}");
    assert!(max(&differences) < 0.1, "{differences:?}");
    assert!((mean(&fused[40..]) / mean(&plain[40..]) - 1.0).abs() < 0.02, "{fused:?} {plain:?}");
    assert!(fused != plain, "both runs used the same kernels");
    assert!(mean(&fused[40..]) < 0.9 * mean(&fused[..10]), "the loss does not fall: {fused:?}");
}

/// Gradients of an episode of fixed classes do not depend on micro-batches, and the prototype of each class has one.
#[test]
fn the_prototypes_of_fixed_classes_are_learned() {
    let mut task = opened_with("triplet_ratio = 0.0", 0);
    let batch = episode(&mut task);
    assert!(batch.classes == [0, 1, 2, 3] && batch.reference_pixels.is_empty());
    split(&mut task, 32, 1);
    let (expected, positives) = gradients(&task, std::slice::from_ref(&batch));
    split(&mut task, 3, 4);
    let (found, count) = gradients(&task, std::slice::from_ref(&batch));
    assert_eq!(count, positives);
    within(&found, &expected, 5e-5);
    let network = task.trained.network().unwrap();
    let rows = network.class_prototypes().unwrap().inner();
    let few_shot = opened("triplet_ratio = 0.0").trained.parameters();
    assert_eq!((rows.dims(), task.trained.parameters()), ([4, 8], few_shot + 4 * 8));
    let before: Vec<f32> = rows.into_data().iter::<f32>().collect();
    let losses: Vec<f64> = (1..=30).map(|number| task.train_step(number, 3e-3, &mut Silent).unwrap().loss).collect();
    assert!(losses[29] < 0.8 * losses[0], "{losses:?}");
    let after = task.trained.network().unwrap().class_prototypes().unwrap().inner().into_data();
    let after: Vec<f32> = after.iter::<f32>().collect();
    let moved =
        |(before, after): (&[f32], &[f32])| before.iter().zip(after).any(|(one, other)| (one - other).abs() > 1e-3);
    assert!(before.chunks(8).zip(after.chunks(8)).all(moved), "{before:?} {after:?}");
}
