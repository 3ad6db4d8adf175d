//! Description of a data set for `xrun check`: its contents, and what is unusual about them.

use serde::{Deserialize, Serialize};

/// Description of open data for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Contents: numbers of samples, classes with their counts, splits, sizes and lengths; a line each.
    pub lines: Vec<String>,
    /// Valid data that are probably not meant, such as two classes whose names differ in case only; a line each.
    pub warnings: Vec<String>,
}
