//! Contract between data sets and pipelines: kinds of data sets, samples, the inspection of data, and the cache.

pub mod cache;
pub mod description;
pub mod digest;
pub mod digest_cache;
pub mod error;
pub mod generated;
pub mod kind;
pub mod open_dataset;
pub mod sample;
pub mod split;

pub use kind::Dataset;
