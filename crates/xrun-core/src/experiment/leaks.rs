//! Which leaks are switched on, to see that they are found?

use std::collections::BTreeSet;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::pipeline::AnyPipeline;
use crate::bounded::buffer::Buffer;
use crate::bounded::growth::Keeps;
use crate::bounded::kept;
use crate::bounded::kept::Kept;
use crate::bounded::ledger::Ledger;
use crate::bounded::ledger::SERIES;
use crate::bounded::planned::PlannedOwner;
use crate::settings::chosen::Family;

/// A leak that a pipeline can be told to have, to see that it is found. [`leak!`](crate::leak) makes one.
#[derive(Debug, PartialEq, Eq)]
pub struct Leak {
    /// The key below `[leaks]`.
    pub key: &'static str,
    /// The name in the ledger: `leak_` and the key.
    pub owner: &'static str,
    /// Whether what is kept is tensors, which are where the device is.
    pub keeps_tensors: bool,
    /// What is kept, for the manual.
    pub about: &'static str,
}

impl Leak {
    /// Where it keeps things.
    pub fn buffer(&self) -> Buffer {
        kept::leak(self.owner).because(format!("`leaks.{}` is switched on", self.key))
    }
}

/// `leak!("log_history", on_host, "Keep a line of text for each step.")`, or `with_tensors` for what the device holds.
#[macro_export]
macro_rules! leak {
    ($key:literal, on_host, $about:expr) => {
        $crate::leak!($key, false, $about)
    };
    ($key:literal, with_tensors, $about:expr) => {
        $crate::leak!($key, true, $about)
    };
    ($key:literal, $keeps_tensors:literal, $about:expr) => {
        $crate::experiment::leaks::Leak {
            key: $key,
            owner: concat!("leak_", $key),
            keeps_tensors: $keeps_tensors,
            about: $about,
        }
    };
}

/// Leaks that real trainers had (`docs/origins.md`), each with a switch, to see that the verdict finds it. All are off
/// unless set here; a pipeline that does not have one refuses it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leaks {
    on: BTreeSet<String>,
    /// What `xrun leaks` must find when it runs this file.
    pub expected: Option<Expected>,
}

const EXPECTED: &str = "expected";

impl Serialize for Leaks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for key in &self.on {
            map.serialize_entry(key, &true)?;
        }
        if let Some(expected) = &self.expected {
            map.serialize_entry(EXPECTED, expected)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Leaks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Leaks;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("keys of leaks, true or false, and `expected`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Leaks, A::Error> {
                let mut leaks = Leaks::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key == EXPECTED {
                        leaks.expected = Some(map.next_value()?);
                    } else if map.next_value()? {
                        leaks.on.insert(key);
                    }
                }
                Ok(leaks)
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

impl JsonSchema for Leaks {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Leaks".into()
    }

    /// The leaks of all pipelines; which of them this one has is looked at when the whole file is checked.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = serde_json::Map::new();
        for leak in <dyn AnyPipeline>::registered().all().iter().flat_map(|kind| kind.leaks()) {
            let about = serde_json::json!({ "type": "boolean", "description": leak.about, "default": false });
            properties.entry(leak.key).or_insert(about);
        }
        properties.insert(EXPECTED.into(), generator.subschema_for::<Option<Expected>>().to_value());
        properties[EXPECTED]["description"] = "What `xrun leaks` must find when it runs this file.".into();
        schemars::json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
    }
}

/// What a leak must look like for the instrument to be trusted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Expected {
    /// What grows.
    pub grows: Grows,
    /// How fast, in bytes a step, predicted from sizes.
    #[schemars(range(min = 1.0, max = 1e15))]
    pub bytes_per_step: f64,
    /// The same on a device with a memory pool, whose backend saves other activations. Default: `bytes_per_step`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 1e15))]
    pub bytes_per_step_in_pool: Option<f64>,
    /// The same on CUDA, whose pool rounds each tensor up to 512 bytes. Default: `bytes_per_step_in_pool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 1e15))]
    pub bytes_per_step_on_cuda: Option<f64>,
    /// Bytes that the owner comes to hold, of a leak whose growth ends by itself, in place of `bytes_per_step`: it must not be
    /// called growing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1.0, max = 1e15))]
    pub bytes_in_all: Option<f64>,
    /// How far the measured slope may differ from it, as a fraction.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub tolerance: f64,
    /// The owner that must be named; empty if the growth is in no buffer of the ledger.
    pub owner: String,
}

impl Default for Expected {
    fn default() -> Self {
        Self {
            grows: Grows::Heap,
            bytes_per_step: 1.0,
            bytes_per_step_in_pool: None,
            bytes_per_step_on_cuda: None,
            bytes_in_all: None,
            tolerance: 0.1,
            owner: String::new(),
        }
    }
}

/// Where a leak is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The CPU: memory that tensors hold is heap.
    Cpu,
    /// A device with a memory pool.
    Pool,
    /// CUDA, whose pool rounds tensors up.
    Cuda,
}

/// What a leak makes grow, and so on which devices it is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grows {
    /// Heap in use, on any device; tried on the CPU.
    #[default]
    Heap,
    /// What holds tensors: heap in use on the CPU, the pool's memory in use on a device with a memory pool.
    Tensors,
    /// The pool's memory in use, of tensors that are too small to be told from the rest of the heap. Only on a device with a
    /// memory pool.
    Pool,
    /// Pools of threads that are gone. Only on a device with a memory pool, and in no series but that of the owner: what they
    /// have reserved is not in use.
    PoolsOfThreads,
}

impl Expected {
    /// The series that grows and its bytes a step, on the CPU or on a device with a memory pool; `None` where there is
    /// nothing to be seen, or nothing that is not seen on the CPU.
    pub fn on(&self, place: On) -> Option<(String, f64)> {
        let pool = place != On::Cpu;
        let on_cuda = self.bytes_per_step_on_cuda.filter(|_| place == On::Cuda);
        let in_pool = on_cuda.or(self.bytes_per_step_in_pool).unwrap_or(self.bytes_per_step);
        match (self.grows, pool) {
            (Grows::Heap | Grows::Tensors, false) => Some(("heap".into(), self.bytes_per_step)),
            (Grows::Tensors | Grows::Pool, true) => Some(("device_in_use".into(), in_pool)),
            (Grows::PoolsOfThreads, true) => Some((format!("{SERIES}{}", self.owner), in_pool)),
            (Grows::Heap, true) | (Grows::Pool | Grows::PoolsOfThreads, false) => None,
        }
    }
}

impl Leaks {
    /// Keys of those that are switched on.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.on.iter().map(String::as_str)
    }

    /// Whether this leak is switched on.
    pub fn has(&self, leak: &Leak) -> bool {
        self.on.contains(leak.key)
    }

    /// Switches one on.
    pub fn switch_on(&mut self, leak: &Leak) {
        self.on.insert(leak.key.to_owned());
    }

    /// Those of a pipeline that are switched on as the plan lists them; `keeps` is for the pipeline to say.
    pub fn planned_owners(&self, all: &[&Leak], keeps: impl Fn(&Leak) -> Keeps) -> Vec<PlannedOwner> {
        let owner = |leak: &&Leak| {
            let keeps = keeps(leak);
            PlannedOwner { keeps: Some(keeps), fills: keeps.full(), ..PlannedOwner::from(&leak.buffer()) }
        };
        all.iter().filter(|leak| self.has(leak)).map(owner).collect()
    }

    /// Where a leak keeps things; nowhere unless it is switched on.
    pub fn kept<T>(&self, leak: &Leak, ledger: &Ledger) -> Kept<T> {
        Kept::new(self.has(leak), &leak.buffer(), ledger)
    }

    /// Nothing is switched on and nothing expected.
    pub fn are_off(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_is_looked_for_where_it_can_be_seen() {
        let expected = |grows| Expected { grows, bytes_per_step: 10.0, owner: "leak_it".into(), ..Expected::default() };
        let seen = |expected: &Expected| [On::Cpu, On::Pool].map(|place| expected.on(place));
        let series = |name: &str, bytes| Some((name.to_owned(), bytes));
        assert_eq!(seen(&expected(Grows::Heap)), [series("heap", 10.0), None]);
        assert_eq!(seen(&expected(Grows::Tensors)), [series("heap", 10.0), series("device_in_use", 10.0)]);
        assert_eq!(seen(&expected(Grows::Pool)), [None, series("device_in_use", 10.0)]);
        assert_eq!(seen(&expected(Grows::PoolsOfThreads)), [None, series("owner:leak_it", 10.0)]);
        let other = Expected { bytes_per_step_in_pool: Some(12.0), ..expected(Grows::Tensors) };
        assert_eq!(seen(&other), [series("heap", 10.0), series("device_in_use", 12.0)]);
        let on_cuda = |expected: &Expected| expected.on(On::Cuda);
        assert_eq!(on_cuda(&other), series("device_in_use", 12.0));
        let rounded = Expected { bytes_per_step_on_cuda: Some(14.0), ..other };
        assert_eq!(
            (on_cuda(&rounded), rounded.on(On::Pool)),
            (series("device_in_use", 14.0), series("device_in_use", 12.0))
        );
    }
}
