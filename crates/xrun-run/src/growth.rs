//! Growth of a run's memory, by its verdict or by a trace that is too short for one.

use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::PlannedBuffer;
use xrun_core::printable;
use xrun_core::units::Bytes;
use xrun_results::format::{MemoryLine, SamplePoint};
use xrun_results::verdict::{Verdict, VerdictWord};
use xrun_verdict::Recent;

/// A trace that is too short for a verdict shows growth from this fraction of what was held, as its inverse, and from this
/// number of bytes.
const GREW_FRACTION: u64 = 20;
const GREW_MIN: u64 = 4 << 20;

/// Memory of a process at its steps without buffers that have a cap, in constant memory.
#[derive(Debug, Default)]
pub struct GrowthBeyondCaps {
    capped: Vec<String>,
    recent: Recent,
}

impl GrowthBeyondCaps {
    /// No samples yet, of a run with these buffers.
    pub fn new(owners: &[PlannedBuffer]) -> Self {
        let capped = owners.iter().filter(|owner| owner.policy != Policy::Leak);
        Self { capped: capped.map(|owner| owner.name.clone()).collect(), recent: Recent::default() }
    }

    /// Begins again, for another process.
    pub fn restart(&mut self) {
        self.recent = Recent::default();
    }

    /// Adds a sample if it follows a step, in which the process held this number of bytes: its RSS, or its heap in use, which does not
    /// rise again after free pages were given back.
    pub fn add(&mut self, line: &MemoryLine, held: u64) {
        if line.point == SamplePoint::Step {
            let capped = line.owners.iter().filter(|(name, _)| self.capped.contains(name));
            let capped = capped.fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
            self.recent.add(line.step, held.saturating_sub(capped) as f64);
        }
    }

    /// Sentence on what grows and who holds it; `None` where memory does not grow. `peak` is that of the process in bytes.
    pub fn growing(&self, verdict: Option<&Verdict>, peak: u64) -> Option<String> {
        if let Some(verdict) = verdict.filter(|verdict| verdict.verdict >= VerdictWord::Slowing) {
            return Some(printable::line(&verdict.message, 400));
        }
        // The verdict may say that memory is flat, or that its growth ends; otherwise the trace may be too short for one.
        let flat =
            verdict.is_some_and(|verdict| (VerdictWord::Bounded..VerdictWord::Suspect).contains(&verdict.verdict));
        let least = GREW_MIN.max(peak / GREW_FRACTION);
        let grown = self.recent.growth().filter(|growth| growth.steady && !flat && growth.growth as u64 >= least)?;
        let (bytes, steps) = (Bytes(grown.growth as u64), grown.steps);
        Some(format!("memory beyond buffers with a cap rose by {bytes} in its last {steps} steps"))
    }
}
