//! Overhead of the runner per step: `experiments/stage2.toml` through xrun, compared with its task in a bare loop.
//!
//! `cargo bench --bench runner_overhead`. Both train the same network on the same batches; the runner also samples memory at each
//! step, writes metrics, cleans up and checks the stop rules. Neither validates nor saves checkpoints. The two alternate, so that
//! load of the machine affects both; the result is the median ratio of all rounds.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints and may panic")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use xrun::Program;
use xrun::bounded::ledger::Ledger;
use xrun::device;
use xrun::directory;
use xrun::experiment::pipeline::Opening;
use xrun::experiment::read;
use xrun::plan::{self, Plan};
use xrun::results::format::LoopState;
use xrun::run::launch::{Extent, Launch};
use xrun::run::manifest;
use xrun::run::observer::Silent;
use xrun::stop::StopSignal;
use xrun::task::{Phases, Task};

xrun::count_heap!();

const STEPS: u64 = 60;
const ROUNDS: usize = 7;

/// Phases that are not timed.
struct Unmeasured;

impl Phases for Unmeasured {
    fn enter(&mut self, _: &'static str) {}
}

fn open(ledger: &Ledger) -> (Plan, Box<dyn Task>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/stage2.toml");
    let overrides = [
        format!("training.max_steps={STEPS}"),
        "validation.every_epochs=0".into(),
        "validation.at_start=false".into(),
        "checkpoint.every_steps=0".into(),
    ];
    Program::new().built_in().register();
    let checked = read::read(&file, &overrides, std::env::vars()).unwrap();
    let chosen = device::select(&checked.experiment.experiment.device).unwrap();
    let (facts, prepared) = checked.experiment.prepare(ledger).unwrap();
    let plan = plan::resolve(checked.experiment, facts);
    let task =
        prepared.open(Opening { experiment: &plan.experiment, device: chosen.kind, ledger, first_step: 1 }).unwrap();
    (plan, task)
}

/// Returns the seconds per step of the task in a bare loop.
fn bare_loop() -> f64 {
    let (plan, mut task) = open(&Ledger::default());
    let started = Instant::now();
    for step in 1..=plan.steps {
        task.train_step(step, 1e-3, &mut Unmeasured).unwrap();
        task.synchronise().unwrap();
    }
    started.elapsed().as_secs_f64() / plan.steps as f64
}

/// Returns the seconds per step through the runner, without the checkpoint at the end.
fn through_the_runner(stop: &StopSignal) -> f64 {
    let ledger = Ledger::default();
    let (plan, task) = open(&ledger);
    let directory = tempfile::tempdir().unwrap();
    let directory = directory::create(directory.path(), "overhead", "000000000000", chrono::Utc::now()).unwrap();
    let cpu = device::select("cpu").unwrap();
    let manifest = manifest::manifest(&plan, "overhead", "", &cpu, &[], &BTreeMap::new());
    let launch = Launch {
        plan: &plan,
        ledger: &ledger,
        directory: &directory,
        manifest: &manifest,
        state: LoopState::default(),
        segment: 0,
        gpu: None,
        extent: Extent::Whole,
        started: Instant::now(),
    };
    let started = Instant::now();
    let ending = launch.train(task, stop, &mut Silent).ending;
    let total = started.elapsed().as_secs_f64();
    assert_eq!(ending.exit_code(), 0, "{}", ending.message);
    let lines = std::fs::read_to_string(directory.path.join("memory.jsonl")).unwrap();
    let checkpoint_us: f64 = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|line| line["phases_us"]["checkpoint"].as_f64())
        .sum();
    (total - checkpoint_us / 1e6) / plan.steps as f64
}

fn main() {
    let stop = StopSignal::listen().unwrap();
    bare_loop(); // warm-up: generates the data, fills the page cache
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        // The order alternates.
        let (alone, run) = match round % 2 {
            0 => {
                let alone = bare_loop();
                (alone, through_the_runner(&stop))
            }
            _ => {
                let run = through_the_runner(&stop);
                (bare_loop(), run)
            }
        };
        println!(
            "round {round}: bare loop {:.2} ms per step, xrun {:.2} ms per step, ratio {:.4}",
            alone * 1e3,
            run * 1e3,
            run / alone
        );
        ratios.push(run / alone);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio of {ROUNDS} rounds of {STEPS} steps: {:.4}", ratios[ROUNDS / 2]);
}
