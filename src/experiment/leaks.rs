//! Which leaks are switched on, to see that they are found?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::memory::kept::Kept;
use crate::memory::ledger::{Ledger, NO_CAP, Policy};
use crate::results::format::{Keeps, PlannedOwner};
use crate::results::verdict::OWNER;

/// Leaks that real trainers had (`docs/origins.md`), each with a switch, to see that the verdict finds it. All are off
/// unless set here; a pipeline that does not have one refuses it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Leaks {
    /// Keep the gradients of each step (zeroed and not released).
    pub gradients: bool,
    /// Keep outputs of a forward pass with their graph (such as the outputs of an adapter, batch by batch).
    pub outputs_with_graph: bool,
    /// Keep the embeddings of reference pictures with their graph (a cache of embeddings that were not detached).
    pub embeddings_with_graph: bool,
    /// Keep the pictures of each batch as tensors on the device (as a data set that moves there as a whole does).
    pub batches_on_device: bool,
    /// Add up the losses with their graphs (as a progress line that shows their mean does).
    pub loss_with_graph: bool,
    /// Keep every detection of every validation.
    pub validation_predictions: bool,
    /// Run the validation with autodiff and keep its outputs (validation accumulates over the whole set).
    pub validation_with_graph: bool,
    /// Keep each decoded frame: a cache bounded by a count that is never reached.
    pub frame_cache: bool,
    /// Each worker keeps a copy of the data that it has seen.
    pub data_per_worker: bool,
    /// Let the queue of the workers grow by one batch with each batch taken.
    pub worker_queue: bool,
    /// Keep a line of text for each step (a logger's history).
    pub log_history: bool,
    /// Keep the ranges of activations as they were at each step (statistics that keep old tensors).
    pub range_history: bool,
    /// Keep the quantised weights of each forward pass.
    pub quantised_weights: bool,
    /// Keep the tokenised examples of each batch (the whole data set preprocessed).
    pub preprocessed_examples: bool,
    /// Keep the inputs of each block (checkpointing that keeps activations).
    pub block_inputs: bool,
    /// Start a thread each epoch that puts a batch on the device and ends: its memory pool stays (burn #4792, in the loader of
    /// Burn 0.21). Does nothing on the CPU, which has no pools.
    pub thread_pools: bool,
    /// What `xrun leaks` must find when it runs this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
}

/// What a leak must look like for the instrument to be trusted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Expected {
    /// What grows. Default: heap.
    pub grows: Grows,
    /// How fast, in bytes a step, predicted from sizes.
    #[schemars(range(min = 1.0, max = 1e15))]
    pub bytes_per_step: f64,
    /// The same on a device with a memory pool, whose backend saves other activations. Default: `bytes_per_step`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 1e15))]
    pub bytes_per_step_in_pool: Option<f64>,
    /// The same on CUDA, whose pool rounds each tensor up to 512 bytes. Default: `bytes_per_step_in_pool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 1e15))]
    pub bytes_per_step_on_cuda: Option<f64>,
    /// Pages a step of the smallest kind that the device's pool has, where its pages are known, as on CUDA; in place of
    /// bytes, since they are a share of the device's memory. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1e-6, max = 1e6))]
    pub pages_per_step: Option<f64>,
    /// How far the measured slope may differ from it, as a fraction. Default: 0.1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub tolerance: f64,
    /// The owner that must be named; empty if the growth is in no buffer of the ledger.
    pub owner: String,
}

impl Default for Expected {
    fn default() -> Self {
        Self {
            grows: Grows::Heap,
            bytes_per_step: 1.0,
            bytes_per_step_in_pool: None,
            bytes_per_step_on_cuda: None,
            pages_per_step: None,
            tolerance: 0.1,
            owner: String::new(),
        }
    }
}

/// Where a leak is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Cpu,
    /// A device with a memory pool.
    Pool,
    /// One whose pages are known.
    Cuda {
        smallest_page: u64,
    },
}

/// What a leak makes grow, and so on which devices it is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grows {
    /// Heap in use, on any device; tried on the CPU.
    #[default]
    Heap,
    /// What holds tensors: heap in use on the CPU, the pool's memory in use on a device with a memory pool.
    Tensors,
    /// The pool's memory in use, of tensors that are too small to be told from the rest of the heap. Only on a device with a
    /// memory pool.
    Pool,
    /// Pools of threads that are gone. Only on a device with a memory pool, and in no series but that of the owner: CubeCL
    /// tells of the pool of the thread that asks.
    PoolsOfThreads,
}

impl Expected {
    /// The series that grows and its bytes a step, on the CPU or on a device with a memory pool; `None` where there is
    /// nothing to be seen, or nothing that is not seen on the CPU.
    pub fn on(&self, place: On) -> Option<(String, f64)> {
        let (pool, cuda_page) = match place {
            On::Cpu => (false, None),
            On::Pool => (true, None),
            On::Cuda { smallest_page } => (true, Some(smallest_page as f64)),
        };
        let of_pages = cuda_page.zip(self.pages_per_step).map(|(page, pages)| page * pages);
        let on_cuda = of_pages.or(self.bytes_per_step_on_cuda).filter(|_| cuda_page.is_some());
        let in_pool = on_cuda.or(self.bytes_per_step_in_pool).unwrap_or(self.bytes_per_step);
        match (self.grows, pool) {
            (Grows::Heap | Grows::Tensors, false) => Some(("heap".into(), self.bytes_per_step)),
            (Grows::Tensors | Grows::Pool, true) => Some(("device_in_use".into(), in_pool)),
            (Grows::PoolsOfThreads, true) => Some((format!("{OWNER}{}", self.owner), in_pool)),
            (Grows::Heap, true) | (Grows::Pool | Grows::PoolsOfThreads, false) => None,
        }
    }
}

/// One of [`Leaks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leak {
    Gradients,
    OutputsWithGraph,
    EmbeddingsWithGraph,
    BatchesOnDevice,
    LossWithGraph,
    ValidationPredictions,
    ValidationWithGraph,
    FrameCache,
    DataPerWorker,
    WorkerQueue,
    LogHistory,
    RangeHistory,
    QuantisedWeights,
    PreprocessedExamples,
    BlockInputs,
    ThreadPools,
}

impl Leak {
    /// The key below `[leaks]`.
    pub fn key(self) -> &'static str {
        &self.owner()[OWNER_PREFIX.len()..]
    }

    /// The name in the ledger.
    pub fn owner(self) -> &'static str {
        match self {
            Self::Gradients => "leak_gradients",
            Self::OutputsWithGraph => "leak_outputs_with_graph",
            Self::EmbeddingsWithGraph => "leak_embeddings_with_graph",
            Self::BatchesOnDevice => "leak_batches_on_device",
            Self::LossWithGraph => "leak_loss_with_graph",
            Self::ValidationPredictions => "leak_validation_predictions",
            Self::ValidationWithGraph => "leak_validation_with_graph",
            Self::FrameCache => "leak_frame_cache",
            Self::DataPerWorker => "leak_data_per_worker",
            Self::WorkerQueue => "leak_worker_queue",
            Self::LogHistory => "leak_log_history",
            Self::RangeHistory => "leak_range_history",
            Self::QuantisedWeights => "leak_quantised_weights",
            Self::PreprocessedExamples => "leak_preprocessed_examples",
            Self::BlockInputs => "leak_block_inputs",
            Self::ThreadPools => "leak_thread_pools",
        }
    }

    /// Whether what is kept is tensors, which are where the device is.
    pub fn keeps_tensors(self) -> bool {
        match self {
            Self::Gradients
            | Self::OutputsWithGraph
            | Self::EmbeddingsWithGraph
            | Self::BatchesOnDevice
            | Self::LossWithGraph
            | Self::ValidationWithGraph
            | Self::RangeHistory
            | Self::QuantisedWeights
            | Self::BlockInputs
            | Self::ThreadPools => true,
            Self::ValidationPredictions
            | Self::FrameCache
            | Self::DataPerWorker
            | Self::WorkerQueue
            | Self::LogHistory
            | Self::PreprocessedExamples => false,
        }
    }
}

/// What the names of leaks in the ledger begin with.
const OWNER_PREFIX: &str = "leak_";

impl Leaks {
    /// Those that are switched on.
    pub fn on(&self) -> Vec<Leak> {
        let all = [
            (self.gradients, Leak::Gradients),
            (self.outputs_with_graph, Leak::OutputsWithGraph),
            (self.embeddings_with_graph, Leak::EmbeddingsWithGraph),
            (self.batches_on_device, Leak::BatchesOnDevice),
            (self.loss_with_graph, Leak::LossWithGraph),
            (self.validation_predictions, Leak::ValidationPredictions),
            (self.validation_with_graph, Leak::ValidationWithGraph),
            (self.frame_cache, Leak::FrameCache),
            (self.data_per_worker, Leak::DataPerWorker),
            (self.worker_queue, Leak::WorkerQueue),
            (self.log_history, Leak::LogHistory),
            (self.range_history, Leak::RangeHistory),
            (self.quantised_weights, Leak::QuantisedWeights),
            (self.preprocessed_examples, Leak::PreprocessedExamples),
            (self.block_inputs, Leak::BlockInputs),
            (self.thread_pools, Leak::ThreadPools),
        ];
        all.into_iter().filter_map(|(on, leak)| on.then_some(leak)).collect()
    }

    pub fn has(&self, leak: Leak) -> bool {
        self.on().contains(&leak)
    }

    /// Those that are switched on as the plan lists them; `keeps` is for the pipeline to say.
    pub fn planned_owners(&self, keeps: impl Fn(Leak) -> Keeps) -> Vec<PlannedOwner> {
        let owner = |leak: Leak| PlannedOwner {
            keeps: Some(keeps(leak)),
            ..PlannedOwner::on_host(
                leak.owner(),
                Policy::Leak,
                NO_CAP,
                format!("`leaks.{}` is switched on", leak.key()),
            )
        };
        self.on().into_iter().map(owner).collect()
    }

    /// Where a leak keeps things; nowhere unless it is switched on.
    pub fn kept<T>(&self, leak: Leak, ledger: &Ledger) -> Kept<T> {
        Kept::new(self.has(leak), leak.owner(), ledger)
    }

    /// Nothing is switched on and nothing expected.
    pub fn are_off(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_looked_for_where_it_can_be_seen() {
        let expected = |grows| Expected { grows, bytes_per_step: 10.0, owner: "leak_it".into(), ..Expected::default() };
        let seen = |expected: &Expected| [On::Cpu, On::Pool].map(|place| expected.on(place));
        let series = |name: &str, bytes| Some((name.to_owned(), bytes));
        assert_eq!(seen(&expected(Grows::Heap)), [series("heap", 10.0), None]);
        assert_eq!(seen(&expected(Grows::Tensors)), [series("heap", 10.0), series("device_in_use", 10.0)]);
        assert_eq!(seen(&expected(Grows::Pool)), [None, series("device_in_use", 10.0)]);
        assert_eq!(seen(&expected(Grows::PoolsOfThreads)), [None, series("owner:leak_it", 10.0)]);
        let other = Expected { bytes_per_step_in_pool: Some(12.0), ..expected(Grows::Tensors) };
        assert_eq!(seen(&other), [series("heap", 10.0), series("device_in_use", 12.0)]);
        let on_cuda = |expected: &Expected| expected.on(On::Cuda { smallest_page: 1000 });
        assert_eq!(on_cuda(&other), series("device_in_use", 12.0));
        let rounded = Expected { bytes_per_step_on_cuda: Some(14.0), ..other };
        assert_eq!(
            (on_cuda(&rounded), rounded.on(On::Pool)),
            (series("device_in_use", 14.0), series("device_in_use", 12.0))
        );
        let pages = Expected { pages_per_step: Some(0.1), ..expected(Grows::PoolsOfThreads) };
        assert_eq!(
            (on_cuda(&pages), pages.on(On::Pool)),
            (series("owner:leak_it", 100.0), series("owner:leak_it", 10.0))
        );
    }
}
