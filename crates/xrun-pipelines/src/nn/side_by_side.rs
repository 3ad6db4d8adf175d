//! Parts of a batch that are computed side by side on the CPU, each forward and backward on a thread of its own.
//!
//! Tensors that live in host memory have no stream, so nothing is left behind on the threads. Each part has a graph of its own:
//! its copy of the network shares the weights and has leaves of its own, since Burn locks a graph while it goes back through it.
//! Gradients and numbers are added up in the order of the parts, and parts follow from the experiment alone: the bits are the
//! same on any number of threads. On a GPU the parts of a batch come one after another on the training thread.
//!
//! Each of these threads is a pool of one, so that what Burn computes in it is computed there. Were they threads of one pool, one
//! that waits in a backward pass for the rest of an operation would take up another part meanwhile, and more parts would be held
//! than there are threads.

use std::ops::Range;

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use rayon::{ThreadPool, ThreadPoolBuilder};
use xrun_ops::CpuKernels;

use super::Tensor;
use super::graph::beside;
use super::step::{Gathered, Note};
use crate::backend::threads;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Holding, Ledger};
use xrun_core::device::Kind;
use xrun_core::settings::sections::Limits;
use xrun_core::task::TaskError;
use xrun_data::micro_batches;

/// How a batch is split, and who computes its parts.
#[derive(Debug)]
pub struct SideBySide {
    part_size: usize,
    on_cpu: bool,
    /// As many as there are parts at work at once; none where that is one, on the training thread.
    threads: Vec<ThreadPool>,
    /// Bytes of one part's gradients.
    each: u64,
    gradients: Holding,
}

/// As the main thread has it.
const STACK_BYTES: usize = 8 << 20;

/// What a part of a batch gives beside its gradients.
#[derive(Default)]
pub struct Part {
    notes: Vec<Note>,
    counted: f64,
    items: u64,
    leaf: Option<Tensor<2>>,
    gradient: Option<Tensor<2>>,
}

impl Part {
    /// This part's own leaf with the values of one that all parts share, whose gradient is wanted.
    pub fn leaf(&mut self, shared: &Tensor<2>) -> Tensor<2> {
        // A tensor that is detached still requires a gradient if it did.
        let leaf = shared.clone().detach();
        self.leaf = Some(leaf.clone());
        leaf
    }

    /// Keeps a sum `[1]`, without its graph, and what it counted.
    pub fn note(&mut self, name: &'static str, sum: Tensor<1>, counted: f64) {
        self.notes.push(Note { name, sum, counted });
    }

    /// Adds to what the losses are divided by.
    pub fn count(&mut self, counted: f64) {
        self.counted += counted;
    }

    /// Adds images, sequences or clips that went through.
    pub fn went_through(&mut self, items: usize) {
        self.items += items as u64;
    }
}

impl SideBySide {
    /// `buffer` is [`micro_batches::gradient_buffer`] of the network's parameters.
    ///
    /// # Errors
    /// The system gives no threads.
    pub fn new(kind: Kind, limits: &Limits, buffer: &Buffer, ledger: &Ledger) -> Result<Self, TaskError> {
        let (part_size, at_once) = match kind {
            Kind::Cpu => (limits.part_size.min(limits.batch_size), micro_batches::concurrent_micro_batches(limits)),
            Kind::Cuda(_) | Kind::Vulkan(_) => (limits.batch_size, 1),
        };
        let threads: Result<Vec<ThreadPool>, _> = (0..if at_once > 1 { at_once } else { 0 })
            .map(|number| {
                let thread = ThreadPoolBuilder::new().num_threads(1).stack_size(STACK_BYTES);
                thread.thread_name(move |_| format!("part-{number}")).build()
            })
            .collect();
        let gradients = buffer.register(ledger);
        let each = gradients.cap().bytes / gradients.cap().items.max(1);
        let threads = threads.map_err(|error| threads::none_given(&error))?;
        Ok(Self { part_size, on_cpu: kind == Kind::Cpu, threads, each, gradients })
    }

    /// How many parts are at work at once.
    fn at_once(&self) -> usize {
        self.threads.len().max(1)
    }

    /// As many items at once as there are threads, then the next; `then` takes the results of each wave, in the order of the
    /// items.
    fn in_waves<T: Send, R: Send>(
        &self,
        items: impl IntoIterator<Item = T>,
        work: impl Fn(T) -> R + Sync,
        mut then: impl FnMut(Vec<R>),
    ) {
        let mut items = items.into_iter();
        loop {
            let wave: Vec<T> = items.by_ref().take(self.at_once()).collect();
            if wave.is_empty() {
                return;
            }
            then(self.together(wave, &work));
        }
    }

    /// Each item on a thread of its own; there are at most as many as threads. The results are in the order of the items.
    fn together<T: Send, R: Send>(&self, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
        let kernels = CpuKernels::current();
        let work = |item| kernels.scope(|| work(item));
        if items.len() < 2 {
            let alone = || items.into_iter().map(work).collect();
            // A thread of the pool takes part in each operation; one outside of it sleeps until the pool is done.
            return if self.on_cpu { rayon::scope(|_| alone()) } else { alone() };
        }
        let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
        spread(&self.threads, items.into_iter().zip(&mut results), &work);
        results.into_iter().flatten().collect()
    }

    /// Ranges of items, each of which is a part.
    pub fn parts(&self, items: usize) -> Vec<Range<usize>> {
        let size = self.part_size.max(1);
        (0..items).step_by(size).map(|from| from..(from + size).min(items)).collect()
    }

    /// What a pass without a graph says of each part, in their order. `each` is called with a copy of the network, which shares
    /// its weights.
    pub fn passes<M: Module, P: Sync, R: Send>(
        &self,
        network: &M,
        parts: &[P],
        each: impl Fn(&M, &P) -> R + Sync,
    ) -> Vec<R> {
        let mut results = Vec::with_capacity(parts.len());
        let copies = parts.iter().map(|item| (network.clone(), item));
        self.in_waves(copies, |(copy, item)| each(&copy, item), |wave| results.extend(wave));
        results
    }
}

/// Rows `[n, D]` that the parts of a batch gave, with their graphs: a loss over all rows is computed of [`Outputs::leaf`], and
/// its gradient goes back through the parts.
pub struct Outputs<M> {
    parts: Vec<OutputOf<M>>,
}

/// What a part gave.
struct OutputOf<M> {
    network: M,
    rows: Tensor<2>,
}

impl<M: Module> Outputs<M> {
    /// All rows of a forward pass whose parts come side by side. `compute` gives those of a part.
    pub fn new<P: Sync>(
        network: &M,
        split: &SideBySide,
        parts: &[P],
        compute: impl Fn(&M, &P) -> Tensor<2> + Sync,
    ) -> Self {
        let mut computed = Vec::with_capacity(parts.len());
        let forward = |(network, item): (M, &P)| {
            let rows = compute(&network, item);
            OutputOf { network, rows }
        };
        split.in_waves(own_leaves(network, parts), forward, |wave| computed.extend(wave));
        Self { parts: computed }
    }

    /// All rows as a leaf of another graph.
    pub fn leaf(&self) -> Tensor<2> {
        let rows: Vec<_> = self.parts.iter().map(|part| part.rows.clone().inner()).collect();
        let all = Tensor::cat(rows, 0);
        self.parts.first().map_or(all.clone(), |part| beside(all, &part.rows)).require_grad()
    }
}

/// What the parts of a batch gave beside what was gathered.
pub struct Computed<R> {
    /// What the caller wanted of each.
    pub results: Vec<R>,
    /// The sum of the gradients of the leaf that they share, if they have one.
    pub gradient: Option<Tensor<2>>,
}

impl<M: Module> Gathered<M> {
    /// Computes the parts of a batch and adds up their gradients and numbers. `compute` gives the loss of a part, `[1]`, if it
    /// has one, and what else the caller wants of it.
    pub fn side_by_side<P: Sync, R: Send>(
        &mut self,
        network: &M,
        split: &SideBySide,
        parts: &[P],
        compute: impl Fn(&M, &P, &mut Part) -> (Option<Tensor<1>>, R) + Sync,
    ) -> Computed<R> {
        let mut all = Computed { results: Vec::with_capacity(parts.len()), gradient: None };
        let one = |(copy, item): (M, &P)| {
            let mut part = Part::default();
            let (loss, result) = compute(&copy, item, &mut part);
            let gradients = loss.map(|loss| {
                let mut found = loss.backward();
                part.gradient = part.leaf.take().and_then(|leaf| leaf.grad_remove(&mut found));
                GradientsParams::from_grads(found, &copy)
            });
            (part, gradients, result)
        };
        split.in_waves(own_leaves(network, parts), one, |computed| {
            split.gradients.set(computed.len() as u64, computed.len() as u64 * split.each);
            for (part, gradients, result) in computed {
                if let Some(gradients) = gradients {
                    self.set(0).accumulate(network, gradients);
                }
                self.add(part.notes, part.counted, part.items);
                all.gradient = match (all.gradient.take(), part.gradient) {
                    (Some(sum), Some(more)) => Some(sum + more),
                    (sum, more) => sum.or(more),
                };
                all.results.push(result);
            }
            split.gradients.set(0, 0);
        });
        all
    }

    /// Goes back through the parts of `outputs` with the gradient of all their rows, `[n, D]`, on the plain device.
    pub fn back(&mut self, network: &M, split: &SideBySide, outputs: Outputs<M>, gradient: Tensor<2>) {
        let mut from = 0;
        let parts = outputs.parts.into_iter().map(|part| {
            let count = part.rows.dims()[0];
            let of_rows = gradient.clone().narrow(0, from, count);
            from += count;
            (part, of_rows)
        });
        let one = |(part, gradient): (OutputOf<M>, Tensor<2>)| {
            // The gradient of this sum by the rows is the one that is wanted.
            let loss = (part.rows * gradient).sum();
            GradientsParams::from_grads(loss.backward(), &part.network)
        };
        split.in_waves(parts, one, |computed| {
            split.gradients.set(computed.len() as u64, computed.len() as u64 * split.each);
            computed.into_iter().for_each(|gradients| self.set(0).accumulate(network, gradients));
            split.gradients.set(0, 0);
        });
    }
}

/// Starts the next item on the next thread and goes on to the one after; returns when all are done.
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

/// A copy of the network for each item, which shares its weights and has leaves of a graph of its own.
fn own_leaves<'a, M: Module, P>(network: &M, items: &'a [P]) -> impl Iterator<Item = (M, &'a P)> {
    items.iter().map(|item| (network.clone().map(&mut OwnLeaves), item))
}

/// Leaves of another graph for the same weights.
struct OwnLeaves;

impl ModuleMapper for OwnLeaves {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        // A tensor that is detached is still trained if it was.
        Param::from_mapped_value(id, tensor.detach(), mapper)
    }
}

#[cfg(test)]
mod tests {
    use burn::module::ParamId;

    use super::super::tests::{autodiff, values};
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

    fn split(limits: &Limits) -> (SideBySide, Ledger) {
        let ledger = Ledger::default();
        (SideBySide::new(Kind::Cpu, limits, &gradient_buffer(4, limits), &ledger).unwrap(), ledger)
    }

    /// Gradients, and the numbers that were noted, of a sum of squares over ten rows.
    fn computed(limits: &Limits) -> (Vec<f32>, f64, u64) {
        let (network, (split, ledger)) = (plane(), split(limits));
        let mut gathered = Gathered::new(1);
        let results = gathered.side_by_side(&network, &split, &split.parts(10), |network, range, part| {
            let output = rows(range).matmul(network.slopes.val());
            let loss = (output.clone() * output).sum();
            part.note("squares", loss.clone().inner(), 1.0);
            part.went_through(range.len());
            (Some(loss), range.start)
        });
        assert!(results.results.is_sorted(), "results come in the order of the parts");
        assert!(!ledger.read()[0].exceeded() && ledger.read()[0].bytes == 0);
        assert_eq!(ledger.read()[0].peak_items, ledger.read()[0].cap.items.min(split.parts(10).len() as u64));
        let items = gathered.items;
        let gradient = gathered.set(0).grads().get::<2>(ParamId::from(1)).unwrap();
        (values(gradient), gathered.fetch(None).by_name()[0].sum, items)
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits_and_parts_the_same_sums() {
        let limits = |part_size, threads| Limits { part_size, threads, ..Limits::default() };
        let whole = computed(&limits(32, 1));
        for part_size in [1, 3, 10] {
            let one = computed(&limits(part_size, 1));
            assert!(one.0.iter().zip(&whole.0).all(|(one, whole)| (one - whole).abs() < 1e-4), "{one:?} {whole:?}");
            assert_eq!(one.2, 10);
            for threads in [2, 3, 16] {
                assert_eq!(computed(&limits(part_size, threads)), one, "parts of {part_size} on {threads} threads");
            }
        }
    }

    #[test]
    fn a_loss_over_all_rows_goes_back_through_their_parts() {
        let network = plane();
        let direct = {
            let output = rows(&(0..7)).matmul(network.slopes.val());
            let total = output.clone().sum_dim(0);
            let mut gradients = (total.clone() * total).sum().backward();
            values(network.slopes.val().grad_remove(&mut gradients).unwrap())
        };
        let limits = Limits { part_size: 3, threads: 2, ..Limits::default() };
        let (split, _ledger) = split(&limits);
        let outputs =
            Outputs::new(&network, &split, &split.parts(7), |network, range| rows(range).matmul(network.slopes.val()));
        let all = outputs.leaf();
        let total = all.clone().sum_dim(0);
        let gradient = all.grad_remove(&mut (total.clone() * total).sum().backward()).unwrap();
        let mut gathered = Gathered::new(1);
        gathered.back(&network, &split, outputs, gradient);
        let found = values(gathered.set(0).grads().get::<2>(ParamId::from(1)).unwrap());
        assert!(found.iter().zip(&direct).all(|(one, other)| (one - other).abs() < 1e-4), "{found:?} {direct:?}");
    }

    #[test]
    fn parts_share_a_leaf_and_its_gradient_is_the_sum_of_theirs() {
        let network = plane();
        let shared = Tensor::<2>::from_floats([[1.0, 2.0]], &autodiff()).require_grad();
        let limits = Limits { part_size: 2, threads: 2, ..Limits::default() };
        let (split, _ledger) = split(&limits);
        let mut gathered = Gathered::new(1);
        let computed = gathered.side_by_side(&network, &split, &split.parts(4), |network, range, part| {
            let sum = (rows(range).matmul(network.slopes.val()) * part.leaf(&shared)).sum();
            (Some(sum), ())
        });
        // Of a product the gradient is the other factor.
        let expected = values(rows(&(0..4)).matmul(network.slopes.val()).sum_dim(0));
        let found = values(computed.gradient.unwrap());
        assert!(found.iter().zip(&expected).all(|(one, other)| (one - other).abs() < 1e-5), "{found:?} {expected:?}");
    }

    #[test]
    fn a_part_has_no_more_items_than_may_be_on_the_device() {
        let limits = Limits { batch_size: 4, part_size: 8, ..Limits::default() };
        assert_eq!(split(&limits).0.parts(10), [0..4, 4..8, 8..10]);
    }

    /// With threads of one pool this waited for itself: a thread took up a part inside of another's backward pass.
    #[test]
    fn parts_that_compute_on_many_threads_never_wait_for_each_other() {
        let network = plane();
        let gradient = |threads| {
            let limits = Limits { part_size: 1, threads, ..Limits::default() };
            let (split, _ledger) = split(&limits);
            let mut gathered = Gathered::new(1);
            gathered.side_by_side(&network, &split, &split.parts(8), |network, _, _| {
                // Large enough that Burn computes the product on several threads where there are any.
                let wide = Tensor::<2>::ones([2, 400], &autodiff());
                let product = network.slopes.val().matmul(wide.clone()).transpose().matmul(wide);
                (Some((product.clone() * product).sum()), ())
            });
            values(gathered.set(0).grads().get::<2>(ParamId::from(1)).unwrap())
        };
        let alone = gradient(1);
        for _ in 0..20 {
            let found = gradient(4);
            let alike = |(one, other): (&f32, &f32)| (one - other).abs() <= 1e-4 * other.abs();
            assert!(found.iter().zip(&alone).all(alike), "{found:?} {alone:?}");
        }
    }
}
