//! The pipeline that computes nothing and tests the runner.

pub mod settings;
pub mod task;
