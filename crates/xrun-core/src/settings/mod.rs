//! Sections of the experiment file that all experiments share, and the choice between kinds.

pub mod backbone;
pub mod command;
pub mod defaults;
pub mod early_stopping;
pub mod kinds;
pub mod limits;
pub mod matmul_dtype;
pub mod rung;
pub mod schedule;
pub mod sections;
pub mod signal;
pub mod step_pattern;
pub mod variant;

/// `true` for a default value, which a resolved file omits.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
