//! Memory forecasts of the trials of a sweep, by few probes: trials that need the same memory share one.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use super::terminal::{Failure, Terminal};
use crate::experiment::{Experiment, read};
use crate::files::layout;
use crate::probe::{Probe, ProbeError};
use crate::results::format::VERSION;
use crate::run::prepare::{Planned, StartError};
use crate::sweep::records::sweep::SweepRecord;
use crate::sweep::records::sweep_memory::{AskedSize, SweepMemory, TrialsNeed};
use crate::sweep::resources::probe_group::ProbeGroup;
use crate::sweep::resources::{read_memory, sizes, with_margin, write_memory};
use crate::sweep::trials::RunId;
use crate::units::{Bytes, pluralize};

/// Largest number of probes of a sweep, spread from the trials with the largest buffers to those with the smallest.
const PROBES_MAX: usize = 16;
/// No probe begins after this time.
const PROBING_MAX: Duration = Duration::from_secs(600);

/// Trials with one forecast: they differ in nothing that memory depends on.
struct ForecastGroup {
    trials: Vec<u64>,
    experiment: Experiment,
    /// Settings of the first trial, for the probe.
    overrides: Vec<String>,
    steps: u64,
    buffers: u64,
}

/// Trials that share a probe.
struct ProbedGroup {
    same: Vec<ForecastGroup>,
    probe: Option<(u64, Probe)>,
    /// Reason why there is no probe.
    because: Option<String>,
}

/// The forecasts of a sweep, from `memory.toml`, or made now and written there. `advice` is for an error.
pub fn forecasts(sweep: &Path, record: &SweepRecord, advice: &str, terminal: Terminal) -> Result<SweepMemory, Failure> {
    match read_memory(sweep).map_err(Failure::failed)? {
        Some(memory) if !memory.forecasts.is_empty() => Ok(memory),
        // Sizes written by hand, without forecasts.
        found => {
            let forecasts = forecast(sweep, record, advice, terminal)?;
            let sizes = found.map(|memory| memory.sizes).unwrap_or_default();
            let memory = SweepMemory { version: VERSION, sizes, forecasts };
            write_memory(sweep, &memory).map_err(Failure::failed)?;
            Ok(memory)
        }
    }
}

/// The forecasts of a sweep with the sizes that Slurm is asked for.
pub fn with_sizes(
    sweep: &Path,
    record: &SweepRecord,
    advice: &str,
    terminal: Terminal,
) -> Result<SweepMemory, Failure> {
    if let Some(memory) = read_memory(sweep).map_err(Failure::failed)?.filter(|memory| !memory.sizes.is_empty()) {
        return Ok(memory);
    }
    let mut memory = forecasts(sweep, record, advice, terminal)?;
    let asked = |trial: u64| memory.forecast(trial).map_or(0, |need| with_margin(need.host.0));
    // A search runs each trial once, also those that it has not chosen yet.
    let runs = |trial: u64| record.order.iter().filter(|[of, _]| *of == trial).count().max(1) as u64;
    let trials = 1..=record.trials.len() as u64;
    let needs: Vec<(u64, u64)> = trials.clone().map(|trial| (asked(trial), runs(trial))).collect();
    let sizes = sizes::sizes(&needs);
    let mut by_size: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (trial, (asked, _)) in trials.zip(&needs) {
        by_size.entry(sizes::size_of(&sizes, *asked).unwrap_or(*asked)).or_default().push(trial);
    }
    memory.sizes = by_size.into_iter().map(|(memory, trials)| AskedSize { memory: Bytes(memory), trials }).collect();
    write_memory(sweep, &memory).map_err(Failure::failed)?;
    Ok(memory)
}

/// The sizes as text: `2.0 GiB for 1 trial, 300 MiB for 7 trials`.
pub fn sizes_as_text(memory: &SweepMemory) -> String {
    let words = |size: &AskedSize| format!("{} for {}", size.memory, pluralize(size.trials.len() as u64, "trial"));
    memory.sizes.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// The forecast of a new trial: that of its probe group, or by a probe, or else the largest known one. `None` after a signal.
pub fn of_trial(sweep: &Path, known: &SweepMemory, trial: u64, terminal: Terminal) -> Option<TrialsNeed> {
    let silent = Terminal { quiet: true, verbose: false, ..terminal };
    let found = SweepRecord::read(sweep)
        .map_err(Failure::failed)
        .and_then(|record| try_trial(&sweep.join(layout::BASE), &record, known, trial, silent));
    let because = match found {
        Ok(Some(need)) => return Some(need),
        Err(Failure::Interrupted(_)) => return None,
        Ok(None) => format!("a sweep has at most {PROBES_MAX} probes"),
        Err(Failure::Failed(why) | Failure::Usage(why) | Failure::OutOfMemory(why) | Failure::DoesNotFit(why)) => why,
        Err(Failure::Problems(_)) => "its experiment is invalid now".into(),
    };
    let largest = known.forecasts.iter().max_by_key(|need| need.host.0)?;
    terminal.info(&no_forecast(&[trial], &because, largest.host));
    Some(TrialsNeed { probed: None, because: Some(because), trials: vec![trial], ..largest.clone() })
}

/// The forecast of its group, or by a probe; `None` where there were enough probes.
fn try_trial(
    base: &Path,
    record: &SweepRecord,
    known: &SweepMemory,
    trial: u64,
    silent: Terminal,
) -> Result<Option<TrialsNeed>, Failure> {
    let kind = |trial: u64| -> Result<String, Failure> {
        let overrides = record.overrides(RunId { trial, repeat: 1 });
        Ok(ProbeGroup::new(&read::read_resolved(base, &overrides)?.experiment).forecast)
    };
    let this = kind(trial)?;
    let there = 1..=record.trials.len() as u64;
    for need in known.forecasts.iter().filter(|need| need.probed.is_some()) {
        if let Some(first) = need.trials.first().filter(|first| there.contains(first))
            && kind(*first)? == this
        {
            return Ok(Some(TrialsNeed { trials: vec![trial], ..need.clone() }));
        }
    }
    if known.forecasts.iter().filter(|need| need.probed.is_some()).count() >= PROBES_MAX {
        return Ok(None);
    }
    let mut groups = groups(base, record, trial..=trial, silent)?;
    let Some(group) = groups.first_mut() else { return Ok(None) };
    probe(group, base, silent)?;
    match (&group.because, group.same.first()) {
        (Some(because), _) => Err(Failure::Failed(because.clone())),
        (None, same) => Ok(same.map(|same| need_of(same, group, silent))),
    }
}

/// Adds the forecast of a trial, and its size where the sweep was submitted.
pub fn add(memory: &mut SweepMemory, need: TrialsNeed) {
    let asked = Bytes(with_margin(need.host.0));
    if !memory.sizes.is_empty() {
        match memory.sizes.iter_mut().find(|size| size.memory == asked) {
            Some(size) => size.trials.extend(&need.trials),
            None => memory.sizes.push(AskedSize { memory: asked, trials: need.trials.clone() }),
        }
    }
    let same = |known: &&mut TrialsNeed| TrialsNeed { trials: need.trials.clone(), ..(**known).clone() } == need;
    match memory.forecasts.iter_mut().find(same) {
        Some(known) => known.trials.extend(&need.trials),
        None => memory.forecasts.push(need),
    }
}

/// `trial 3: no forecast of its own: …`
fn no_forecast(trials: &[u64], because: &str, largest: Bytes) -> String {
    let these = trials_as_text(trials);
    format!("{these}: no forecast, because {because}; using the largest known one, {largest}")
}

fn forecast(sweep: &Path, record: &SweepRecord, advice: &str, terminal: Terminal) -> Result<Vec<TrialsNeed>, Failure> {
    let base = sweep.join(layout::BASE);
    // Warnings on the data were reported when the trials were checked.
    let silent = Terminal { quiet: true, verbose: false, ..terminal };
    let mut groups = groups(&base, record, 1..=record.trials.len() as u64, silent)?;
    let chosen = spread_evenly(groups.len(), PROBES_MAX);
    let trials = pluralize(record.trials.len() as u64, "trial");
    let limit =
        if groups.len() > PROBES_MAX { format!(", where {} would be needed", groups.len()) } else { String::new() };
    terminal.info(&format!("measuring memory: {} for {trials}{limit}", pluralize(chosen.len() as u64, "probe")));
    let begun = Instant::now();
    for (at, group) in groups.iter_mut().enumerate() {
        if !chosen.contains(&at) {
            group.because = Some(format!("a sweep has at most {PROBES_MAX} probes"));
        } else if begun.elapsed() > PROBING_MAX {
            group.because = Some("the probes before it took too long".into());
        } else {
            probe(group, &base, silent)?;
        }
    }
    let mut forecasts = Vec::new();
    for group in &groups {
        for same in &group.same {
            forecasts.push(need_of(same, group, silent));
        }
    }
    let Some(largest) = forecasts.iter().filter(|need| need.probed.is_some()).max_by_key(|need| need.host.0).cloned()
    else {
        let why = groups.iter().find_map(|group| group.because.clone()).unwrap_or_else(|| "there is no trial".into());
        return Err(Failure::Failed(format!("the memory of a run cannot be forecast: {why}; {advice}")));
    };
    let device = forecasts.iter().filter_map(|need| need.device).max_by_key(|bytes| bytes.0);
    for need in forecasts.iter_mut().filter(|need| need.probed.is_none()) {
        (need.host, need.device) = (largest.host, device);
        let because = need.because.as_deref().unwrap_or("no probe was made");
        terminal.info(&no_forecast(&need.trials, because, need.host));
    }
    let least = forecasts.iter().map(|need| need.host.0).min().unwrap_or_default();
    let words = if least == largest.host.0 { String::new() } else { format!("{} to ", Bytes(least)) };
    terminal.info(&format!("memory forecast of a run: {words}{}", largest.host));
    Ok(forecasts)
}

/// `trial 3`, `trials 3, 4, 5, 6 and 7 more`
fn trials_as_text(trials: &[u64]) -> String {
    const NAMED: usize = 4;
    let named: Vec<String> = trials.iter().take(NAMED).map(u64::to_string).collect();
    let more = trials.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} {}{more}", if trials.len() == 1 { "trial" } else { "trials" }, named.join(", "))
}

/// The probe groups, the largest buffers first.
fn groups(
    base: &Path,
    record: &SweepRecord,
    trials: RangeInclusive<u64>,
    silent: Terminal,
) -> Result<Vec<ProbedGroup>, Failure> {
    let mut groups: BTreeMap<String, BTreeMap<String, ForecastGroup>> = BTreeMap::new();
    for trial in trials {
        let overrides = record.overrides(RunId { trial, repeat: 1 });
        let experiment = read::read_resolved(base, &overrides)?.experiment;
        let group = ProbeGroup::new(&experiment);
        let same = groups.entry(group.probe).or_default().entry(group.forecast);
        same.or_insert_with(|| ForecastGroup { trials: Vec::new(), experiment, overrides, steps: 0, buffers: 0 })
            .trials
            .push(trial);
    }
    let mut groups: Vec<ProbedGroup> = groups
        .into_values()
        .map(|same| ProbedGroup { same: same.into_values().collect(), probe: None, because: None })
        .collect();
    for group in &mut groups {
        for same in &mut group.same {
            match Planned::new(same.experiment.clone(), silent) {
                Ok(planned) => {
                    same.steps = planned.plan.steps;
                    same.buffers = planned.plan.owners.iter().map(|owner| owner.bytes).fold(0, u64::saturating_add);
                }
                Err(stopped @ StartError::Interrupted(_)) => return Err(stopped.into()),
                Err(error) => group.because = Some(error.to_string()),
            }
        }
        // The longest is probed: the probe of a short one is shorter, too.
        group.same.sort_by_key(|same| std::cmp::Reverse((same.steps, same.buffers)));
    }
    let buffers = |group: &ProbedGroup| group.same.iter().map(|same| same.buffers).max();
    groups.sort_by_key(|group| {
        (std::cmp::Reverse(buffers(group)), group.same.first().and_then(|same| same.trials.first().copied()))
    });
    Ok(groups)
}

/// Indices of at most `most` of `count` items, spread evenly from the first to the last.
fn spread_evenly(count: usize, most: usize) -> Vec<usize> {
    if count <= most {
        return (0..count).collect();
    }
    (0..most).map(|at| at * (count - 1) / (most - 1)).collect()
}

fn probe(group: &mut ProbedGroup, base: &Path, silent: Terminal) -> Result<(), Failure> {
    if group.because.is_some() {
        return Ok(());
    }
    let Some(same) = group.same.first() else { return Ok(()) };
    let Some(&trial) = same.trials.first() else { return Ok(()) };
    let probed = match Planned::new(same.experiment.clone(), silent) {
        Ok(planned) => planned.probe(base, &same.overrides),
        Err(stopped @ StartError::Interrupted(_)) => return Err(stopped.into()),
        Err(error) => {
            group.because = Some(error.to_string());
            return Ok(());
        }
    };
    match probed {
        Ok(probe) => group.probe = Some((trial, probe)),
        Err(error @ ProbeError::Stopped) => return Err(error.into()),
        Err(error) => group.because = Some(error.to_string()),
    }
    Ok(())
}

fn need_of(same: &ForecastGroup, group: &ProbedGroup, silent: Terminal) -> TrialsNeed {
    let forecast = group.probe.as_ref().and_then(|(trial, probe)| {
        let planned = Planned::new(same.experiment.clone(), silent).ok()?;
        Some((*trial, planned.forecast_from(probe)))
    });
    let trials = same.trials.clone();
    let Some((trial, forecast)) = forecast else {
        return TrialsNeed { host: Bytes(0), device: None, probed: None, because: group.because.clone(), trials };
    };
    TrialsNeed {
        host: Bytes(forecast.rss_peak.unwrap_or(forecast.heap_peak)),
        device: forecast.device_peak.or(forecast.device_reserved_peak).map(Bytes),
        probed: Some(trial),
        because: None,
        trials,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_spread_from_the_first_to_the_last() {
        assert_eq!(spread_evenly(3, 16), [0, 1, 2]);
        assert_eq!(spread_evenly(100, 4), [0, 33, 66, 99]);
        assert_eq!(spread_evenly(0, 4), [0; 0]);
    }

    #[test]
    fn many_trials_are_abbreviated() {
        assert_eq!(trials_as_text(&[7]), "trial 7");
        assert_eq!(trials_as_text(&[1, 2, 3, 4, 5, 6]), "trials 1, 2, 3, 4 and 2 more");
    }
}
