//! `[pipeline.regression]`: the last column of a table from the others, by squared error.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::TensorData;
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xrun::bounded::HeldBytes;
use xrun::bounded::buffer::Buffer;
use xrun::bounded::ledger::{Cap, Holding, Ledger, Policy};
use xrun::data::feed::{self, Feed, FeedSettings};
use xrun::device::Kind;
use xrun::device::dispatch::TensorDevice;
use xrun::experiment::Experiment;
use xrun::experiment::pipeline::{ModelKind, PipelineKind};
use xrun::nn::step::{Gathered, Trained};
use xrun::nn::{Backend, Tensor, parameters};
use xrun::results::format::{DeviceMemory, PlannedOwner};
use xrun::results::smaller::Smaller;
use xrun::seed::generator;
use xrun::settings::sections::CleanupAction;
use xrun::task::{Metric, Phases, StepReport, Task, TaskError, TaskFacts, ValidationReport};

use crate::perceptron::{self, Network, Perceptron};
use crate::table;

pub struct Regression;

/// Predicts the last column of a table from the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Share of the rows that are held out for validation. Default: 0.2.
    #[schemars(range(min = 0.01, max = 0.9))]
    pub held_out: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { held_out: 0.2 }
    }
}

/// Rows of a batch where the file does not say how many.
const BATCH_SIZE: usize = 16;

impl PipelineKind for Regression {
    const NAME: &'static str = "regression";
    const MODELS: &'static [&'static str] = &[Perceptron::NAME];
    const DATASETS: &'static [&'static str] = &["table"];
    const METRICS: &'static [Metric] = &[
        Metric::higher("r2", "share")
            .about("The share of the target's variance that is predicted: 1 minus it is left."),
        Metric::lower("rmse", "").about("The root of the mean squared error, in deviations of the target."),
    ];
    const BATCH_SIZE: Option<usize> = Some(BATCH_SIZE);
    type Settings = Settings;
    type Prepared = Prepared;

    fn prepare(
        settings: &Settings,
        experiment: &Experiment,
        ledger: &Ledger,
    ) -> Result<(TaskFacts, Prepared), TaskError> {
        let table::Rows { mut rows, digest } = table::read(experiment.dataset_settings()?)?;
        rows.shuffle(&mut generator(experiment.experiment.seed, "split", 0));
        let mut held_out = rows.split_off(rows.len() - ((rows.len() as f64 * settings.held_out) as usize).max(1));
        table::scale(&mut rows, &mut held_out);
        let asked = experiment.training.batch_size.unwrap_or(BATCH_SIZE);
        let size = asked.min(rows.len());
        let bytes = rows.iter().chain(&held_out).map(|row| (size_of_val(row) + row.len() * 4) as u64).sum();
        let cap = Cap { items: (rows.len() + held_out.len()) as u64, bytes };
        let table = Buffer::new("rows", Policy::Refuse, cap).because("all rows of the table");
        let holding = table.register(ledger);
        holding.set(cap.items, cap.bytes);
        let feed = feed::Buffers::new(&experiment.limits, Batch::bytes(size, rows[0].len()));
        let mut facts = TaskFacts::new((rows.len() / size) as u64, Self::METRICS);
        facts.owners = feed.all().into_iter().chain([&table]).map(PlannedOwner::from).collect();
        facts.data_digests = vec![("table".into(), digest)];
        facts.smaller.extend((size < asked).then(|| Smaller {
            key: "training.batch_size".into(),
            asked: asked as u64,
            used: size as u64,
            because: format!("there are {size} rows to train on"),
        }));
        (facts.batch_items, facts.batch_keys) = (size as u64, &["training.batch_size"]);
        let rows = Arc::new(Split { train: rows, held_out, _holding: holding });
        let model = experiment.model_settings::<perceptron::Settings>()?.clone();
        Ok((facts, Prepared { model, rows, size, feed }))
    }

    fn open(
        prepared: Prepared,
        experiment: &Experiment,
        kind: Kind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Box<dyn Task>, TaskError> {
        let Prepared { model, rows, size, feed } = prepared;
        let device = TensorDevice::open(kind, false)?;
        let seed = experiment.experiment.seed;
        let network = parameters::initialise(Network::new(rows.train[0].len() - 1, &model, &device.autodiff), seed);
        let training = &experiment.training;
        let (drawn, batches) = (rows.clone(), (rows.train.len() / size) as u64);
        // A batch is a pure function of its number: so nothing depends on the workers, and a resumed run needs its step only.
        let prepare = move |number: u64| {
            let mut order: Vec<usize> = (0..drawn.train.len()).collect();
            order.shuffle(&mut generator(seed, "order", number / batches));
            let first = (number % batches) as usize * size;
            Ok(Batch::of(order[first..first + size].iter().map(|row| &drawn.train[*row])))
        };
        let settings = FeedSettings {
            workers: experiment.limits.workers,
            first: first_step.saturating_sub(1) * training.accumulation as u64,
        };
        Ok(Box::new(Regressor {
            feed: Feed::new(ledger, &feed, settings, Arc::new(prepare))?,
            trained: Trained::new(network, &experiment.optimizer, training),
            part_size: experiment.limits.batch_size,
            accumulation: training.accumulation,
            device,
            rows,
        }))
    }
}

/// What is looked at before the plan, and trained on after it.
pub struct Prepared {
    model: perceptron::Settings,
    rows: Arc<Split>,
    size: usize,
    feed: feed::Buffers,
}

struct Split {
    train: Vec<Vec<f32>>,
    held_out: Vec<Vec<f32>>,
    /// Its place in the ledger.
    _holding: Holding,
}

/// Rows one after the other.
struct Batch {
    inputs: Vec<f32>,
    targets: Vec<f32>,
}

impl Batch {
    fn of<'a>(rows: impl Iterator<Item = &'a Vec<f32>> + Clone) -> Self {
        let inputs = rows.clone().flat_map(|row| &row[..row.len() - 1]).copied().collect();
        Self { inputs, targets: rows.map(|row| row[row.len() - 1]).collect() }
    }

    /// The most that a batch of so many rows and columns holds; vectors that grow hold up to twice their numbers.
    fn bytes(rows: usize, columns: usize) -> u64 {
        (size_of::<Self>() + 2 * rows * columns * size_of::<f32>()) as u64
    }
}

impl HeldBytes for Batch {
    fn held_bytes(&self) -> u64 {
        (size_of::<Self>() + (self.inputs.capacity() + self.targets.capacity()) * size_of::<f32>()) as u64
    }
}

struct Regressor {
    feed: Feed<Batch>,
    trained: Trained<Network<Backend>>,
    part_size: usize,
    accumulation: usize,
    device: TensorDevice,
    rows: Arc<Split>,
}

/// `[1]`: the sum of squared errors of some rows.
fn squared_error(found: Tensor<1>, targets: &[f32]) -> Tensor<1> {
    let targets = Tensor::<1>::from_floats(targets, &found.device());
    (found - targets).powi_scalar(2).sum()
}

impl Task for Regressor {
    fn train_step(&mut self, _: u64, learning_rate: f64, phases: &mut dyn Phases) -> Result<StepReport, TaskError> {
        let mut gathered = Gathered::new(1);
        for _ in 0..self.accumulation {
            phases.enter("data");
            let batch = self.feed.next()?;
            let columns = batch.inputs.len() / batch.targets.len();
            gathered.describe(&format!("{} rows", batch.targets.len()));
            for (inputs, targets) in
                batch.inputs.chunks(self.part_size * columns).zip(batch.targets.chunks(self.part_size))
            {
                phases.enter("forward");
                let network = self.trained.network()?;
                let inputs = TensorData::new(inputs.to_vec(), [targets.len(), columns]);
                let found = network.forward(Tensor::<2>::from_data(inputs, &self.device.autodiff));
                let loss = squared_error(found, targets);
                gathered.count(targets.len() as f64);
                gathered.items += targets.len() as u64;
                gathered.note("squared_error", loss.clone().inner(), targets.len() as f64);
                phases.enter("backward");
                gathered.backward(network, loss);
            }
        }
        phases.enter("optimizer");
        let (gradients, norm) = self.trained.mean_and_clip(&mut gathered)?;
        self.trained.update(learning_rate, gradients)?;
        phases.enter("transfer");
        Ok(gathered.fetch(norm).report("regression"))
    }

    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError> {
        phases.enter("validation");
        let plain = self.trained.plain()?;
        let targets = self.rows.held_out.iter().map(|row| f64::from(row[row.len() - 1]));
        let mean = targets.sum::<f64>() / self.rows.held_out.len() as f64;
        let (mut left, mut all) = (0.0, 0.0);
        for rows in self.rows.held_out.chunks(self.part_size) {
            let batch = Batch::of(rows.iter());
            let shape = [rows.len(), batch.inputs.len() / rows.len()];
            let found = plain.forward(Tensor::<2>::from_data(TensorData::new(batch.inputs, shape), &self.device.plain));
            left += squared_error(found, &batch.targets).into_data().iter::<f64>().sum::<f64>();
            all += batch.targets.iter().map(|target| (f64::from(*target) - mean).powi(2)).sum::<f64>();
        }
        let rmse = (left / self.rows.held_out.len() as f64).sqrt();
        let metrics = vec![("r2".into(), Some(1.0 - left / all)), ("rmse".into(), Some(rmse))];
        Ok(ValidationReport { metrics, ..ValidationReport::default() })
    }

    fn save(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.trained.save(Perceptron::NAME, directory)
    }

    fn load(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.trained.load(directory, &self.device.plain)
    }

    fn clean(&mut self, action: CleanupAction) -> u64 {
        if action == CleanupAction::DevicePool { self.device.clean_pool() } else { 0 }
    }

    fn synchronise(&mut self) -> Result<(), TaskError> {
        self.device.synchronise()
    }

    fn device_memory(&mut self) -> Option<DeviceMemory> {
        self.device.memory()
    }

    fn parameters(&self) -> u64 {
        self.trained.parameters()
    }

    fn device_name(&self) -> String {
        self.device.name()
    }
}
