//! Contract between data sets and pipelines: kinds of data sets, samples, the inspection of data, and the cache.

pub mod cache;
pub mod digest;
pub mod error;
pub mod index;
pub mod kind;
pub mod known;
pub mod look;
pub mod sample;
pub mod split;
pub mod stamp;
pub mod written_once;

pub use kind::Dataset;
