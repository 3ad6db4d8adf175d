//! Settings of the pipeline `dummy`.

use crate::settings;
use crate::units::Bytes;

settings! {
    /// Simulated training with configurable losses, failures and leaks. Tests the runner (progress, limits, crashes, resume,
    /// sweeps) and the set-up of a cluster in milliseconds, without a model.
    pub struct Dummy {
        /// Steps in one epoch.
        #[schemars(range(min = 1))]
        pub steps_per_epoch: u64 = 10,
        /// Duration of a step in microseconds.
        #[schemars(range(max = 60_000_000))]
        pub step_microseconds: u64 = 0,
        /// Step whose loss is NaN.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub nan_at_step: Option<u64> = None,
        /// Step that fails.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub fail_at_step: Option<u64> = None,
        /// Step that finds invalid data.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub broken_data_at_step: Option<u64> = None,
        /// Step that panics, as a backend may.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub panic_at_step: Option<u64> = None,
        /// Step in which the device runs out of memory unless the micro-batch is halved, reported as by CubeCL: a panic in the device's
        /// thread, and one without a reason in the training thread.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub device_full_at_step: Option<u64> = None,
        /// Step after which the score falls, as in overfitting.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub worse_after_step: Option<u64> = None,
        /// Bytes allocated in the first step and held to the end.
        #[serde(skip_serializing_if = "crate::settings::is_default")]
        pub hold: Bytes = Bytes(0),
        /// Bytes that each step puts into a cache of `limits.frame_cache`.
        #[serde(skip_serializing_if = "crate::settings::is_default")]
        pub cache_per_step: Bytes = Bytes(0),
        /// Bytes allocated in each step and freed at its end; they halve with the micro-batch.
        #[serde(skip_serializing_if = "crate::settings::is_default")]
        pub activations: Bytes = Bytes(0),
        /// Bytes that each step leaks.
        pub leak_per_step: Bytes = Bytes(0),
        /// Register the leak in the ledger as `dummy_leak`; otherwise no owner in the ledger explains the growth.
        pub leak_in_ledger: bool = false,
        /// Bytes written into each checkpoint.
        pub checkpoint_size: Bytes = Bytes(1024),
    }
}
