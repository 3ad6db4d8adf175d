//! Memory on a time line, `memory.perfetto.json`, for ui.perfetto.dev and chrome://tracing.
//!
//! Trace Event Format as Perfetto imports it: times in microseconds, nested `X` slices, `C` counters with one track
//! per key of `args`, `M` for names. The trace is read twice and events are written as it is read: only one sample is
//! held.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{ReportError, for_each_sample};
use crate::format::{MemoryLine, SamplePoint};
use xrun_core::files::{layout, write};

/// Maximum number of steps, of epochs and of other samples written, evenly spaced: a browser has to hold them.
const EACH_MAX: u64 = 50_000;
/// Thread id of the training loop, the only thread.
const THREAD: u64 = 1;
const PROCESS: u64 = 1;

/// Writes `memory.perfetto.json`; a run without a trace gets a time line without events.
pub fn write(run: &Path) -> Result<(), ReportError> {
    write_at_most(run, EACH_MAX)
}

fn write_at_most(run: &Path, each_max: u64) -> Result<(), ReportError> {
    let (mut steps, mut epochs, mut others, mut epoch) = (0u64, 0u64, 0u64, None);
    for_each_sample(run, |line| {
        steps += u64::from(line.point == SamplePoint::Step);
        others += u64::from(!belongs_to_step(line.point));
        epochs += u64::from(epoch.replace((line.segment, line.epoch)) != Some((line.segment, line.epoch)));
        Ok(())
    })?;
    let every = |count: u64| count.div_ceil(each_max).max(1);
    let every = Intervals { step: every(steps), epoch: every(epochs), other: every(others) };
    let path = run.join(layout::PERFETTO);
    let mut failed = None;
    let written = write::replace_with(&path, |file| {
        let mut events = EventWriter { file, first: true };
        events.start(run)?;
        let mut time_line = TimeLine { every, ..TimeLine::default() };
        let sample = |line: MemoryLine| {
            let added = time_line.add(&line, &mut events);
            Ok(added.map_err(|source| write::WriteError { path: path.clone(), source })?)
        };
        if let Err(error) = for_each_sample(run, sample) {
            failed = Some(error);
        }
        time_line.end(&mut events)?;
        events.end()
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(written?),
    }
}

struct EventWriter<'a> {
    file: &'a mut dyn Write,
    first: bool,
}

impl EventWriter<'_> {
    fn start(&mut self, run: &Path) -> io::Result<()> {
        self.file.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        let name = run.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let named = |what: &str, name: String| json!({ "ph": "M", "name": what, "pid": PROCESS, "tid": THREAD, "args": { "name": name } });
        self.event(&named("process_name", format!("xrun {name}")))?;
        self.event(&named("thread_name", "training loop".into()))
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.file.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut self.file, event).map_err(io::Error::from)
    }

    fn slice(&mut self, name: &str, category: &str, from: u64, to: u64, arguments: Value) -> io::Result<()> {
        self.event(&json!({
            "ph": "X", "name": name, "cat": category, "pid": PROCESS, "tid": THREAD,
            "ts": from, "dur": to.saturating_sub(from), "args": arguments,
        }))
    }

    fn counter(&mut self, name: &str, at: u64, values: Map<String, Value>) -> io::Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        self.event(&json!({ "ph": "C", "name": name, "pid": PROCESS, "ts": at, "args": values }))
    }

    fn end(&mut self) -> io::Result<()> {
        self.file.write_all(b"\n]}\n")
    }
}

/// Intervals at which samples are written: one of every so many.
#[derive(Clone, Copy, Default)]
struct Intervals {
    step: u64,
    epoch: u64,
    other: u64,
}

fn belongs_to_step(point: SamplePoint) -> bool {
    matches!(point, SamplePoint::Step | SamplePoint::BeforeCleanup | SamplePoint::AfterCleanup)
}

/// Places the samples of all processes on one time line; the clock of each starts at 0.
#[derive(Default)]
struct TimeLine {
    every: Intervals,
    epochs: u64,
    others: u64,
    /// Start of the current process, in microseconds.
    offset: u64,
    segment: u32,
    /// Time of the previous sample.
    previous: u64,
    /// Current epoch and its start.
    epoch: Option<(u64, u64)>,
}

impl TimeLine {
    fn add(&mut self, line: &MemoryLine, events: &mut EventWriter<'_>) -> io::Result<()> {
        if line.segment != self.segment {
            self.close_epoch(events)?;
            (self.segment, self.offset) = (line.segment, self.previous);
        }
        let now = self.offset + line.time_us;
        if self.epoch.is_none_or(|(epoch, _)| epoch != line.epoch) {
            self.close_epoch(events)?;
            self.epoch = Some((line.epoch, self.previous.max(self.offset)));
        }
        let from = self.previous.max(self.offset);
        let is_written = match belongs_to_step(line.point) {
            true => line.step.is_multiple_of(self.every.step) || line.step == 1,
            false => {
                self.others += 1;
                self.others.is_multiple_of(self.every.other)
            }
        };
        let name = match line.point {
            SamplePoint::Step if is_written => Some((format!("step {}", line.step), "step")),
            SamplePoint::AfterValidation if is_written => Some(("validation".to_owned(), "validation")),
            SamplePoint::AfterCleanup if is_written => Some(("cleanup".to_owned(), "cleanup")),
            SamplePoint::Checkpoint if is_written => Some(("checkpoint".to_owned(), "checkpoint")),
            _ => None,
        };
        if let Some((name, category)) = name {
            let mut arguments = json!({ "phases_us": line.phases_us });
            if let Some(freed) = line.freed {
                arguments["freed_bytes"] = freed.into();
            }
            events.slice(&name, category, from, now, arguments)?;
        }
        if is_written {
            self.counters(line, now, events)?;
        }
        self.previous = now;
        Ok(())
    }

    fn counters(&self, line: &MemoryLine, now: u64, events: &mut EventWriter<'_>) -> io::Result<()> {
        let mebibytes = |bytes: u64| Value::from(bytes as f64 / (1024.0 * 1024.0));
        let values = |all: &[(&str, Option<u64>)]| -> Map<String, Value> {
            all.iter().filter_map(|(name, bytes)| Some((format!("{name} MiB"), mebibytes((*bytes)?)))).collect()
        };
        let host = &line.host;
        events.counter("host", now, values(&[("heap", Some(host.heap)), ("rss", host.rss)]))?;
        if let Some(device) = &line.device {
            let sizes = values(&[("in use", Some(device.in_use)), ("reserved", Some(device.reserved))]);
            events.counter("device", now, sizes)?;
        }
        if let Some(load) = line.driver.and_then(|driver| driver.load) {
            let power = load.power_milliwatts.map(|power| ("power W", f64::from(power) / 1000.0));
            let known = [load.utilisation_percent.map(|percent| ("utilisation %", f64::from(percent))), power];
            let numbers = known.into_iter().flatten().map(|(name, number)| (name.to_owned(), Value::from(number)));
            events.counter("GPU", now, numbers.collect())?;
        }
        let owners = line.owners.iter().map(|(name, bytes)| (format!("{name} MiB"), mebibytes(*bytes)));
        events.counter("buffers", now, owners.collect())
    }

    fn close_epoch(&mut self, events: &mut EventWriter<'_>) -> io::Result<()> {
        self.epochs += 1;
        match self.epoch.take() {
            _ if !self.epochs.is_multiple_of(self.every.epoch) => Ok(()),
            Some((0, from)) => events.slice("before the first step", "epoch", from, self.previous, json!({})),
            Some((epoch, from)) => events.slice(&format!("epoch {epoch}"), "epoch", from, self.previous, json!({})),
            None => Ok(()),
        }
    }

    fn end(&mut self, events: &mut EventWriter<'_>) -> io::Result<()> {
        self.close_epoch(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{PLAIN, finished};

    /// Number of events by name, without the number of a step or epoch.
    fn counts(run: &Path) -> std::collections::BTreeMap<String, usize> {
        let text = std::fs::read_to_string(run.join(layout::PERFETTO)).unwrap();
        let trace: Value = serde_json::from_str(&text).unwrap();
        let mut counts = std::collections::BTreeMap::new();
        for event in trace["traceEvents"].as_array().unwrap() {
            let name = event["name"].as_str().unwrap();
            *counts.entry(name.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
        counts
    }

    #[test]
    fn a_long_run_gives_a_bounded_number_of_events() {
        let results = tempfile::tempdir().unwrap();
        let run = finished(results.path(), PLAIN);
        write(&run).unwrap();
        let all = counts(&run);
        assert_eq!((all["step"], all["epoch"]), (200, 5), "{all:?}");
        write_at_most(&run, 4).unwrap();
        let few = counts(&run);
        // Step 1 is always written.
        assert!((2..=5).contains(&few["step"]) && (1..=4).contains(&few["epoch"]), "{few:?}");
        assert!(few["host"] <= 3 * 5 + 4, "counters of steps, of their cleanups, and of other samples: {few:?}");
    }
}
