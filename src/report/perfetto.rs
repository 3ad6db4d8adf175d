//! memory.jsonl -> memory.perfetto.json: the same on a time line, for ui.perfetto.dev and chrome://tracing.
//!
//! The Trace Event Format as Perfetto's importer reads it: times in microseconds, `X` slices that nest, `C` counters
//! with one track for each key of `args`, `M` for names. The file is read twice and written as it is read: nothing is
//! kept but one sample.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{ReportError, each_sample};
use crate::results::format::{MemoryLine, Point};
use crate::results::{layout, write};

/// Of more samples of steps than this only some are written, evenly.
const STEPS_MAX: u64 = 50_000;
/// The one thread there is: the training loop.
const THREAD: u64 = 1;
const PROCESS: u64 = 1;

/// Writes `memory.perfetto.json`; a run without a trace gets a time line without events.
pub fn write(run: &Path) -> Result<(), ReportError> {
    let mut steps = 0;
    each_sample(run, |line| {
        steps += u64::from(line.point == Point::Step);
        Ok(())
    })?;
    let every = steps.div_ceil(STEPS_MAX).max(1);
    let path = run.join(layout::PERFETTO);
    let mut failed = None;
    let written = write::replace_with(&path, |file| {
        let mut events = Events { file, first: true };
        events.start(run)?;
        let mut line_of_time = TimeLine { every, ..TimeLine::default() };
        let sample = |line: MemoryLine| {
            let added = line_of_time.add(&line, &mut events);
            Ok(added.map_err(|source| write::WriteError { path: path.clone(), source })?)
        };
        if let Err(error) = each_sample(run, sample) {
            failed = Some(error);
        }
        line_of_time.end(&mut events)?;
        events.end()
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(written?),
    }
}

struct Events<'a> {
    file: &'a mut dyn Write,
    first: bool,
}

impl Events<'_> {
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

/// Where the samples are on one time line, though each process began its clock anew.
#[derive(Default)]
struct TimeLine {
    every: u64,
    /// When the process at hand began.
    offset: u64,
    segment: u32,
    /// The sample before.
    before: u64,
    /// The epoch at hand and when it began.
    epoch: Option<(u64, u64)>,
}

impl TimeLine {
    fn add(&mut self, line: &MemoryLine, events: &mut Events<'_>) -> io::Result<()> {
        if line.segment != self.segment {
            self.close_epoch(events)?;
            (self.segment, self.offset) = (line.segment, self.before);
        }
        let now = self.offset + line.time_us;
        if self.epoch.is_none_or(|(epoch, _)| epoch != line.epoch) {
            self.close_epoch(events)?;
            self.epoch = Some((line.epoch, self.before.max(self.offset)));
        }
        let from = self.before.max(self.offset);
        let kept = line.step.is_multiple_of(self.every) || line.step == 1;
        let name = match line.point {
            Point::Step if kept => Some((format!("step {}", line.step), "step")),
            Point::AfterValidation => Some(("validation".to_owned(), "validation")),
            Point::AfterCleanup if kept => Some(("cleanup".to_owned(), "cleanup")),
            Point::Checkpoint => Some(("checkpoint".to_owned(), "checkpoint")),
            _ => None,
        };
        if let Some((name, category)) = name {
            let mut arguments = json!({ "phases_us": line.phases_us });
            if let Some(freed) = line.freed {
                arguments["freed_bytes"] = freed.into();
            }
            events.slice(&name, category, from, now, arguments)?;
        }
        if kept || !matches!(line.point, Point::Step | Point::BeforeCleanup | Point::AfterCleanup) {
            self.counters(line, now, events)?;
        }
        self.before = now;
        Ok(())
    }

    fn counters(&self, line: &MemoryLine, now: u64, events: &mut Events<'_>) -> io::Result<()> {
        let mebibytes = |bytes: u64| Value::from(bytes as f64 / (1024.0 * 1024.0));
        let values = |all: &[(&str, Option<u64>)]| -> Map<String, Value> {
            all.iter().filter_map(|(name, bytes)| Some((format!("{name} MiB"), mebibytes((*bytes)?)))).collect()
        };
        let host = &line.host;
        events.counter("host", now, values(&[("heap", Some(host.heap)), ("resident", host.resident)]))?;
        if let Some(device) = &line.device {
            let sizes = values(&[("in use", Some(device.in_use)), ("reserved", Some(device.reserved))]);
            events.counter("device", now, sizes)?;
        }
        let owners = line.owners.iter().map(|(name, bytes)| (format!("{name} MiB"), mebibytes(*bytes)));
        events.counter("buffers", now, owners.collect())
    }

    fn close_epoch(&mut self, events: &mut Events<'_>) -> io::Result<()> {
        match self.epoch.take() {
            Some((0, from)) => events.slice("before the first step", "epoch", from, self.before, json!({})),
            Some((epoch, from)) => events.slice(&format!("epoch {epoch}"), "epoch", from, self.before, json!({})),
            None => Ok(()),
        }
    }

    fn end(&mut self, events: &mut Events<'_>) -> io::Result<()> {
        self.close_epoch(events)
    }
}
