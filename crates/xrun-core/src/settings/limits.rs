//! `[limits]`: how much may each buffer hold, and how much is computed at once?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The most that each buffer may hold. Every buffer of a run is named here, in the plan, and in the memory trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Items (query images, sequences) that are on the device at once: in one forward and backward pass, and in one
    /// pass of a validation. A larger batch is split and its gradients are added up, so the step is the same up to
    /// rounding. Lower it when memory is short.
    #[schemars(range(min = 1, max = 65536))]
    pub batch_size: usize,
    /// Items of a batch that are computed together on the CPU, with a graph of their own: side by side with the other parts of
    /// the batch, each on a thread. Gradients are added up in the order of the parts, so the step is the same to the bit on any
    /// number of threads, and up to rounding with another size of parts. Small parts keep more threads busy, and each costs a
    /// little. A GPU takes `batch_size` at once.
    #[schemars(range(min = 1, max = 65536))]
    pub part_size: usize,
    /// Threads that the CPU computes on; 0 takes all cores that the process may use. Every number in the result is the same
    /// for any value.
    #[schemars(range(min = 0, max = 1024))]
    pub threads: usize,
    /// Threads that decode and augment. 0 does it on the training thread. The order of batches and every number in the
    /// result are the same for any value.
    #[schemars(range(min = 0, max = 256))]
    pub workers: usize,
    /// Batches prepared ahead of the training step, counted from the moment a worker starts on them. At least
    /// `workers`, or some of them could never work.
    #[schemars(range(min = 1, max = 1024))]
    pub prefetch: usize,
    /// Bytes of decoded frames kept for reuse; the least recently used is evicted first. 0 keeps none.
    pub frame_cache: Bytes,
    /// Bytes that all threads together may use to decode pictures; a thread that finds no room waits. A picture takes
    /// at most 12 bytes a pixel plus its file; one that does not fit is refused by name. 512 MiB are enough for one of
    /// 44 megapixels.
    pub decoding: Bytes,
    /// Gradient norms kept for the running median in the progress line and the metrics.
    #[schemars(range(min = 1, max = 100_000))]
    pub gradient_norm_window: usize,
    /// Lines of metrics and memory samples held before they are written out; a kill loses at most this many.
    #[schemars(range(min = 1, max = 10_000))]
    pub metrics_queue: usize,
    /// Lines of the log held before they are written out.
    #[schemars(range(min = 1, max = 10_000))]
    pub log_queue: usize,
    /// If the process has more resident memory than this, the run saves a checkpoint, writes who held what, and ends
    /// with exit code 5. Checked at rest points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<Bytes>,
    /// The same for the device's memory pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<Bytes>,
}

/// Limits of what only some kinds have. Of an experiment whose kinds have none, another value than the default is
/// refused: it would bound nothing.
pub const LIMITS_OF_KINDS: [&str; 3] = ["frame_cache", "decoding", PART_SIZE];

/// The limit of pipelines that compute the parts of a batch side by side.
pub const PART_SIZE: &str = "part_size";

impl Limits {
    /// The limits of [`LIMITS_OF_KINDS`] that are not as they are by default.
    pub fn of_kinds(&self) -> impl Iterator<Item = &'static str> {
        let default = Self::default();
        let changed = [
            self.frame_cache != default.frame_cache,
            self.decoding != default.decoding,
            self.part_size != default.part_size,
        ];
        LIMITS_OF_KINDS.into_iter().zip(changed).filter_map(|(name, changed)| changed.then_some(name))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch_size: 32,
            part_size: 8,
            threads: 0,
            workers: 1,
            prefetch: 2,
            frame_cache: Bytes::mebibytes(64),
            decoding: Bytes::mebibytes(512),
            gradient_norm_window: 100,
            metrics_queue: 16,
            log_queue: 16,
            host_memory: None,
            device_memory: None,
        }
    }
}
