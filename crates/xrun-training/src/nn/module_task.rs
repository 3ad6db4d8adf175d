//! Task of a pipeline that trains one network: accumulation, clipping, the update, checkpoints and the device, which all pipelines
//! share. A pipeline implements [`TrainingModule`].

use std::cell::RefCell;
use std::path::Path;

use burn::module::Module;
use burn::tensor::TensorData;
use serde_json::Value;

use super::Tensor;
use super::callback::{Callback, Event};
use super::captured::{Inputs, Pass};
use super::micro_batches::MicroBatchExecutor;
use super::step::{StepAccumulator, TrainState};
use super::training_module::TrainingModule;
use crate::backend::dispatch::TensorDevice;
use xrun_core::bounded::graphs;
use xrun_core::experiment::Experiment;
use xrun_core::settings::rung::Rung;
use xrun_core::settings::sections::CleanupAction;
use xrun_core::task::DeviceMemory;
use xrun_core::task::predict::{Predict, PredictRequest, PredictionSink};
use xrun_core::task::{Phases, StepReport, Task, TaskError, ValidationReport};
use xrun_data::feed::Feed;

/// Training step whose batches are being computed.
pub struct Step<'a, M: Module> {
    /// Sums of gradients, and values for the report.
    pub accumulator: StepAccumulator<M>,
    /// Network before the update.
    pub trained: &'a TrainState<M>,
    phases: &'a mut dyn Phases,
}

impl<'a, M: Module> Step<'a, M> {
    /// Starts a step with `sets` sets of gradients.
    pub fn new(sets: usize, trained: &'a TrainState<M>, phases: &'a mut dyn Phases) -> Self {
        Self { accumulator: StepAccumulator::new(sets), trained, phases }
    }

    /// Device of the network.
    pub fn device(&self) -> &'a TensorDevice {
        &self.trained.device
    }

    /// Begins a phase, for the times of the report.
    pub fn enter(&mut self, phase: &'static str) {
        self.phases.enter(phase);
    }

    /// Notes that a cache will save the time of the step so far when its data is used again.
    pub fn first_use(&mut self) {
        self.phases.first_use();
    }

    /// Describes a batch, for the message when its loss is not a number.
    pub fn describe(&mut self, batch: &str) {
        self.accumulator.describe(batch);
    }

    /// Runs the forward and backward pass of a micro-batch of `items` items, given its inputs. `loss` returns the sum over the items,
    /// `[1]`; the step divides by the items of all.
    ///
    /// # Errors
    /// The network was lost in an earlier step.
    pub fn micro_batch(
        &mut self,
        name: &'static str,
        items: usize,
        inputs: Vec<TensorData>,
        loss: impl Fn(&M, &mut Inputs<'_>) -> Tensor<1>,
    ) -> Result<(), TaskError> {
        self.enter("forward");
        self.accumulator.divisor += items as f64;
        self.accumulator.items += items as u64;
        let Self { accumulator, trained, phases } = self;
        let divisor = items as f64;
        let mut compute = |network: &M, inputs: &mut Inputs<'_>, step: &mut StepAccumulator<M>| {
            let loss = loss(network, inputs);
            step.record(name, loss.clone().inner(), divisor);
            phases.enter("backward");
            step.backward(network, loss);
            Ok(())
        };
        let pass = Pass { divisor, inputs, ..Pass::default() };
        run(trained, accumulator, pass, &mut compute)
    }

    /// Runs the forward and backward passes of micro-batches: in parallel on the CPU, and one after another on a GPU, where they may be
    /// captured. `stage` returns the inputs of one and the divisor of its values, `None` where it has no loss; `losses` returns what
    /// [`Self::pass`] may compute: the total, `[1]`, and the values to record, `[1]` each.
    ///
    /// # Errors
    /// Those of [`Self::pass`].
    pub fn micro_batches<P: Sync>(
        &mut self,
        executor: &MicroBatchExecutor,
        micro_batches: &[P],
        stage: impl Fn(&P) -> Option<(Vec<TensorData>, f64)> + Sync,
        losses: impl Fn(&M, &mut Inputs<'_>) -> (Tensor<1>, Vec<(&'static str, Tensor<1>)>) + Sync,
    ) -> Result<(), TaskError> {
        if self.device().is_gpu() {
            return micro_batches.iter().filter_map(stage).try_for_each(|(inputs, divisor)| {
                self.pass(Pass { divisor, inputs, ..Pass::default() }, |network, inputs, step, _| {
                    let (total, values) = losses(network, inputs);
                    values.into_iter().for_each(|(name, value)| step.record(name, value.inner(), divisor));
                    step.backward(network, total);
                    Ok(())
                })
            });
        }
        let (network, device) = (self.trained.network()?, &self.device().autodiff);
        self.accumulator.run_micro_batches(network, executor, micro_batches, |network, part, micro_batch| {
            let total = stage(part).map(|(inputs, divisor)| {
                let (total, values) = losses(network, &mut Inputs::on_host(inputs, device));
                values.into_iter().for_each(|(name, value)| micro_batch.record(name, value.inner(), divisor));
                total
            });
            (total, ())
        });
        Ok(())
    }

    /// Returns whether passes are captured, and their inputs are therefore staged.
    pub fn is_captured(&self) -> bool {
        self.trained.captures_passes()
    }

    /// Runs a pass, which may be captured: `compute` makes no tensor but from its inputs and the network, transfers none to the host,
    /// and does nothing on the host that is needed in each step.
    ///
    /// # Errors
    /// Those of `compute`; the device fails, or the network was lost in an earlier step.
    pub fn pass(
        &mut self,
        pass: Pass,
        mut compute: impl FnMut(&M, &mut Inputs<'_>, &mut StepAccumulator<M>, &mut dyn Phases) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let Self { accumulator, trained, phases } = self;
        let mut compute = |network: &M, inputs: &mut Inputs<'_>, step: &mut StepAccumulator<M>| {
            compute(network, inputs, step, *phases)
        };
        run(trained, accumulator, pass, &mut compute)
    }
}

fn run<M: Module>(
    trained: &TrainState<M>,
    accumulator: &mut StepAccumulator<M>,
    pass: Pass,
    compute: &mut impl FnMut(&M, &mut Inputs<'_>, &mut StepAccumulator<M>) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let network = trained.network()?;
    match &trained.captures {
        None => compute(network, &mut Inputs::on_host(pass.inputs, &trained.device.autodiff), accumulator),
        Some(captures) => captures.borrow_mut().pass(network, accumulator.sets.len(), pass, compute),
    }
}

/// Validation that is being computed.
pub struct Evaluation<'a, L: TrainingModule> {
    /// Network with autodiff, and its device.
    pub trained: &'a TrainState<L::Network>,
    phases: &'a mut dyn Phases,
    callbacks: &'a mut [Callback<L>],
}

impl<L: TrainingModule> Evaluation<'_, L> {
    /// Begins a phase, for the times of the report.
    pub fn enter(&mut self, phase: &'static str) {
        self.phases.enter(phase);
    }

    /// Notes that a cache will save the time of the batch so far when its data is used again.
    pub fn first_use(&mut self) {
        self.phases.first_use();
    }

    /// Notes that `done` of `all` batches are done.
    pub fn batch_done(&mut self, done: u64, all: u64) {
        self.phases.batch_validated(done, all);
    }

    /// Passes an intermediate result to the callbacks.
    ///
    /// # Errors
    /// A callback fails.
    pub fn output(&mut self, output: &L::Output) -> Result<(), TaskError> {
        notify(self.callbacks, self.trained, Event::ValidationOutput(output))
    }
}

/// [`Task`] of a [`TrainingModule`].
pub struct ModuleTask<L: TrainingModule> {
    /// Module of the pipeline.
    pub module: L,
    /// Network, optimizer and device.
    pub trained: TrainState<L::Network>,
    /// Batches, prepared ahead.
    pub feed: Feed<L::Batch>,
    /// Number of batches of a step.
    pub accumulation: usize,
    cache_low_water: f64,
    callbacks: Vec<Callback<L>>,
}

impl<L: TrainingModule> ModuleTask<L> {
    /// Takes a network that is on `device.autodiff`.
    pub fn new(
        module: L,
        network: L::Network,
        device: TensorDevice,
        feed: Feed<L::Batch>,
        experiment: &Experiment,
    ) -> Self {
        let training = &experiment.training;
        let mut trained = TrainState::new(network, device, &experiment.optimizer, training);
        let captures = module.captures();
        if let Some(ledger) = trained.device.graphs.clone().filter(|_| !captures.is_empty()) {
            trained.capture(graphs::buffer(&experiment.limits, captures).register(&ledger));
        }
        Self {
            module,
            trained,
            feed,
            accumulation: training.gradient_accumulation,
            cache_low_water: experiment.cleanup.cache_low_water,
            callbacks: Vec::new(),
        }
    }

    /// Replaces the callbacks. With any, steps are not captured: a replay overwrites what a callback has kept.
    pub fn with_callbacks(mut self, callbacks: Vec<Callback<L>>) -> Self {
        if !callbacks.is_empty() {
            self.trained.capture_nothing();
        }
        Self { callbacks, ..self }
    }
}

/// Calls all callbacks.
fn notify<L: TrainingModule>(
    callbacks: &mut [Callback<L>],
    trained: &TrainState<L::Network>,
    event: Event<'_, L>,
) -> Result<(), TaskError> {
    callbacks.iter_mut().try_for_each(|callback| callback(&event, trained))
}

impl<L: TrainingModule> Task for ModuleTask<L> {
    fn train_step(&mut self, step: u64, learning_rate: f64, phases: &mut dyn Phases) -> Result<StepReport, TaskError> {
        let Self { module, trained, feed, callbacks, accumulation, .. } = self;
        notify(callbacks, trained, Event::StepStart { module, step })?;
        module.before_step(step, trained, phases)?;
        trained.fix()?;
        let mut running = Step::new(module.gradient_sets(), trained, phases);
        for number in 1..=*accumulation {
            running.enter("data");
            let batch = feed.next()?;
            module.train(&batch, &mut running)?;
            let is_last = number == *accumulation;
            notify(callbacks, trained, Event::BatchEnd { module, batch: &batch, is_last })?;
        }
        let mut accumulator = running.accumulator;
        phases.enter("optimizer");
        let rate = module.learning_rate(learning_rate);
        let fetched = match trained.captures.take().map(RefCell::into_inner) {
            None => {
                let (gradients, norm) = trained.mean_and_clip(&mut accumulator)?;
                notify(callbacks, trained, Event::BeforeUpdate(&gradients))?;
                module.update(rate, gradients, trained)?;
                phases.enter("transfer");
                accumulator.fetch(norm)
            }
            Some(mut captures) => {
                captures.add_eager(trained.network()?, &mut accumulator);
                captures.update(module, trained, rate, accumulator.divisor)?;
                phases.enter("transfer");
                let fetched = captures.fetch(accumulator);
                trained.captures = Some(RefCell::new(captures));
                fetched
            }
        };
        module.after_step(trained, phases)?;
        let report = module.report(fetched);
        notify(callbacks, trained, Event::StepEnd { module, step, learning_rate, report: &report })?;
        Ok(report)
    }

    fn set_run_directory(&mut self, run: &Path) {
        self.module.set_run_directory(run);
    }

    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError> {
        phases.enter("validation");
        let Self { module, trained, callbacks, .. } = self;
        notify(callbacks, trained, Event::ValidationStart(module))?;
        let network = trained.inner()?;
        if let Some(captures) = &mut trained.captures {
            captures.get_mut().begin_validation();
        }
        let report = module.validate(&network, &mut Evaluation { trained, phases, callbacks })?;
        if let Some(captures) = &mut trained.captures {
            captures.get_mut().end_validation();
        }
        notify(callbacks, trained, Event::ValidationEnd)?;
        Ok(report)
    }

    fn save(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.module.save(&mut self.trained, directory)
    }

    fn load(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.module.load(&mut self.trained, directory)
    }

    fn load_weights(&mut self, weights: &Path) -> Result<(), TaskError> {
        self.module.load_weights(&mut self.trained, weights)
    }

    fn clean(&mut self, action: CleanupAction) -> u64 {
        match action {
            CleanupAction::Caches => self.module.evict_caches(self.cache_low_water),
            CleanupAction::DevicePool => {
                // A cleanup would take the pages that the next recording needs, every time if it is more frequent than warm-ups are long.
                let is_warming = self.trained.captures.as_mut().is_some_and(|captures| captures.get_mut().is_warming());
                if is_warming { 0 } else { self.trained.device.clean_pool() }
            }
            // The training loop returns pages of the heap.
            CleanupAction::Heap => 0,
        }
    }

    fn set_rung(&mut self, rung: Rung, level: u32) -> bool {
        let is_set = match rung {
            Rung::MicroBatch => self.module.micro_batch_size().is_some_and(|size| size.halve(level)),
            Rung::ActivationCheckpointing => level <= 1 && self.module.set_recompute(level == 1),
            Rung::Caches | Rung::Prefetch | Rung::Workers | Rung::Park => false,
        };
        if is_set {
            // Graphs of passes as they were would keep their memory.
            self.trained.drop_captures();
        }
        is_set
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let captures = self.trained.captures.iter().flat_map(|captures| captures.borrow().counters());
        self.module.counters().into_iter().chain(captures).collect()
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.trained.captures.as_mut().map(|captures| captures.get_mut().take_notes()).unwrap_or_default()
    }

    fn synchronise(&mut self) -> Result<(), TaskError> {
        self.trained.device.synchronise()
    }

    fn device_memory(&mut self) -> Option<DeviceMemory> {
        self.trained.device.memory()
    }

    fn parameters(&self) -> u64 {
        self.trained.parameters()
    }

    fn device_name(&self) -> String {
        self.module.device_name(self.trained.device.name())
    }

    fn predictor(&mut self) -> Option<&mut dyn Predict> {
        L::PREDICTS.then_some(self as &mut dyn Predict)
    }
}

impl<L: TrainingModule> Predict for ModuleTask<L> {
    fn refuses(&self, request: &PredictRequest<'_>) -> Option<String> {
        self.module.refuses(request)
    }

    fn predict(&mut self, request: &PredictRequest<'_>, sink: &mut dyn PredictionSink) -> Result<Value, TaskError> {
        self.module.predict(&self.trained, request, sink)
    }
}

#[cfg(test)]
#[path = "module_task_tests.rs"]
mod tests;
