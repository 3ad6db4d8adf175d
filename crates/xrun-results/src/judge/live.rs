//! Verdict on a running run, from the end of its samples.
//!
//! The run itself judges all of its samples and writes a verdict at the end. An observer reads only the newest
//! samples, so its cost does not depend on the length of the run.

use std::collections::VecDeque;

use xrun_verdict::{Context, MemoryJudge, Verdict};

use super::command::CommandJudge;
use super::recording;
use super::sample::{declared, sample};
use crate::format::MemoryLine;
use crate::resolved;
use crate::tail::{Appended, RecordTail};
use crate::view::RunView;
use xrun_core::files::layout;

/// Maximum number of bytes read at a time: some thousand samples.
const READ_BYTES_MAX: u64 = 1024 * 1024;
/// Number of samples over which speed is measured.
const RECENT: usize = 64;

/// Follows the samples of a run and judges them.
#[derive(Clone, Debug)]
pub struct LiveVerdict {
    tail: RecordTail,
    judge: JudgeKind,
    /// Time in microseconds and step of the newest samples; at most [`RECENT`].
    recent: VecDeque<(u64, u64)>,
    newest: Option<MemoryLine>,
    verdict: Option<Verdict>,
}

#[derive(Clone, Debug)]
enum JudgeKind {
    Run(Box<MemoryJudge>),
    Command(Box<CommandJudge>),
}

impl JudgeKind {
    fn open(run: &RunView) -> Self {
        if let Some(watched) = run.watched() {
            return Self::Command(Box::new(CommandJudge::new(watched)));
        }
        let is_intact = resolved::read_text(&run.path).is_ok();
        let checked = xrun_core::experiment::read::read_resolved(&run.path.join(layout::RESOLVED), &[]);
        let context = match (run.plan(), checked.ok().filter(|_| is_intact)) {
            (Some(plan), Some(checked)) => recording::memory_context(plan, &checked.experiment),
            (Some(plan), None) => Context { steps: plan.steps, owners: declared(plan), ..Context::default() },
            (None, _) => Context::default(),
        };
        Self::Run(Box::new(MemoryJudge::new(context)))
    }
}

impl LiveVerdict {
    /// Follows a run, which may not have started yet. Reads no samples.
    pub fn new(run: &RunView) -> Self {
        Self {
            tail: RecordTail::new(&run.path.join(layout::MEMORY), READ_BYTES_MAX),
            judge: JudgeKind::open(run),
            recent: VecDeque::with_capacity(RECENT),
            newest: None,
            verdict: None,
        }
    }

    /// Reads the samples appended since the last call. Returns `true` if there were any.
    pub fn update(&mut self) -> bool {
        let Appended { records, .. } = self.tail.read_new::<MemoryLine>();
        let any = !records.is_empty();
        records.into_iter().for_each(|line| self.add(line));
        if any {
            self.verdict = Some(match &self.judge {
                JudgeKind::Run(judge) => judge.verdict(),
                JudgeKind::Command(command) => command.verdict(),
            });
        }
        any
    }

    fn add(&mut self, line: MemoryLine) {
        let position = |line: &MemoryLine| (line.segment, line.step);
        let is_command = matches!(self.judge, JudgeKind::Command(_));
        let restarts_steps = |before: &MemoryLine| before.segment == line.segment && line.step < before.step;
        if is_command && self.newest.as_ref().is_some_and(restarts_steps) {
            // A progress bar before the training was taken for steps; they were recorded again from the start.
            self.newest = None;
            self.recent.clear();
            if let JudgeKind::Command(command) = &mut self.judge {
                command.restart_steps();
            }
        }
        // Lines in the wrong order are damage, which `xrun verdict` reports.
        if self.newest.as_ref().is_some_and(|before| position(&line) < position(before)) {
            return;
        }
        if self.newest.as_ref().is_some_and(|before| before.segment != line.segment) {
            self.recent.clear();
        }
        match &mut self.judge {
            JudgeKind::Run(judge) => judge.add(&sample(&line)),
            JudgeKind::Command(command) => command.add(&line),
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((line.time_us, line.step));
        self.newest = Some(line);
    }

    /// Newest sample.
    pub fn newest(&self) -> Option<&MemoryLine> {
        self.newest.as_ref()
    }

    /// Verdict on the samples read; `None` before the first.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Steps per second over the newest samples; `None` before the second step.
    pub fn steps_per_second(&self) -> Option<f64> {
        let (first, last) = (self.recent.front()?, self.recent.back()?);
        let seconds = last.0.saturating_sub(first.0) as f64 / 1e6;
        let steps = last.1.saturating_sub(first.1) as f64;
        (seconds > 0.0 && steps > 0.0).then(|| steps / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::HostMemory;
    use crate::verdict::VerdictWord;
    use std::io::Write;

    fn line(segment: u32, step: u64, heap: u64) -> String {
        let host = HostMemory { heap, ..HostMemory::default() };
        let line = MemoryLine { segment, time_us: 500_000 * step, step, host, ..MemoryLine::default() };
        format!("{}\n", serde_json::to_string(&line).unwrap())
    }

    #[test]
    fn growth_is_found_at_the_end_of_a_long_trace() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(layout::MEMORY);
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let mut live = LiveVerdict::new(&RunView::open(directory.path()));
        assert!(!live.update() && live.verdict().is_none());
        for step in 0..10_000 {
            file.write_all(line(0, step, 50_000_000 + 100_000 * step).as_bytes()).unwrap();
        }
        assert!(file.metadata().unwrap().len() > READ_BYTES_MAX);
        assert!(live.update() && !live.update());
        assert_eq!(live.newest().unwrap().step, 9999);
        assert_eq!(live.verdict().unwrap().verdict, VerdictWord::Growing);
        assert_eq!(live.steps_per_second(), Some(2.0));
        file.write_all(line(1, 9000, 50_000_000).as_bytes()).unwrap();
        assert!(live.update());
        assert_eq!((live.newest().unwrap().segment, live.steps_per_second()), (1, None));
    }
}
