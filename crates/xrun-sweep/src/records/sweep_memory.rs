//! `memory.toml` of a sweep: forecasts of memory, and the sizes that Slurm is asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resources::with_margin;
use xrun_core::units::{Bytes, pluralize};
use xrun_results::format::VERSION;

/// Forecast memory of the trials of a sweep, by probes before the first run. Sizes may be edited: a resume reads them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepMemory {
    /// The version of this record's format.
    pub version: u32,
    /// Sizes that Slurm is asked for (`--mem`), ascending; empty where the sweep was not submitted.
    #[serde(default)]
    pub sizes: Vec<AskedSize>,
    /// Forecasts. Each trial is in one of them.
    #[serde(default)]
    pub forecasts: Vec<TrialsNeed>,
}

/// Memory that Slurm is asked for, for each run of these trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskedSize {
    /// Memory of one run.
    pub memory: Bytes,
    /// Numbers of the trials, from 1.
    pub trials: Vec<u64>,
}

/// Trials with one forecast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialsNeed {
    /// Peak RSS of a run.
    pub host: Bytes,
    /// Peak of device memory; absent where it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Bytes>,
    /// The trial that was probed; absent where none was, and the largest known forecast is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probed: Option<u64>,
    /// Message with the reason why there was no probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Numbers of the trials, from 1.
    pub trials: Vec<u64>,
}

impl Default for SweepMemory {
    fn default() -> Self {
        Self { version: VERSION, sizes: Vec::new(), forecasts: Vec::new() }
    }
}

impl TrialsNeed {
    /// Trials without a forecast, and the reason.
    pub fn unknown(trials: Vec<u64>, because: String) -> Self {
        Self { host: Bytes(0), device: None, probed: None, because: Some(because), trials }
    }
}

impl SweepMemory {
    /// Adds a forecast, and its size where the sweep was submitted.
    pub fn add(&mut self, need: TrialsNeed) {
        let asked = Bytes(with_margin(need.host.0));
        if !self.sizes.is_empty() {
            match self.sizes.iter_mut().find(|size| size.memory == asked) {
                Some(size) => size.trials.extend(&need.trials),
                None => self.sizes.push(AskedSize { memory: asked, trials: need.trials.clone() }),
            }
        }
        let same = |known: &&mut TrialsNeed| TrialsNeed { trials: need.trials.clone(), ..(**known).clone() } == need;
        match self.forecasts.iter_mut().find(same) {
            Some(known) => known.trials.extend(&need.trials),
            None => self.forecasts.push(need),
        }
    }

    /// The sizes as text: `2.0 GiB for 1 trial, 300 MiB for 7 trials`.
    pub fn sizes_as_text(&self) -> String {
        let words = |size: &AskedSize| format!("{} for {}", size.memory, pluralize(size.trials.len() as u64, "trial"));
        self.sizes.iter().map(words).collect::<Vec<_>>().join(", ")
    }

    /// Returns whether a trial has a forecast of its own.
    pub fn has_forecast(&self, trial: u64) -> bool {
        self.forecasts.iter().any(|need| need.trials.contains(&trial))
    }

    /// The forecast of a trial; the largest for a trial that is not listed. `None` without forecasts.
    pub fn forecast(&self, trial: u64) -> Option<&TrialsNeed> {
        let own = self.forecasts.iter().find(|need| need.trials.contains(&trial));
        own.or_else(|| self.forecasts.iter().max_by_key(|need| need.host.0))
    }

    /// Memory that Slurm is asked for, for a run of a trial; the largest size for a trial that is not listed. `None` without
    /// sizes.
    pub fn size(&self, trial: u64) -> Option<Bytes> {
        let listed = self.sizes.iter().filter(|size| size.trials.contains(&trial)).map(|size| size.memory.0).max();
        listed.or_else(|| self.sizes.iter().map(|size| size.memory.0).max()).map(Bytes)
    }

    /// Returns why the record is invalid; `None` where it is valid.
    pub fn invalid_reason(&self) -> Option<&'static str> {
        let sizes = self.sizes.iter().map(|size| size.memory.0);
        let mut bytes = sizes.chain(self.forecasts.iter().map(|need| need.host.0));
        let trials = self.sizes.iter().map(|size| &size.trials).chain(self.forecasts.iter().map(|need| &need.trials));
        if bytes.any(|bytes| bytes == 0) {
            return Some("a run needs more memory than 0");
        }
        trials.flatten().any(|trial| *trial == 0).then_some("trials are counted from 1")
    }
}
