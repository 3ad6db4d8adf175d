//! How much memory may an experiment need, by a contract that stands beside its file in git, and what has moved since?
//!
//! Caps are compared exactly: they follow from the file and the data. What a probe measured may be off by a tenth and a little,
//! as pages and libraries are. Less than the contract never fails.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Plan;
use xrun_core::bounded::ledger::Policy;
use xrun_core::units::Bytes;
use xrun_results::format::{Forecast, OwnerSummary, Summary};
use xrun_results::verdict::Verdict;

/// The version of the file.
const VERSION: u32 = 1;
/// As much more is allowed of what is measured: a part, and bytes on top of it.
const ALLOWED_PART: u64 = 10;
const ALLOWED_OF_OWNER: u64 = 1 << 20;
const ALLOWED_OF_PART: u64 = 4 << 20;
const ALLOWED_OF_TOTAL: u64 = 16 << 20;
/// More devices, buffers or parts are not read.
const ENTRIES_MAX: usize = 1000;

/// The number of a buffer that says what it keeps between steps.
const FLOOR: &str = "what it keeps at rest";

/// `NAME.memory.lock`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contracts {
    version: u32,
    /// By kind of device: `cpu`, `cuda`, `vulkan`.
    device: BTreeMap<String, Contract>,
}

/// What may be needed on one kind of device, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Of the experiment that it was made of.
    pub fingerprint: String,
    pub steps: u64,
    pub heap_peak: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_peak: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_reserved_peak: Option<u64>,
    /// Bytes a step that memory may grow by.
    pub slope: f64,
    pub owners: BTreeMap<String, OwnerContract>,
    /// What is in no buffer, by part of the forecast.
    pub parts: BTreeMap<String, u64>,
}

/// One buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnerContract {
    /// The most that it may hold by its declaration; absent of a leak, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u64>,
    /// The most that it is expected to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<u64>,
    /// The least that it holds at rest between steps; absent of what fills up, and of queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<u64>,
    /// The key that sets the cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Something that is more than the contract allows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    /// A buffer, a part of the forecast, or a total.
    pub what: String,
    /// Which number of it.
    pub of: &'static str,
    /// The key that sets it, where one does.
    pub key: Option<String>,
    /// By the contract; `null` where it knows no such thing.
    pub locked: Option<u64>,
    pub now: u64,
}

impl fmt::Display for Moved {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.as_ref().map_or_else(String::new, |key| format!(" (`{key}`)"));
        let now = Bytes(self.now);
        write!(formatter, "`{}`{key}: {}", self.what, self.of)?;
        match self.locked {
            None => write!(formatter, " is {now}, and the contract knows no such buffer or part"),
            Some(locked) => {
                let more = Bytes(self.now.saturating_sub(locked));
                let part = match locked {
                    0 => String::new(),
                    locked => format!(", {:+.0} %", (self.now as f64 / locked as f64 - 1.0) * 100.0),
                };
                write!(formatter, " was {} by the contract and is {now}: {more} more{part}", Bytes(locked))
            }
        }
    }
}

impl Contracts {
    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn read(text: &str) -> Result<Self, String> {
        let contracts: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if contracts.version != VERSION {
            return Err(format!("`version` is {}, and this program reads {VERSION}", contracts.version));
        }
        let entries = contracts.device.values().map(|one| one.owners.len() + one.parts.len()).sum::<usize>();
        match contracts.device.len() + entries > ENTRIES_MAX {
            true => Err(format!("has more than {ENTRIES_MAX} entries")),
            false => Ok(contracts),
        }
    }

    /// With this contract in place of the one of its kind of device.
    pub fn with(before: Option<Self>, device: &str, contract: Contract) -> Self {
        let mut contracts = before.unwrap_or(Self { version: VERSION, device: BTreeMap::new() });
        contracts.device.insert(device.to_owned(), contract);
        contracts
    }

    /// The contract of a kind of device.
    pub fn of(&self, device: &str) -> Option<&Contract> {
        self.device.get(device)
    }

    /// The kinds of device that it speaks of.
    pub fn devices(&self) -> Vec<&str> {
        self.device.keys().map(String::as_str).collect()
    }

    /// As the file has it, below these lines of comment.
    ///
    /// # Errors
    /// A number that TOML cannot hold.
    pub fn to_toml(&self, about: &str) -> Result<String, String> {
        let text = toml::to_string(self).map_err(|error| error.to_string())?;
        Ok(about.lines().map(|line| format!("# {line}\n")).collect::<String>() + &text)
    }
}

impl Contract {
    /// Of a plan and what it is expected to need.
    pub fn new(plan: &Plan, forecast: &Forecast, fingerprint: String) -> Self {
        let row = |name: &str| forecast.rows.iter().find(|row| row.name == name).map(|row| row.bytes);
        let owners = plan.owners.iter().map(|owner| {
            let floor = forecast.floors.get(&owner.name).copied();
            let cap = (owner.policy != Policy::Leak).then_some(owner.bytes);
            (owner.name.clone(), OwnerContract { cap, peak: row(&owner.name), floor, key: owner.key.clone() })
        });
        let of_owner = |name: &str| plan.owners.iter().any(|owner| owner.name == name);
        let parts = forecast.rows.iter().filter(|row| !of_owner(&row.name));
        Self {
            fingerprint,
            steps: plan.steps,
            heap_peak: forecast.heap_peak,
            resident_peak: forecast.resident_peak,
            device_reserved_peak: forecast.device_reserved_peak,
            slope: plan.experiment.memory.growth_min.0 as f64 / plan.steps.max(1) as f64,
            owners: owners.collect(),
            parts: parts.map(|row| (row.name.clone(), row.bytes)).collect(),
        }
    }

    /// What an experiment is expected to need beyond this, buffers first.
    pub fn broken_by(&self, now: &Self) -> Vec<Moved> {
        let mut moved = Vec::new();
        for (name, owner) in &now.owners {
            let mut more = |of, locked: Option<u64>, now: Option<u64>, allowed: u64| {
                let Some(now) = now else { return };
                let breaks = locked.is_none_or(|locked| now > locked.saturating_add(allowed));
                if breaks {
                    moved.push(Moved { what: name.clone(), of, key: owner.key.clone(), locked, now });
                }
            };
            let Some(locked) = self.owners.get(name) else {
                let (of, bytes) = if owner.cap.is_some() { ("its cap", owner.cap) } else { ("its peak", owner.peak) };
                more(of, None, bytes.or(Some(0)), 0);
                continue;
            };
            more("its cap", locked.cap, owner.cap, 0);
            if let Some(peak) = locked.peak {
                more("its peak", locked.peak, owner.peak, allowed(peak, ALLOWED_OF_OWNER));
            }
            if let Some(floor) = locked.floor {
                more(FLOOR, locked.floor, owner.floor, allowed(floor, ALLOWED_OF_OWNER));
            }
        }
        // A buffer that is larger explains a total that is.
        if moved.is_empty() {
            let part = |(name, now): (&String, &u64)| {
                let locked = self.parts.get(name).copied();
                let limit = locked.unwrap_or(0).saturating_add(allowed(locked.unwrap_or(0), ALLOWED_OF_PART));
                (*now > limit).then(|| Moved { what: name.clone(), of: "it", key: None, locked, now: *now })
            };
            moved.extend(now.parts.iter().filter_map(part));
        }
        if moved.is_empty() {
            moved.extend(total("heap in use", Some(self.heap_peak), Some(now.heap_peak)));
            moved.extend(total("resident memory", self.resident_peak, now.resident_peak));
            moved.extend(total("device memory reserved", self.device_reserved_peak, now.device_reserved_peak));
        }
        moved
    }

    /// What a run came to need beyond this.
    pub fn broken_by_run(&self, summary: &Summary, verdict: Option<&Verdict>) -> Vec<String> {
        let more = |owner: &OwnerSummary| {
            let locked = self.owners.get(&owner.name);
            let limit = locked.and_then(|locked| locked.peak.or(locked.cap));
            let breaks =
                limit.is_none_or(|limit| owner.peak_bytes > limit.saturating_add(allowed(limit, ALLOWED_OF_OWNER)));
            let key = locked.and_then(|locked| locked.key.clone());
            breaks.then(|| Moved {
                what: owner.name.clone(),
                of: "its peak",
                key,
                locked: limit,
                now: owner.peak_bytes,
            })
        };
        let mut moved: Vec<Moved> = summary.owners.iter().filter_map(more).collect();
        for (name, owner) in &self.owners {
            let now = summary.demand.owners.get(name).and_then(|held| held.floor);
            let risen = owner
                .floor
                .zip(now)
                .filter(|(floor, now)| *now > floor.saturating_add(allowed(*floor, ALLOWED_OF_OWNER)));
            moved.extend(risen.map(|(floor, now)| Moved {
                what: name.clone(),
                of: FLOOR,
                key: owner.key.clone(),
                locked: Some(floor),
                now,
            }));
        }
        let memory = &summary.memory;
        if moved.is_empty() {
            moved.extend(total("heap in use", Some(self.heap_peak), Some(memory.heap_peak)));
            moved.extend(total("resident memory", self.resident_peak, memory.resident_peak));
            moved.extend(total("device memory reserved", self.device_reserved_peak, memory.device_reserved_peak));
        }
        let mut said: Vec<String> = moved.iter().map(ToString::to_string).collect();
        said.extend(verdict.and_then(|verdict| self.grows(verdict)));
        said
    }

    /// Memory that is growing faster than the contract allows; the verdict names who holds it.
    fn grows(&self, verdict: &Verdict) -> Option<String> {
        use xrun_results::verdict::Judgement;
        // A series for itself may be a container's, in which others grow.
        if verdict.verdict < Judgement::Growing {
            return None;
        }
        let fastest = verdict
            .series
            .iter()
            .filter(|series| series.unit == "bytes" && series.findings.verdict >= Judgement::Growing);
        let slope = fastest.filter_map(|series| series.findings.slope).max_by(f64::total_cmp)?;
        let allowed = Bytes(self.slope as u64);
        (slope > self.slope)
            .then(|| format!("memory may grow by {allowed} a step by the contract, and {}", verdict.message))
    }
}

fn allowed(bytes: u64, least: u64) -> u64 {
    (bytes / ALLOWED_PART).max(least)
}

fn total(what: &str, locked: Option<u64>, now: Option<u64>) -> Option<Moved> {
    let (locked, now) = locked.zip(now)?;
    let breaks = now > locked.saturating_add(allowed(locked, ALLOWED_OF_TOTAL));
    breaks.then(|| Moved { what: what.to_owned(), of: "its peak", key: None, locked: Some(locked), now })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;

    const MIB: u64 = 1 << 20;

    fn contract(text: &str) -> Contract {
        let forecast = Forecast { heap_peak: 30 * MIB, resident_peak: Some(50 * MIB), ..Forecast::default() };
        Contract::new(&plan_of(&format!("[pipeline.dummy]\n{text}")), &forecast, "ab".into())
    }

    #[test]
    fn each_limit_that_is_doubled_is_told_by_its_buffer_and_its_key() {
        let locked = contract("");
        for (key, value, owners) in [
            ("gradient_norm_window", 100_000, vec!["gradient_norms"]),
            ("metrics_queue", 65536, vec!["memory_lines", "metrics_lines"]),
            ("log_queue", 65536, vec!["log_lines"]),
        ] {
            let moved = locked.broken_by(&contract(&format!("[limits]\n{key} = {value}\n")));
            let names: Vec<&str> = moved.iter().map(|moved| moved.what.as_str()).collect();
            assert_eq!(names, owners, "{key}");
            assert!(moved.iter().all(|moved| moved.key.as_deref() == Some(&format!("limits.{key}"))), "{moved:?}");
        }
    }

    #[test]
    fn the_same_and_less_break_nothing_and_a_leak_is_a_buffer_that_nobody_knows() {
        let locked = contract("");
        assert_eq!(locked.broken_by(&contract("")), []);
        assert_eq!(locked.broken_by(&contract("[limits]\nlog_queue = 1\n")), []);
        let moved = locked.broken_by(&contract("leak_per_step = \"1 MiB\"\nleak_in_ledger = true\n"));
        assert_eq!((moved.len(), moved[0].what.as_str(), moved[0].locked), (1, "dummy_leak", None));
    }

    #[test]
    fn a_buffer_that_keeps_at_rest_what_it_gave_back_is_told_though_its_peak_is_the_same() {
        let name = contract("").owners.into_keys().next().unwrap();
        let with = |floor: u64| {
            let forecast = Forecast { floors: [(name.clone(), floor)].into(), ..Forecast::default() };
            Contract::new(&plan_of("[pipeline.dummy]\n"), &forecast, "ab".into())
        };
        assert_eq!(with(0).broken_by(&with(MIB)), []);
        let moved = with(0).broken_by(&with(20 * MIB));
        assert_eq!((moved.len(), moved[0].what.as_str(), moved[0].of), (1, name.as_str(), FLOOR));
        assert_eq!(with(20 * MIB).broken_by(&with(0)), []);
    }

    #[test]
    fn what_is_measured_may_be_off_by_a_little() {
        let locked = contract("");
        let with = |heap_peak| Contract { heap_peak, ..locked.clone() };
        assert_eq!(locked.broken_by(&with(45 * MIB)), []);
        let moved = locked.broken_by(&with(60 * MIB));
        assert_eq!(
            moved[0].to_string(),
            "`heap in use`: its peak was 30.0 MiB by the contract and is 60.0 MiB: 30.0 MiB more, +100 %"
        );
    }

    /// As of a run in which one series grows by 95 MiB a step, and all of it is judged so.
    fn grown(series: &str, all: &str) -> Verdict {
        let findings = serde_json::json!({
            "version": 1, "verdict": all, "message": "words", "axis": "steps", "warm_up": 0, "window": 10,
            "owner": null, "owner_share": null,
            "series": [{
                "name": series, "unit": "bytes", "verdict": "growing", "floors": 9, "growth": 9e7, "slope": 1e8,
                "slope_low": 9e7, "slope_high": 1.1e8, "rise": 4.0, "since": 1, "at_rest": null, "late_slope": null,
                "late_slope_high": null, "more_steps": null, "slope_per_epoch": null, "first": 0.0, "last": 9e7, "peak": 9e7,
                "cap": null, "steps_to_limit": null,
            }],
        });
        serde_json::from_value(findings).unwrap()
    }

    #[test]
    fn only_memory_of_the_run_itself_breaks_it_by_growing() {
        let locked = contract("");
        // Others in the container may grow: the run's own verdict is another.
        assert_eq!(locked.grows(&grown("container", "bounded")), None);
        let said = locked.grows(&grown("heap", "growing"));
        assert!(said.is_some_and(|said| said.ends_with("a step by the contract, and words")));
    }

    #[test]
    fn a_file_reads_as_it_was_written_and_what_is_wrong_has_a_place() {
        let contracts = Contracts::with(None, "cpu", contract(""));
        let text = contracts.to_toml("two\nlines").unwrap();
        assert!(text.starts_with("# two\n# lines\nversion = 1\n"), "{text}");
        assert_eq!(Contracts::read(&text), Ok(contracts));
        for (damaged, part) in [
            (text.replace("version = 1", "version = 9"), "this program reads 1"),
            (text.replace("steps", "stops"), "line"),
            ("version = ".into(), "line 1"),
            (String::new(), "version"),
        ] {
            let error = Contracts::read(&damaged).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
