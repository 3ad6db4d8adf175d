//! `--jobs`: the number of runs at once on this machine, fixed or as many as fit.

use std::path::Path;
use std::str::FromStr;

use super::terminal::{Failure, Terminal};
use crate::bounded::planned::MemoryKind;
use crate::device::{self, DeviceKind};
use crate::experiment::read;
use crate::files::layout;
use crate::plan::fit::{self, MemoryBudget};
use crate::settings::sections::Limits;
use crate::sweep::launcher::Launcher;
use crate::sweep::local::Local;
use crate::sweep::records::sweep::SweepRecord;
use crate::sweep::resources::co_schedule::Budget;
use crate::sweep::resources::forecasts::Forecasts;
use crate::sweep::schedule::Options;
use crate::sweep::search::with_known_trials;
use crate::units::{Bytes, pluralize};

/// Largest number of runs at once.
const JOBS_MAX: u16 = 256;
/// Reserve of free memory for other processes: a sixteenth, and at least this number of bytes.
const RESERVE_FRACTION: u64 = 16;
const RESERVE_MIN: u64 = 256 << 20;

/// Runs at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobLimit {
    /// As many as fit by their forecasts.
    Auto,
    Count(u16),
}

impl FromStr for JobLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let count = text.parse().ok().filter(|count| (1..=JOBS_MAX).contains(count));
        count.map(Self::Count).ok_or_else(|| format!("expected a number from 1 to {JOBS_MAX}, or `auto`"))
    }
}

/// The launcher for this machine. Reports the number of runs at once.
pub fn launcher<'a>(
    sweep: &'a Path,
    record: &SweepRecord,
    options: Options,
    jobs: JobLimit,
    terminal: Terminal,
) -> Result<Box<dyn Launcher + 'a>, Failure> {
    let count = match jobs {
        JobLimit::Auto => {
            let known = with_known_trials(record);
            let advice = "write --jobs N in place of --jobs auto";
            let forecasts = Forecasts::open(sweep, &known, false, advice, move |text| terminal.info(text))?;
            let budget = budget(sweep, &known, terminal)?;
            return Ok(Box::new(Local::co_scheduled(sweep, options, budget, forecasts).map_err(Failure::failed)?));
        }
        JobLimit::Count(count) => count,
    };
    if count > 1 {
        terminal.info(&format!("{count} runs share the machine: each is slower than one alone"));
    }
    Ok(Box::new(Local::new(sweep, options, count.into()).map_err(Failure::failed)?))
}

fn budget(sweep: &Path, record: &SweepRecord, terminal: Terminal) -> Result<Budget, Failure> {
    let device = free_on_device(sweep, record)?;
    let rooms = fit::memory_budgets(&Limits::default(), device);
    let tightest = |place: MemoryKind| rooms.iter().filter(|room| room.place == place).min_by_key(|room| room.bytes);
    let host = tightest(MemoryKind::Host);
    let budget = Budget {
        processors: std::thread::available_parallelism().map_or(1, usize::from).min(JOBS_MAX.into()),
        // An unknown size is no limit.
        host: host.map_or(u64::MAX, |room| less_reserve(room.bytes)),
        device: tightest(MemoryKind::Device).map(|room| less_reserve(room.bytes)),
    };
    let because = match host {
        Some(MemoryBudget { because, .. }) => {
            format!(" while their forecasts fit into {} of memory ({because}, less a reserve)", Bytes(budget.host))
        }
        None => "; the free memory is not known".to_owned(),
    };
    let on_device = budget.device.map_or_else(String::new, |bytes| format!(" and {} of the device", Bytes(bytes)));
    terminal.info(&format!(
        "--jobs auto: up to {} at once{because}{on_device}",
        pluralize(budget.processors as u64, "run")
    ));
    Ok(budget)
}

fn less_reserve(bytes: u64) -> u64 {
    bytes.saturating_sub((bytes / RESERVE_FRACTION).max(RESERVE_MIN))
}

/// Device of the experiment that the trials vary.
pub fn base_device(sweep: &Path) -> Result<String, Failure> {
    Ok(read::read_resolved(&sweep.join(layout::BASE), &[])?.experiment.experiment.device)
}

/// Devices of the trials, in their order; `base` is that of the experiment, where none is swept.
pub fn devices(record: &SweepRecord, base: impl FnOnce() -> Result<String, Failure>) -> Result<Vec<String>, Failure> {
    let swept = record.keys.iter().position(|key| key == "experiment.device");
    Ok(match swept {
        Some(at) => record.trials.iter().filter_map(|trial| trial[at].as_str().map(str::to_owned)).collect(),
        None => vec![base()?],
    })
}

/// Free bytes of the device that the runs use, the minimum of several; `None` without one.
fn free_on_device(sweep: &Path, record: &SweepRecord) -> Result<Option<u64>, Failure> {
    let mut devices = devices(record, || base_device(sweep))?;
    devices.sort_unstable();
    devices.dedup();
    let chosen = devices.iter().filter_map(|device| device::select(device).ok());
    Ok(chosen.filter(|chosen| chosen.kind != DeviceKind::Cpu).filter_map(|chosen| chosen.found.free).min())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_auto() {
        assert_eq!("auto".parse(), Ok(JobLimit::Auto));
        assert_eq!("256".parse(), Ok(JobLimit::Count(256)));
        for wrong in ["0", "257", "-1", "Auto", "", "1.5"] {
            assert!(wrong.parse::<JobLimit>().unwrap_err().contains("from 1 to 256, or `auto`"), "{wrong}");
        }
    }

    #[test]
    fn some_is_left_to_others() {
        assert_eq!(less_reserve(16 << 30), 15 << 30);
        assert_eq!(less_reserve(1 << 30), 768 << 20);
        assert_eq!(less_reserve(1 << 20), 0, "one run begins all the same");
    }
}
