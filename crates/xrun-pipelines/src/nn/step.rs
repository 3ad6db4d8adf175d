//! Training step: gradients are summed over batches and micro-batches, divided once, clipped and applied, and the numbers of
//! the step cross from the device in one transfer.
//!
//! A loss is a sum over what it counts (objects, tokens), and is divided by the count of the whole step. Splitting a step into
//! other batches or micro-batches does not change it.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn_store::ModuleSnapshot;

use super::optimizer::ModuleOptimizer;
use super::{Tensor, checkpoint_weights, gradients};
use crate::backend::dispatch::TensorDevice;
use xrun_core::files::layout;
use xrun_core::panics;
use xrun_core::panics::messages;
use xrun_core::panics::messages::Cause;
use xrun_core::settings::sections::{Optimizer, Training};
use xrun_core::task::{StepReport, TaskError};

/// Message for an optimiser's state that the optimiser cannot use.
const OF_ANOTHER_NETWORK: &str = "the checkpoint is damaged: the optimiser's running values in this file are not those of \
                                  the run's network; delete this checkpoint, and the run goes on from the one before";

/// Network that is trained, its optimiser, and their device.
pub struct Trained<M: Module> {
    /// `None` only while the optimiser has it: so weights are not held twice.
    network: Option<M>,
    /// `None` only while it is loaded.
    optimizer: Option<ModuleOptimizer>,
    rule: Optimizer,
    /// Device of the network.
    pub device: TensorDevice,
    /// Upper limit for the norm of each set of gradients; `None` clips nothing.
    pub clip_norm: Option<f64>,
    parameters: u64,
    /// File that the optimiser's state was read from, until the state is written again.
    read_from: Option<PathBuf>,
}

impl<M: Module> Trained<M> {
    /// Takes a network that is on `device.autodiff`; the optimiser has no state yet.
    pub fn new(network: M, device: TensorDevice, rule: &Optimizer, training: &Training) -> Self {
        let optimizer = Some(ModuleOptimizer::new(rule, &device.plain));
        let parameters = network.num_params() as u64;
        let (network, rule, clip_norm) = (Some(network), rule.clone(), training.clip_norm);
        Self { network, optimizer, rule, device, clip_norm, parameters, read_from: None }
    }

    /// Returns the network with autodiff: forward passes through it are recorded.
    ///
    /// # Errors
    /// The network was lost: a step failed while the optimiser had it.
    pub fn network(&self) -> Result<&M, TaskError> {
        self.network.as_ref().ok_or_else(TaskError::model_lost)
    }

    /// Returns the network without autodiff; it shares its weights with the trained one and builds no graph.
    ///
    /// # Errors
    /// As [`Self::network`].
    pub fn inner(&self) -> Result<M, TaskError> {
        Ok(self.network()?.valid())
    }

    /// Number of parameters.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Replaces the network, for example by one with other weights.
    ///
    /// # Errors
    /// As [`Self::network`].
    pub fn replace(&mut self, change: impl FnOnce(M) -> M) -> Result<(), TaskError> {
        self.network = Some(change(self.network.take().ok_or_else(TaskError::model_lost)?));
        Ok(())
    }

    /// Number of tensors in the optimiser's state for each parameter.
    pub fn state_copies(&self) -> u64 {
        self.rule.running_copies()
    }

    /// Returns the optimiser with its state.
    ///
    /// # Errors
    /// The optimiser was lost while its state was read.
    pub fn optimizer(&self) -> Result<&ModuleOptimizer, TaskError> {
        self.optimizer.as_ref().ok_or_else(TaskError::model_lost)
    }

    /// Discards the optimiser's state.
    pub fn reset_optimizer(&mut self) {
        self.optimizer = Some(ModuleOptimizer::new(&self.rule, &self.device.plain));
    }

    /// Replaces the optimiser's state by one that [`ModuleOptimizer::to_bytes`] returned.
    ///
    /// # Errors
    /// The state belongs to another optimiser or network.
    pub fn restore_optimizer(&mut self, state: Vec<u8>) -> Result<(), TaskError> {
        self.optimizer = Some(ModuleOptimizer::new(&self.rule, &self.device.plain).with_bytes(state)?);
        Ok(())
    }

    /// Gradients of a mean over all that the step counted, clipped by their norm over all parameters if the file says so. Sets
    /// are clipped one by one. The norm is that before clipping, `[1]`, still on the device.
    ///
    /// # Errors
    /// As [`Self::network`].
    pub fn mean_and_clip(&self, gathered: &mut Gathered<M>) -> Result<(GradientsParams, Option<Tensor<1>>), TaskError> {
        let network = self.network()?;
        let counted = gathered.counted;
        let mut clipped = gathered
            .sets
            .iter_mut()
            .map(|sums| gradients::mean_and_clip(network, sums.grads(), counted, self.clip_norm));
        let Some((first, norm)) = clipped.next() else { return Ok((GradientsParams::new(), None)) };
        let rest: Vec<_> = clipped.collect();
        if rest.is_empty() {
            return Ok((first, norm));
        }
        let mut all = GradientsAccumulator::new();
        all.accumulate(network, first);
        let mut norms: Vec<_> = norm.into_iter().collect();
        for (gradients, norm) in rest {
            all.accumulate(network, gradients);
            norms.extend(norm);
        }
        Ok((all.grads(), gradients::norm_of(norms)))
    }

    /// Moves the parameters that have a gradient; the others stay as they are.
    ///
    /// # Errors
    /// As [`Self::network`]; and running values that were read from a file and are of another network.
    pub fn update(&mut self, learning_rate: f64, gradients: GradientsParams) -> Result<(), TaskError> {
        let optimizer = self.optimizer.as_mut().ok_or_else(TaskError::model_lost)?;
        let network = self.network.take().ok_or_else(TaskError::model_lost)?;
        // Burn looks at the shapes of running values when it uses them, and panics.
        let step = || optimizer.step(learning_rate, network, gradients);
        match (panic::catch_unwind(AssertUnwindSafe(step)), &self.read_from) {
            (Ok(network), _) => self.network = Some(network),
            (Err(panic), Some(file)) if messages::cause(&panics::payload(panic.as_ref())) == Cause::Other => {
                let why = panics::payload(panic.as_ref());
                return Err(TaskError::file(file, format!("{OF_ANOTHER_NETWORK} ({why})")));
            }
            (Err(panic), _) => panic::resume_unwind(panic),
        }
        Ok(())
    }

    /// Writes the optimiser's running values into a checkpoint's folder, and the weights; `model` says in their file which
    /// kind it is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&mut self, model: &str, directory: &Path) -> Result<(), TaskError>
    where
        M: ModuleSnapshot,
    {
        checkpoint_weights::save(&self.inner()?, model, directory)?;
        self.save_optimizer(directory)
    }

    /// Writes the optimiser's running values alone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_optimizer(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.optimizer.as_ref().ok_or_else(TaskError::model_lost)?.save(directory)?;
        self.read_from = None;
        Ok(())
    }

    /// Reads what [`Self::save`] wrote.
    ///
    /// # Errors
    /// The files are missing or do not fit.
    pub fn load(&mut self, directory: &Path) -> Result<(), TaskError>
    where
        M: ModuleSnapshot,
    {
        checkpoint_weights::load(self.network.as_mut().ok_or_else(TaskError::model_lost)?, directory)?;
        self.load_optimizer(directory)
    }

    /// Takes the weights of a file that [`Self::save`] wrote for another run; the optimiser stays new.
    ///
    /// # Errors
    /// The file does not read or does not fit the network.
    pub fn load_weights(&mut self, weights: &Path) -> Result<(), TaskError>
    where
        M: ModuleSnapshot,
    {
        checkpoint_weights::load_file(self.network.as_mut().ok_or_else(TaskError::model_lost)?, weights)
    }

    /// Reads what [`Self::save_optimizer`] wrote.
    ///
    /// # Errors
    /// The file is missing or does not fit.
    pub fn load_optimizer(&mut self, directory: &Path) -> Result<(), TaskError> {
        let optimizer = self.optimizer.take().ok_or_else(TaskError::model_lost)?;
        self.optimizer = Some(optimizer.load(directory)?);
        self.read_from = Some(directory.join(layout::OPTIMIZER));
        Ok(())
    }
}

/// A step while it is put together.
pub struct Gathered<M> {
    /// Sums of gradients.
    sets: Vec<GradientsAccumulator<M>>,
    notes: Vec<Note>,
    /// What the losses counted, and are divided by.
    counted: f64,
    /// Images, sequences or clips that went through.
    pub items: u64,
    batch: String,
}

/// A number of the step that is still on the device.
pub(super) struct Note {
    pub name: &'static str,
    /// `[1]`, without its graph.
    pub sum: Tensor<1>,
    pub counted: f64,
}

/// A sum that was fetched from the device, and what it counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// As it was noted.
    pub name: &'static str,
    /// Over all that was counted.
    pub sum: f64,
    /// What the sum is divided by for a mean.
    pub counted: f64,
}

impl<M: Module> Gathered<M> {
    /// `sets` is how many gradients are clipped each by itself; one, as a rule.
    pub fn new(sets: usize) -> Self {
        let sets = (0..sets.max(1)).map(|_| GradientsAccumulator::new()).collect();
        let batch = String::new();
        Self { sets, notes: Vec::new(), counted: 0.0, items: 0, batch }
    }

    /// Adds what a part of a batch gave beside its gradients.
    pub(super) fn add(&mut self, notes: Vec<Note>, counted: f64, items: u64) {
        self.notes.extend(notes);
        self.counted += counted;
        self.items += items;
    }

    /// Adds the words for one batch; only those of the first are kept, as those of all would be as long as the step is large.
    pub fn describe(&mut self, batch: &str) {
        match self.batch.is_empty() {
            true => self.batch = batch.to_owned(),
            false if !self.batch.ends_with('…') => self.batch += " and those after it …",
            false => {}
        }
    }

    /// What was in the step, in words.
    pub fn batch(&self) -> &str {
        &self.batch
    }

    /// Adds to what the losses are divided by.
    pub fn count(&mut self, counted: f64) {
        self.counted += counted;
    }

    /// Replaces what the losses are divided by, where it is known of the step as a whole.
    pub fn set_counted(&mut self, counted: f64) {
        self.counted = counted;
    }

    /// What was counted so far.
    pub fn counted(&self) -> f64 {
        self.counted
    }

    /// Goes back from a loss, `[1]`, and adds the gradients; its graph is gone afterwards.
    pub fn backward(&mut self, network: &M, loss: Tensor<1>) {
        self.sets[0].accumulate(network, GradientsParams::from_grads(loss.backward(), network));
    }

    /// The sums of a set, for a backward pass of another kind.
    pub fn set(&mut self, set: usize) -> &mut GradientsAccumulator<M> {
        &mut self.sets[set]
    }

    /// Keeps a sum `[1]`, without its graph, to be fetched at the end, and what it counted.
    pub fn note(&mut self, name: &'static str, sum: Tensor<1>, counted: f64) {
        self.notes.push(Note { name, sum, counted });
    }

    /// Fetches all numbers and the norm in one transfer.
    pub fn fetch(self, norm: Option<Tensor<1>>) -> Fetched {
        let mut tensors: Vec<Tensor<1>> = self.notes.iter().map(|note| note.sum.clone()).collect();
        let has_norm = norm.is_some();
        tensors.extend(norm);
        if tensors.is_empty() {
            let (batch, items, counted) = (self.batch, self.items, self.counted);
            return Fetched { numbers: Vec::new(), norm: None, batch, items, counted };
        }
        let mut values: Vec<f64> = Tensor::cat(tensors, 0).into_data().iter::<f32>().map(f64::from).collect();
        let norm = if has_norm { values.pop() } else { None };
        let number = |(note, sum): (&Note, f64)| Number { name: note.name, sum, counted: note.counted };
        let numbers = self.notes.iter().zip(values).map(number).collect();
        Fetched { numbers, norm, batch: self.batch, items: self.items, counted: self.counted }
    }
}

/// The numbers of a step on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// In the order in which they were noted.
    pub numbers: Vec<Number>,
    /// The norm of the gradients before clipping.
    pub norm: Option<f64>,
    /// What was in the step, in words.
    pub batch: String,
    /// Images, sequences or clips that went through.
    pub items: u64,
    /// Divisor of the losses, 0 where nothing counts.
    pub counted: f64,
}

impl Fetched {
    /// Report of a step whose numbers are the terms of its loss: their means, and the sum of these.
    pub fn report(self, kind: &'static str) -> StepReport {
        let mean = |number: Number| (number.name, number.sum / number.counted.max(1.0));
        let values: Vec<(&'static str, f64)> = self.by_name().into_iter().map(mean).collect();
        let loss = values.iter().map(|(_, value)| value).sum();
        StepReport { kind, loss, values, gradient_norm: self.norm, items: self.items, batch: self.batch }
    }

    /// Numbers of one name added up, in the order in which the names came first.
    pub fn by_name(&self) -> Vec<Number> {
        let mut sums: Vec<Number> = Vec::with_capacity(4);
        for number in &self.numbers {
            match sums.iter_mut().find(|known| known.name == number.name) {
                Some(known) => (known.sum, known.counted) = (known.sum + number.sum, known.counted + number.counted),
                None => sums.push(*number),
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, Param, ParamId};

    use super::super::tests::{autodiff, close, plain, values};
    use super::*;
    use xrun_core::device::Kind;
    use xrun_core::settings::sections::Sgd;

    fn trained<M: Module>(network: M, rule: &Optimizer, training: &Training) -> Trained<M> {
        Trained::new(network, TensorDevice::open(Kind::Cpu, false).unwrap(), rule, training)
    }

    #[derive(Module, Debug)]
    struct Line {
        slope: Param<Tensor<1>>,
    }

    /// A line through 0 with slopes 1 and 1, moved by plain gradient descent.
    fn line(clip_norm: Option<f64>) -> Trained<Line> {
        let slope = Tensor::from_floats([1.0, 1.0], &autodiff()).require_grad();
        let network = Line { slope: Param::initialized(ParamId::from(1), slope) };
        let sgd = Sgd { momentum: 0.0, weight_decay: 0.0, ..Sgd::default() };
        trained(network, &Optimizer::Sgd(sgd), &Training { clip_norm, ..Training::default() })
    }

    /// The sum of `slope · factors`, whose gradient is the factors.
    fn loss(trained: &Trained<Line>, factors: [f32; 2]) -> Tensor<1> {
        (trained.network().unwrap().slope.val() * Tensor::from_floats(factors, &autodiff())).sum()
    }

    fn slope(trained: &Trained<Line>) -> Vec<f32> {
        values(trained.inner().unwrap().slope.val())
    }

    #[test]
    fn a_step_is_the_same_however_it_is_split() {
        for parts in [vec![[6.0, 8.0]], vec![[6.0, 0.0], [0.0, 8.0]], vec![[1.0, 2.0], [2.0, 3.0], [3.0, 3.0]]] {
            let mut trained = line(None);
            let mut gathered = Gathered::new(1);
            gathered.count(2.0);
            for part in &parts {
                let loss = loss(&trained, *part);
                gathered.note("error", loss.clone().inner(), 2.0 / parts.len() as f64);
                gathered.backward(trained.network().unwrap(), loss);
            }
            let (gradients, norm) = trained.mean_and_clip(&mut gathered).unwrap();
            trained.update(0.1, gradients).unwrap();
            close(&slope(&trained), &[1.0 - 0.1 * 3.0, 1.0 - 0.1 * 4.0], 1e-6);
            let report = gathered.fetch(norm).report("line");
            assert_eq!((report.kind, report.values.len()), ("line", 1));
            assert!((report.loss - 7.0).abs() < 1e-6 && (report.gradient_norm.unwrap() - 5.0).abs() < 1e-5);
        }
    }

    #[derive(Module, Debug)]
    struct Plane {
        slope: Param<Tensor<2>>,
    }

    /// A checkpoint that somebody sealed with another network's running values: Burn panics in the first step.
    #[test]
    fn running_values_of_another_network_are_told_by_the_name_of_their_file() {
        let folder = tempfile::tempdir().unwrap();
        let momentum = Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::default() });
        let slope = Tensor::<2>::from_floats([[1.0, 1.0]], &autodiff()).require_grad();
        let plane = Plane { slope: Param::initialized(ParamId::from(1), slope) };
        let mut plane = trained(plane, &momentum, &Training::default());
        let mut gathered = Gathered::new(1);
        gathered.count(1.0);
        let network = plane.network().unwrap();
        gathered.backward(network, network.slope.val().sum());
        let (gradients, _) = plane.mean_and_clip(&mut gathered).unwrap();
        plane.update(0.1, gradients).unwrap();
        plane.save_optimizer(folder.path()).unwrap();

        let mut line = trained(line(None).network().unwrap().clone(), &momentum, &Training::default());
        line.load_optimizer(folder.path()).unwrap();
        let mut gathered = Gathered::new(1);
        gathered.count(1.0);
        gathered.backward(line.network().unwrap(), loss(&line, [1.0, 1.0]));
        let (gradients, _) = line.mean_and_clip(&mut gathered).unwrap();
        let error = line.update(0.1, gradients).unwrap_err();
        assert!(matches!(&error, TaskError::File { path, .. } if path.ends_with(layout::OPTIMIZER)), "{error}");
    }

    #[test]
    fn each_set_is_clipped_by_its_own_norm() {
        let trained = line(Some(1.0));
        let mut gathered = Gathered::new(2);
        gathered.count(1.0);
        for (set, factors) in [(0, [3.0, 4.0]), (1, [0.0, 0.5])] {
            let gradients = GradientsParams::from_grads(loss(&trained, factors).backward(), trained.network().unwrap());
            gathered.set(set).accumulate(trained.network().unwrap(), gradients);
        }
        let (gradients, norm) = trained.mean_and_clip(&mut gathered).unwrap();
        close(&values(gradients.get::<1>(ParamId::from(1)).unwrap()), &[0.6, 0.8 + 0.5], 1e-5);
        close(&values(norm.unwrap()), &[(25.0f32 + 0.25).sqrt()], 1e-5);
    }

    #[test]
    fn numbers_of_one_name_are_added_up_in_the_order_of_the_first() {
        let mut gathered: Gathered<Line> = Gathered::new(1);
        let note = |value: f32| Tensor::<1>::from_floats([value], &plain());
        gathered.describe("batch 1");
        gathered.describe("batch 2");
        gathered.describe("batch 3");
        gathered.note("loss", note(1.0), 2.0);
        gathered.note("box", note(4.0), 1.0);
        gathered.note("loss", note(2.0), 3.0);
        let fetched = gathered.fetch(None);
        let of = |name, sum, counted| Number { name, sum, counted };
        assert_eq!(fetched.by_name(), [of("loss", 3.0, 5.0), of("box", 4.0, 1.0)]);
        assert_eq!((fetched.norm, fetched.batch.as_str()), (None, "batch 1 and those after it …"));
        assert!(Gathered::<Line>::new(1).fetch(None).numbers.is_empty());
    }
}
