//! Training steps, and forward passes of a validation, that are captured once on a GPU and replayed: each replay is one call of the driver,
//! and allocates nothing.
//!
//! A pass (forward and backward of a micro-batch) reads inputs in fixed buffers, which the host writes before each run, and adds its
//! gradients to fixed sums and its values to a fixed table. The update takes the sums, changes parameters and moments in place, and
//! clears the sums. All that changes from step to step is on the device. The first runs are eager, until the pools hold all pages that a
//! run needs; the next one is recorded, which runs nothing, and replayed. Only one computation is warmed up at a time, the others run
//! eagerly meanwhile.
//!
//! The pages of a graph are closed to all other work until it is dropped, and a device that refuses a recording leaves unreadable what
//! the recording would have written. The state is therefore copied to the host before, and written back.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use burn::backend::{Backend, BackendGraph, Dispatch};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Element, Int, Shape, TensorData};
use xrun_ops::in_place;

use super::graph::autodiff_like;
use super::pixels::fetch;
use super::step::{StepAccumulator, StepSum, StepValues, TrainState};
use super::training_module::TrainingModule;
use super::update_clock::UpdateClock;
use super::{Tensor, flat};
use crate::backend::dispatch::TensorDevice;
use xrun_core::bounded::graphs::GRAPHS_MAX;
use xrun_core::bounded::ledger::Registration;
use xrun_core::task::TaskError;

/// Eager runs of a computation before it is recorded. In the first, fusion explores; from the second on allocations repeat.
const WARM_UP_RUNS: u32 = 3;
/// Runs of other passes after which the warm-up of one that did not occur again is given up.
const IDLE_RUNS_MAX: u32 = 16;
/// Kind of a pass without gradients.
const FORWARD: u32 = u32::MAX;
/// Rows of the table of a pass: its runs between two transfers to the host.
const ROWS: usize = 256;

/// Inputs of a pass, and what distinguishes it.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// Numbers that select the computation, such as precisions; not the shapes of the inputs.
    pub kind: Vec<u32>,
    /// Divisor of the values for a mean.
    pub divisor: f64,
    /// Values of the inputs, in the order in which the computation takes them.
    pub inputs: Vec<TensorData>,
    /// Other tensors that the computation writes in place, for example moving averages.
    pub state: Vec<Tensor<1>>,
    /// The computation adds to a set of gradients several times. Its sums are then added in the order of an eager step, which takes a
    /// copy of each.
    pub adds_repeatedly: bool,
}

impl Pass {
    /// Pass that is selected by its inputs alone.
    pub fn new(inputs: Vec<TensorData>) -> Self {
        Self { inputs, ..Self::default() }
    }
}

/// Inputs of a pass on the device, in order.
#[derive(Clone)]
pub enum Inputs<'a> {
    /// Values on the host, to be transferred to this device when they are taken.
    Host(std::vec::IntoIter<TensorData>, &'a Device),
    /// Tensors that the host has written, to be taken on the device of this one.
    Fixed(std::slice::Iter<'a, Input>, &'a Tensor<1>),
}

impl<'a> Inputs<'a> {
    /// Inputs of a pass that is not captured.
    pub fn on_host(values: Vec<TensorData>, device: &'a Device) -> Self {
        Self::Host(values.into_iter(), device)
    }

    /// Next `count` inputs, for a micro-batch of the pass; `None` if they are not staged.
    pub fn part(&mut self, count: usize) -> Option<Inputs<'a>> {
        match self {
            Self::Host(..) => None,
            Self::Fixed(inputs, like) => {
                let (part, rest) = inputs.as_slice().split_at(count);
                *inputs = rest.iter();
                Some(Inputs::Fixed(part.iter(), like))
            }
        }
    }

    /// Next input.
    ///
    /// # Panics
    /// There is none, or it has integers.
    pub fn floats<const D: usize>(&mut self) -> Tensor<D> {
        match self {
            Self::Host(values, device) => Tensor::from_data(next(values), *device),
            Self::Fixed(inputs, like) => match next(inputs) {
                Input::Floats(tensor, shape) => autodiff_like(tensor.clone().reshape(shape.clone()), *like),
                Input::Ints(..) => unreachable!("an input has integers"),
            },
        }
    }

    /// Next input, of integers.
    ///
    /// # Panics
    /// There is none, or it has floats.
    pub fn ints<const D: usize>(&mut self) -> burn::tensor::Tensor<D, Int> {
        match self {
            Self::Host(values, device) => burn::tensor::Tensor::from_data(next(values), *device),
            Self::Fixed(inputs, like) => match next(inputs) {
                Input::Ints(tensor, shape) if like.is_autodiff() => {
                    burn::tensor::Tensor::from_inner(tensor.clone().reshape(shape.clone()))
                }
                Input::Ints(tensor, shape) => tensor.clone().reshape(shape.clone()),
                Input::Floats(..) => unreachable!("an input has floats"),
            },
        }
    }
}

fn next<T>(inputs: &mut impl Iterator<Item = T>) -> T {
    inputs.next().unwrap_or_else(|| unreachable!("a computation takes more inputs than were staged"))
}

/// Input in a fixed buffer, and its shape.
pub enum Input {
    /// 32-bit floats.
    Floats(Tensor<1>, Shape),
    /// 32-bit integers.
    Ints(burn::tensor::Tensor<1, Int>, Shape),
}

impl Input {
    fn new(values: &TensorData, device: &TensorDevice) -> Self {
        let (shape, count) = (values.shape().clone(), values.num_elements());
        match values.dtype().is_float() {
            true => Self::Floats(in_place::fixed(Tensor::zeros([count], &device.inner)), shape),
            false => Self::Ints(
                burn::tensor::Tensor::from_data(TensorData::new(vec![0i32; count], [count]), &device.inner),
                shape,
            ),
        }
    }

    fn write(&self, values: TensorData) {
        match self {
            Self::Floats(tensor, _) => in_place::write(tensor, converted(values)),
            Self::Ints(tensor, _) => in_place::write_ints(tensor, converted(values)),
        }
    }
}

/// Values, which are only copied if they are of another type.
fn converted<E: Element>(values: TensorData) -> Vec<E> {
    let values = values.try_cast_as::<E>().and_then(TensorData::try_into_vec);
    values.unwrap_or_else(|error| unreachable!("floats and integers are cast to such: {error}"))
}

/// Computation on the way to its graph.
#[derive(Default)]
enum Graph {
    /// It has not run yet.
    #[default]
    New,
    /// It has run once, and nothing is prepared for it.
    Seen,
    /// Eager runs since the device was prepared for a recording.
    Warm(u32),
    Recorded(BackendGraph<Dispatch>),
}

/// Next run of a computation.
enum Run {
    Eager,
    Record,
    Replay,
}

/// Sums of gradients by the ids of their parameters, flat.
type Sums = BTreeMap<u64, Tensor<1>>;

/// Captures of one device.
struct Recorder {
    device: TensorDevice,
    /// A computation is between preparation and recording.
    is_warming: bool,
    /// Runs of others since its last one.
    idle: u32,
    /// Nothing is recorded any more.
    has_refused: bool,
    replays: u64,
    /// Lines for the log.
    notes: Vec<String>,
    /// Ledger entry of the graphs.
    registration: Registration,
    graphs: u64,
    /// Bytes by which the pool grew while graphs were warmed up and recorded.
    pages: u64,
    /// Bytes of the pool when the warm-up began.
    reserved: u64,
}

impl Recorder {
    /// Decides about the next run of a computation.
    fn next(&mut self, graph: &mut Graph) -> Run {
        self.idle += 1;
        match graph {
            Graph::Recorded(_) => Run::Replay,
            Graph::Warm(WARM_UP_RUNS) => Run::Record,
            Graph::Seen if !self.is_warming && !self.has_refused && self.graphs < 2 * GRAPHS_MAX as u64 => {
                // What grows from here on is needed by the graph.
                self.device.clean_pool();
                self.reserved = self.device.reserved();
                match Dispatch::graph_prepare(self.device.inner.as_dispatch()) {
                    Ok(()) => (*graph, self.is_warming, self.idle) = (Graph::Warm(0), true, 0),
                    Err(error) => self.refuse(&error.to_string()),
                }
                Run::Eager
            }
            _ => Run::Eager,
        }
    }

    /// Notes an eager run.
    fn ran(&mut self, graph: &mut Graph) -> Result<(), TaskError> {
        match graph {
            Graph::New => *graph = Graph::Seen,
            Graph::Warm(runs) => {
                (*runs, self.idle) = (*runs + 1, 0);
                self.device.synchronise()?;
            }
            Graph::Seen | Graph::Recorded(_) => {}
        }
        Ok(())
    }

    /// Records a computation.
    ///
    /// # Errors
    /// `Ok(Err)`: the device refused it, and what it would have written is unreadable.
    fn record(
        &mut self,
        compute: impl FnOnce() -> Result<(), TaskError>,
    ) -> Result<Result<BackendGraph<Dispatch>, String>, TaskError> {
        let device = self.device.inner.as_dispatch();
        self.is_warming = false;
        if let Err(refused) = Dispatch::graph_start_capture(device) {
            return Ok(Err(refused.to_string()));
        }
        let computed = panic::catch_unwind(AssertUnwindSafe(compute));
        // In any case: a stream that records would record everything that follows.
        let recorded = Dispatch::graph_stop_capture(device);
        computed.unwrap_or_else(|panic| panic::resume_unwind(panic))?;
        if recorded.is_ok() {
            self.graphs += 1;
            self.pages += self.device.reserved().saturating_sub(self.reserved);
            self.registration.set(self.graphs, self.pages);
        }
        Ok(recorded.map_err(|refused| refused.to_string()))
    }

    fn replay(&mut self, graph: &Graph) -> Result<(), TaskError> {
        let Graph::Recorded(graph) = graph else { unreachable!("only a recorded graph is replayed") };
        self.replays += 1;
        // SAFETY: parameters, moments, sums, inputs and tables are alive as long as the graph, and all work is on this thread's stream.
        let replayed = unsafe { Dispatch::graph_replay(self.device.inner.as_dispatch(), graph) };
        replayed.map_err(|error| TaskError::Device(error.to_string()))
    }

    /// Records nothing from now on.
    fn refuse(&mut self, reason: &str) {
        self.has_refused = true;
        // The innermost of the causes, each on a line, is the reason.
        let is_told = |line: &&str| !line.trim().is_empty() && !line.contains("acktrace");
        let reason = reason.lines().rfind(is_told).unwrap_or("without a reason");
        self.notes.push(format!("steps are not captured, but launched operation by operation: {}", reason.trim()));
    }

    /// Notes that all graphs were dropped.
    fn forget(&mut self) {
        (self.graphs, self.pages) = (0, 0);
        self.registration.set(0, 0);
    }

    /// Ends a preparation that led to no recording.
    fn give_up(&mut self) {
        if std::mem::take(&mut self.is_warming) {
            let _ = Dispatch::graph_stop_capture(self.device.inner.as_dispatch()); // refused: there is no recording
        }
    }
}

/// Kind of a pass, and the shapes of its inputs.
type Key = (Vec<u32>, Vec<Shape>);

/// Pass with its fixed buffers.
struct CapturedPass {
    key: Key,
    graph: Graph,
    inputs: Vec<Input>,
    /// Row of the table for the next run, `[1]`.
    row: burn::tensor::Tensor<1, Int>,
    /// Values of [`ROWS`] runs; `None` before the first.
    table: Option<Tensor<1>>,
    /// Outputs of a pass without gradients; empty before the first run.
    outputs: Vec<Tensor<1>>,
    names: Vec<&'static str>,
    rows_used: usize,
    /// Parameters with a gradient, by set.
    trained: Vec<BTreeSet<u64>>,
}

fn key(kind: impl IntoIterator<Item = u32>, inputs: &[TensorData]) -> Key {
    (kind.into_iter().collect(), inputs.iter().map(|values| values.shape().clone()).collect())
}

/// Update of the parameters that had a gradient, by set.
struct CapturedUpdate {
    trained: Vec<BTreeSet<u64>>,
    graph: Graph,
    /// Groups of parameters that it updates, with factors of the learning rate.
    trail: Vec<(usize, f64)>,
}

/// Fixed buffers and graphs of a training.
pub struct Captures {
    recorder: Recorder,
    passes: Vec<CapturedPass>,
    updates: Vec<CapturedUpdate>,
    /// Sums of gradients, by set.
    sums: Vec<Sums>,
    /// Parameters with a gradient since the last update, by set.
    trained: Vec<BTreeSet<u64>>,
    clock: Arc<UpdateClock>,
    /// 1 / divisor of the losses, `[1]`.
    scale: Tensor<1>,
    /// Norm of the gradients, `[1]`.
    norm: Tensor<1>,
    /// Tensor on the autodiff device.
    like: Tensor<1>,
    /// Passes of this step whose values are on the device, with their row and divisor.
    pending: Vec<(usize, usize, f64)>,
    values: Vec<StepSum>,
    /// Forward passes in the running validation, and their runs; `None` outside of validations.
    validated: Option<Vec<(Key, u32)>>,
    /// Those with enough runs in the last validation.
    repeated: Vec<Key>,
    /// The parameters have memory of their own.
    is_fixed: bool,
    norm_on_host: Option<f64>,
}

impl Captures {
    /// Captures for a network on `device.autodiff`.
    pub fn new(device: &TensorDevice, clock: Arc<UpdateClock>, registration: Registration) -> Self {
        let zero = || in_place::fixed(Tensor::zeros([1], &device.inner));
        Self {
            recorder: Recorder {
                device: device.clone(),
                is_warming: false,
                idle: 0,
                has_refused: false,
                replays: 0,
                notes: Vec::new(),
                registration,
                graphs: 0,
                pages: 0,
                reserved: 0,
            },
            passes: Vec::new(),
            updates: Vec::new(),
            sums: Vec::new(),
            trained: Vec::new(),
            clock,
            scale: zero(),
            norm: zero(),
            like: Tensor::zeros([1], &device.autodiff),
            pending: Vec::new(),
            values: Vec::new(),
            validated: None,
            repeated: Vec::new(),
            is_fixed: false,
            norm_on_host: None,
        }
    }

    /// Number of graphs, and of replays so far.
    pub fn counters(&self) -> [(&'static str, u64); 2] {
        [("graphs", self.recorder.graphs), ("graph_replays", self.recorder.replays)]
    }

    /// Lines for the log since the last call.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.recorder.notes)
    }

    /// Drops all graphs and fixed buffers, before parameters or moments are replaced.
    pub fn reset(&mut self) {
        self.recorder.give_up();
        self.passes.clear();
        self.updates.clear();
        self.sums.clear();
        self.trained.clear();
        self.pending.clear();
        self.is_fixed = false;
        self.clock.reset();
        self.recorder.forget();
    }

    /// Returns whether a computation is between its preparation and its recording, at most [`IDLE_RUNS_MAX`] runs of others long.
    pub fn is_warming(&self) -> bool {
        self.recorder.is_warming
    }

    /// Ends a warm-up that leads to no recording.
    fn cool_down(&mut self) {
        self.recorder.give_up();
        let graphs = self.passes.iter_mut().map(|pass| &mut pass.graph);
        let graphs = graphs.chain(self.updates.iter_mut().map(|update| &mut update.graph));
        graphs.filter(|graph| matches!(graph, Graph::Warm(_))).for_each(|graph| *graph = Graph::Seen);
    }

    /// Gives the parameters memory of their own, before the first step.
    pub fn fix<M: Module>(&mut self, network: M) -> M {
        match std::mem::replace(&mut self.is_fixed, true) {
            true => network,
            false => network.map(&mut Fix),
        }
    }

    /// Returns whether the parameters have memory of their own.
    pub fn has_fixed_parameters(&self) -> bool {
        self.is_fixed
    }

    /// Runs a pass with `sets` sets of gradients.
    pub fn pass<M: Module>(
        &mut self,
        network: &M,
        sets: usize,
        staged: Pass,
        compute: &mut impl FnMut(&M, &mut Inputs<'_>, &mut StepAccumulator<M>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let number = self.stage(key(staged.kind, &staged.inputs), staged.inputs);
        if self.passes[number].rows_used == ROWS {
            self.transfer(false);
        }
        self.add_sets(sets);
        let Self { recorder, passes, sums, like, .. } = self;
        let pass = &mut passes[number];
        in_place::write_ints(&pass.row, vec![pass.rows_used as i32]);
        let adds_repeatedly = staged.adds_repeatedly;
        pass.run(recorder, sums, staged.state, |pass, sums| {
            let mut step = StepAccumulator::new(sets);
            if adds_repeatedly {
                for ((set, sums), ids) in step.sets.iter_mut().zip(&*sums).zip(&pass.trained) {
                    set.accumulate(network, select(network, sums, ids));
                }
            }
            compute(network, &mut Inputs::Fixed(pass.inputs.iter(), like), &mut step)?;
            pass.trained.resize(sets, BTreeSet::new());
            for ((set, sums), trained) in step.sets.iter_mut().zip(sums).zip(&mut pass.trained) {
                let includes_sums = adds_repeatedly && !trained.is_empty();
                accumulate(network, set.grads(), sums, trained, includes_sums);
            }
            pass.store(step);
            Ok(())
        })?;
        self.pending.push((number, pass.rows_used, staged.divisor));
        pass.rows_used += 1;
        for (trained, more) in self.trained.iter_mut().zip(&pass.trained) {
            trained.extend(more);
        }
        Ok(())
    }

    /// Runs a forward pass; returns the outputs on the host. In a validation it may be captured if its shapes were repeated in the one
    /// before: one that is warmed up and not recorded would cost more. Elsewhere it is replayed if it was.
    pub fn forward(
        &mut self,
        staged: Pass,
        compute: &mut dyn FnMut(&mut Inputs<'_>) -> Vec<Tensor<1>>,
    ) -> Result<Vec<Vec<f32>>, TaskError> {
        let key = key([FORWARD].into_iter().chain(staged.kind), &staged.inputs);
        let known = self.passes.iter().find(|pass| pass.key == key).map(|pass| &pass.graph);
        let is_captured = match (&mut self.validated, known) {
            (_, Some(Graph::Recorded(_))) => true,
            (None, _) => false,
            (Some(validated), known) => {
                match validated.iter().position(|(known, _)| *known == key) {
                    Some(at) => validated[at].1 += 1,
                    None if validated.len() < 2 * GRAPHS_MAX => validated.push((key.clone(), 1)),
                    None => {}
                }
                let is_free = !self.recorder.is_warming || matches!(known, Some(Graph::Warm(_)));
                is_free && self.repeated.contains(&key)
            }
        };
        if !is_captured {
            return Ok(fetch(compute(&mut Inputs::on_host(staged.inputs, &self.recorder.device.inner))));
        }
        let number = self.stage(key, staged.inputs);
        let Self { recorder, passes, scale, .. } = self;
        let pass = &mut passes[number];
        pass.run(recorder, &mut Vec::new(), staged.state, |pass, _| {
            let found = compute(&mut Inputs::Fixed(pass.inputs.iter(), scale));
            match pass.outputs.is_empty() {
                true => pass.outputs = found.into_iter().map(in_place::fixed).collect(),
                false => in_place::assign(pass.outputs.iter().cloned().zip(found).collect()),
            }
            Ok(())
        })?;
        Ok(fetch(pass.outputs.clone()))
    }

    /// Begins a validation.
    pub fn begin_validation(&mut self) {
        self.validated = Some(Vec::new());
    }

    /// Ends a validation: what it repeated may be captured in the next one.
    pub fn end_validation(&mut self) {
        let is_warm =
            |pass: &CapturedPass| pass.key.0.first() == Some(&FORWARD) && matches!(pass.graph, Graph::Warm(_));
        if self.passes.iter().any(is_warm) {
            self.cool_down();
        }
        let repeated =
            self.validated.take().unwrap_or_default().into_iter().filter(|(_, runs)| *runs > WARM_UP_RUNS + 1);
        self.repeated = repeated.map(|(key, _)| key).collect();
    }

    /// Adds gradients that were computed outside a pass.
    pub fn add_eager<M: Module>(&mut self, network: &M, step: &mut StepAccumulator<M>) {
        self.add_sets(step.sets.len());
        for ((set, sums), trained) in step.sets.iter_mut().zip(&mut self.sums).zip(&mut self.trained) {
            accumulate(network, set.grads(), sums, trained, false);
        }
    }

    fn add_sets(&mut self, sets: usize) {
        while self.sums.len() < sets {
            self.sums.push(Sums::new());
        }
        self.trained.resize(sets.max(self.trained.len()), BTreeSet::new());
    }

    /// Writes the inputs of a pass, which is added if it is new; returns its index.
    fn stage(&mut self, key: Key, inputs: Vec<TensorData>) -> usize {
        if self.recorder.is_warming && self.recorder.idle > IDLE_RUNS_MAX {
            self.cool_down();
        }
        let number = self.find(key, &inputs);
        self.passes[number].inputs.iter().zip(inputs).for_each(|(input, values)| input.write(values));
        number
    }

    fn find(&mut self, key: Key, inputs: &[TensorData]) -> usize {
        if let Some(known) = self.passes.iter().position(|pass| pass.key == key) {
            return known;
        }
        let device = &self.recorder.device;
        let pass = CapturedPass {
            key,
            graph: Graph::New,
            inputs: inputs.iter().map(|values| Input::new(values, device)).collect(),
            row: burn::tensor::Tensor::from_data(TensorData::new(vec![0i32], [1]), &device.inner),
            table: None,
            outputs: Vec::new(),
            names: Vec::new(),
            rows_used: 0,
            trained: Vec::new(),
        };
        let is_idle = |pass: &CapturedPass| pass.rows_used == 0 && matches!(pass.graph, Graph::New | Graph::Seen);
        keep(&mut self.passes, pass, is_idle)
    }

    /// Clips the gradients, updates the parameters and clears the sums.
    pub fn update<L: TrainingModule>(
        &mut self,
        module: &mut L,
        trained: &mut TrainState<L::Network>,
        learning_rate: f64,
        divisor: f64,
    ) -> Result<(), TaskError> {
        let ids = std::mem::replace(&mut self.trained, vec![BTreeSet::new(); self.sums.len()]);
        if ids.iter().all(BTreeSet::is_empty) {
            self.transfer(false);
            return module.update(learning_rate, GradientsParams::new(), trained);
        }
        let number = self.updates.iter().position(|update| update.trained == ids).unwrap_or_else(|| {
            let new = CapturedUpdate { trained: ids, graph: Graph::New, trail: Vec::new() };
            keep(&mut self.updates, new, |update| matches!(update.graph, Graph::New | Graph::Seen))
        });
        in_place::write(&self.scale, vec![(1.0 / divisor.max(1.0)) as f32]);
        let clock = self.clock.clone();
        let Self { recorder, updates, sums, scale, norm, .. } = self;
        let update = &mut updates[number];
        let apply = |update: &mut CapturedUpdate,
                     trained: &mut TrainState<L::Network>,
                     module: &mut L|
         -> Result<(), TaskError> {
            let mut step = StepAccumulator::new(sums.len());
            let network = trained.network()?;
            for ((set, sums), ids) in step.sets.iter_mut().zip(sums.iter()).zip(&update.trained) {
                set.accumulate(network, select(network, sums, ids));
            }
            step.scale = Some(scale.clone());
            let (gradients, found) = trained.mean_and_clip(&mut step)?;
            if let Some(found) = found {
                in_place::assign(vec![(norm.clone(), found)]);
            }
            module.update(learning_rate, gradients, trained)?;
            let updated = sums.iter().zip(&update.trained);
            let updated = updated.flat_map(|(sums, ids)| ids.iter().filter_map(|id| sums.get(id)).cloned());
            in_place::clear(&updated.collect::<Vec<_>>());
            Ok(())
        };
        match recorder.next(&mut update.graph) {
            Run::Eager => {
                clock.begin(learning_rate, false);
                apply(update, trained, module)?;
                update.trail = clock.take_trail();
                recorder.ran(&mut update.graph)?;
            }
            Run::Replay => {
                clock.advance(learning_rate, &update.trail);
                recorder.replay(&update.graph)?;
            }
            Run::Record => {
                let network = trained.network()?;
                let (parameters, state) = (flat::to_host(network), trained.optimizer()?.to_bytes()?);
                let before = Snapshot::new(flat_sums(sums).chain([norm.clone()]).collect());
                clock.advance(learning_rate, &update.trail);
                clock.begin(learning_rate, true);
                match recorder.record(|| apply(update, trained, module))? {
                    Ok(graph) => {
                        update.graph = Graph::Recorded(graph);
                        clock.take_trail();
                        recorder.replay(&update.graph)?;
                    }
                    Err(refused) => {
                        recorder.refuse(&refused);
                        before.write_back();
                        update.graph = Graph::Seen;
                        trained.replace(|network| flat::from_host(network, &parameters).map(&mut Fix))?;
                        trained.restore_optimizer(state)?;
                        clock.begin(learning_rate, false);
                        apply(update, trained, module)?;
                        recorder.forget();
                        // The graphs of passes read the old parameters.
                        self.passes.iter_mut().for_each(|pass| pass.graph = Graph::Seen);
                        self.updates.iter_mut().for_each(|update| update.graph = Graph::Seen);
                    }
                }
            }
        }
        if clock.take_changed() {
            let recorded = self.updates.iter_mut().filter(|update| matches!(update.graph, Graph::Recorded(_)));
            let dropped = recorded.map(|update| update.graph = Graph::Seen).count();
            self.recorder.graphs -= dropped as u64;
        }
        self.transfer(true);
        Ok(())
    }

    /// Transfers the values of passes to the host, and the norm of the gradients.
    fn transfer(&mut self, has_norm: bool) {
        let used: Vec<usize> = (0..self.passes.len()).filter(|number| self.passes[*number].rows_used > 0).collect();
        let tables = used.iter().filter_map(|number| self.passes[*number].table.clone());
        let mut data = fetch(tables.chain(has_norm.then(|| self.norm.clone())).collect()).into_iter();
        let mut tables: Vec<Vec<f32>> = vec![Vec::new(); self.passes.len()];
        for number in used {
            self.passes[number].rows_used = 0;
            if self.passes[number].table.is_some() {
                tables[number] = data.next().unwrap_or_default();
            }
        }
        for (number, row, divisor) in self.pending.drain(..) {
            let names = &self.passes[number].names;
            let values = &tables[number][row * names.len()..][..names.len()];
            let sums = names.iter().zip(values);
            self.values.extend(sums.map(|(name, sum)| StepSum { name, sum: f64::from(*sum), divisor }));
        }
        self.norm_on_host = data.next().and_then(|norm| norm.first().copied()).map(f64::from);
    }

    /// Values of a step: those of its passes, then those that `step` has recorded itself.
    pub fn fetch<M: Module>(&mut self, step: StepAccumulator<M>) -> StepValues {
        let fetched = step.fetch(None);
        let values = self.values.drain(..).chain(fetched.values).collect();
        StepValues { values, norm: self.norm_on_host.take(), ..fetched }
    }
}

impl CapturedPass {
    /// Computes the pass, eagerly or by its graph. It overwrites `state` beside the sums and what it has itself.
    fn run(
        &mut self,
        recorder: &mut Recorder,
        sums: &mut Vec<Sums>,
        state: Vec<Tensor<1>>,
        mut compute: impl FnMut(&mut Self, &mut Vec<Sums>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        match recorder.next(&mut self.graph) {
            Run::Eager => {
                compute(self, sums)?;
                recorder.ran(&mut self.graph)
            }
            Run::Replay => recorder.replay(&self.graph),
            Run::Record => {
                let state = state.into_iter().chain(self.table.clone()).chain(self.outputs.clone());
                let before = Snapshot::new(state.chain(flat_sums(sums)).collect());
                match recorder.record(|| compute(self, sums))? {
                    Ok(graph) => {
                        self.graph = Graph::Recorded(graph);
                        recorder.replay(&self.graph)
                    }
                    Err(refused) => {
                        before.write_back();
                        self.graph = Graph::Seen;
                        recorder.refuse(&refused);
                        compute(self, sums)
                    }
                }
            }
        }
    }

    /// Writes the values of a run into its row of the table.
    fn store<M: Module>(&mut self, step: StepAccumulator<M>) {
        if step.sums.is_empty() {
            return;
        }
        self.names = step.sums.iter().map(|value| value.name).collect();
        let values = Tensor::cat(step.sums.into_iter().map(|value| value.sum).collect(), 0);
        let size = ROWS * self.names.len();
        let table = self.table.get_or_insert_with(|| in_place::fixed(Tensor::zeros([size], &values.device())));
        in_place::put(table, values, &self.row);
    }
}

fn flat_sums(sums: &[Sums]) -> impl Iterator<Item = Tensor<1>> {
    sums.iter().flat_map(|sums| sums.values().cloned())
}

/// Values of fixed tensors on the host, to be written back.
struct Snapshot {
    tensors: Vec<Tensor<1>>,
    values: Vec<Vec<f32>>,
}

impl Snapshot {
    fn new(tensors: Vec<Tensor<1>>) -> Self {
        Self { values: fetch(tensors.clone()), tensors }
    }

    fn write_back(self) {
        self.tensors.iter().zip(self.values).for_each(|(tensor, values)| in_place::write(tensor, values));
    }
}

/// Gives parameters contiguous memory of their own.
struct Fix;

impl ModuleMapper for Fix {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let trained = tensor.is_require_grad();
        let fixed = autodiff_like(in_place::fixed(tensor.clone().inner()), &tensor);
        Param::from_mapped_value(id, fixed.set_require_grad(trained), mapper)
    }
}

/// Adds an item to a list of at most twice [`GRAPHS_MAX`], in place of one that is idle if the list is full; returns its index.
fn keep<T>(items: &mut Vec<T>, item: T, is_idle: impl Fn(&T) -> bool) -> usize {
    let idle = if items.len() < 2 * GRAPHS_MAX { None } else { items.iter().position(is_idle) };
    match idle {
        Some(idle) => items[idle] = item,
        None => items.push(item),
    }
    idle.unwrap_or(items.len() - 1)
}

/// Adds gradients to fixed sums. `includes_sums`: the gradients are the new sums.
fn accumulate<M: Module>(
    network: &M,
    gradients: GradientsParams,
    sums: &mut Sums,
    trained: &mut BTreeSet<u64>,
    includes_sums: bool,
) {
    let mut found = Accumulate { sums, gradients, trained, pairs: Vec::new() };
    network.visit(&mut found);
    let change = if includes_sums { in_place::assign } else { in_place::add };
    change(found.pairs);
}

/// Fixed sums beside the gradients of a network.
struct Accumulate<'a> {
    sums: &'a mut Sums,
    gradients: GradientsParams,
    trained: &'a mut BTreeSet<u64>,
    pairs: Vec<(Tensor<1>, Tensor<1>)>,
}

impl ModuleVisitor for Accumulate<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(gradient) = self.gradients.remove::<D>(param.id) else { return };
        let (id, gradient) = (param.id.val(), gradient.reshape([-1]));
        self.trained.insert(id);
        let sum = self.sums.entry(id).or_insert_with(|| in_place::fixed(gradient.zeros_like()));
        self.pairs.push((sum.clone(), gradient));
    }
}

/// Sums of the parameters with these ids, as gradients.
struct Select<'a> {
    sums: &'a Sums,
    ids: &'a BTreeSet<u64>,
    found: GradientsParams,
}

impl ModuleVisitor for Select<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let id = param.id.val();
        if let Some(sum) = self.sums.get(&id).filter(|_| self.ids.contains(&id)) {
            self.found.register::<D>(param.id, sum.clone().reshape(param.val().shape()));
        }
    }
}

fn select<M: Module>(network: &M, sums: &Sums, ids: &BTreeSet<u64>) -> GradientsParams {
    let mut select = Select { sums, ids, found: GradientsParams::new() };
    network.visit(&mut select);
    select.found
}
