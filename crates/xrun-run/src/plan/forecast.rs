//! How much memory will a run need? Sizes that are known, caps that will be reached, and what a probe measured.
//!
//! The probe is a run of the same experiment, a few steps long, in a process of its own. It holds everything that the
//! run will hold except what fills up later: caches, and what leaks.

use std::collections::BTreeMap;

use xrun_core::bounded::growth::{Growth, Keeps, Occasion};
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::{Place, PlannedOwner};
use xrun_core::experiment::Experiment;
use xrun_results::format::{Basis, Demand, Forecast, ForecastRow, OwnerDemand, PlanFile, PlannedAndActual};

/// Bytes of a weight, a gradient, and a value of the optimiser.
const FLOAT_BYTES: u64 = 4;

/// What the run that `plan` describes will need, by what a probe of it needed.
pub fn forecast(plan: &PlanFile, experiment: &Experiment, probe: &Demand) -> Forecast {
    let expects = |name: &str, held: &OwnerDemand| expected(plan, experiment, probe, name, held);
    let mut rows = rows(plan, experiment, probe, expects);
    // What leaks is at its highest when the run ends, whatever it held when the probe needed most.
    let mut heap_peak = probe.heap_peak_beside_leaks;
    let mut device_still_to_come: u64 = 0;
    for (name, held) in &probe.owners {
        let bytes = expects(name, held).0;
        let still_to_come = bytes.saturating_sub(held.peak);
        match (place_of(plan, name), held.policy) {
            (Place::Device, _) => device_still_to_come = device_still_to_come.saturating_add(still_to_come),
            (Place::Host, Policy::Leak) => heap_peak = heap_peak.saturating_add(bytes),
            (Place::Host, _) => heap_peak = heap_peak.saturating_add(still_to_come),
        }
    }
    // A resume reads a checkpoint before its first step, beside a model that has been made.
    let resumed = probe.heap_at_start.saturating_add(probe.load);
    let heap_peak = heap_peak.max(probe.heap_peak).max(resumed);
    let resident = probe.resident_peak.map(|peak| peak.saturating_add(heap_peak - probe.heap_peak));
    rows.extend(resident.map(|resident| ForecastRow {
        name: "headroom".into(),
        place: Place::Host,
        bytes: headroom(resident),
        basis: Basis::Sizes,
        about: "what a long run has resident beyond a short one: 1 MiB and a hundredth".into(),
    }));
    let reserved = probe.device_reserved_peak.map(|peak| peak.saturating_add(device_still_to_come));
    let on_device = reserved.map(|reserved| reserved.saturating_add(probe.device_beside_pool.unwrap_or_default()));
    rows.extend(on_device.map(|on_device| ForecastRow {
        name: "device headroom".into(),
        place: Place::Device,
        bytes: on_device / DEVICE_HEADROOM_PART,
        basis: Basis::Sizes,
        about: "pages of sizes that the probe has not seen: a twentieth".into(),
    }));
    Forecast {
        probe_steps: probe.steps,
        rows,
        heap_peak,
        resident_peak: resident.map(|resident| resident.saturating_add(headroom(resident))),
        device_in_use_peak: probe.device_in_use_peak.map(|peak| peak.saturating_add(device_still_to_come)),
        device_reserved_peak: reserved,
        device_peak: on_device.map(|bytes| bytes.saturating_add(bytes / DEVICE_HEADROOM_PART)),
        floors: floors(probe),
        disk: None,
    }
}

/// What is held at rest whatever step it is. How full a queue is follows from who is faster, and caches fill up.
fn floors(probe: &Demand) -> BTreeMap<String, u64> {
    let steady = |held: &&OwnerDemand| matches!(held.policy, Policy::Refuse | Policy::Reduce);
    let floors = probe.owners.iter().filter(|(_, held)| steady(held));
    floors.filter_map(|(name, held)| Some((name.clone(), held.floor?))).collect()
}

/// A run may need a page more than its probe: of two episodes of a validation, of texts that are shorter.
const DEVICE_HEADROOM_PART: u64 = 20;

/// Each part of the forecast beside what it came to be; totals last.
pub fn beside(forecast: &Forecast, plan: &PlanFile, experiment: &Experiment, actual: &Demand) -> Vec<PlannedAndActual> {
    let came = rows(plan, experiment, actual, |_, held| (held.peak, Basis::Probe));
    let pair = |name: &str, planned: u64, actual: u64| PlannedAndActual {
        name: name.to_owned(),
        planned,
        actual,
        error: (actual > 0).then(|| planned as f64 / actual as f64 - 1.0),
    };
    let mut pairs: Vec<PlannedAndActual> = forecast
        .rows
        .iter()
        .filter_map(|row| Some(pair(&row.name, row.bytes, came.iter().find(|one| one.name == row.name)?.bytes)))
        .collect();
    pairs.push(pair(HEAP_PEAK, forecast.heap_peak, actual.heap_peak));
    let totals = [
        (RESIDENT_PEAK, forecast.resident_peak, actual.resident_peak),
        ("device in use, at rest", forecast.device_in_use_peak, actual.device_in_use_peak),
        ("device reserved, peak", forecast.device_reserved_peak, actual.device_reserved_peak),
    ];
    let totals = totals.into_iter().filter_map(|(name, planned, actual)| Some(pair(name, planned?, actual?)));
    pairs.extend(totals);
    pairs
}

/// Raises the peaks to what the process has had before its first step.
pub fn had_already(forecast: &mut Forecast, heap: u64, resident: Option<u64>) {
    forecast.heap_peak = forecast.heap_peak.max(heap);
    forecast.resident_peak = forecast.resident_peak.max(resident);
}

/// What a long run has resident beyond a short one: pages between what is in use, and the report at its end.
fn headroom(resident: u64) -> u64 {
    const FIXED: u64 = 1 << 20;
    FIXED + resident / 100
}

const ACTIVATIONS: &str = "activations";
const ACTIVATIONS_AND_PAGES: &str = "activations and pages";

/// Whether a row of a forecast is what a step needs beyond what is kept, which a smaller batch makes less.
pub fn is_of_a_step(name: &str) -> bool {
    [ACTIVATIONS, ACTIVATIONS_AND_PAGES].contains(&name)
}

/// The names of the totals in [`beside`].
pub const HEAP_PEAK: &str = "heap in use, peak";
pub const RESIDENT_PEAK: &str = "resident, peak";

/// What an owner will hold at most, and why that is believed.
fn expected(plan: &PlanFile, experiment: &Experiment, probe: &Demand, name: &str, held: &OwnerDemand) -> (u64, Basis) {
    let planned = plan.owners.iter().find(|owner| owner.name == name);
    match held.policy {
        // Caches fill up; so do lists that keep the best.
        Policy::Evict | Policy::Reduce => {
            // There may be less to hold than the cap allows.
            let all = planned.is_some_and(|owner| owner.full() < owner.bytes);
            let basis = if all { Basis::Sizes } else { Basis::Cap };
            (planned.map_or(held.peak, PlannedOwner::full).max(held.peak), basis)
        }
        Policy::Leak => match planned.and_then(|owner| owner.keeps).unwrap_or(Keeps::with(Occasion::Step, 1.0)) {
            Keeps::InAll(bytes) | Keeps::Filling { in_all: bytes, .. } => (bytes.max(held.peak), Basis::Sizes),
            Keeps::Growing(growth) => (grown(growth, plan, experiment, probe, held.peak), Basis::Growth),
        },
        // A queue is as full after a few steps as after many.
        Policy::Block | Policy::Refuse => (held.peak, Basis::Probe),
    }
}

/// What a leak that held `peak` bytes in the probe will hold in the run. It grows linearly with the items that it is
/// given.
fn grown(growth: Growth, plan: &PlanFile, experiment: &Experiment, probe: &Demand, peak: u64) -> u64 {
    let epochs = |steps: u64| steps / plan.steps_per_epoch.max(1);
    let episodes = experiment.validation.episodes as u64;
    let (in_probe, in_run) = match growth.with {
        Occasion::Step => (probe.steps, plan.steps),
        Occasion::Validation => (probe.validations, plan.validations),
        Occasion::Episode => (probe.episodes, plan.validations.saturating_mul(episodes)),
        Occasion::Epoch => (epochs(probe.steps), epochs(plan.steps)),
    };
    let (in_probe, in_run) = (growth.given(in_probe), growth.given(in_run));
    let all = u128::from(peak) * u128::from(in_run) / u128::from(in_probe.max(1));
    u64::try_from(all).unwrap_or(u64::MAX).max(peak)
}

fn place_of(plan: &PlanFile, owner: &str) -> Place {
    plan.owners.iter().find(|planned| planned.name == owner).map_or(Place::Host, |planned| planned.place)
}

fn rows(
    plan: &PlanFile,
    experiment: &Experiment,
    demand: &Demand,
    owner: impl Fn(&str, &OwnerDemand) -> (u64, Basis),
) -> Vec<ForecastRow> {
    if experiment.command().is_some() {
        return of_command(demand);
    }
    let place = if demand.device_in_use_peak.is_some() { Place::Device } else { Place::Host };
    let weights = plan.parameters.saturating_mul(FLOAT_BYTES);
    let trained = plan.trained_parameters.unwrap_or(plan.parameters);
    let gradients = trained.saturating_mul(FLOAT_BYTES);
    let row = |name: &str, place, bytes, basis, about: &str| ForecastRow {
        name: name.into(),
        place,
        bytes,
        basis,
        about: about.into(),
    };
    let on_host = |bytes: u64| if place == Place::Host { bytes } else { 0 };
    let program = demand.heap_at_start.saturating_sub(demand.owners_at_start + on_host(weights));
    let mut rows = vec![
        row("program", Place::Host, program, Basis::Probe, "libraries, data index, everything outside the ledger"),
        row("weights", place, weights, Basis::Sizes, "parameters, four bytes each"),
        row("gradients", place, gradients, Basis::Sizes, "one for each trained parameter, during a step"),
        row("optimizer", place, optimizer_bytes(experiment, trained), Basis::Sizes, "the optimiser's state"),
    ];
    let activations = demand.step.saturating_sub(on_host(gradients));
    let about = "of a training step, and temporary tensors";
    match place {
        Place::Host => rows.push(row(ACTIVATIONS, Place::Host, activations, Basis::Probe, about)),
        Place::Device => {
            let held = demand.device_in_use_at_start.unwrap_or_default();
            let reserved = demand.device_reserved_peak.unwrap_or_default();
            rows.push(row(ACTIVATIONS_AND_PAGES, Place::Device, reserved.saturating_sub(held), Basis::Probe, about));
            if let Some(beside) = demand.device_beside_pool {
                let about = "the driver's context, code, and pools of other streams";
                rows.push(row("context", Place::Device, beside, Basis::Probe, about));
            }
            rows.push(row("host work of a step", Place::Host, demand.step, Basis::Probe, "besides the device"));
        }
    }
    rows.push(row("validation", Place::Host, demand.validation, Basis::Probe, "working memory; not beside a step"));
    rows.push(row("checkpoint", Place::Host, demand.checkpoint, Basis::Probe, "working memory; not beside a step"));
    if demand.load > 0 {
        let about = "working memory of reading a checkpoint; before the first step";
        rows.push(row("resume", Place::Host, demand.load, Basis::Probe, about));
    }
    for (name, held) in &demand.owners {
        let (bytes, basis) = owner(name, held);
        rows.push(row(name, place_of(plan, name), bytes, basis, "buffer in the ledger"));
    }
    if let Some(resident) = demand.resident_peak {
        let about = "code, stacks, and what the allocator keeps; resident memory only";
        rows.push(row("runtime", Place::Host, resident.saturating_sub(demand.heap_peak), Basis::Probe, about));
    }
    rows
}

/// Of somebody else's program nothing is known but what all its processes held.
fn of_command(demand: &Demand) -> Vec<ForecastRow> {
    let row = |name: &str, bytes, about: &str| ForecastRow {
        name: name.into(),
        place: Place::Host,
        bytes,
        basis: Basis::Probe,
        about: about.into(),
    };
    let files = demand.resident_peak.unwrap_or_default().saturating_sub(demand.heap_peak);
    let mut rows = vec![
        row("processes", demand.heap_peak, "private and shared memory of all processes of the command"),
        row("files", files, "pages of files that they have mapped; the kernel can drop them"),
    ];
    let on_gpus = demand.device_reserved_peak.map(|bytes| row("GPU", bytes, "memory of all processes on GPUs"));
    rows.extend(on_gpus.map(|row| ForecastRow { place: Place::Device, ..row }));
    rows
}

/// Bytes of the optimiser's state for that many parameters.
fn optimizer_bytes(experiment: &Experiment, parameters: u64) -> u64 {
    experiment.optimizer.running_copies() * parameters * FLOAT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;

    fn probe() -> Demand {
        let held = |peak, policy| OwnerDemand { peak, floor: Some(peak / 2), policy };
        Demand {
            steps: 10,
            heap_peak: 50_000,
            heap_peak_beside_leaks: 49_000,
            resident_peak: Some(80_000),
            owners: [
                ("gradient_norms".to_owned(), held(80, Policy::Evict)),
                ("log_lines".to_owned(), held(300, Policy::Refuse)),
                ("leak_gradients".to_owned(), held(1_000, Policy::Leak)),
            ]
            .into(),
            ..Demand::default()
        }
    }

    #[test]
    fn caches_are_expected_full_and_leaks_as_long_as_the_run() {
        let plan = plan_of("[pipeline.dummy]\nsteps_per_epoch = 100\n");
        let forecast = forecast(&plan.to_file(10), &plan.experiment, &probe());
        let row = |name: &str| forecast.rows.iter().find(|row| row.name == name).map(|row| row.bytes);
        assert_eq!(row("gradient_norms"), Some(800), "100 norms of eight bytes");
        assert_eq!(row("log_lines"), Some(300), "lines are written out; the probe saw how many wait");
        assert_eq!(row("leak_gradients"), Some(10_000), "100 a step, 100 steps");
        assert_eq!(row("weights"), Some(40));
        assert_eq!(row("optimizer"), Some(80), "AdamW keeps two values for each");
        assert_eq!(forecast.heap_peak, 50_000 + 720 + 9_000);
        assert_eq!(forecast.resident_peak, Some(89_720 + (1 << 20) + 897), "with headroom");
        assert_eq!(forecast.floors, [("log_lines".to_owned(), 150)].into(), "of what fills up there is no floor");
    }

    /// The forecast where `leak_gradients`, which held 1,000 bytes in the probe, is planned like that.
    fn with_leak(place: Place, keeps: Option<Keeps>, probe: &Demand) -> Forecast {
        let plan =
            plan_of("[pipeline.dummy]\nsteps_per_epoch = 100\n[training]\nepochs = 4\n[validation]\nepisodes = 6\n");
        let mut file = plan.to_file(0);
        let like = file.owners[0].clone();
        let leak = PlannedOwner { name: "leak_gradients".into(), policy: Policy::Leak, place, keeps, ..like };
        file.owners.push(leak);
        forecast(&file, &plan.experiment, probe)
    }

    #[test]
    fn a_leak_grows_with_what_it_is_given_and_no_further_than_there_is_to_keep() {
        let probe = Demand { validations: 2, episodes: 4, ..probe() };
        let held = |keeps| {
            let forecast = with_leak(Place::Host, keeps, &probe);
            assert!(forecast.heap_peak >= 49_000, "what a step needs comes on top");
            let row = forecast.rows.iter().find(|row| row.name == "leak_gradients").unwrap();
            assert_eq!(forecast.heap_peak, 49_000 + 720 + row.bytes);
            (row.bytes, row.basis)
        };
        let ahead = Some(Keeps::Growing(Growth { with: Occasion::Step, each: 1.0, at_start: 10 }));
        assert_eq!(held(None), (40_000, Basis::Growth), "10 steps, 400 steps");
        assert_eq!(held(Some(Keeps::with(Occasion::Step, 0.7))), (40_000, Basis::Growth), "7 of 10, 280 of 400");
        assert_eq!(held(ahead), (20_500, Basis::Growth), "20 and 410 in all");
        assert_eq!(held(Some(Keeps::with(Occasion::Validation, 1.0))), (2_500, Basis::Growth), "2 and 5 validations");
        assert_eq!(held(Some(Keeps::with(Occasion::Episode, 1.0))), (7_500, Basis::Growth), "4 and 30 episodes");
        assert_eq!(held(Some(Keeps::InAll(3_000))), (3_000, Basis::Sizes));
        assert_eq!(held(Some(Keeps::InAll(30))), (1_000, Basis::Sizes), "the probe held more");
    }

    #[test]
    fn what_leaks_on_the_device_is_no_memory_of_the_host() {
        let probe = Demand {
            device_in_use_peak: Some(7_000),
            device_reserved_peak: Some(9_000),
            device_beside_pool: Some(2_000),
            ..probe()
        };
        let forecast = with_leak(Place::Device, None, &probe);
        assert_eq!((forecast.device_in_use_peak, forecast.device_reserved_peak), (Some(46_000), Some(48_000)));
        assert_eq!(forecast.device_peak, Some(50_000 + 2_500), "context and a twentieth on top");
        let bytes = |name: &str| forecast.rows.iter().find(|row| row.name == name).map(|row| row.bytes);
        assert_eq!((bytes("context"), bytes("device headroom")), (Some(2_000), Some(2_500)));
        assert_eq!(forecast.heap_peak, 50_000, "49,000 and the norms that are still to come are less");
    }

    #[test]
    fn what_the_process_had_before_its_first_step_is_part_of_its_peak() {
        let mut forecast = Forecast { heap_peak: 10, resident_peak: Some(20), ..Forecast::default() };
        had_already(&mut forecast, 30, Some(15));
        assert_eq!((forecast.heap_peak, forecast.resident_peak), (30, Some(20)));
    }

    #[test]
    fn a_frozen_parameter_has_no_gradient_and_no_state() {
        let plan = plan_of("[pipeline.dummy]\n");
        let file = PlanFile { trained_parameters: Some(3), ..plan.to_file(10) };
        let demand = Demand { step: 1_000, ..probe() };
        let forecast = forecast(&file, &plan.experiment, &demand);
        let row = |name: &str| forecast.rows.iter().find(|row| row.name == name).map(|row| row.bytes);
        let rows = ["weights", "gradients", "optimizer", "activations"].map(row);
        assert_eq!(rows, [Some(40), Some(12), Some(24), Some(1_000 - 12)]);
    }

    #[test]
    fn a_cache_is_never_fuller_than_what_there_is() {
        let plan = plan_of("[pipeline.dummy]\n");
        let mut file = plan.to_file(0);
        file.owners.iter_mut().find(|owner| owner.name == "gradient_norms").unwrap().fills = Some(300);
        let forecast = forecast(&file, &plan.experiment, &probe());
        let norms = forecast.rows.iter().find(|row| row.name == "gradient_norms").unwrap();
        assert_eq!((norms.bytes, norms.basis), (300, Basis::Sizes));
    }

    #[test]
    fn a_part_stands_beside_what_it_came_to_be() {
        let plan = plan_of("[pipeline.dummy]\nsteps_per_epoch = 10\n");
        let file = plan.to_file(10);
        let forecast = forecast(&file, &plan.experiment, &probe());
        let actual = Demand { heap_peak: 40_000, ..probe() };
        let pairs = beside(&forecast, &file, &plan.experiment, &actual);
        let error = |name: &str| pairs.iter().find(|pair| pair.name == name).and_then(|pair| pair.error);
        assert!((error(HEAP_PEAK).unwrap() - 0.268).abs() < 1e-9, "50,720 planned, 40,000 needed");
        assert_eq!(error("leak_gradients"), Some(0.0));
    }
}
