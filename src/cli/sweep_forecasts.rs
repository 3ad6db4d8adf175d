//! What does a point need that a search has just chosen? Found out when it is first asked for.

use std::cell::RefCell;
use std::path::Path;

use super::sweep_memory;
use super::terminal::Terminal;
use crate::sweep::records::sweep_memory::SweepMemory;
use crate::sweep::resources::co_schedule::Requirement;
use crate::sweep::resources::{Forecasts, write_memory};
use crate::units::Bytes;

/// The forecasts of a sweep; points that are chosen later are added to them, and to `memory.toml`.
pub struct LazyForecasts<'a> {
    sweep: &'a Path,
    terminal: Terminal,
    memory: RefCell<SweepMemory>,
}

impl<'a> LazyForecasts<'a> {
    /// With what is known of the points that there are.
    pub fn new(sweep: &'a Path, memory: SweepMemory, terminal: Terminal) -> Self {
        Self { sweep, terminal, memory: RefCell::new(memory) }
    }

    fn ensure(&self, point: u64) {
        if self.memory.borrow().has_forecast(point) {
            return;
        }
        let known = self.memory.borrow().clone();
        // After a signal no run is started any more, so nothing is kept of what was not found out.
        let Some(need) = sweep_memory::of_point(self.sweep, &known, point, self.terminal) else { return };
        let mut memory = self.memory.borrow_mut();
        sweep_memory::add(&mut memory, need);
        if let Err(error) = write_memory(self.sweep, &memory) {
            self.terminal.error(&format!("{error}; the forecast of point {point} is made anew by a resume"));
        }
    }
}

impl Forecasts for LazyForecasts<'_> {
    fn requirement(&self, point: u64) -> Requirement {
        self.ensure(point);
        Forecasts::requirement(&*self.memory.borrow(), point)
    }

    fn known_requirement(&self, point: u64) -> Requirement {
        Forecasts::requirement(&*self.memory.borrow(), point)
    }

    fn slurm_memory(&self, point: u64) -> Option<Bytes> {
        // Sizes may stand there by hand, with no forecast.
        if !self.memory.borrow().forecasts.is_empty() {
            self.ensure(point);
        }
        self.memory.borrow().size(point)
    }
}
