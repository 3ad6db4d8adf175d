//! `[leaks]`: injection of known leaks, to test that the verdict finds them.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use super::pipeline::PipelineKind;
use crate::bounded::buffer::Buffer;
use crate::bounded::leak_buffer::{self, LeakBuffer};
use crate::bounded::leak_growth::LeakGrowth;
use crate::bounded::ledger::Ledger;
use crate::bounded::planned::PlannedBuffer;
use crate::settings;
use crate::settings::variant::Section;

/// A leak that can be injected into a pipeline; [`leaks!`](crate::leaks) declares some.
#[derive(Debug, PartialEq, Eq)]
pub struct Leak {
    /// Key in `[leaks]`.
    pub key: &'static str,
    /// Name in the ledger: `leak_` and the key.
    pub owner: &'static str,
    /// `true` if the leak holds tensors, which are in the device's memory.
    pub holds_tensors: bool,
    /// Description for the manual.
    pub description: &'static str,
}

impl Leak {
    /// Declaration of its buffer.
    pub fn buffer(&self) -> Buffer {
        leak_buffer::leak(self.owner).because(format!("`leaks.{}` is switched on", self.key))
    }
}

/// Declares constants, each a [`Leak`]: `LOG_HISTORY = "log_history", on_host, "Keep a line of text for each step.";`, or `with_tensors` for
/// one that holds tensors.
#[macro_export]
macro_rules! leaks {
    ($($(#[$meta:meta])* $name:ident = $key:literal, $kind:ident, $description:literal;)+) => {
        $($(#[$meta])* pub const $name: $crate::experiment::leaks::Leak = $crate::experiment::leaks::Leak {
            key: $key,
            owner: concat!("leak_", $key),
            holds_tensors: $crate::leaks!(@$kind),
            description: $description,
        };)+
    };
    (@on_host) => { false };
    (@with_tensors) => { true };
}

/// Leaks of real trainers (`docs/origins.md`), each with a switch, to test that the verdict finds them. All are off by
/// default; a leak that the pipeline does not have is an error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Leaks {
    /// Leaks that are switched on.
    #[serde(flatten, deserialize_with = "switched_on")]
    on: BTreeMap<String, bool>,
    /// Result that `cargo dev leaks` requires of this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedGrowth>,
}

/// Omits the leaks that are switched off, as if they were not in the file.
fn switched_on<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, bool>, D::Error> {
    let mut all = BTreeMap::<String, bool>::deserialize(deserializer)?;
    all.retain(|_, is_on| *is_on);
    Ok(all)
}

const EXPECTED: &str = "expected";

impl JsonSchema for Leaks {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Leaks".into()
    }

    /// Leaks of all pipelines. Whether the pipeline of a file has a leak is checked later.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = serde_json::Map::new();
        for leak in <dyn PipelineKind>::registry().all().iter().flat_map(|kind| kind.facts.leaks) {
            let property = serde_json::json!({ "type": "boolean", "description": leak.description, "default": false });
            properties.entry(leak.key).or_insert(property);
        }
        properties.insert(EXPECTED.into(), generator.subschema_for::<Option<ExpectedGrowth>>().to_value());
        properties[EXPECTED]["description"] = "Result that `cargo dev leaks` requires of this file.".into();
        schemars::json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
    }
}

settings! {
    /// Expected measurement of an injected leak.
    pub struct ExpectedGrowth {
        /// Memory that grows.
        pub grows: GrowingMemory = GrowingMemory::Heap,
        /// Rate in bytes per step, predicted from sizes.
        #[schemars(range(min = 1.0, max = 1e15))]
        pub bytes_per_step: f64 = 1.0,
        /// Rate on a device with a memory pool, whose backend saves other activations. Default: `bytes_per_step`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1.0, max = 1e15))]
        pub bytes_per_step_in_pool: Option<f64> = None,
        /// Rate on CUDA, whose pool rounds each tensor up to 512 bytes. Default: `bytes_per_step_in_pool`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1.0, max = 1e15))]
        pub bytes_per_step_on_cuda: Option<f64> = None,
        /// Final bytes of the owner, for a leak that stops growing, in place of `bytes_per_step`. Its verdict must not be
        /// `growing`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1.0, max = 1e15))]
        pub total_bytes: Option<f64> = None,
        /// Tolerance of the measured rate, as a fraction.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub tolerance: f64 = 0.1,
        /// Owner that the verdict must name; empty if no buffer of the ledger explains the growth.
        pub owner: String = String::new(),
        /// Ends of the paths of functions, of which `allocations.json` should name one as that whose memory grows, on the CPU; another one
        /// is reported.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(max = 16))]
        pub allocated_in: Vec<String> = Vec::new(),
    }
}

/// Memory that a leak grows, which determines the devices that show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrowingMemory {
    /// Heap in use, on any device; tested on the CPU.
    #[default]
    Heap,
    /// Tensors: heap in use on the CPU, memory in use of the pool on other devices.
    Tensors,
    /// Memory in use of the pool, by tensors too small to be distinguished on the heap. Only on a device with a memory pool.
    Pool,
    /// Pools of ended threads. Only on a device with a memory pool, and only in the owner's series, because their reserved
    /// memory is not in use.
    PerThreadPools,
}

impl Leaks {
    /// Keys of the leaks that are switched on.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.on.keys().map(String::as_str)
    }

    /// Returns whether this leak is switched on.
    pub fn is_enabled(&self, leak: &Leak) -> bool {
        self.on.contains_key(leak.key)
    }

    /// Switches a leak on.
    pub fn switch_on(&mut self, leak: &Leak) {
        self.on.insert(leak.key.to_owned(), true);
    }

    /// Planned buffers of the leaks among `all` that are switched on; `growth_of` returns the expected growth of one.
    pub fn planned_buffers(&self, all: &[&Leak], growth_of: impl Fn(&Leak) -> LeakGrowth) -> Vec<PlannedBuffer> {
        let owner = |leak: &&Leak| {
            let growth = growth_of(leak);
            PlannedBuffer {
                leak_growth: Some(growth),
                working_set_bytes: growth.plateau_bytes(),
                ..PlannedBuffer::from(&leak.buffer())
            }
        };
        all.iter().filter(|leak| self.is_enabled(leak)).map(owner).collect()
    }

    /// Buffer of a leak, which stores nothing unless the leak is switched on.
    pub fn leak_buffer<T>(&self, leak: &Leak, ledger: &Ledger) -> LeakBuffer<T> {
        LeakBuffer::new(self.is_enabled(leak), &leak.buffer(), ledger)
    }
}
