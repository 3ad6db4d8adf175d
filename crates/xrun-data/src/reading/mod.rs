//! Shared parts of all data sets, which none owns: files of others, and what becomes of those that are broken.

pub mod confined;
pub mod decoding;
pub mod invalid;
pub mod json_stream;
pub mod named;
pub mod orientation;
pub mod parquet;
pub mod whole;
