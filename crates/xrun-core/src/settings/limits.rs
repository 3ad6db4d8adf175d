//! `[limits]`: caps of the buffers, and the amount of concurrent work.

use super::rung::Rung;
use crate::settings;
use crate::units::Bytes;

settings! {
    /// Caps of the buffers. Every buffer of a run has a name here, in the plan and in the memory trace.
    pub struct Limits {
        /// Maximum number of items (query images, sequences) on the device at once, in a forward and backward pass or a pass of a
        /// validation. A larger batch is split and its gradients are accumulated; the result is the same up to rounding. Lower it
        /// to save memory. It does not set the size of a batch: `training.batch_size` does.
        #[schemars(range(min = 1, max = 65536))]
        pub batch_size: usize = 32,
        /// Items of a micro-batch on the CPU. The micro-batches of a batch run in parallel, each with its own autodiff graph.
        /// Gradients are accumulated in order, so results are bit-identical for any number of threads, and equal up to rounding
        /// for another size. Smaller micro-batches occupy more threads at some overhead. A GPU computes `batch_size` items at once.
        #[schemars(range(min = 1, max = 65536))]
        pub micro_batch_size: usize = 8,
        /// Number of compute threads on the CPU; 0 uses all cores available to the process. Does not affect results.
        #[schemars(range(min = 0, max = 1024))]
        pub threads: usize = 0,
        /// Number of threads that decode and augment; 0 uses the training thread. Does not affect results or the order of batches.
        #[schemars(range(min = 0, max = 256))]
        pub workers: usize = 1,
        /// Number of batches prepared ahead of the training step, counted from the start of their preparation. By default twice
        /// `workers`, and at least 2; a value below `workers` counts as `workers`, since each worker prepares a batch. Does not
        /// affect results.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 1024))]
        pub prefetch: Option<usize> = None,
        /// Size of the LRU cache of decoded images; 0 disables it.
        pub frame_cache: Bytes = Bytes::mebibytes(64),
        /// Memory that all threads together may use to decode images and sounds; threads wait while it is used up. An image takes at
        /// most 12 bytes per pixel plus twice its file and its metadata; a larger one is an error. 512 MiB suffice for 40 megapixels.
        pub decode_memory: Bytes = Bytes::mebibytes(512),
        /// Number of gradient norms in the running median of the progress line and the metrics.
        #[schemars(range(min = 1, max = 100_000))]
        pub gradient_norm_window: usize = 100,
        /// Number of lines of metrics and of memory samples that are buffered; a kill loses at most these.
        #[schemars(range(min = 1, max = 10_000))]
        pub metrics_queue: usize = 16,
        /// Number of log lines that are buffered.
        #[schemars(range(min = 1, max = 10_000))]
        pub log_queue: usize = 16,
        /// Maximum RSS of the process. Beyond it the run saves a checkpoint, writes a post-mortem of all buffers, and ends with
        /// exit code 5. Checked between steps.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub host_memory: Option<Bytes> = None,
        /// Maximum size of the device's memory pool; as `host_memory`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub device_memory: Option<Bytes> = None,
        /// Ladder to descend, in this order, when a memory limit comes near: `caches`, `prefetch` and `workers` (the numbers keep
        /// their bits), `micro_batch` and `activation_checkpointing` (equal up to rounding), and `park`, which saves a checkpoint
        /// and ends with exit code 75. Each but the last gives up half at a time. Where memory grows, `park` is next: a leak is not
        /// fed. Default: none, so that a limit ends the run.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 6))]
        pub on_pressure: Vec<Rung> = Vec::new(),
        /// Climb the ladder of `on_pressure` back while there is room again.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub recover: bool = false,
    }
}

/// Limits that apply only to some kinds. For other kinds, a value other than the default is an error, as it would have no
/// effect.
pub const LIMITS_OF_KINDS: [&str; 3] = ["frame_cache", "decode_memory", MICRO_BATCH_SIZE];

/// Limit of pipelines that compute micro-batches in parallel.
pub const MICRO_BATCH_SIZE: &str = "micro_batch_size";

impl Limits {
    /// Number of batches that workers may be ahead of the trainer.
    pub fn batches_ahead(&self) -> u64 {
        self.prefetch.unwrap_or(2 * self.workers.max(1)).max(self.workers) as u64
    }

    /// Those of [`LIMITS_OF_KINDS`] that differ from the default.
    pub fn of_kinds(&self) -> impl Iterator<Item = &'static str> {
        let default = Self::default();
        let changed = [
            self.frame_cache != default.frame_cache,
            self.decode_memory != default.decode_memory,
            self.micro_batch_size != default.micro_batch_size,
        ];
        LIMITS_OF_KINDS.into_iter().zip(changed).filter_map(|(name, changed)| changed.then_some(name))
    }
}
