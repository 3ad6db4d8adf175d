//! Images with boxes: the index that every data set of them gives, and how its pictures are read. No data set owns it.

pub mod assemble;
pub mod classes;
pub mod drawn;
pub mod few_shot;
pub mod format;
pub mod frames;
pub mod library;
pub mod open;
pub mod raw;
