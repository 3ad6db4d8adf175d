//! A task of one network that learns one thing: its pipeline says what a part of a batch costs and what a validation
//! measures. Accumulation, parts, clipping, the update, checkpoints and the device are the same for all, and are here.

use std::path::Path;

use burn::module::Module;
use burn_store::ModuleSnapshot;

use super::Tensor;
use super::step::{Gathered, Trained};
use crate::backend::dispatch::TensorDevice;
use xrun_core::bounded::HeldBytes;
use xrun_core::settings::sections::{CleanupAction, Optimizer, Training};
use xrun_core::task::DeviceMemory;
use xrun_core::task::{Phases, StepReport, Task, TaskError, ValidationReport};
use xrun_data::feed::Feed;

/// What is learnt.
pub trait Lesson {
    /// What a worker prepares for a step.
    type Batch: HeldBytes + Send + 'static;
    /// What is trained, with autodiff and without it.
    type Network: ModuleSnapshot;
    /// What the report calls a step.
    const STEP: &'static str;
    /// The model, in the file of its weights.
    const MODEL: &'static str;

    /// Goes through a batch, in parts that fit the device: a [`Step::part`] for each.
    ///
    /// # Errors
    /// The model was lost.
    fn train(&self, batch: &Self::Batch, step: &mut Step<'_, Self::Network>) -> Result<(), TaskError>;

    /// Measures on held-out data, the same each time, a part on the device at once. This `network` is without autodiff, on
    /// [`TensorDevice::plain`].
    ///
    /// # Errors
    /// The data or the device fails.
    fn validate(&self, network: &Self::Network, device: &TensorDevice) -> Result<ValidationReport, TaskError>;

    /// Evicts from the caches of its data; returns the bytes given back.
    fn clean_caches(&self) -> u64 {
        0
    }

    /// Counts for `summary.json`.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// A training step while its batches go through.
pub struct Step<'a, M: Module> {
    trained: &'a Trained<M>,
    gathered: Gathered<M>,
    phases: &'a mut dyn Phases,
    /// For the tensors of a part.
    pub device: &'a TensorDevice,
}

impl<M: Module> Step<'_, M> {
    /// Says what is in a batch, for the message when its loss is not a number.
    pub fn describe(&mut self, batch: &str) {
        self.gathered.describe(batch);
    }

    /// Forward and backward through a part of `items` items. `loss` is the sum over them, `[1]`; the step divides by all items.
    ///
    /// # Errors
    /// The model was lost in a step before.
    pub fn part(
        &mut self,
        name: &'static str,
        items: usize,
        loss: impl FnOnce(&M) -> Tensor<1>,
    ) -> Result<(), TaskError> {
        self.phases.enter("forward");
        let network = self.trained.network()?;
        let loss = loss(network);
        self.gathered.count(items as f64);
        self.gathered.items += items as u64;
        self.gathered.note(name, loss.clone().inner(), items as f64);
        self.phases.enter("backward");
        self.gathered.backward(network, loss);
        Ok(())
    }
}

/// A network, its lesson, and the data that comes for it.
pub struct Learner<L: Lesson> {
    lesson: L,
    trained: Trained<L::Network>,
    feed: Feed<L::Batch>,
    accumulation: usize,
    device: TensorDevice,
}

impl<L: Lesson> Learner<L> {
    /// The network is on the device with autodiff.
    pub fn new(
        lesson: L,
        network: L::Network,
        device: TensorDevice,
        feed: Feed<L::Batch>,
        rule: &Optimizer,
        training: &Training,
    ) -> Self {
        let trained = Trained::new(network, rule, training);
        Self { lesson, trained, feed, accumulation: training.accumulation, device }
    }
}

impl<L: Lesson> Task for Learner<L> {
    fn train_step(&mut self, _: u64, learning_rate: f64, phases: &mut dyn Phases) -> Result<StepReport, TaskError> {
        let (trained, device) = (&self.trained, &self.device);
        let mut step = Step { trained, gathered: Gathered::new(1), phases: &mut *phases, device };
        for _ in 0..self.accumulation {
            step.phases.enter("data");
            let batch = self.feed.next()?;
            self.lesson.train(&batch, &mut step)?;
        }
        let mut gathered = step.gathered;
        phases.enter("optimizer");
        let (gradients, norm) = self.trained.mean_and_clip(&mut gathered)?;
        self.trained.update(learning_rate, gradients)?;
        phases.enter("transfer");
        Ok(gathered.fetch(norm).report(L::STEP))
    }

    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError> {
        phases.enter("validation");
        self.lesson.validate(&self.trained.plain()?, &self.device)
    }

    fn save(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.trained.save(L::MODEL, directory)
    }

    fn load(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.trained.load(directory)
    }

    fn start_from(&mut self, weights: &Path) -> Result<(), TaskError> {
        self.trained.start_from(weights)
    }

    fn clean(&mut self, action: CleanupAction) -> u64 {
        match action {
            CleanupAction::Caches => self.lesson.clean_caches(),
            CleanupAction::DevicePool => self.device.clean_pool(),
            CleanupAction::Gradients | CleanupAction::Heap => 0,
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.lesson.counters()
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
