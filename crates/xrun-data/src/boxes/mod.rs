//! Images with boxes: the index that every data set of them gives, and the reader of its images.

pub mod assemble;
pub mod classes;
mod describe;
pub mod drawn;
pub mod few_shot;
pub mod format;
pub mod frames;
pub mod library;
pub mod open;
pub mod raw;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod validation_split;
