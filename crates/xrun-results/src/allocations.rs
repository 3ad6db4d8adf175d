//! Record `allocations.json`: the functions whose allocations stay alive, found by sampling after growth was suspected.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::units::Bytes;

/// `allocations.json` of a run whose heap grows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllocationRecord {
    /// The version of this record's format.
    pub version: u32,
    /// Step after which sampling began.
    pub step: u64,
    /// Number of steps in which allocations were sampled.
    pub steps: u64,
    /// Number of steps after which an allocation that is still alive counts.
    pub age: u64,
    /// Growth of the heap in bytes per step when sampling began, without that of buffers with a cap; `null` if it was unknown.
    pub growth: Option<f64>,
    /// Call stacks, most bytes first.
    pub sites: Vec<AllocationSite>,
}

/// Call stack whose allocations stay alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllocationSite {
    /// Function of the pipeline: the innermost that is not of a library.
    pub function: String,
    /// Its file and line; `null` without debug information.
    pub line: Option<String>,
    /// Estimated bytes that each step allocated and that live.
    pub bytes_per_step: f64,
    /// Estimated number of these allocations.
    pub allocations_per_step: f64,
    /// Number of samples of the estimates.
    pub samples: u64,
    /// Functions of the stack, the innermost first.
    pub stack: Vec<String>,
}

impl AllocationRecord {
    /// Function that explains the growth best, with its bytes per step over all its call stacks: of those with a third to three times the
    /// growth, or else of all, that with most bytes. A cache that replaces its contents allocates what lives, too. `None` if no
    /// allocation lived.
    pub fn function(&self) -> Option<(&str, f64)> {
        let mut functions: BTreeMap<&str, f64> = BTreeMap::new();
        for site in &self.sites {
            *functions.entry(&site.function).or_default() += site.bytes_per_step;
        }
        let explains = |bytes: f64| self.growth.is_some_and(|growth| bytes >= growth / 3.0 && bytes <= growth * 3.0);
        functions.into_iter().max_by(|a, b| explains(a.1).cmp(&explains(b.1)).then(a.1.total_cmp(&b.1)))
    }

    /// Sentence on the function of most bytes; `None` if no allocation lived.
    pub fn message(&self) -> Option<String> {
        let (function, bytes) = self.function()?;
        let line = self.sites.iter().find(|site| site.function == function).and_then(|site| site.line.as_ref());
        let line = line.map_or(String::new(), |line| format!(" ({line})"));
        Some(format!("some {} a step are allocated in {function}{line} and stay alive", Bytes(bytes as u64)))
    }
}
