//! What is said of the pictures of a validation?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `pictures/index.json`: what there is to be seen of the last validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pictures {
    /// The version of this record's format.
    pub version: u32,
    /// One for each file, in the order in which they are shown.
    pub pictures: Vec<PictureEntry>,
}

/// An entry of `pictures/index.json`: a picture of the last validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PictureEntry {
    /// In the same folder.
    pub file: String,
    /// What is to be seen.
    pub caption: String,
}
