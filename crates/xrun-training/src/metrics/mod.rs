//! Validation metrics in bounded memory, independent of the number of batches.

pub mod average_precision;
pub mod fields;
pub mod json_text;
pub mod matching;
pub mod permuted_precision;
pub mod perplexity;
pub mod running_mean;
pub mod separation;
pub mod squad;
pub mod st_iou;
