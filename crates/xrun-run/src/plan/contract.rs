//! Memory contract of an experiment: the memory that it may need, in a lock file next to its own, and violations of it.
//!
//! Caps are compared exactly, because they follow from the file and the data. Measured values have a tolerance of 10 % and at
//! least a fixed number of bytes, because pages and libraries vary. Needing less never violates the contract.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Plan;
use xrun_core::bounded::ledger::Policy;
use xrun_core::units::Bytes;
use xrun_results::format::{Forecast, OwnerSummary, Summary};
use xrun_results::verdict::Verdict;

/// Version of the file format.
const VERSION: u32 = 1;
/// Relative tolerance of measured values, as the divisor of the value.
const TOLERANCE_DIVISOR: u64 = 10;
/// Smallest tolerances, in bytes.
const OWNER_TOLERANCE_MIN: u64 = 1 << 20;
const PART_TOLERANCE_MIN: u64 = 4 << 20;
const TOTAL_TOLERANCE_MIN: u64 = 16 << 20;
/// Largest number of devices, buffers and parts in a file.
const ENTRIES_MAX: usize = 1000;

/// Names of the compared quantities.
const CAP: &str = "cap";
const PEAK: &str = "peak";
const FLOOR: &str = "minimum between steps";
const SIZE: &str = "size";

/// Content of `NAME.memory.lock`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contracts {
    version: u32,
    /// Contracts by kind of device: `cpu`, `cuda`, `vulkan`.
    device: BTreeMap<String, Contract>,
}

/// Memory that may be needed on one kind of device, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Fingerprint of the experiment.
    pub fingerprint: String,
    /// Optimiser steps of the plan.
    pub steps: u64,
    /// Peak of the heap in use.
    pub heap_peak: u64,
    /// Peak of the RSS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_peak: Option<u64>,
    /// Peak of the device's pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_reserved_peak: Option<u64>,
    /// Bytes per step by which memory may grow.
    pub slope: f64,
    /// Buffers by name.
    pub owners: BTreeMap<String, OwnerContract>,
    /// Memory outside of buffers, by row of the forecast.
    pub parts: BTreeMap<String, u64>,
}

/// Contract of a buffer, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnerContract {
    /// Declared cap; absent for a leak, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// Expected peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<u64>,
    /// Minimum between steps; absent for caches, lists and queues, whose fill level varies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<u64>,
    /// Key that sets the cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Quantity that exceeds the contract.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Violation {
    /// Name of a buffer, of a row of the forecast, or of a total.
    pub what: String,
    /// Quantity that is exceeded.
    pub of: &'static str,
    /// Key that sets it, if there is one.
    pub key: Option<String>,
    /// Bytes in the contract; `None` if the contract does not list it.
    pub locked: Option<u64>,
    /// Bytes now.
    pub now: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_ref().map_or_else(String::new, |key| format!(" (`{key}`)"));
        let now = Bytes(self.now);
        write!(formatter, "{} of `{}`{key}: {now}", self.of, self.what)?;
        match self.locked {
            None => write!(formatter, ", not in the contract"),
            Some(locked) => {
                let more = Bytes(self.now.saturating_sub(locked));
                let percent = match locked {
                    0 => String::new(),
                    locked => format!(", {:+.0} %", (self.now as f64 / locked as f64 - 1.0) * 100.0),
                };
                write!(formatter, ", {more} more than the contract's {}{percent}", Bytes(locked))
            }
        }
    }
}

impl Contracts {
    /// Parses the file.
    ///
    /// # Errors
    /// The text is invalid; the message has line and column.
    pub fn read(text: &str) -> Result<Self, String> {
        let contracts: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if contracts.version != VERSION {
            return Err(format!("`version` is {}, but this program reads {VERSION}", contracts.version));
        }
        let entries = contracts.device.values().map(|one| one.owners.len() + one.parts.len()).sum::<usize>();
        match contracts.device.len() + entries > ENTRIES_MAX {
            true => Err(format!("has more than {ENTRIES_MAX} entries")),
            false => Ok(contracts),
        }
    }

    /// Returns the contracts with the one of a kind of device replaced.
    pub fn with(before: Option<Self>, device: &str, contract: Contract) -> Self {
        let mut contracts = before.unwrap_or(Self { version: VERSION, device: BTreeMap::new() });
        contracts.device.insert(device.to_owned(), contract);
        contracts
    }

    /// Contract of a kind of device.
    pub fn of(&self, device: &str) -> Option<&Contract> {
        self.device.get(device)
    }

    /// Kinds of device that have a contract.
    pub fn devices(&self) -> Vec<&str> {
        self.device.keys().map(String::as_str).collect()
    }

    /// Formats the file, with the lines of `about` as a comment at its top.
    ///
    /// # Errors
    /// A number is out of TOML's range.
    pub fn to_toml(&self, about: &str) -> Result<String, String> {
        let text = toml::to_string(self).map_err(|error| error.to_string())?;
        Ok(about.lines().map(|line| format!("# {line}\n")).collect::<String>() + &text)
    }
}

impl Contract {
    /// Builds the contract of a plan and its forecast.
    pub fn new(plan: &Plan, forecast: &Forecast, fingerprint: String) -> Self {
        let row = |name: &str| forecast.rows.iter().find(|row| row.name == name).map(|row| row.bytes);
        let owners = plan.owners.iter().map(|owner| {
            let floor = forecast.floors.get(&owner.name).copied();
            let cap = (owner.policy != Policy::Leak).then_some(owner.bytes);
            (owner.name.clone(), OwnerContract { cap, peak: row(&owner.name), floor, key: owner.key.clone() })
        });
        let is_owner = |name: &str| plan.owners.iter().any(|owner| owner.name == name);
        let parts = forecast.rows.iter().filter(|row| !is_owner(&row.name));
        Self {
            fingerprint,
            steps: plan.steps,
            heap_peak: forecast.heap_peak,
            rss_peak: forecast.rss_peak,
            device_reserved_peak: forecast.device_reserved_peak,
            slope: (plan.experiment.memory.growth_min.0 as f64 / plan.steps.max(1) as f64).ceil(),
            owners: owners.collect(),
            parts: parts.map(|row| (row.name.clone(), row.bytes)).collect(),
        }
    }

    /// Violations by the contract that an experiment would have now, buffers first.
    pub fn violations(&self, now: &Self) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (name, owner) in &now.owners {
            let key = owner.key.as_ref();
            let Some(locked) = self.owners.get(name) else {
                let (of, bytes) = if owner.cap.is_some() { (CAP, owner.cap) } else { (PEAK, owner.peak) };
                violations.extend(violation(name, of, key, None, bytes.or(Some(0)), 0));
                continue;
            };
            violations.extend(violation(name, CAP, key, locked.cap, owner.cap, 0));
            for (of, limit, bytes) in
                [(PEAK, locked.peak.or(locked.cap), owner.peak), (FLOOR, locked.floor, owner.floor)]
            {
                let known = limit.and_then(|_| violation(name, of, key, limit, bytes, OWNER_TOLERANCE_MIN));
                violations.extend(known);
            }
        }
        // A larger buffer explains a larger total.
        if violations.is_empty() {
            let part = |(name, bytes): (&String, &u64)| {
                let locked = self.parts.get(name).copied();
                let larger = *bytes > PART_TOLERANCE_MIN || locked.is_some();
                violation(name, SIZE, None, locked, Some(*bytes), PART_TOLERANCE_MIN).filter(|_| larger)
            };
            violations.extend(now.parts.iter().filter_map(part));
        }
        if violations.is_empty() {
            let totals = [
                ("heap in use", Some(self.heap_peak), Some(now.heap_peak)),
                ("RSS", self.rss_peak, now.rss_peak),
                ("device memory reserved", self.device_reserved_peak, now.device_reserved_peak),
            ];
            let total = |(name, locked, now): (&str, Option<u64>, Option<u64>)| {
                violation(name, PEAK, None, Some(locked?), now, TOTAL_TOLERANCE_MIN)
            };
            violations.extend(totals.into_iter().filter_map(total));
        }
        violations
    }

    /// Messages about the violations by a finished run.
    pub fn run_violations(&self, summary: &Summary, verdict: Option<&Verdict>) -> Vec<String> {
        let owner = |owner: &OwnerSummary| {
            let floor = summary.demand.owners.get(&owner.name).and_then(|held| held.floor);
            let key = self.owners.get(&owner.name).and_then(|locked| locked.key.clone());
            (owner.name.clone(), OwnerContract { cap: None, peak: Some(owner.peak_bytes), floor, key })
        };
        let now = Self {
            heap_peak: summary.memory.heap_peak,
            rss_peak: summary.memory.rss_peak,
            device_reserved_peak: summary.memory.device_reserved_peak,
            owners: summary.owners.iter().map(owner).collect(),
            parts: BTreeMap::new(),
            ..self.clone()
        };
        let messages = self.violations(&now).iter().map(ToString::to_string).collect::<Vec<_>>();
        messages.into_iter().chain(verdict.and_then(|verdict| self.growth_violation(verdict))).collect()
    }

    /// Message about memory that grows faster than the contract allows.
    fn growth_violation(&self, verdict: &Verdict) -> Option<String> {
        use xrun_results::verdict::VerdictWord;
        // Not by a single series: that of the container includes other processes.
        if verdict.verdict < VerdictWord::Growing {
            return None;
        }
        let growing = verdict
            .series
            .iter()
            .filter(|series| series.unit == "bytes" && series.findings.verdict >= VerdictWord::Growing);
        let slope = growing.filter_map(|series| series.findings.slope).max_by(f64::total_cmp)?;
        let allowed = Bytes(self.slope as u64);
        (slope > self.slope).then(|| format!("{}; the contract allows {allowed} per step", verdict.message))
    }
}

/// Violation by a quantity that is known now, and that is not listed or exceeds its limit by more than the tolerance: 10 % and
/// at least `tolerance_min`, or none where that is 0.
fn violation(
    what: &str,
    of: &'static str,
    key: Option<&String>,
    locked: Option<u64>,
    now: Option<u64>,
    tolerance_min: u64,
) -> Option<Violation> {
    let relative = |locked: u64| if tolerance_min > 0 { locked / TOLERANCE_DIVISOR } else { 0 };
    let limit = |locked: u64| locked.saturating_add(relative(locked).max(tolerance_min));
    let now = now.filter(|now| locked.is_none_or(|locked| *now > limit(locked)))?;
    Some(Violation { what: what.to_owned(), of, key: key.cloned(), locked, now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;
    use xrun_results::verdict::VerdictWord;
    use xrun_verdict::{BYTES, Context, MemoryJudge, SeriesKind};

    const MIB: u64 = 1 << 20;

    fn contract(text: &str) -> Contract {
        let forecast = Forecast { heap_peak: 30 * MIB, rss_peak: Some(50 * MIB), ..Forecast::default() };
        Contract::new(&plan_of(&format!("[pipeline.dummy]\n{text}")), &forecast, "ab".into())
    }

    #[test]
    fn a_raised_limit_is_a_violation_with_its_buffer_and_key() {
        let locked = contract("");
        for (key, value, owners) in [
            ("gradient_norm_window", 100_000, vec!["gradient_norms"]),
            ("metrics_queue", 65536, vec!["memory_lines", "metrics_lines"]),
            ("log_queue", 65536, vec!["log_lines"]),
        ] {
            let violations = locked.violations(&contract(&format!("[limits]\n{key} = {value}\n")));
            let names: Vec<&str> = violations.iter().map(|one| one.what.as_str()).collect();
            assert_eq!(names, owners, "{key}");
            let key = format!("limits.{key}");
            assert!(violations.iter().all(|one| one.key.as_deref() == Some(&key)), "{violations:?}");
        }
    }

    #[test]
    fn the_same_and_less_violate_nothing_and_a_leak_is_an_unlisted_buffer() {
        let locked = contract("");
        assert_eq!(locked.violations(&contract("")), []);
        assert_eq!(locked.violations(&contract("[limits]\nlog_queue = 1\n")), []);
        let found = locked.violations(&contract("leak_per_step = \"1 MiB\"\nleak_in_ledger = true\n"));
        assert_eq!((found.len(), found[0].what.as_str(), found[0].locked), (1, "dummy_leak", None));
    }

    #[test]
    fn a_higher_minimum_between_steps_is_a_violation_even_with_the_same_peak() {
        let name = contract("").owners.into_keys().next().unwrap();
        let with = |floor: u64| {
            let forecast = Forecast { floors: [(name.clone(), floor)].into(), ..Forecast::default() };
            Contract::new(&plan_of("[pipeline.dummy]\n"), &forecast, "ab".into())
        };
        assert_eq!(with(0).violations(&with(MIB)), []);
        let found = with(0).violations(&with(20 * MIB));
        assert_eq!((found.len(), found[0].what.as_str(), found[0].of), (1, name.as_str(), FLOOR));
        assert_eq!(with(20 * MIB).violations(&with(0)), []);
    }

    #[test]
    fn measured_values_have_a_tolerance() {
        let locked = contract("");
        let with = |heap_peak| Contract { heap_peak, ..locked.clone() };
        assert_eq!(locked.violations(&with(45 * MIB)), []);
        let found = locked.violations(&with(60 * MIB));
        insta::assert_snapshot!(
            found[0],
            @"peak of `heap in use`: 60.0 MiB, 30.0 MiB more than the contract's 30.0 MiB, +100 %"
        );
    }

    #[test]
    fn only_growth_of_the_run_itself_is_a_violation() {
        let mut judge = MemoryJudge::new(Context { steps: 200, ..Context::default() });
        (1..=200).for_each(|step| judge.add_value(step, "heap", step << 26, SeriesKind::InUse, BYTES));
        let growing = judge.verdict();
        let locked = contract("");
        assert!(locked.growth_violation(&growing).is_some());
        // Other processes of the container may grow.
        assert_eq!(locked.growth_violation(&Verdict { verdict: VerdictWord::Bounded, ..growing }), None);
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_errors_have_a_position() {
        let contracts = Contracts::with(None, "cpu", contract(""));
        let text = contracts.to_toml("two\nlines").unwrap();
        assert!(text.starts_with("# two\n# lines\nversion = 1\n"), "{text}");
        assert_eq!(Contracts::read(&text), Ok(contracts));
        let damaged = [text.replace("version = 1", "version = 9"), text.replace("steps", "stops"), "version = ".into()];
        let errors = damaged.map(|damaged| Contracts::read(&damaged).unwrap_err());
        let first_lines: Vec<&str> = errors.iter().filter_map(|error| error.lines().next()).collect();
        insta::assert_snapshot!(first_lines.join("\n"), @"
        `version` is 9, but this program reads 1
        TOML parse error at line 7, column 1
        TOML parse error at line 1, column 11
        ");
    }
}
