//! What is said of the pictures of a validation?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `pictures/index.json`: what there is to be seen of the last validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pictures {
    pub version: u32,
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
