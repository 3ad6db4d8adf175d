//! Parallel computation of micro-batches on the CPU, each forward and backward pass on its own thread.
//!
//! Tensors in host memory have no stream, so threads leave no memory pools behind. Each micro-batch has its own graph: its copy of the
//! network shares the weights but has its own leaves, because Burn locks a graph during a backward pass. Gradients and values are
//! summed in the order of the micro-batches, which depend on the experiment alone: the bits are the same on any number of threads. On
//! a GPU micro-batches are computed one after another on the training thread.
//!
//! Each thread is a pool of one, so that Burn's operations run on it. In a common pool a thread that waits in a backward pass for the
//! rest of an operation would start another micro-batch meanwhile, and more micro-batches would be in memory than there are threads.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use rayon::{ThreadPool, ThreadPoolBuilder};
use xrun_ops::CpuKernels;

use super::graph::autodiff_like;
use super::step::{DeviceSum, StepAccumulator};
use super::{Tensor, gradients};
use crate::backend::threads;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Ledger, Registration};
use xrun_core::device::DeviceKind;
use xrun_core::settings::sections::Limits;
use xrun_core::task::TaskError;
use xrun_data::micro_batches;

/// Number of items of a micro-batch, which the rung `micro_batch` of `limits.on_pressure` halves.
#[derive(Debug)]
pub struct MicroBatchSize {
    whole: usize,
    /// Size that is halved: that of a batch where it is smaller.
    halved: usize,
    halvings: AtomicU32,
}

impl MicroBatchSize {
    /// `items`, at least one, of batches of `batch` items.
    pub fn new(items: usize, batch: usize) -> Self {
        let whole = items.max(1);
        Self { whole, halved: whole.min(batch), halvings: AtomicU32::new(0) }
    }

    /// Number of items at present, at least one.
    pub fn get(&self) -> usize {
        match self.halvings.load(Relaxed) {
            0 => self.whole,
            times => (self.halved >> times).max(1),
        }
    }

    /// Halves the first size this number of times; returns `false` and changes nothing where less than one item would be left.
    pub fn halve(&self, times: u32) -> bool {
        let is_possible = times == 0 || (times < usize::BITS && self.halved >> times > 0);
        if is_possible {
            self.halvings.store(times, Relaxed);
        }
        is_possible
    }
}

/// Splits batches into micro-batches and computes them.
#[derive(Debug)]
pub struct MicroBatchExecutor {
    /// Number of items of a micro-batch.
    pub size: MicroBatchSize,
    /// One thread for each concurrent micro-batch; empty if all are computed on the training thread.
    threads: Vec<ThreadPool>,
    /// Size of the gradients of a micro-batch in bytes.
    gradient_bytes: u64,
    /// Ledger entry of the gradients of concurrent micro-batches.
    gradient_registration: Registration,
}

/// Stack size of a thread, that of the main thread on Linux.
const STACK_BYTES: usize = 8 << 20;

/// Sums of a micro-batch, and the gradient of the leaf that it shares with the others.
#[derive(Default)]
pub struct MicroBatchRecord {
    sums: Vec<DeviceSum>,
    /// Divisor of the losses.
    pub divisor: f64,
    /// Number of images, sequences or clips processed.
    pub items: u64,
    leaf: Option<Tensor<2>>,
    gradient: Option<Tensor<2>>,
}

impl MicroBatchRecord {
    /// Detached copy of a shared leaf, for the graph of this micro-batch. Its gradient is returned in
    /// [`MicroBatchResults::gradient`].
    pub fn leaf(&mut self, shared: &Tensor<2>) -> Tensor<2> {
        // A detached tensor still requires a gradient if the original did.
        let leaf = shared.clone().detach();
        self.leaf = Some(leaf.clone());
        leaf
    }

    /// Adds a value, `[1]` without its graph, and its divisor for a mean.
    pub fn record(&mut self, name: &'static str, sum: Tensor<1>, divisor: f64) {
        self.sums.push(DeviceSum { name, sum, divisor });
    }
}

impl MicroBatchExecutor {
    /// Executor for an experiment. `buffer` is [`micro_batches::gradient_buffer`] for the parameters of the network.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn new(kind: DeviceKind, limits: &Limits, buffer: &Buffer, ledger: &Ledger) -> Result<Self, TaskError> {
        let (size, concurrent) = match kind {
            DeviceKind::Cpu => {
                (limits.micro_batch_size.min(limits.batch_size), micro_batches::concurrent_micro_batches(limits))
            }
            DeviceKind::Cuda(_) | DeviceKind::Vulkan(_) => (limits.batch_size, 1),
        };
        let threads: Result<Vec<ThreadPool>, _> = (0..if concurrent > 1 { concurrent } else { 0 })
            .map(|number| {
                let thread = ThreadPoolBuilder::new().num_threads(1).stack_size(STACK_BYTES);
                thread.thread_name(move |_| format!("micro-batch-{number}")).build()
            })
            .collect();
        let gradient_registration = buffer.register(ledger);
        let cap = gradient_registration.cap();
        let gradient_bytes = cap.bytes / cap.items.max(1);
        let threads = threads.map_err(|error| threads::start_error(&error))?;
        Ok(Self { size: MicroBatchSize::new(size, size), threads, gradient_bytes, gradient_registration })
    }

    /// Computes items in waves of as many as there are threads. `collect` receives the results of each wave, in the order of the
    /// items.
    fn in_waves<T: Send, R: Send>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> R + Sync,
        mut collect: impl FnMut(Vec<R>),
    ) {
        let mut items = items.into_iter();
        loop {
            let wave: Vec<T> = items.by_ref().take(self.threads.len().max(1)).collect();
            if wave.is_empty() {
                return;
            }
            collect(self.wave(wave, &work));
        }
    }

    /// Computes at most as many items as there are threads, each on its own thread. The results are in the order of the items.
    fn wave<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        let kernels = CpuKernels::current();
        let work = |item| kernels.scope(|| work(item));
        if items.len() < 2 {
            return threads::awake(|| items.into_iter().map(work).collect());
        }
        let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
        spread(&self.threads, items.into_iter().zip(&mut results), &work);
        results.into_iter().flatten().collect()
    }

    /// Ranges of items of the micro-batches of a batch.
    pub fn split(&self, items: usize) -> Vec<Range<usize>> {
        let size = self.size.get();
        (0..items).step_by(size).map(|from| from..(from + size).min(items)).collect()
    }

    /// Results of a forward pass without a graph, in the order of the micro-batches. `compute` is called with a copy of the network,
    /// which shares its weights.
    pub fn forward<M: Module, P: Sync, R: Send>(
        &self,
        network: &M,
        micro_batches: &[P],
        compute: impl Fn(&M, &P) -> R + Sync,
    ) -> Vec<R> {
        let mut results = Vec::with_capacity(micro_batches.len());
        let copies = micro_batches.iter().map(|item| (network.clone(), item));
        self.in_waves(copies, |(copy, item)| compute(&copy, item), |wave| results.extend(wave));
        results
    }
}

/// Output rows `[n, D]` of all micro-batches with their graphs, for a loss over all rows: the loss is computed from
/// [`DeferredOutputs::leaf`], and [`StepAccumulator::backward_outputs`] continues its backward pass through the micro-batches.
pub struct DeferredOutputs<M> {
    outputs: Vec<Output<M>>,
}

/// Output of a micro-batch.
struct Output<M> {
    network: M,
    rows: Tensor<2>,
}

impl<M: Module> DeferredOutputs<M> {
    /// Runs the forward pass of all micro-batches. `compute` returns the rows of one.
    pub fn new<P: Sync>(
        network: &M,
        executor: &MicroBatchExecutor,
        micro_batches: &[P],
        compute: impl Fn(&M, &P) -> Tensor<2> + Sync,
    ) -> Self {
        let mut outputs = Vec::with_capacity(micro_batches.len());
        let forward = |(network, item): (M, &P)| {
            let rows = compute(&network, item);
            Output { network, rows }
        };
        executor.in_waves(with_own_leaves(network, micro_batches), forward, |wave| outputs.extend(wave));
        Self { outputs }
    }

    /// All rows as a leaf of another graph.
    pub fn leaf(&self) -> Tensor<2> {
        let rows: Vec<_> = self.outputs.iter().map(|output| output.rows.clone().inner()).collect();
        let all = Tensor::cat(rows, 0);
        self.outputs.first().map_or(all.clone(), |output| autodiff_like(all, &output.rows)).require_grad()
    }
}

/// Results of the micro-batches of a batch.
pub struct MicroBatchResults<R> {
    /// Result of each micro-batch.
    pub results: Vec<R>,
    /// Sum of the gradients of the shared leaf ([`MicroBatchRecord::leaf`]), if there is one.
    pub gradient: Option<Tensor<2>>,
}

impl<M: Module> StepAccumulator<M> {
    /// Runs the forward and backward passes of micro-batches and adds their gradients and values. `compute` returns the loss of a
    /// micro-batch, `[1]`, if it has one, and a result for the caller.
    pub fn run_micro_batches<P: Sync, R: Send>(
        &mut self,
        network: &M,
        executor: &MicroBatchExecutor,
        micro_batches: &[P],
        compute: impl Fn(&M, &P, &mut MicroBatchRecord) -> (Option<Tensor<1>>, R) + Sync,
    ) -> MicroBatchResults<R> {
        let mut all = MicroBatchResults { results: Vec::with_capacity(micro_batches.len()), gradient: None };
        let one = |(copy, item): (M, &P)| {
            let mut record = MicroBatchRecord::default();
            let (loss, result) = compute(&copy, item, &mut record);
            let gradients = loss.map(|loss| {
                let mut found = gradients::backward(loss);
                record.gradient = record.leaf.take().and_then(|leaf| leaf.grad_remove(&mut found));
                GradientsParams::from_grads(found, &copy)
            });
            (record, gradients, result)
        };
        executor.in_waves(with_own_leaves(network, micro_batches), one, |computed| {
            executor.gradient_registration.set(computed.len() as u64, computed.len() as u64 * executor.gradient_bytes);
            for (record, gradients, result) in computed {
                if let Some(gradients) = gradients {
                    self.sets[0].accumulate(network, gradients);
                }
                self.sums.extend(record.sums);
                self.divisor += record.divisor;
                self.items += record.items;
                all.gradient = match (all.gradient.take(), record.gradient) {
                    (Some(sum), Some(more)) => Some(sum + more),
                    (sum, more) => sum.or(more),
                };
                all.results.push(result);
            }
            executor.gradient_registration.set(0, 0);
        });
        all
    }

    /// Runs the backward pass of all micro-batches, given the gradient of all rows of `outputs`, `[n, D]`, on the inner device.
    pub fn backward_outputs(
        &mut self,
        network: &M,
        executor: &MicroBatchExecutor,
        outputs: DeferredOutputs<M>,
        gradient: Tensor<2>,
    ) {
        let mut from = 0;
        let outputs = outputs.outputs.into_iter().map(|output| {
            let count = output.rows.dims()[0];
            let gradient = gradient.clone().narrow(0, from, count);
            from += count;
            (output, gradient)
        });
        let one = |(output, gradient): (Output<M>, Tensor<2>)| {
            // The gradient of this sum with respect to the rows is `gradient`.
            let loss = (output.rows * gradient).sum();
            GradientsParams::from_grads(gradients::backward(loss), &output.network)
        };
        executor.in_waves(outputs, one, |computed| {
            executor.gradient_registration.set(computed.len() as u64, computed.len() as u64 * executor.gradient_bytes);
            computed.into_iter().for_each(|gradients| self.sets[0].accumulate(network, gradients));
            executor.gradient_registration.set(0, 0);
        });
    }
}

/// Starts each item on the next thread; returns when all are done.
fn spread<'a, T: Send, R: Send + 'a>(
    threads: &[ThreadPool],
    mut items: impl Iterator<Item = (T, &'a mut Option<R>)>,
    work: &(impl Fn(T) -> R + Sync),
) {
    let (Some((thread, others)), Some((item, result))) = (threads.split_first(), items.next()) else { return };
    thread.in_place_scope(|scope| {
        scope.spawn(|_| *result = Some(work(item)));
        spread(others, items, work);
    });
}

/// Pairs each item with a copy of the network that shares the weights and has the leaves of its own graph.
fn with_own_leaves<'a, M: Module, P>(network: &M, items: &'a [P]) -> impl Iterator<Item = (M, &'a P)> {
    items.iter().map(|item| (network.clone().map(&mut OwnLeaves), item))
}

/// Replaces parameters by leaves of a new graph with the same weights.
struct OwnLeaves;

impl ModuleMapper for OwnLeaves {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        // A detached tensor still requires a gradient if the original did.
        Param::from_mapped_value(id, tensor.detach(), mapper)
    }
}

#[cfg(test)]
mod tests {
    use burn::module::ParamId;

    use super::super::testing::{autodiff, values};
    use super::*;
    use xrun_core::bounded::ledger::Ledger;
    use xrun_data::micro_batches::gradient_buffer;

    #[derive(Module, Debug)]
    struct Plane {
        slopes: Param<Tensor<2>>,
    }

    fn plane() -> Plane {
        let slopes = Tensor::from_floats([[0.5, -1.0], [2.0, 0.25]], &autodiff()).require_grad();
        Plane { slopes: Param::initialized(ParamId::from(1), slopes) }
    }

    fn rows(range: &Range<usize>) -> Tensor<2> {
        let numbers: Vec<f32> =
            range.clone().flat_map(|at| [at as f32 * 0.37 - 1.0, 1.0 / (at as f32 + 1.0)]).collect();
        Tensor::from_data(burn::tensor::TensorData::new(numbers, [range.len(), 2]), &autodiff())
    }

    fn executor(limits: &Limits) -> (MicroBatchExecutor, Ledger) {
        let ledger = Ledger::default();
        (MicroBatchExecutor::new(DeviceKind::Cpu, limits, &gradient_buffer(4, limits), &ledger).unwrap(), ledger)
    }

    /// Gradients, value and number of items of a sum of squares over ten rows.
    fn computed(limits: &Limits) -> (Vec<f32>, f64, u64) {
        let (network, (executor, ledger)) = (plane(), executor(limits));
        let mut accumulator = StepAccumulator::new(1);
        let results =
            accumulator.run_micro_batches(&network, &executor, &executor.split(10), |network, range, micro_batch| {
                let output = rows(range).matmul(network.slopes.val());
                let loss = (output.clone() * output).sum();
                micro_batch.record("squares", loss.clone().inner(), 1.0);
                micro_batch.items += range.len() as u64;
                (Some(loss), range.start)
            });
        assert!(results.results.is_sorted(), "results are in the order of the micro-batches");
        assert!(!ledger.read()[0].exceeds_cap() && ledger.read()[0].bytes == 0);
        assert_eq!(ledger.read()[0].peak_items, ledger.read()[0].cap.items.min(executor.split(10).len() as u64));
        let items = accumulator.items;
        let gradient = accumulator.sets[0].grads().get::<2>(ParamId::from(1)).unwrap();
        (values(gradient), accumulator.fetch(None).by_name()[0].sum, items)
    }

    #[test]
    fn a_micro_batch_halves_from_the_batch_to_one_item_and_back() {
        let size = MicroBatchSize::new(32, 12);
        let sizes: Vec<usize> = (0..4).map(|times| (size.halve(times), size.get()).1).collect();
        assert_eq!((sizes, size.halve(4), size.get()), (vec![32, 6, 3, 1], false, 1));
        assert_eq!((size.halve(0), size.get()), (true, 32));
        let (executor, _) = executor(&Limits { micro_batch_size: 4, ..Limits::default() });
        assert!(executor.size.halve(1));
        assert_eq!(executor.split(5), [0..2, 2..4, 4..5]);
    }

    #[test]
    fn bits_do_not_depend_on_threads_and_sums_do_not_depend_on_micro_batches() {
        let limits = |micro_batch_size, threads| Limits { micro_batch_size, threads, ..Limits::default() };
        let whole = computed(&limits(32, 1));
        for micro_batch_size in [1, 3, 10] {
            let one = computed(&limits(micro_batch_size, 1));
            assert!(one.0.iter().zip(&whole.0).all(|(one, whole)| (one - whole).abs() < 1e-4), "{one:?} {whole:?}");
            assert_eq!(one.2, 10);
            for threads in [2, 3, 16] {
                assert_eq!(
                    computed(&limits(micro_batch_size, threads)),
                    one,
                    "micro-batches of {micro_batch_size} on {threads} threads"
                );
            }
        }
    }

    #[test]
    fn the_backward_pass_of_a_loss_over_all_rows_continues_in_their_micro_batches() {
        let network = plane();
        let direct = {
            let output = rows(&(0..7)).matmul(network.slopes.val());
            let total = output.clone().sum_dim(0);
            let mut gradients = (total.clone() * total).sum().backward();
            values(network.slopes.val().grad_remove(&mut gradients).unwrap())
        };
        let limits = Limits { micro_batch_size: 3, threads: 2, ..Limits::default() };
        let (executor, _ledger) = executor(&limits);
        let outputs = DeferredOutputs::new(&network, &executor, &executor.split(7), |network, range| {
            rows(range).matmul(network.slopes.val())
        });
        let all = outputs.leaf();
        let total = all.clone().sum_dim(0);
        let gradient = all.grad_remove(&mut (total.clone() * total).sum().backward()).unwrap();
        let mut accumulator = StepAccumulator::new(1);
        accumulator.backward_outputs(&network, &executor, outputs, gradient);
        let found = values(accumulator.sets[0].grads().get::<2>(ParamId::from(1)).unwrap());
        assert!(found.iter().zip(&direct).all(|(one, other)| (one - other).abs() < 1e-4), "{found:?} {direct:?}");
    }

    #[test]
    fn the_gradient_of_a_shared_leaf_is_the_sum_over_micro_batches() {
        let network = plane();
        let shared = Tensor::<2>::from_floats([[1.0, 2.0]], &autodiff()).require_grad();
        let limits = Limits { micro_batch_size: 2, threads: 2, ..Limits::default() };
        let (executor, _ledger) = executor(&limits);
        let mut accumulator = StepAccumulator::new(1);
        let computed =
            accumulator.run_micro_batches(&network, &executor, &executor.split(4), |network, range, micro_batch| {
                let sum = (rows(range).matmul(network.slopes.val()) * micro_batch.leaf(&shared)).sum();
                (Some(sum), ())
            });
        // The gradient of a product is the other factor.
        let expected = values(rows(&(0..4)).matmul(network.slopes.val()).sum_dim(0));
        let found = values(computed.gradient.unwrap());
        assert!(found.iter().zip(&expected).all(|(one, other)| (one - other).abs() < 1e-5), "{found:?} {expected:?}");
    }

    #[test]
    fn a_micro_batch_is_no_larger_than_the_batch_size() {
        let limits = Limits { batch_size: 4, micro_batch_size: 8, ..Limits::default() };
        assert_eq!(executor(&limits).0.split(10), [0..4, 4..8, 8..10]);
    }

    /// Regression: in a common pool a thread started a micro-batch inside the backward pass of another, and waited for itself.
    #[test]
    fn micro_batches_with_parallel_operations_do_not_deadlock() {
        let network = plane();
        let gradient = |threads| {
            let limits = Limits { micro_batch_size: 1, threads, ..Limits::default() };
            let (executor, _ledger) = executor(&limits);
            let mut accumulator = StepAccumulator::new(1);
            accumulator.run_micro_batches(&network, &executor, &executor.split(8), |network, _, _| {
                // Large enough for Burn to use several threads.
                let wide = Tensor::<2>::ones([2, 400], &autodiff());
                let product = network.slopes.val().matmul(wide.clone()).transpose().matmul(wide);
                (Some((product.clone() * product).sum()), ())
            });
            values(accumulator.sets[0].grads().get::<2>(ParamId::from(1)).unwrap())
        };
        let alone = gradient(1);
        for _ in 0..20 {
            let found = gradient(4);
            let near = |(one, other): (&f32, &f32)| (one - other).abs() <= 1e-4 * other.abs();
            assert!(found.iter().zip(&alone).all(near), "{found:?} {alone:?}");
        }
    }
}
