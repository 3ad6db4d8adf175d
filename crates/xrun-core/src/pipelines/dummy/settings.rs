//! What may be set of a dummy run, which computes nothing?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Computes nothing: chosen losses, chosen failures, chosen leaks. It tests the runner itself (progress, limits,
/// crashes, resume, sweeps) and a cluster's set-up, in milliseconds and without Burn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Steps in one epoch.
    #[schemars(range(min = 1))]
    pub steps_per_epoch: u64,
    /// How long a step takes, in microseconds.
    #[schemars(range(max = 60_000_000))]
    pub step_microseconds: u64,
    /// The step whose loss is not a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nan_at_step: Option<u64>,
    /// The step that fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_at_step: Option<u64>,
    /// The step that meets data which cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_data_at_step: Option<u64>,
    /// The step that panics, as a backend may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub panic_at_step: Option<u64>,
    /// The step in which a device has no memory left, reported as CubeCL does: by a panic in the device's own thread,
    /// and one in the training thread that gives no reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_full_at_step: Option<u64>,
    /// The step after which each step takes back what it gained, so that the score falls, as by overfitting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worse_after_step: Option<u64>,
    /// Bytes that are held from the first step to the end.
    #[serde(skip_serializing_if = "is_zero")]
    pub hold: Bytes,
    /// Bytes that each step keeps for ever.
    pub leak_per_step: Bytes,
    /// Enter what is kept in the ledger, as `dummy_leak`; otherwise no owner in the ledger explains the growth.
    pub leak_in_ledger: bool,
    /// Bytes written into each checkpoint.
    pub checkpoint_size: Bytes,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            steps_per_epoch: 10,
            step_microseconds: 0,
            nan_at_step: None,
            fail_at_step: None,
            broken_data_at_step: None,
            panic_at_step: None,
            device_full_at_step: None,
            worse_after_step: None,
            hold: Bytes(0),
            leak_per_step: Bytes(0),
            leak_in_ledger: false,
            checkpoint_size: Bytes(1024),
        }
    }
}

/// Left out of what is written, so that experiments of before have the same fingerprint.
fn is_zero(bytes: &Bytes) -> bool {
    bytes.0 == 0
}
