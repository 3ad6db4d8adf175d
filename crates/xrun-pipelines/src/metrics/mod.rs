//! How good is a model? Numbers whose memory does not grow with the number of episodes.

pub mod answers;
pub mod average_precision;
pub mod episodes;
pub mod fields;
pub mod matching;
pub mod perplexity;
pub mod separation;
pub mod st_iou;
