//! Forecasts of the trials of a search, made when they are first used.

use std::cell::RefCell;
use std::path::Path;

use super::sweep_memory;
use super::terminal::Terminal;
use crate::sweep::records::sweep_memory::SweepMemory;
use crate::sweep::resources::co_schedule::Requirement;
use crate::sweep::resources::{Forecasts, write_memory};
use crate::units::Bytes;

/// The forecasts of a sweep. Those of trials that are chosen later are added, also to `memory.toml`.
pub struct LazyForecasts<'a> {
    sweep: &'a Path,
    terminal: Terminal,
    memory: RefCell<SweepMemory>,
}

impl<'a> LazyForecasts<'a> {
    /// The forecasts of the trials so far.
    pub fn new(sweep: &'a Path, memory: SweepMemory, terminal: Terminal) -> Self {
        Self { sweep, terminal, memory: RefCell::new(memory) }
    }

    fn ensure(&self, trial: u64) {
        if self.memory.borrow().has_forecast(trial) {
            return;
        }
        let known = self.memory.borrow().clone();
        // After a signal no run starts: a forecast is not needed.
        let Some(need) = sweep_memory::of_trial(self.sweep, &known, trial, self.terminal) else { return };
        let mut memory = self.memory.borrow_mut();
        sweep_memory::add(&mut memory, need);
        if let Err(error) = write_memory(self.sweep, &memory) {
            self.terminal.error(&format!("{error}; a resume will forecast trial {trial} again"));
        }
    }
}

impl Forecasts for LazyForecasts<'_> {
    fn requirement(&self, trial: u64) -> Requirement {
        self.ensure(trial);
        Forecasts::requirement(&*self.memory.borrow(), trial)
    }

    fn known_requirement(&self, trial: u64) -> Requirement {
        Forecasts::requirement(&*self.memory.borrow(), trial)
    }

    fn slurm_memory(&self, trial: u64) -> Option<Bytes> {
        // Sizes may be written by hand, without forecasts.
        if !self.memory.borrow().forecasts.is_empty() {
            self.ensure(trial);
        }
        self.memory.borrow().size(trial)
    }
}
