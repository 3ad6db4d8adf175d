//! Memory forecast of a run, from known sizes, caps that will be reached, and a probe.
//!
//! The probe is a short run of the same experiment in a separate process. It holds everything that the run will hold, except
//! what fills up later: caches and leaks.

use std::collections::BTreeMap;

use xrun_core::bounded::leak_growth::{GrowthEvent, LeakGrowth, LinearGrowth};
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::{MemoryKind, PlannedBuffer};
use xrun_core::experiment::Experiment;
use xrun_results::format::{Basis, Demand, Forecast, ForecastRow, OwnerDemand, PlanFile, PlannedAndActual};

/// Bytes of a weight, a gradient or a value of the optimiser's state.
const FLOAT_BYTES: u64 = 4;

/// Forecasts the memory of the run that `plan` describes from the demand of its probe.
pub fn forecast(plan: &PlanFile, experiment: &Experiment, probe: &Demand) -> Forecast {
    let expected_peak = |name: &str, held: &OwnerDemand| expected_peak(plan, experiment, probe, name, held);
    let mut rows = rows(plan, experiment, probe, expected_peak);
    // Leaks peak at the end of the run, not when the probe needed most.
    let mut heap_peak = probe.heap_peak_beside_leaks;
    let mut device_growth: u64 = 0;
    for (name, held) in &probe.owners {
        let bytes = expected_peak(name, held).0;
        let growth = bytes.saturating_sub(held.peak);
        match (place_of(plan, name), held.policy) {
            (MemoryKind::Device, _) => device_growth = device_growth.saturating_add(growth),
            (MemoryKind::Host, Policy::Leak) => heap_peak = heap_peak.saturating_add(bytes),
            (MemoryKind::Host, _) => heap_peak = heap_peak.saturating_add(growth),
        }
    }
    // A resume loads a checkpoint before its first step, in addition to the initialised model.
    let resumed = probe.heap_at_start.saturating_add(probe.load);
    let heap_peak = heap_peak.max(probe.heap_peak).max(resumed);
    let rss = probe.rss_peak.map(|peak| peak.saturating_add(heap_peak - probe.heap_peak));
    let about = "RSS of a long run beyond that of a short one: 1 MiB and 1 %";
    rows.extend(rss.map(|rss| row("headroom", MemoryKind::Host, headroom(rss), Basis::Sizes, about)));
    let reserved = probe.device_reserved_peak.map(|peak| peak.saturating_add(device_growth));
    let on_device = reserved.map(|reserved| reserved.saturating_add(probe.device_beside_pool.unwrap_or_default()));
    let about = "pages of sizes that the probe did not need: 5 %";
    let spare = |bytes: u64| bytes / DEVICE_HEADROOM_PART;
    rows.extend(on_device.map(|bytes| row("device headroom", MemoryKind::Device, spare(bytes), Basis::Sizes, about)));
    Forecast {
        probe_steps: probe.steps,
        rows,
        heap_peak,
        rss_peak: rss.map(|rss| rss.saturating_add(headroom(rss))),
        device_in_use_peak: probe.device_in_use_peak.map(|peak| peak.saturating_add(device_growth)),
        device_reserved_peak: reserved,
        device_peak: on_device.map(|bytes| bytes.saturating_add(spare(bytes))),
        floors: steady_floors(probe),
        duration: None,
        probe_durations: None,
    }
}

/// Minima between steps of the buffers that are refilled in each step. The fill level of queues depends on timing, and caches
/// fill up.
fn steady_floors(probe: &Demand) -> BTreeMap<String, u64> {
    let steady = |held: &&OwnerDemand| matches!(held.policy, Policy::Refuse | Policy::Reduce);
    let floors = probe.owners.iter().filter(|(_, held)| steady(held));
    floors.filter_map(|(name, held)| Some((name.clone(), held.floor?))).collect()
}

/// Divisor of the device headroom: a run may need pages of other sizes than its probe, for longer texts or more batches.
const DEVICE_HEADROOM_PART: u64 = 20;

/// Compares each part of the forecast with the actual demand of the run; totals last.
pub fn compare(
    forecast: &Forecast,
    plan: &PlanFile,
    experiment: &Experiment,
    actual: &Demand,
) -> Vec<PlannedAndActual> {
    let measured = rows(plan, experiment, actual, |_, held| (held.peak, Basis::Probe));
    let pair = |name: &str, planned: u64, actual: u64| PlannedAndActual {
        name: name.to_owned(),
        planned,
        actual,
        error: (actual > 0).then(|| planned as f64 / actual as f64 - 1.0),
    };
    let mut pairs: Vec<PlannedAndActual> = forecast
        .rows
        .iter()
        .filter_map(|row| Some(pair(&row.name, row.bytes, measured.iter().find(|one| one.name == row.name)?.bytes)))
        .collect();
    pairs.push(pair(HEAP_PEAK, forecast.heap_peak, actual.heap_peak));
    let totals = [
        (RSS_PEAK, forecast.rss_peak, actual.rss_peak),
        ("device in use, peak", forecast.device_in_use_peak, actual.device_in_use_peak),
        ("device reserved, peak", forecast.device_reserved_peak, actual.device_reserved_peak),
    ];
    let totals = totals.into_iter().filter_map(|(name, planned, actual)| Some(pair(name, planned?, actual?)));
    pairs.extend(totals);
    pairs
}

/// Raises the peaks to those of the process before its first step.
pub fn raise_peaks(forecast: &mut Forecast, heap: u64, rss: Option<u64>) {
    forecast.heap_peak = forecast.heap_peak.max(heap);
    forecast.rss_peak = forecast.rss_peak.max(rss);
}

/// RSS of a long run beyond that of a short one: fragmentation, and the report at its end.
fn headroom(rss: u64) -> u64 {
    const FIXED: u64 = 1 << 20;
    FIXED + rss / 100
}

const ACTIVATIONS: &str = "activations";
const ACTIVATIONS_AND_PAGES: &str = "activations and pages";

/// Returns true for the row of a forecast that a smaller batch reduces.
pub fn is_step_memory(name: &str) -> bool {
    [ACTIVATIONS, ACTIVATIONS_AND_PAGES].contains(&name)
}

/// Names of the totals in [`compare`].
const HEAP_PEAK: &str = "heap in use, peak";
const RSS_PEAK: &str = "RSS, peak";

/// Expected peak of an owner in bytes, and the basis of the estimate.
fn expected_peak(
    plan: &PlanFile,
    experiment: &Experiment,
    probe: &Demand,
    name: &str,
    held: &OwnerDemand,
) -> (u64, Basis) {
    let planned = plan.owners.iter().find(|owner| owner.name == name);
    match held.policy {
        // Caches fill up, as do lists of the best items.
        Policy::Evict | Policy::Reduce => {
            // All items together may be smaller than the cap.
            let below_cap = planned.is_some_and(|owner| owner.full() < owner.bytes);
            let basis = if below_cap { Basis::Sizes } else { Basis::Cap };
            (planned.map_or(held.peak, PlannedBuffer::full).max(held.peak), basis)
        }
        Policy::Leak => match planned
            .and_then(|owner| owner.leak_growth)
            .unwrap_or(LeakGrowth::with(GrowthEvent::Step, 1.0))
        {
            LeakGrowth::Total(bytes) | LeakGrowth::Filling { total: bytes, .. } => (bytes.max(held.peak), Basis::Sizes),
            LeakGrowth::Linear(growth) => (extrapolated(growth, plan, experiment, probe, held.peak), Basis::Growth),
        },
        // A queue is as full after a few steps as after many.
        Policy::Block | Policy::Refuse => (held.peak, Basis::Probe),
    }
}

/// Bytes that a leak with `peak` bytes in the probe will hold at the end of the run. It grows linearly with the number of items
/// added.
fn extrapolated(growth: LinearGrowth, plan: &PlanFile, experiment: &Experiment, probe: &Demand, peak: u64) -> u64 {
    let epochs = |steps: u64| steps / plan.steps_per_epoch.max(1);
    let episodes = experiment.validation.batches as u64;
    let (in_probe, in_run) = match growth.with {
        GrowthEvent::Step => (probe.steps, plan.steps),
        GrowthEvent::Validation => (probe.validations, plan.validations),
        GrowthEvent::Episode => (probe.episodes, plan.validations.saturating_mul(episodes)),
        GrowthEvent::Epoch => (epochs(probe.steps), epochs(plan.steps)),
    };
    let (in_probe, in_run) = (growth.given(in_probe), growth.given(in_run));
    let all = u128::from(peak) * u128::from(in_run) / u128::from(in_probe.max(1));
    u64::try_from(all).unwrap_or(u64::MAX).max(peak)
}

fn place_of(plan: &PlanFile, owner: &str) -> MemoryKind {
    plan.owners.iter().find(|planned| planned.name == owner).map_or(MemoryKind::Host, |planned| planned.place)
}

fn row(name: &str, place: MemoryKind, bytes: u64, basis: Basis, about: &str) -> ForecastRow {
    ForecastRow { name: name.into(), place, bytes, basis, about: about.into() }
}

fn rows(
    plan: &PlanFile,
    experiment: &Experiment,
    demand: &Demand,
    owner: impl Fn(&str, &OwnerDemand) -> (u64, Basis),
) -> Vec<ForecastRow> {
    let measured = |name: &str, place, bytes, about: &str| row(name, place, bytes, Basis::Probe, about);
    let host = |name: &str, bytes, about: &str| measured(name, MemoryKind::Host, bytes, about);
    let beyond_heap = demand.rss_peak.map(|rss| rss.saturating_sub(demand.heap_peak));
    if experiment.command().is_some() {
        // Only the memory of its processes is known.
        let gpu = demand
            .device_reserved_peak
            .map(|bytes| measured("GPU", MemoryKind::Device, bytes, "memory of all processes on GPUs"));
        let processes =
            host("processes", demand.heap_peak, "private and shared memory of all processes of the command");
        let about = "mapped file pages, which the kernel can drop";
        return [processes, host("files", beyond_heap.unwrap_or_default(), about)].into_iter().chain(gpu).collect();
    }
    let on_device = demand.device_in_use_peak.is_some();
    let place = if on_device { MemoryKind::Device } else { MemoryKind::Host };
    let weights = plan.parameters.saturating_mul(FLOAT_BYTES);
    let trained = plan.trained_parameters.unwrap_or(plan.parameters);
    let gradients = trained.saturating_mul(FLOAT_BYTES);
    let state = experiment.optimizer.running_copies() * trained * FLOAT_BYTES;
    let on_host = |bytes: u64| if on_device { 0 } else { bytes };
    let program = demand.heap_at_start.saturating_sub(demand.owners_at_start + on_host(weights));
    let mut rows = vec![
        host("program", program, "libraries, data index, everything outside of the ledger"),
        row("weights", place, weights, Basis::Sizes, "parameters, 4 bytes each"),
        row("gradients", place, gradients, Basis::Sizes, "one per trained parameter, during a step"),
        row("optimizer", place, state, Basis::Sizes, "state of the optimiser"),
    ];
    let about = "activations of a training step and temporary tensors";
    if on_device {
        let held = demand.device_in_use_at_start.unwrap_or_default();
        let pages = demand.device_reserved_peak.unwrap_or_default().saturating_sub(held);
        rows.push(measured(ACTIVATIONS_AND_PAGES, place, pages, about));
        let context = "context of the driver, code, pools of other streams";
        rows.extend(demand.device_beside_pool.map(|beside| measured("context", place, beside, context)));
        rows.push(host("host work of a step", demand.step, "working memory on the host"));
    } else {
        rows.push(host(ACTIVATIONS, demand.step.saturating_sub(gradients), about));
    }
    rows.push(host("validation", demand.validation, "working memory, not during a step"));
    rows.push(host("checkpoint", demand.checkpoint, "working memory, not during a step"));
    if demand.load > 0 {
        rows.push(host("resume", demand.load, "working memory of loading a checkpoint, before the first step"));
    }
    for (name, held) in &demand.owners {
        let (bytes, basis) = owner(name, held);
        rows.push(row(name, place_of(plan, name), bytes, basis, "buffer in the ledger"));
    }
    let about = "code, stacks, free pages of the allocator (RSS only)";
    rows.extend(beyond_heap.map(|bytes| host("runtime", bytes, about)));
    rows
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
            rss_peak: Some(80_000),
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
    fn caches_are_expected_to_fill_and_leaks_to_grow_with_the_run() {
        let plan = plan_of("[pipeline.dummy]\nsteps_per_epoch = 100\n");
        let forecast = forecast(&plan.to_file(10), &plan.experiment, &probe());
        let row = |name: &str| forecast.rows.iter().find(|row| row.name == name).map(|row| row.bytes);
        assert_eq!(row("gradient_norms"), Some(800), "100 norms of eight bytes");
        assert_eq!(row("log_lines"), Some(300), "measured: lines are written out");
        assert_eq!(row("leak_gradients"), Some(10_000), "100 per step, 100 steps");
        assert_eq!(row("weights"), Some(40));
        assert_eq!(row("optimizer"), Some(80), "AdamW has two values per parameter");
        assert_eq!(forecast.heap_peak, 50_000 + 720 + 9_000);
        assert_eq!(forecast.rss_peak, Some(89_720 + (1 << 20) + 897), "with headroom");
        assert_eq!(forecast.floors, [("log_lines".to_owned(), 150)].into(), "a cache has no floor");
        // All items together are smaller than the cap.
        let mut file = plan.to_file(0);
        file.owners.iter_mut().find(|owner| owner.name == "gradient_norms").unwrap().working_set_bytes = Some(300);
        let forecast = super::forecast(&file, &plan.experiment, &probe());
        let norms = forecast.rows.iter().find(|row| row.name == "gradient_norms").unwrap();
        assert_eq!((norms.bytes, norms.basis), (300, Basis::Sizes));
    }

    /// Forecast with a leak `leak_gradients`, which held 1,000 bytes in the probe.
    fn with_leak(place: MemoryKind, leak_growth: Option<LeakGrowth>, probe: &Demand) -> Forecast {
        let plan =
            plan_of("[pipeline.dummy]\nsteps_per_epoch = 100\n[training]\nepochs = 4\n[validation]\nbatches = 6\n");
        let mut file = plan.to_file(0);
        let like = file.owners[0].clone();
        let leak = PlannedBuffer { name: "leak_gradients".into(), policy: Policy::Leak, place, leak_growth, ..like };
        file.owners.push(leak);
        forecast(&file, &plan.experiment, probe)
    }

    #[test]
    fn a_leak_grows_with_the_items_added_up_to_all_there_are() {
        let probe = Demand { validations: 2, episodes: 4, ..probe() };
        let held = |leak_growth| {
            let forecast = with_leak(MemoryKind::Host, leak_growth, &probe);
            let row = forecast.rows.iter().find(|row| row.name == "leak_gradients").unwrap();
            assert_eq!(forecast.heap_peak, 49_000 + 720 + row.bytes);
            (row.bytes, row.basis)
        };
        let ahead = Some(LeakGrowth::Linear(LinearGrowth { with: GrowthEvent::Step, each: 1.0, at_start: 10 }));
        assert_eq!(held(None), (40_000, Basis::Growth), "10 steps, 400 steps");
        for (event, each, bytes, why) in [
            (GrowthEvent::Step, 0.7, 40_000, "7 of 10, 280 of 400"),
            (GrowthEvent::Validation, 1.0, 2_500, "2 and 5 validations"),
            (GrowthEvent::Episode, 1.0, 7_500, "4 and 30 episodes"),
        ] {
            assert_eq!(held(Some(LeakGrowth::with(event, each))), (bytes, Basis::Growth), "{why}");
        }
        assert_eq!(held(ahead), (20_500, Basis::Growth), "20 and 410 in all");
        assert_eq!(held(Some(LeakGrowth::Total(3_000))), (3_000, Basis::Sizes));
        assert_eq!(held(Some(LeakGrowth::Total(30))), (1_000, Basis::Sizes), "the probe held more");
    }

    #[test]
    fn a_leak_on_the_device_does_not_count_on_the_host() {
        let probe = Demand {
            device_in_use_peak: Some(7_000),
            device_reserved_peak: Some(9_000),
            device_beside_pool: Some(2_000),
            ..probe()
        };
        let forecast = with_leak(MemoryKind::Device, None, &probe);
        assert_eq!((forecast.device_in_use_peak, forecast.device_reserved_peak), (Some(46_000), Some(48_000)));
        assert_eq!(forecast.device_peak, Some(50_000 + 2_500), "with context and 5 %");
        let bytes = |name: &str| forecast.rows.iter().find(|row| row.name == name).map(|row| row.bytes);
        assert_eq!((bytes("context"), bytes("device headroom")), (Some(2_000), Some(2_500)));
        assert_eq!(forecast.heap_peak, 50_000, "49,000 and the growth of the norms are less");
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
    fn each_part_is_compared_with_its_actual_demand() {
        let plan = plan_of("[pipeline.dummy]\nsteps_per_epoch = 10\n");
        let file = plan.to_file(10);
        let forecast = forecast(&file, &plan.experiment, &probe());
        let actual = Demand { heap_peak: 40_000, ..probe() };
        let pairs = compare(&forecast, &file, &plan.experiment, &actual);
        let error = |name: &str| pairs.iter().find(|pair| pair.name == name).and_then(|pair| pair.error);
        assert!((error(HEAP_PEAK).unwrap() - 0.268).abs() < 1e-9, "50,720 planned, 40,000 needed");
        assert_eq!(error("leak_gradients"), Some(0.0));
    }
}
