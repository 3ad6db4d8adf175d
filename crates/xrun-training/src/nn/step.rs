//! Training step: gradients are summed over batches and micro-batches, divided once, clipped and applied, and the values of
//! the step are transferred from the device together.
//!
//! A loss is a sum over the items that it counts (objects, tokens), and is divided by the count of the whole step. Therefore the
//! result does not depend on how a step is split into batches and micro-batches.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::TensorData;
use burn_store::ModuleSnapshot;

use super::captured::{Captures, Inputs, Pass};
use super::gradients::Divisor;
use super::micro_batches::MicroBatchExecutor;
use super::optimizer::ModuleOptimizer;
use super::pixels::fetch;
use super::update_clock::UpdateClock;
use super::{Tensor, checkpoint_weights, flat, gradients};
use crate::backend::dispatch::TensorDevice;
use xrun_core::bounded::ledger::Registration;
use xrun_core::files::layout;
use xrun_core::panics;
use xrun_core::panics::messages;
use xrun_core::panics::messages::Cause;
use xrun_core::settings::sections::{Optimizer, Training};
use xrun_core::task::{StepReport, TaskError};

/// Message for a state that the optimiser cannot use.
const STATE_OF_ANOTHER_NETWORK: &str = "the checkpoint is damaged: the optimiser state in this file does not fit the network of \
                                        the run; delete this checkpoint to continue from the previous one";

/// Network that is trained, its optimiser, and their device.
pub struct TrainState<M: Module> {
    /// `None` only during an update, so that the weights are not in memory twice.
    network: Option<M>,
    /// `None` only while its state is loaded.
    optimizer: Option<ModuleOptimizer>,
    rule: Optimizer,
    /// Device of the network.
    pub device: TensorDevice,
    /// Upper limit for the norm of each set of gradients; `None` clips nothing.
    pub clip_norm: Option<f64>,
    parameters: u64,
    /// File that the optimiser's state was read from, until the state is written again.
    read_from: Option<PathBuf>,
    /// Clock of updates in place.
    clock: Option<Arc<UpdateClock>>,
    /// Captured steps; `None` if each operation is launched.
    pub(super) captures: Option<RefCell<Captures>>,
}

impl<M: Module> TrainState<M> {
    /// Takes a network that is on `device.autodiff`; the optimiser has no state yet.
    pub fn new(network: M, device: TensorDevice, rule: &Optimizer, training: &Training) -> Self {
        let optimizer = Some(ModuleOptimizer::new(rule, &device.inner, None));
        let parameters = network.num_params() as u64;
        let (network, rule, clip_norm) = (Some(network), rule.clone(), training.clip_norm);
        Self { network, optimizer, rule, device, clip_norm, parameters, read_from: None, clock: None, captures: None }
    }

    /// Captures steps from now on. The optimiser has no state yet.
    pub(super) fn capture(&mut self, registration: Registration) {
        let clock = Arc::new(UpdateClock::new(&self.rule, &self.device.inner));
        self.captures = Some(RefCell::new(Captures::new(&self.device, clock.clone(), registration)));
        self.clock = Some(clock);
        self.optimizer = Some(self.empty_optimizer());
    }

    /// Captures no steps. The optimiser has no state yet.
    pub(super) fn capture_nothing(&mut self) {
        (self.captures, self.clock) = (None, None);
        self.optimizer = Some(self.empty_optimizer());
    }

    fn empty_optimizer(&self) -> ModuleOptimizer {
        ModuleOptimizer::new(&self.rule, &self.device.inner, self.clock.clone())
    }

    /// Drops what was captured, before weights, state or the size of passes are replaced.
    pub(super) fn drop_captures(&mut self) {
        if let Some(captures) = &mut self.captures {
            captures.get_mut().reset();
        }
    }

    /// Gives the parameters of captured steps memory of their own.
    ///
    /// # Errors
    /// As [`Self::network`].
    pub(super) fn fix(&mut self) -> Result<(), TaskError> {
        if let Some(captures) = &mut self.captures {
            let network = self.network.take().ok_or_else(TaskError::model_lost)?;
            self.network = Some(captures.get_mut().fix(network));
        }
        Ok(())
    }

    /// Returns the network with autodiff.
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

    /// Returns the outputs on the host of a forward pass, which may be captured: `compute` makes no tensor but from its inputs, the state
    /// of the pass, and the network of [`Self::inner`].
    ///
    /// # Errors
    /// The device fails.
    pub fn outputs(
        &self,
        pass: Pass,
        compute: &mut dyn FnMut(&mut Inputs<'_>) -> Vec<Tensor<1>>,
    ) -> Result<Vec<Vec<f32>>, TaskError> {
        match self.captures.as_ref().filter(|_| self.captures_passes()) {
            Some(captures) => captures.borrow_mut().forward(pass, compute),
            None => Ok(fetch(compute(&mut Inputs::on_host(pass.inputs, &self.device.inner)))),
        }
    }

    /// As [`Self::outputs`], for each micro-batch, whose inputs `stage` makes. `network` is that of [`Self::inner`].
    ///
    /// # Errors
    /// The device fails.
    pub fn outputs_of_each<P: Sync>(
        &self,
        network: &M,
        executor: &MicroBatchExecutor,
        micro_batches: &[P],
        stage: impl Fn(&P) -> Vec<TensorData> + Sync,
        compute: impl Fn(&M, &mut Inputs<'_>) -> Vec<Tensor<1>> + Sync,
    ) -> Result<Vec<Vec<Vec<f32>>>, TaskError> {
        if self.captures_passes() {
            let outputs = |part| self.outputs(Pass::new(stage(part)), &mut |inputs| compute(network, inputs));
            return micro_batches.iter().map(outputs).collect();
        }
        let device = &self.device.inner;
        Ok(executor.forward(network, micro_batches, |network, part| {
            fetch(compute(network, &mut Inputs::on_host(stage(part), device)))
        }))
    }

    /// Returns whether passes may be captured, one after another, and the parameters have memory of their own for it.
    pub fn captures_passes(&self) -> bool {
        self.captures.as_ref().is_some_and(|captures| captures.borrow().has_fixed_parameters())
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
        self.drop_captures();
        self.network = Some(change(self.network.take().ok_or_else(TaskError::model_lost)?));
        Ok(())
    }

    /// Replaces the parameters by values that [`flat::to_host`] returned and discards the optimiser's state. What was captured stays:
    /// both are overwritten in their memory.
    ///
    /// # Errors
    /// As [`Self::network`].
    pub fn restart(&mut self, parameters: &[f32]) -> Result<(), TaskError> {
        match (&self.captures, &self.clock) {
            (Some(_), Some(clock)) if self.captures_passes() => {
                flat::overwrite(self.network()?, parameters);
                clock.restart();
            }
            _ => {
                self.replace(|network| flat::from_host(network, parameters))?;
                self.reset_optimizer();
            }
        }
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
        self.drop_captures();
        if let Some(clock) = &self.clock {
            clock.clear();
        }
        self.optimizer = Some(self.empty_optimizer());
    }

    /// Replaces the optimiser's state by one that [`ModuleOptimizer::to_bytes`] returned.
    ///
    /// # Errors
    /// The state belongs to another optimiser or network.
    pub fn restore_optimizer(&mut self, state: Vec<u8>) -> Result<(), TaskError> {
        self.drop_captures();
        self.optimizer = Some(self.empty_optimizer().with_bytes(state)?);
        Ok(())
    }

    /// Divides the gradients of a step by its count and clips each set by its norm over all parameters, if the experiment sets a limit.
    /// The returned norm is that before clipping, `[1]`, on the device.
    ///
    /// # Errors
    /// As [`Self::network`].
    pub fn mean_and_clip(
        &self,
        accumulator: &mut StepAccumulator<M>,
    ) -> Result<(GradientsParams, Option<Tensor<1>>), TaskError> {
        let network = self.network()?;
        let divisor = match &accumulator.scale {
            Some(scale) => Divisor::OnDevice(scale),
            None => Divisor::Host(accumulator.divisor),
        };
        // The update in place multiplies the gradients itself.
        if let (Some(clock), Divisor::OnDevice(_), [sums]) = (&self.clock, divisor, &mut accumulator.sets[..]) {
            let sums = sums.grads();
            let found = gradients::norm_and_factor(network, &sums, divisor, self.clip_norm);
            let (norm, factor) = found.unzip();
            factor.flatten().into_iter().for_each(|factor| clock.scale_gradients(factor));
            return Ok((sums, norm));
        }
        let mut clipped = accumulator
            .sets
            .iter_mut()
            .map(|sums| gradients::mean_and_clip(network, sums.grads(), divisor, self.clip_norm));
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
        Ok((all.grads(), gradients::combined_norm(norms)))
    }

    /// Updates the parameters that have a gradient; the others do not change.
    ///
    /// # Errors
    /// As [`Self::network`]; or the optimiser's state was read from a file and belongs to another network.
    pub fn update(&mut self, learning_rate: f64, gradients: GradientsParams) -> Result<(), TaskError> {
        let optimizer = self.optimizer.as_mut().ok_or_else(TaskError::model_lost)?;
        let network = self.network.take().ok_or_else(TaskError::model_lost)?;
        // Burn checks the shapes of the state when it uses them, and panics.
        let step = || optimizer.step(learning_rate, network, gradients);
        match (panic::catch_unwind(AssertUnwindSafe(step)), &self.read_from) {
            (Ok(network), _) => self.network = Some(network),
            (Err(panic), Some(file)) if messages::cause(&panics::payload(panic.as_ref())) == Cause::Other => {
                let why = panics::payload(panic.as_ref());
                return Err(TaskError::file(file, format!("{STATE_OF_ANOTHER_NETWORK} ({why})")));
            }
            (Err(panic), _) => panic::resume_unwind(panic),
        }
        Ok(())
    }

    /// Writes the weights, with `model` as the name of their kind, and the optimiser's state into the directory of a checkpoint.
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

    /// Writes the optimiser's state alone.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_optimizer(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.optimizer.as_ref().ok_or_else(TaskError::model_lost)?.save(directory)?;
        self.read_from = None;
        Ok(())
    }

    /// Reads the files that [`Self::save`] wrote.
    ///
    /// # Errors
    /// The files are missing or do not fit.
    pub fn load(&mut self, directory: &Path) -> Result<(), TaskError>
    where
        M: ModuleSnapshot,
    {
        self.drop_captures();
        checkpoint_weights::load(self.network.as_mut().ok_or_else(TaskError::model_lost)?, directory)?;
        self.load_optimizer(directory)
    }

    /// Reads the weights of a file that [`Self::save`] wrote in another run; the optimiser has no state.
    ///
    /// # Errors
    /// The file cannot be read or does not fit the network.
    pub fn load_weights(&mut self, weights: &Path) -> Result<(), TaskError>
    where
        M: ModuleSnapshot,
    {
        self.drop_captures();
        checkpoint_weights::load_file(self.network.as_mut().ok_or_else(TaskError::model_lost)?, weights)
    }

    /// Reads the state that [`Self::save_optimizer`] wrote.
    ///
    /// # Errors
    /// The file is missing or does not fit.
    pub fn load_optimizer(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.drop_captures();
        let optimizer = self.optimizer.take().ok_or_else(TaskError::model_lost)?;
        self.optimizer = Some(optimizer.load(directory)?);
        self.read_from = Some(directory.join(layout::OPTIMIZER));
        Ok(())
    }
}

/// Gradients and values of a step, summed over its batches and micro-batches.
pub struct StepAccumulator<M> {
    /// Sums of gradients, each of which is clipped by its own norm.
    pub sets: Vec<GradientsAccumulator<M>>,
    pub(super) sums: Vec<DeviceSum>,
    /// Divisor of the losses.
    pub divisor: f64,
    /// 1 / `divisor` on the device, `[1]`, in place of it.
    pub(super) scale: Option<Tensor<1>>,
    /// Number of images, sequences or clips processed.
    pub items: u64,
    batch: String,
}

/// Value of the step that is still on the device.
pub(super) struct DeviceSum {
    pub name: &'static str,
    /// `[1]`, without its graph.
    pub sum: Tensor<1>,
    pub divisor: f64,
}

/// Value of the step on the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSum {
    /// Name in the report.
    pub name: &'static str,
    /// Sum over all items that were counted.
    pub sum: f64,
    /// Divisor of the sum for a mean.
    pub divisor: f64,
}

impl<M: Module> StepAccumulator<M> {
    /// Empty step with `sets` sets of gradients, each of which is clipped by its own norm.
    pub fn new(sets: usize) -> Self {
        let sets = (0..sets.max(1)).map(|_| GradientsAccumulator::new()).collect();
        let batch = String::new();
        Self { sets, sums: Vec::new(), divisor: 0.0, scale: None, items: 0, batch }
    }

    /// Describes a batch. Only the description of the first batch is kept, so that its length does not grow with the step.
    pub fn describe(&mut self, batch: &str) {
        match self.batch.is_empty() {
            true => self.batch = batch.to_owned(),
            false if !self.batch.ends_with('…') => self.batch += " and following batches …",
            false => {}
        }
    }

    /// Runs the backward pass of a loss, `[1]`, which frees its graph, and adds the gradients to the first set.
    pub fn backward(&mut self, network: &M, loss: Tensor<1>) {
        self.sets[0].accumulate(network, GradientsParams::from_grads(gradients::backward(loss), network));
    }

    /// Adds a value, `[1]` without its graph, and its divisor for a mean.
    pub fn record(&mut self, name: &'static str, sum: Tensor<1>, divisor: f64) {
        self.sums.push(DeviceSum { name, sum, divisor });
    }

    /// Transfers all values and the norm to the host at once.
    pub fn fetch(self, norm: Option<Tensor<1>>) -> StepValues {
        let mut tensors: Vec<Tensor<1>> = self.sums.iter().map(|value| value.sum.clone()).collect();
        let has_norm = norm.is_some();
        tensors.extend(norm);
        if tensors.is_empty() {
            let (batch, items, divisor) = (self.batch, self.items, self.divisor);
            return StepValues { values: Vec::new(), norm: None, batch, items, divisor };
        }
        let mut values: Vec<f64> = Tensor::cat(tensors, 0).into_data().iter::<f32>().map(f64::from).collect();
        let norm = if has_norm { values.pop() } else { None };
        let number = |(value, sum): (&DeviceSum, f64)| StepSum { name: value.name, sum, divisor: value.divisor };
        let values = self.sums.iter().zip(values).map(number).collect();
        StepValues { values, norm, batch: self.batch, items: self.items, divisor: self.divisor }
    }
}

/// Values of a step on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct StepValues {
    /// Values in the order in which they were added; one name may occur several times.
    pub values: Vec<StepSum>,
    /// Norm of the gradients before clipping.
    pub norm: Option<f64>,
    /// Description of the batches.
    pub batch: String,
    /// Number of images, sequences or clips processed.
    pub items: u64,
    /// Divisor of the losses; 0 if nothing was counted.
    pub divisor: f64,
}

impl StepValues {
    /// Report of a step whose values are the terms of its loss: their means, and the sum of these.
    pub fn report(self, kind: &'static str) -> StepReport {
        let mean = |number: StepSum| (number.name, number.sum / number.divisor.max(1.0));
        let values: Vec<(&'static str, f64)> = self.by_name().into_iter().map(mean).collect();
        let loss = values.iter().map(|(_, value)| value).sum();
        StepReport { kind, loss, values, gradient_norm: self.norm, items: self.items, batch: self.batch }
    }

    /// Sums of the values of each name, in the order of their first occurrence.
    pub fn by_name(&self) -> Vec<StepSum> {
        let mut sums: Vec<StepSum> = Vec::with_capacity(4);
        for number in &self.values {
            match sums.iter_mut().find(|known| known.name == number.name) {
                Some(known) => (known.sum, known.divisor) = (known.sum + number.sum, known.divisor + number.divisor),
                None => sums.push(*number),
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, Param, ParamId};

    use super::super::testing::{autodiff, close, plain, values};
    use super::*;
    use xrun_core::device::DeviceKind;
    use xrun_core::settings::sections::Sgd;

    fn trained<M: Module>(network: M, rule: &Optimizer, training: &Training) -> TrainState<M> {
        TrainState::new(network, TensorDevice::open(DeviceKind::Cpu, false).unwrap(), rule, training)
    }

    #[derive(Module, Debug)]
    struct Line {
        slope: Param<Tensor<1>>,
    }

    /// Line through 0 with the slopes 1 and 1, trained by gradient descent without momentum.
    fn line(clip_norm: Option<f64>) -> TrainState<Line> {
        let slope = Tensor::from_floats([1.0, 1.0], &autodiff()).require_grad();
        let network = Line { slope: Param::initialized(ParamId::from(1), slope) };
        let sgd = Sgd { momentum: 0.0, weight_decay: 0.0, ..Sgd::default() };
        trained(network, &Optimizer::Sgd(sgd), &Training { clip_norm, ..Training::default() })
    }

    /// Sum of `slope · factors`, whose gradient is `factors`.
    fn loss(trained: &TrainState<Line>, factors: [f32; 2]) -> Tensor<1> {
        (trained.network().unwrap().slope.val() * Tensor::from_floats(factors, &autodiff())).sum()
    }

    fn slope(trained: &TrainState<Line>) -> Vec<f32> {
        values(trained.inner().unwrap().slope.val())
    }

    #[test]
    fn a_step_does_not_depend_on_how_it_is_split() {
        for parts in [vec![[6.0, 8.0]], vec![[6.0, 0.0], [0.0, 8.0]], vec![[1.0, 2.0], [2.0, 3.0], [3.0, 3.0]]] {
            let mut trained = line(None);
            let mut accumulator = StepAccumulator::new(1);
            accumulator.divisor += 2.0;
            for part in &parts {
                let loss = loss(&trained, *part);
                accumulator.record("error", loss.clone().inner(), 2.0 / parts.len() as f64);
                accumulator.backward(trained.network().unwrap(), loss);
            }
            let (gradients, norm) = trained.mean_and_clip(&mut accumulator).unwrap();
            trained.update(0.1, gradients).unwrap();
            close(&slope(&trained), &[1.0 - 0.1 * 3.0, 1.0 - 0.1 * 4.0], 1e-6);
            let report = accumulator.fetch(norm).report("line");
            assert_eq!((report.kind, report.values.len()), ("line", 1));
            assert!((report.loss - 7.0).abs() < 1e-6 && (report.gradient_norm.unwrap() - 5.0).abs() < 1e-5);
        }
    }

    #[derive(Module, Debug)]
    struct Plane {
        slope: Param<Tensor<2>>,
    }

    /// Burn panics in the first step with the state of another network.
    #[test]
    fn an_optimizer_state_of_another_network_is_an_error_with_the_name_of_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let momentum = Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::default() });
        let slope = Tensor::<2>::from_floats([[1.0, 1.0]], &autodiff()).require_grad();
        let plane = Plane { slope: Param::initialized(ParamId::from(1), slope) };
        let mut plane = trained(plane, &momentum, &Training::default());
        let mut accumulator = StepAccumulator::new(1);
        accumulator.divisor += 1.0;
        let network = plane.network().unwrap();
        accumulator.backward(network, network.slope.val().sum());
        let (gradients, _) = plane.mean_and_clip(&mut accumulator).unwrap();
        plane.update(0.1, gradients).unwrap();
        plane.save_optimizer(directory.path()).unwrap();

        let mut line = trained(line(None).network().unwrap().clone(), &momentum, &Training::default());
        line.load_optimizer(directory.path()).unwrap();
        let mut accumulator = StepAccumulator::new(1);
        accumulator.divisor += 1.0;
        accumulator.backward(line.network().unwrap(), loss(&line, [1.0, 1.0]));
        let (gradients, _) = line.mean_and_clip(&mut accumulator).unwrap();
        let error = line.update(0.1, gradients).unwrap_err();
        assert!(matches!(&error, TaskError::File { path, .. } if path.ends_with(layout::OPTIMIZER)), "{error}");
    }

    #[test]
    fn each_set_is_clipped_by_its_own_norm() {
        let trained = line(Some(1.0));
        let mut accumulator = StepAccumulator::new(2);
        accumulator.divisor += 1.0;
        for (set, factors) in [(0, [3.0, 4.0]), (1, [0.0, 0.5])] {
            let gradients = GradientsParams::from_grads(loss(&trained, factors).backward(), trained.network().unwrap());
            accumulator.sets[set].accumulate(trained.network().unwrap(), gradients);
        }
        let (gradients, norm) = trained.mean_and_clip(&mut accumulator).unwrap();
        close(&values(gradients.get::<1>(ParamId::from(1)).unwrap()), &[0.6, 0.8 + 0.5], 1e-5);
        close(&values(norm.unwrap()), &[(25.0f32 + 0.25).sqrt()], 1e-5);
    }

    #[test]
    fn values_of_one_name_are_summed_in_the_order_of_their_first_occurrence() {
        let mut accumulator: StepAccumulator<Line> = StepAccumulator::new(1);
        let tensor = |value: f32| Tensor::<1>::from_floats([value], &plain());
        accumulator.describe("batch 1");
        accumulator.describe("batch 2");
        accumulator.describe("batch 3");
        accumulator.record("loss", tensor(1.0), 2.0);
        accumulator.record("box", tensor(4.0), 1.0);
        accumulator.record("loss", tensor(2.0), 3.0);
        let fetched = accumulator.fetch(None);
        let number = |name, sum, divisor| StepSum { name, sum, divisor };
        assert_eq!(fetched.by_name(), [number("loss", 3.0, 5.0), number("box", 4.0, 1.0)]);
        assert_eq!(fetched.norm, None);
        assert!(fetched.batch.starts_with("batch 1 ") && !fetched.batch.contains('2'), "{}", fetched.batch);
        assert!(StepAccumulator::<Line>::new(1).fetch(None).values.is_empty());
    }
}
