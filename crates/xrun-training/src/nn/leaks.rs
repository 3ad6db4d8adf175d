//! Injection of leaks into a training: a callback for each leak that `[leaks]` switches on, made from the table of its pipeline.

use burn::module::Module;
use burn::optim::GradientsParams;

use super::callback::{Callback, Event};
use super::gradients;
use super::step::TrainState;
use super::training_module::TrainingModule;
use super::{Tensor, parameters};
use xrun_core::bounded::leak_buffer::LeakBuffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::leaks::{Leak, Leaks};
use xrun_core::task::{StepReport, TaskError};

/// Callbacks of the leaks that are switched on; the others cost nothing.
pub struct LeakCallbacks<'a, L: TrainingModule> {
    switches: &'a Leaks,
    ledger: &'a Ledger,
    callbacks: Vec<Callback<L>>,
}

/// A batch after its backward pass.
pub struct AfterBatch<'a, L: TrainingModule> {
    /// Module of the pipeline.
    pub module: &'a L,
    /// The batch.
    pub batch: &'a L::Batch,
    /// True for the last batch of its step.
    pub is_last: bool,
    /// Network before the update.
    pub network: &'a L::Network,
    /// Network, optimiser and device.
    pub trained: &'a TrainState<L::Network>,
}

impl<'a, L: TrainingModule + 'static> LeakCallbacks<'a, L> {
    /// Creates a builder without callbacks.
    pub fn new(switches: &'a Leaks, ledger: &'a Ledger) -> Self {
        Self { switches, ledger, callbacks: Vec::new() }
    }

    /// Callbacks for the task.
    pub fn into_callbacks(self) -> Vec<Callback<L>> {
        self.callbacks
    }

    /// Keeps in the buffer of `leak` what `hook` puts there on each event.
    #[must_use]
    pub fn on_event<T: 'static>(
        mut self,
        leak: &Leak,
        mut hook: impl FnMut(&mut LeakBuffer<T>, &Event<'_, L>, &TrainState<L::Network>) -> Result<(), TaskError> + 'static,
    ) -> Self {
        if self.switches.is_enabled(leak) {
            let mut kept = self.switches.leak_buffer(leak, self.ledger);
            self.callbacks.push(Box::new(move |event, trained| hook(&mut kept, event, trained)));
        }
        self
    }

    /// Keeps in the buffer of `leak` what `hook` puts there after each batch.
    #[must_use]
    pub fn on_batch<T: 'static>(
        self,
        leak: &Leak,
        mut hook: impl FnMut(&mut LeakBuffer<T>, &AfterBatch<'_, L>) + 'static,
    ) -> Self {
        self.try_on_batch(leak, move |kept, at| {
            hook(kept, at);
            Ok(())
        })
    }

    /// As [`Self::on_batch`], with a hook that may fail.
    #[must_use]
    pub fn try_on_batch<T: 'static>(
        self,
        leak: &Leak,
        mut hook: impl FnMut(&mut LeakBuffer<T>, &AfterBatch<'_, L>) -> Result<(), TaskError> + 'static,
    ) -> Self {
        self.on_event(leak, move |kept, event, trained| match *event {
            Event::BatchEnd { module, batch, is_last } => {
                hook(kept, &AfterBatch { module, batch, is_last, network: trained.network()?, trained })
            }
            _ => Ok(()),
        })
    }

    /// Keeps alive a buffer that was filled while the task was opened.
    #[must_use]
    pub fn keep_alive<T: 'static>(mut self, kept: LeakBuffer<T>) -> Self {
        if kept.is_on() {
            self.callbacks.push(Box::new(move |_, _| {
                let _held = &kept;
                Ok(())
            }));
        }
        self
    }

    /// Keeps a value that `compute` returns for each batch, with the graph that it is a part of.
    #[must_use]
    pub fn leak_graph<T: 'static>(self, leak: &Leak, compute: impl Fn(&AfterBatch<'_, L>) -> T + 'static) -> Self {
        self.on_batch(leak, move |kept, at| at.keep_graph(kept, || compute(at)))
    }

    /// Keeps the gradients of each step.
    #[must_use]
    pub fn leak_gradients(self, leak: &Leak) -> Self {
        self.on_event::<GradientsParams>(leak, |kept, event, trained| match event {
            Event::BeforeUpdate(gradients) => gradients::leak_gradients(trained, gradients, kept),
            _ => Ok(()),
        })
    }

    /// Keeps a line of text for each step, given its number, learning rate and report.
    #[must_use]
    pub fn leak_log_lines(self, leak: &Leak, line: fn(u64, f64, &StepReport) -> String) -> Self {
        self.on_event(leak, move |kept, event, _| {
            if let Event::StepEnd { step, learning_rate, report, .. } = event {
                let line = line(*step, *learning_rate, report);
                let bytes = (size_of::<String>() + line.capacity()) as u64;
                kept.keep(|| (line, bytes));
            }
            Ok(())
        })
    }
}

impl<L: TrainingModule> AfterBatch<'_, L> {
    /// Adds the loss of the batch, `[1]`, to the sum in a leak.
    pub fn add_loss(&self, sum: &mut LeakBuffer<Tensor<1>>, loss: impl FnOnce() -> Tensor<1>) {
        gradients::leak_loss(|| self.trained.device.in_use(), sum, loss);
    }

    /// Keeps a value with its graph. No backward pass frees the graph; it also keeps the old weights alive after the optimiser
    /// has replaced them.
    pub fn keep_graph<T>(&self, kept: &mut LeakBuffer<T>, make: impl FnOnce() -> T) {
        keep_graph(kept, self.network, self.trained, make);
    }

    /// Keeps a value, whose size is measured.
    pub fn keep_measured<T>(&self, kept: &mut LeakBuffer<T>, make: impl FnOnce() -> T) {
        kept.keep_measured(|| self.trained.device.in_use(), || 0, make);
    }
}

/// As [`AfterBatch::keep_graph`], outside of a batch.
pub fn keep_graph<M: Module, T>(
    kept: &mut LeakBuffer<T>,
    network: &M,
    trained: &TrainState<M>,
    make: impl FnOnce() -> T,
) {
    kept.keep_measured(|| trained.device.in_use(), || parameters::bytes(network), make);
}
