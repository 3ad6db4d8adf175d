//! Tests of federated training: equivalences to the bit, resumption, fused operations and buffers.

use super::*;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::Experiment;
use xrun_core::task::Task;
use xrun_data::sound_clips::generate::generate_in;
use xrun_data::sound_clips::settings::Generated;
use xrun_training::nn::testing::{Silent, opened};

/// Generated data of 17 classes with five clips each, four of which are for training, in a temporary directory.
struct Run {
    directory: tempfile::TempDir,
}

type FederatedTask = ModuleTask<FederatedModule>;

const PLAIN_SGD: &str = "[optimizer.sgd]\nlearning_rate = 0.1\nmomentum = 0.0\n";
const ADAMW: &str = "[optimizer.adamw]\nlearning_rate = 0.003\n";

impl Run {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let generated = Generated { classes: 2, clips_per_class: 5, other_clips_per_class: 5, ..Generated::default() };
        generate_in(&generated, directory.path()).unwrap();
        Self { directory }
    }

    fn experiment(&self, pipeline: &str, sections: &str) -> Experiment {
        let directories = std::fs::read_dir(self.directory.path()).unwrap().flatten().map(|entry| entry.path());
        let path = directories.into_iter().find(|path| path.is_dir()).unwrap();
        let text = format!(
            "[pipeline.federated-adapters]
            {pipeline}
            [model.audio-adapters]
            encoder = \"statistics\"
            bands = 16
            frames = 96
            pooled = {{ hidden = [12], latents = 1, output_size = 8 }}
            tokens = {{ hidden = [], latents = 3, output_size = 8 }}
            pool_heads = 2
            [dataset.sound-clips]
            source = \"directory\"
            path = {path:?}
            [limits]
            workers = 0
            prefetch = 1
            [training]
            epochs = 100
            {sections}"
        );
        toml::from_str(&text).unwrap()
    }

    fn open(&self, experiment: &Experiment, first_step: u64) -> FederatedTask {
        opened(experiment, &Ledger::default(), first_step, open)
    }

    /// The server's adapters after `rounds` rounds, the losses of all steps, and a validation.
    fn trained(&self, pipeline: &str, sections: &str, rounds: u64) -> (Vec<f32>, Vec<f64>, ValidationReport) {
        let mut task = self.open(&self.experiment(pipeline, sections), 1);
        let steps = rounds * task.module.rounds.steps();
        let losses = (1..=steps).map(|step| step_of(&mut task, step).loss).collect();
        let report = task.validate(&mut Silent).unwrap();
        (task.module.federation.global().to_vec(), losses, report)
    }
}

fn step_of(task: &mut FederatedTask, step: u64) -> StepReport {
    task.train_step(step, 0.003, &mut Silent).unwrap()
}

fn distance(one: &[f32], other: &[f32]) -> f64 {
    one.iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

/// Adapters of a training with the same network, optimiser and clips without a server.
fn centralised(run: &Run, sections: &str, steps: u64) -> Vec<f32> {
    let experiment = run.experiment("nodes = 1\npartition = \"iid\"", sections);
    let mut task = run.open(&experiment, 1);
    for step in 1..=steps {
        let position = task.module.rounds.position(step - 1);
        let batch = task.feed.next().unwrap();
        let mut phases = Silent;
        let mut gathering = Step::new(1, &task.trained, &mut phases);
        task.module.train(&batch, &mut gathering).unwrap();
        let mut accumulator = gathering.accumulator;
        let (gradients, _) = task.trained.mean_and_clip(&mut accumulator).unwrap();
        task.trained.update(0.003, gradients).unwrap();
        assert_eq!(position.node, 0);
    }
    flat::to_host(&task.trained.inner().unwrap())
}

#[test]
fn one_node_that_keeps_its_optimiser_equals_centralised_training_to_the_bit() {
    let run = Run::new();
    let sections = format!("batch_size = 7\n{ADAMW}");
    for epochs in [1, 3] {
        let pipeline = format!("nodes = 1\npartition = \"iid\"\nnode_optimizer = \"kept\"\nlocal_epochs = {epochs}");
        let mut task = run.open(&run.experiment(&pipeline, &sections), 1);
        let steps = 6 / epochs * task.module.rounds.steps();
        (1..=steps).for_each(|step| drop(step_of(&mut task, step)));
        assert_eq!(task.module.federation.global(), centralised(&run, &sections, steps), "{epochs} local epochs");
    }
}

#[test]
fn a_round_of_one_full_batch_equals_a_step_of_centralised_gradient_descent() {
    let run = Run::new();
    let sections = format!("batch_size = 10000\n{PLAIN_SGD}");
    let start = centralised(&run, &sections, 0);
    let expected = centralised(&run, &sections, 1);
    let partitions = ["\"iid\"", "\"by-class\"", "\"dirichlet\"\ndirichlet_alpha = 0.3"];
    for partition in partitions {
        for nodes in [2, 5] {
            let trained = |aggregation: &str| {
                let pipeline = format!("nodes = {nodes}\npartition = {partition}\naggregation = {aggregation:?}");
                run.trained(&pipeline, &sections, 1).0
            };
            // Norms of the adapters and of the step.
            let (adapters, step) = (distance(&expected, &vec![0.0; expected.len()]), distance(&expected, &start));
            let found = distance(&trained("weighted"), &expected);
            let relative = (found / adapters, found / step);
            assert!(relative.0 < 1e-5 && relative.1 < 1e-3, "{partition}, {nodes} nodes: {relative:?}");
            if partition.starts_with("\"dirichlet") {
                let found = distance(&trained("equal"), &expected) / step;
                assert!(found > 1e-2, "equal weights of unequal nodes must change the result: {found}");
            }
        }
    }
}

#[test]
fn neutral_values_change_no_bit() {
    let run = Run::new();
    let sections = format!("batch_size = 8\n{ADAMW}");
    let base = "nodes = 3\nlocal_epochs = 2";
    let expected = run.trained(base, &sections, 2);
    for neutral in [
        "proximal = 0.0",
        "drop_rate = 0.0",
        "nodes_per_round = 3",
        "[pipeline.federated-adapters.server.momentum]\nlearning_rate = 1.0\nmomentum = 0.0",
    ] {
        assert_eq!(run.trained(&format!("{base}\n{neutral}"), &sections, 2), expected, "{neutral}");
    }
    for other in ["proximal = 0.5", "drop_rate = 0.5", "personal = [\"pooling\"]", "aggregation = \"equal\""] {
        assert_ne!(run.trained(&format!("{base}\n{other}"), &sections, 2).0, expected.0, "{other}");
    }
}

#[test]
fn neither_workers_nor_micro_batches_change_the_result() {
    let run = Run::new();
    let trained = |workers: usize, micro_batch_size: usize| {
        let mut experiment = run.experiment("nodes = 3", &format!("batch_size = 8\n{ADAMW}"));
        (experiment.limits.workers, experiment.limits.batch_size) = (workers, micro_batch_size);
        let mut task = run.open(&experiment, 1);
        let steps = 2 * task.module.rounds.steps();
        (1..=steps).for_each(|step| drop(step_of(&mut task, step)));
        task.module.federation.global().to_vec()
    };
    let expected = trained(0, 8);
    assert_eq!(trained(3, 8), expected, "to the bit");
    let split = trained(0, 3);
    let furthest = split.iter().zip(&expected).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
    assert!(furthest > 0.0 && furthest < 2e-3, "up to rounding: {furthest}");
}

#[test]
fn a_run_resumed_at_any_step_ends_with_the_same_bits() {
    let run = Run::new();
    let sections = format!("batch_size = 8\n{ADAMW}");
    let pipelines = [
        "nodes = 3\nlocal_epochs = 2\nnode_optimizer = \"kept\"",
        "nodes = 4\nnodes_per_round = 2\nlocal_steps = 3\ndrop_rate = 0.4\nproximal = 0.2\npersonal = [\"pooled\"]",
        "nodes = 3\nlocal_epochs = 2\n[pipeline.federated-adapters.server.adam]",
    ];
    for pipeline in pipelines {
        let experiment = run.experiment(pipeline, &sections);
        let mut whole = run.open(&experiment, 1);
        let steps = 3 * whole.module.rounds.steps();
        let mut losses = vec![0.0];
        let directory = tempfile::tempdir().unwrap();
        let at = |step: u64| directory.path().join(step.to_string());
        for step in 1..=steps {
            losses.push(step_of(&mut whole, step).loss);
            std::fs::create_dir(at(step)).unwrap();
            whole.save(&at(step)).unwrap();
        }
        let expected = whole.validate(&mut Silent).unwrap();
        for stopped in (1..steps).step_by(3) {
            let mut task = run.open(&experiment, stopped + 1);
            task.load(&at(stopped)).unwrap();
            for step in stopped + 1..=steps {
                assert_eq!(step_of(&mut task, step).loss, losses[step as usize], "{pipeline}: {stopped}, then {step}");
            }
            assert_eq!(task.validate(&mut Silent).unwrap(), expected, "{pipeline}: stopped after {stopped}");
        }
    }
}

#[test]
fn without_aggregation_nodes_are_independent() {
    let run = Run::new();
    let sections = format!("batch_size = 8\n{ADAMW}");
    let mut alone = run.open(&run.experiment("nodes = 2\naggregation = \"none\"", &sections), 1);
    let start = alone.module.federation.global().to_vec();
    let steps = 2 * alone.module.rounds.steps();
    (1..=steps).for_each(|step| drop(step_of(&mut alone, step)));
    assert_eq!(alone.module.federation.global(), start, "the server's model stays");
    let models: Vec<Vec<f32>> = alone.module.federation.models().map(|adapters| adapters.to_vec()).collect();
    let [one, other]: [Vec<f32>; 2] = models.try_into().unwrap();
    assert!(one != start && other != start && one != other);
}

#[test]
fn no_buffer_exceeds_its_cap() {
    let run = Run::new();
    let sections = format!("batch_size = 8\n{ADAMW}");
    let pipeline = "nodes = 3\nnode_optimizer = \"kept\"\nproximal = 0.1\npersonal = [\"pooling\"]\n\
                    [pipeline.federated-adapters.server.adam]";
    let experiment = run.experiment(pipeline, &sections);
    let ledger = Ledger::default();
    let mut task = opened(&experiment, &ledger, 1, open);
    for step in 1..=2 * task.module.rounds.steps() {
        step_of(&mut task, step);
    }
    task.validate(&mut Silent).unwrap();
    let snapshots = ledger.read();
    assert!(snapshots.iter().all(|owner| !owner.exceeds_cap()), "{snapshots:?}");
    let held = |name: &str| snapshots.iter().find(|owner| owner.name == name).unwrap().bytes;
    let adapters = task.parameters() * 4;
    assert_eq!((held("global_adapters"), held("server_state")), (adapters, 2 * adapters));
    assert!(held("node_states") > 3 * 2 * adapters && held("node_states") < 3 * 5 * adapters, "{snapshots:?}");
    assert_eq!(held("round_sum"), 0, "no sum between rounds");
}
