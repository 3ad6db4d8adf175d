//! Forecasts of the memory of the trials of a sweep, by few probes, in `memory.toml`. Trials that need the same memory share one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use super::probe_group::probe_group;
use super::{SweepMemoryError, read_memory, with_margin, write_memory};
use crate::records::sweep::SweepRecord;
use crate::records::sweep_memory::{AskedSize, SweepMemory, TrialsNeed};
use crate::trials::{RunId, named};
use xrun_core::experiment::{Experiment, read};
use xrun_core::files::layout;
use xrun_core::files::write::WriteError;
use xrun_core::problem::Problems;
use xrun_core::units::{Bytes, pluralize};
use xrun_run::observer::Silent;
use xrun_run::prepare::{Planned, StartError};
use xrun_run::probe::ProbeError;

/// Largest number of probes of a sweep, spread from the trials with the largest buffers to those with the smallest.
const PROBES_MAX: usize = 16;
/// No probe begins after this time.
const PROBING_MAX: Duration = Duration::from_secs(600);

/// Largest number of sizes that Slurm is asked for.
const SIZES_MAX: usize = 4;

/// Trials cannot be forecast.
#[derive(Debug, thiserror::Error)]
pub enum ForecastError {
    /// `memory.toml` is invalid.
    #[error(transparent)]
    Memory(#[from] SweepMemoryError),
    /// `memory.toml` cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// No probe succeeded, or a signal arrived.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The experiment of a trial is invalid now.
    #[error("its experiment is invalid now")]
    Experiment(Problems),
}

/// Forecasts of a sweep. Those of trials that a search chooses later are added.
pub struct Forecasts<'a> {
    sweep: &'a Path,
    /// Known sizes, and the request to Slurm.
    pub memory: SweepMemory,
    report: Box<dyn Fn(&str) + 'a>,
}

/// Trials with one forecast: they differ in nothing that memory depends on but their length. The longest comes first.
struct Group {
    trials: Vec<u64>,
    /// Experiment of the longest trial, and its settings, for the probe.
    experiment: Experiment,
    overrides: Vec<String>,
    /// Bytes of all buffers, or the reason why there is no plan.
    bytes: Result<u64, String>,
}

impl<'a> Forecasts<'a> {
    /// The forecasts of `memory.toml`, or else those made now by probes and written there; with sizes where Slurm is asked for
    /// them. Sizes that were written by hand need no forecasts. `advice` ends the error where no probe succeeds.
    ///
    /// # Errors
    /// `memory.toml` is invalid, no probe succeeds, or a signal arrives.
    pub fn open(
        sweep: &'a Path,
        record: &SweepRecord,
        for_slurm: bool,
        advice: &str,
        report: impl Fn(&str) + 'a,
    ) -> Result<Self, ForecastError> {
        let memory = read_memory(sweep)?.unwrap_or_default();
        let mut forecasts = Self { sweep, memory, report: Box::new(report) };
        if for_slurm && !forecasts.memory.sizes.is_empty() {
            return Ok(forecasts);
        }
        if forecasts.memory.forecasts.is_empty() {
            forecasts.memory.forecasts = forecasts.all(record, advice)?;
            write_memory(sweep, &forecasts.memory)?;
        }
        if for_slurm {
            forecasts.memory.sizes = asked_sizes(&forecasts.memory, record);
            write_memory(sweep, &forecasts.memory)?;
        }
        Ok(forecasts)
    }

    /// Adds the forecast of a trial that has none: that of its group, or by a probe, which takes seconds to minutes, or else the
    /// largest known one. After a signal there is none, since no run starts.
    pub fn add(&mut self, record: &SweepRecord, trial: u64) {
        // Sizes may be written by hand, without forecasts.
        if self.memory.forecasts.is_empty() || self.memory.has_forecast(trial) {
            return;
        }
        let need = match self.of_new(record, trial) {
            Ok(need) => need,
            Err(ForecastError::Start(StartError::Interrupted(_))) => return,
            Err(error) => TrialsNeed::unknown(vec![trial], error.to_string()),
        };
        let mut new = [need];
        self.use_largest(&mut new, &self.memory.forecasts);
        let [need] = new;
        self.memory.add(need);
        if let Err(error) = write_memory(self.sweep, &self.memory) {
            (self.report)(&format!("{error}; a resume will forecast trial {trial} again"));
        }
    }

    fn of_new(&self, record: &SweepRecord, trial: u64) -> Result<TrialsNeed, ForecastError> {
        let group = |trial| Ok::<_, ForecastError>(probe_group(&self.experiment(record, trial)?.0));
        let own = group(trial)?;
        let probed = || self.memory.forecasts.iter().filter(|need| need.probed.is_some());
        let there = 1..=record.trials.len() as u64;
        for need in probed() {
            if let Some(first) = need.trials.first().filter(|first| there.contains(first))
                && group(*first)? == own
            {
                return Ok(TrialsNeed { trials: vec![trial], ..need.clone() });
            }
        }
        let groups = self.groups(record, trial..=trial)?;
        let needs = self.probe(groups, PROBES_MAX.saturating_sub(probed().count()))?;
        Ok(needs.into_iter().next().unwrap_or_else(|| TrialsNeed::unknown(vec![trial], String::new())))
    }

    fn all(&self, record: &SweepRecord, advice: &str) -> Result<Vec<TrialsNeed>, ForecastError> {
        let groups = self.groups(record, 1..=record.trials.len() as u64)?;
        let probes = pluralize(groups.len().min(PROBES_MAX) as u64, "probe");
        let trials = pluralize(record.trials.len() as u64, "trial");
        let limit =
            if groups.len() > PROBES_MAX { format!(", where {} would be needed", groups.len()) } else { String::new() };
        (self.report)(&format!("measuring memory: {probes} for {trials}{limit}"));
        let mut needs = self.probe(groups, PROBES_MAX)?;
        let known: Vec<TrialsNeed> = needs.iter().filter(|need| need.probed.is_some()).cloned().collect();
        let Some(largest) = known.iter().map(|need| need.host).max() else {
            let why = needs.into_iter().find_map(|need| need.because).unwrap_or_else(|| "there is no trial".into());
            return Err(StartError::Failed(format!("the memory of a run cannot be forecast: {why}; {advice}")).into());
        };
        self.use_largest(&mut needs, &known);
        let least = needs.iter().map(|need| need.host).min().filter(|least| *least != largest);
        let from = least.map_or_else(String::new, |least| format!("{least} to "));
        (self.report)(&format!("memory forecast of a run: {from}{largest}"));
        Ok(needs)
    }

    /// Gives the largest known forecasts to trials without one.
    fn use_largest(&self, needs: &mut [TrialsNeed], known: &[TrialsNeed]) {
        let host = known.iter().map(|need| need.host).max().unwrap_or_default();
        let device = known.iter().filter_map(|need| need.device).max();
        for need in needs.iter_mut().filter(|need| need.probed.is_none()) {
            (need.host, need.device) = (host, device);
            let (trials, because) = (named(&need.trials), need.because.as_deref().unwrap_or_default());
            (self.report)(&format!("{trials}: no forecast, because {because}; using the largest known one, {host}"));
        }
    }

    /// The experiment of a trial, and its settings that differ from the base.
    fn experiment(&self, record: &SweepRecord, trial: u64) -> Result<(Experiment, Vec<String>), ForecastError> {
        let overrides = record.overrides(RunId { trial, repeat: 1 });
        let read =
            read::read_resolved(&self.sweep.join(layout::BASE), &overrides).map_err(ForecastError::Experiment)?;
        Ok((read.experiment, overrides))
    }

    /// Groups of trials that share a probe, the largest buffers first.
    fn groups(&self, record: &SweepRecord, trials: RangeInclusive<u64>) -> Result<Vec<Group>, ForecastError> {
        let length =
            |experiment: &Experiment| (experiment.training.max_steps.unwrap_or(u64::MAX), experiment.training.epochs);
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for trial in trials {
            let (experiment, overrides) = self.experiment(record, trial)?;
            let key = probe_group(&experiment);
            match groups.get_mut(&key) {
                Some(group) if length(&experiment) > length(&group.experiment) => {
                    group.trials.insert(0, trial);
                    (group.experiment, group.overrides) = (experiment, overrides);
                }
                Some(group) => group.trials.push(trial),
                None => _ = groups.insert(key, Group { trials: vec![trial], experiment, overrides, bytes: Ok(0) }),
            }
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        for group in &mut groups {
            let planned = unless_stopped(Planned::new(group.experiment.clone(), Silent))?;
            let all =
                |planned: Planned| planned.plan.owners.iter().fold(0, |sum: u64, one| sum.saturating_add(one.bytes));
            group.bytes = planned.map(all);
        }
        groups.sort_by_key(|group| (Reverse(group.bytes.clone().unwrap_or_default()), group.trials[0]));
        Ok(groups)
    }

    /// The needs of all trials of the groups; without bytes where there is no probe.
    fn probe(&self, groups: Vec<Group>, probes_max: usize) -> Result<Vec<TrialsNeed>, ForecastError> {
        let chosen = spread_evenly(groups.len(), probes_max);
        let (begun, mut needs) = (Instant::now(), Vec::new());
        for (at, group) in groups.into_iter().enumerate() {
            let measured = match &group.bytes {
                Err(because) => Err(because.clone()),
                Ok(_) if !chosen.contains(&at) => Err(format!("a sweep has at most {PROBES_MAX} probes")),
                Ok(_) if begun.elapsed() > PROBING_MAX => Err("the probes before it took too long".into()),
                Ok(_) => unless_stopped(self.measured(&group))?,
            };
            let (trials, probed) = (group.trials.clone(), Some(group.trials[0]));
            needs.push(match measured {
                Ok((host, device)) => TrialsNeed { host, device, probed, because: None, trials },
                Err(because) => TrialsNeed::unknown(trials, because),
            });
        }
        Ok(needs)
    }

    /// Memory of the host and of the device that the longest trial of a group needs, by a probe.
    fn measured(&self, group: &Group) -> Result<(Bytes, Option<Bytes>), StartError> {
        let planned = Planned::new(group.experiment.clone(), Silent)?;
        let probe = planned.probe(&self.sweep.join(layout::BASE), &group.overrides).map_err(|error| match error {
            ProbeError::Stopped => StartError::Interrupted(error.to_string()),
            _ => StartError::failed(error),
        })?;
        let forecast = planned.forecast_from(&probe);
        let device = forecast.device_peak.or(forecast.device_reserved_peak);
        Ok((Bytes(forecast.rss_peak.unwrap_or(forecast.heap_peak)), device.map(Bytes)))
    }
}

/// The result, or the reason of a failure that concerns this trial only.
fn unless_stopped<T>(result: Result<T, StartError>) -> Result<Result<T, String>, StartError> {
    match result {
        Err(stopped @ StartError::Interrupted(_)) => Err(stopped),
        result => Ok(result.map_err(|error| error.to_string())),
    }
}

/// The sizes that Slurm is asked for. Each is a job array, so there are few: a size is at most half of the next larger one.
fn asked_sizes(memory: &SweepMemory, record: &SweepRecord) -> Vec<AskedSize> {
    let needed = |trial: u64| with_margin(memory.forecast(trial).map_or(0, |need| need.host.0));
    let mut needs: Vec<(u64, u64)> = (1..=record.trials.len() as u64).map(|trial| (needed(trial), trial)).collect();
    needs.sort_unstable_by_key(|(bytes, trial)| (Reverse(*bytes), *trial));
    let mut sizes: Vec<AskedSize> = Vec::new();
    for (bytes, trial) in needs {
        let is_last = sizes.len() == SIZES_MAX;
        match sizes.last_mut() {
            Some(size) if is_last || bytes > size.memory.0 / 2 => size.trials.push(trial),
            _ => sizes.push(AskedSize { memory: Bytes(bytes), trials: vec![trial] }),
        }
    }
    sizes.iter_mut().for_each(|size| size.trials.sort_unstable());
    sizes.reverse();
    sizes
}

/// Indices of at most `most` of `count` items, spread evenly from the first to the last.
fn spread_evenly(count: usize, most: usize) -> Vec<usize> {
    match most {
        _ if count <= most => (0..count).collect(),
        0 | 1 => (0..most).collect(),
        _ => (0..most).map(|at| at * (count - 1) / (most - 1)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_spread_from_the_first_to_the_last() {
        assert_eq!(spread_evenly(3, 16), [0, 1, 2]);
        assert_eq!(spread_evenly(100, 4), [0, 33, 66, 99]);
        assert_eq!((spread_evenly(0, 4), spread_evenly(1, 0)), (vec![], vec![]));
    }
}
