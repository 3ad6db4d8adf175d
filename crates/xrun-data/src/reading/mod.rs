//! Shared parts of all data sets: reading of files that xrun did not write, within bounds, and the treatment of invalid ones.

pub mod confined;
pub mod decoding;
pub mod image_head;
pub mod invalid;
pub mod json_stream;
pub mod named_image;
pub mod orientation;
pub mod other_files;
pub mod record_file;
pub mod settings_paths;
pub mod survey;
pub mod whole;
