//! `[pipeline.regression]`: regression of one column of a table on the others, with squared error.

use std::sync::Arc;

use burn::tensor::{Device, TensorData};
use rand::seq::SliceRandom;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xrun::bounded::DeepSize;
use xrun::bounded::buffer::Buffer;
use xrun::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun::bounded::planned::PlannedBuffer;
use xrun::data::feed;
use xrun::dataset::open_dataset::SampleType;
use xrun::experiment::Experiment;
use xrun::experiment::pipeline::{Opening, PipelineFacts, PipelineKind, Prepared};
use xrun::nn::module_task::{Evaluation, ModuleTask, Step};
use xrun::nn::training_module::TrainingModule;
use xrun::nn::{Tensor, opening, parameters};
use xrun::seed::generator;
use xrun::settings::variant::Kind;
use xrun::task::lowered::LoweredSetting;
use xrun::task::{Metric, Task, TaskError, TaskFacts, ValidationReport};

use crate::perceptron::{self, Network};
use crate::table;

/// Predicts one column of a table from the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Regression {
    /// Fraction of the rows held out for validation.
    #[schemars(range(min = 0.01, max = 0.9))]
    pub held_out: f64,
}

impl Default for Regression {
    fn default() -> Self {
        Self { held_out: 0.2 }
    }
}

/// Default of `training.batch_size`.
const BATCH_SIZE: usize = 16;

/// Validation metrics; the first selects the best checkpoint.
const METRICS: &[Metric] = &[
    Metric::higher("r2", "share")
        .chance(0.0)
        .about("Coefficient of determination: the fraction of the target's variance that is explained."),
    Metric::lower("rmse", "").about("Root of the mean squared error, in standard deviations of the target."),
];

impl PipelineKind for Regression {
    fn kind() -> &'static Kind<dyn PipelineKind> {
        const FACTS: PipelineFacts = PipelineFacts {
            models: &[perceptron::NAME],
            sample_type: Some(SampleType::of::<table::Rows>()),
            metrics: METRICS,
            batch_size: Some(BATCH_SIZE),
            ..PipelineFacts::NONE
        };
        const { &Kind::<dyn PipelineKind>::new::<Self>("regression", FACTS) }
    }

    fn prepare(&self, experiment: &Experiment, ledger: &Ledger) -> Result<(TaskFacts, Box<dyn Prepared>), TaskError> {
        let table::Rows { mut rows, digest } = experiment.open_dataset()?;
        rows.shuffle(&mut generator(experiment.experiment.seed, "split", 0));
        let mut held_out = rows.split_off(rows.len() - ((rows.len() as f64 * self.held_out) as usize).max(1));
        table::standardize(&mut rows, &mut held_out);
        let requested = experiment.batch_size();
        let size = requested.min(rows.len());
        let cap = Cap { items: (rows.len() + held_out.len()) as u64, bytes: rows.deep_size() + held_out.deep_size() };
        let table = Buffer::new("rows", Policy::Refuse, cap).because("all rows of the table");
        let registration = table.register(ledger);
        registration.set(cap.items, cap.bytes);
        let feed = feed::Buffers::new(&experiment.limits, rows[..size].to_vec().deep_size());
        let mut facts = TaskFacts::new((rows.len() / size) as u64, METRICS);
        facts.owners = PlannedBuffer::all(&[&feed, &table]);
        facts.data_digests = vec![(experiment.dataset_name().into(), digest)];
        let because = format!("there are {size} training rows");
        facts.lowered.extend(LoweredSetting::detect("training.batch_size", requested as u64, size as u64, because));
        (facts.batch_items, facts.batch_keys) = (size as u64, &["training.batch_size"]);
        let rows = Arc::new(Split { train: rows, held_out, _registration: registration });
        Ok((facts, Box::new(Data { rows, size, feed })))
    }
}

/// Data that `prepare` reads and `open` takes over.
struct Data {
    rows: Arc<Split>,
    size: usize,
    feed: feed::Buffers,
}

impl Prepared for Data {
    fn open(self: Box<Self>, opening: Opening<'_>) -> Result<Box<dyn Task>, TaskError> {
        let (Self { rows, size, feed }, experiment) = (*self, opening.experiment);
        let seed = experiment.experiment.seed;
        let device = opening::device(opening, false)?;
        let network = Network::new(rows.train[0].len() - 1, experiment.model_settings()?, &device.autodiff);
        let network = parameters::initialise(network, seed, parameters::Deviation::FanIn);
        let (source, batches) = (rows.clone(), (rows.train.len() / size) as u64);
        // A batch is a pure function of its number, so it does not depend on the workers or on earlier steps.
        let prepare = move |number: u64| {
            let mut order: Vec<usize> = (0..source.train.len()).collect();
            order.shuffle(&mut generator(seed, "order", number / batches));
            let first = (number % batches) as usize * size;
            Ok(order[first..first + size].iter().map(|row| source.train[*row].clone()).collect())
        };
        let feed = opening::feed(opening, &feed, Arc::new(prepare))?;
        let regressor = Regressor { rows, micro_batch_size: experiment.limits.batch_size };
        Ok(Box::new(ModuleTask::new(regressor, network, device, feed, experiment)))
    }
}

/// Training and validation rows.
struct Split {
    train: Vec<Vec<f32>>,
    held_out: Vec<Vec<f32>>,
    /// Entry in the ledger, removed when dropped.
    _registration: Registration,
}

/// Training module of the regression.
struct Regressor {
    rows: Arc<Split>,
    micro_batch_size: usize,
}

/// Returns the sum of squared errors `[1]` of the predictions of the last column from the others.
fn squared_error(network: &Network, rows: &[Vec<f32>], device: &Device) -> Tensor<1> {
    let columns = rows[0].len() - 1;
    let inputs: Vec<f32> = rows.iter().flat_map(|row| &row[..columns]).copied().collect();
    let targets: Vec<f32> = rows.iter().map(|row| row[columns]).collect();
    let predicted = network.forward(Tensor::<2>::from_data(TensorData::new(inputs, [rows.len(), columns]), device));
    (predicted - Tensor::<1>::from_floats(targets.as_slice(), device)).powi_scalar(2).sum()
}

impl TrainingModule for Regressor {
    type Batch = Vec<Vec<f32>>;
    type Network = Network;
    type Output = ();
    const STEP: &'static str = "regression";
    const MODEL: &'static str = perceptron::NAME;

    fn train(&mut self, batch: &Self::Batch, step: &mut Step<'_, Self::Network>) -> Result<(), TaskError> {
        step.describe(&format!("{} rows", batch.len()));
        let device = &step.device().autodiff;
        batch.chunks(self.micro_batch_size).try_for_each(|rows| {
            step.micro_batch("squared_error", rows.len(), Vec::new(), |network, _| squared_error(network, rows, device))
        })
    }

    fn validate(
        &mut self,
        network: &Self::Network,
        evaluation: &mut Evaluation<'_, Self>,
    ) -> Result<ValidationReport, TaskError> {
        let device = &evaluation.trained.device.inner;
        let rows = &self.rows.held_out;
        let targets = || rows.iter().map(|row| f64::from(row[row.len() - 1]));
        let mean = targets().sum::<f64>() / rows.len() as f64;
        let total: f64 = targets().map(|target| (target - mean).powi(2)).sum();
        let error = |rows: &[Vec<f32>]| squared_error(network, rows, device).into_data().iter::<f64>().sum::<f64>();
        let residual: f64 = rows.chunks(self.micro_batch_size).map(error).sum();
        let metrics = vec![
            ("r2".into(), Some(1.0 - residual / total)),
            ("rmse".into(), Some((residual / rows.len() as f64).sqrt())),
        ];
        Ok(ValidationReport { metrics, ..ValidationReport::default() })
    }
}
