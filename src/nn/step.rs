//! One training step, written once: gradients are summed over batches and parts, divided once, clipped and applied, and the
//! numbers of the step cross from the device in one transfer.
//!
//! A loss is a sum over what it counts (objects, tokens), and is divided by what the whole step counted: so it does not
//! matter how a step is split into batches and parts. A task keeps its forward pass, its loss, and what it reports.

use std::path::Path;

use burn::DispatchDevice;
use burn::module::AutodiffModule;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::backend::AutodiffBackend;
use burn_store::ModuleSnapshot;

use super::optimizer::ModuleOptimizer;
use super::{Backend, Tensor, checkpoint_weights, gradients};
use crate::settings::sections::{Optimizer, Training};
use crate::task::TaskError;

type Inner = <Backend as AutodiffBackend>::InnerBackend;

/// A network that is trained, and its optimiser.
pub struct Trained<M: AutodiffModule<Backend>> {
    /// `None` only while the optimiser has it: so weights are not held twice.
    network: Option<M>,
    /// `None` only while it is loaded.
    optimizer: Option<ModuleOptimizer<M>>,
    rule: Optimizer,
    /// The most that the norm of each set of gradients may be.
    pub clip_norm: Option<f64>,
}

impl<M: AutodiffModule<Backend>> Trained<M> {
    pub fn new(network: M, rule: &Optimizer, training: &Training) -> Self {
        let optimizer = Some(ModuleOptimizer::new(rule));
        Self { network: Some(network), optimizer, rule: rule.clone(), clip_norm: training.clip_norm }
    }

    /// The network as it is trained: forward passes through it are recorded.
    ///
    /// # Errors
    /// A step failed while the optimiser had it.
    pub fn network(&self) -> Result<&M, TaskError> {
        self.network.as_ref().ok_or_else(TaskError::model_lost)
    }

    /// The network without autodiff; it shares its weights with the trained one and builds no graph.
    ///
    /// # Errors
    /// As [`Self::network`].
    pub fn plain(&self) -> Result<M::InnerModule, TaskError> {
        Ok(self.network()?.valid())
    }

    /// Begins with an optimiser without a past.
    pub fn forget(&mut self) {
        self.optimizer = Some(ModuleOptimizer::new(&self.rule));
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
    /// As [`Self::network`].
    pub fn update(&mut self, learning_rate: f64, gradients: GradientsParams) -> Result<(), TaskError> {
        let optimizer = self.optimizer.as_mut().ok_or_else(TaskError::model_lost)?;
        let network = self.network.take().ok_or_else(TaskError::model_lost)?;
        self.network = Some(optimizer.step(learning_rate, network, gradients));
        Ok(())
    }

    /// Writes the optimiser's running values into a checkpoint's folder, and the weights; `model` says in their file which
    /// kind it is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, model: &str, directory: &Path) -> Result<(), TaskError>
    where
        M::InnerModule: ModuleSnapshot<Inner>,
    {
        checkpoint_weights::save(&self.plain()?, model, directory)?;
        self.optimizer.as_ref().ok_or_else(TaskError::model_lost)?.save(directory)
    }

    /// Reads what [`Self::save`] wrote. `plain` is the device without autodiff: running values have no graph.
    ///
    /// # Errors
    /// The files are missing or do not fit.
    pub fn load(&mut self, directory: &Path, plain: &DispatchDevice) -> Result<(), TaskError>
    where
        M: ModuleSnapshot<Backend>,
    {
        checkpoint_weights::load(self.network.as_mut().ok_or_else(TaskError::model_lost)?, directory)?;
        let optimizer = self.optimizer.take().ok_or_else(TaskError::model_lost)?;
        self.optimizer = Some(optimizer.load(directory, plain)?);
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
struct Note {
    name: &'static str,
    /// `[1]`, without its graph.
    sum: Tensor<1>,
    counted: f64,
}

/// A sum that was fetched from the device, and what it counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    pub name: &'static str,
    pub sum: f64,
    pub counted: f64,
}

impl<M: AutodiffModule<Backend>> Gathered<M> {
    /// `sets` is how many gradients are clipped each by itself; one, as a rule.
    pub fn new(sets: usize) -> Self {
        let sets = (0..sets.max(1)).map(|_| GradientsAccumulator::new()).collect();
        Self { sets, notes: Vec::new(), counted: 0.0, items: 0, batch: String::new() }
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
            return Fetched { numbers: Vec::new(), norm: None, batch: self.batch, items: self.items };
        }
        let mut values: Vec<f64> = Tensor::cat(tensors, 0).into_data().iter::<f32>().map(f64::from).collect();
        let norm = if has_norm { values.pop() } else { None };
        let number = |(note, sum): (&Note, f64)| Number { name: note.name, sum, counted: note.counted };
        let numbers = self.notes.iter().zip(values).map(number).collect();
        Fetched { numbers, norm, batch: self.batch, items: self.items }
    }
}

/// The numbers of a step on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// In the order in which they were noted.
    pub numbers: Vec<Number>,
    /// The norm of the gradients before clipping.
    pub norm: Option<f64>,
    pub batch: String,
    pub items: u64,
}

impl Fetched {
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
