//! Post-mortem of a memory limit: what each owner held, and the values of keys that would fit.

use std::path::Path;

use super::limits::{LimitReached, Trigger};
use super::recorder::Recorder;
use crate::plan::Plan;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::{MemoryKind, PlannedBuffer};
use xrun_core::experiment::Experiment;
use xrun_core::experiment::schema;
use xrun_core::experiment::shape;
use xrun_core::experiment::shape::Shape;
use xrun_core::invocation;
use xrun_core::units::Bytes;
use xrun_results::format::{Demand, GrowthToLimit, MemoryLine, OwnerSummary, PostMortem, Suggestion, VERSION};
use xrun_results::read;
use xrun_results::verdict::{SeriesVerdict, Verdict, VerdictWord};
use xrun_verdict::names::{RESERVED_BEYOND, RSS_BEYOND};

/// Safety factor of suggestions: they free more than what is missing.
const MARGIN: f64 = 1.1;

/// Builds the record `post_mortem.json`. The newest samples are read from the run's trace.
pub fn build(
    recorder: &Recorder,
    plan: &Plan,
    reached: &LimitReached,
    line: &MemoryLine,
    mut owners: Vec<OwnerSummary>,
    parameters: u64,
) -> PostMortem {
    let demand = recorder.demand.demand(&owners);
    let growth = growth(recorder.verdict(), reached);
    owners.sort_by_key(|owner| std::cmp::Reverse(line.owners.get(&owner.name).copied().unwrap_or_default()));
    PostMortem {
        version: VERSION,
        step: line.step,
        message: reached.message(),
        limit_key: reached.key.map(str::to_owned),
        place: reached.place,
        limit: reached.limit,
        held: reached.held,
        suggestions: suggestions(plan, reached, line, &demand, parameters, growth.as_ref()),
        unattributed: outside_buffers(plan, reached, line),
        growth,
        sample: line.clone(),
        owners,
        demand,
        samples: read::newest_memory(&recorder.run),
    }
}

/// Growth of the limited memory, if the verdict suspects it or worse.
fn growth(verdict: Verdict, reached: &LimitReached) -> Option<GrowthToLimit> {
    let here = match reached.place {
        MemoryKind::Host => ["heap", RSS_BEYOND],
        MemoryKind::Device => ["device_in_use", RESERVED_BEYOND],
    };
    // Growth of other memory did not reach this limit.
    let series = |name: &str| verdict.series.iter().find(|one| one.name == name);
    let grew = |one: &&SeriesVerdict| one.findings.verdict >= VerdictWord::Suspect;
    here.iter().filter_map(|name| series(name)).find(grew).map(|total| total.findings.slope).map(|slope| {
        GrowthToLimit {
            verdict: verdict.verdict,
            message: verdict.message.clone(),
            slope,
            owner: verdict.owner.clone(),
        }
    })
}

/// Bytes in use outside of all buffers.
fn outside_buffers(plan: &Plan, reached: &LimitReached, line: &MemoryLine) -> u64 {
    let place = reached.place;
    let in_use = match place {
        MemoryKind::Host => line.host.heap,
        MemoryKind::Device => line.device.map_or(0, |pool| pool.in_use),
    };
    let here = |name: &str| plan.owners.iter().any(|owner| owner.name == name && owner.place == place);
    let buffers: u64 = line.owners.iter().filter(|(name, _)| here(name)).map(|(_, bytes)| bytes).sum();
    in_use.saturating_sub(buffers)
}

/// Suggested values of keys with estimates of the bytes that they free. The memory of a step is assumed to be proportional to
/// its batch.
fn suggestions(
    plan: &Plan,
    reached: &LimitReached,
    line: &MemoryLine,
    demand: &Demand,
    parameters: u64,
    growth: Option<&GrowthToLimit>,
) -> Vec<Suggestion> {
    let experiment = &plan.experiment;
    let expected = expected(plan, reached.place);
    // The forecast for the rest of the run counts as well: otherwise the limit is reached again some steps later.
    let excess = reached.excess().max(expected.saturating_sub(reached.limit));
    let excess = (excess as f64 * MARGIN) as u64;
    let mut found: Vec<Suggestion> = Vec::new();
    for leak in experiment.active_leaks() {
        let held = line.owners.get(leak.owner).copied().unwrap_or_default();
        found.push(Suggestion { key: format!("leaks.{}", leak.key), value: "false".into(), frees: held });
    }
    // If memory grows, a smaller batch, smaller buffers or a higher limit only delay the end.
    if growth.is_none() {
        found.extend(batch_size(plan, working(reached, demand, parameters), excess));
        let training = &experiment.training;
        if reached.place == MemoryKind::Device && !training.activation_checkpointing {
            let key = "training.activation_checkpointing".into();
            found.push(Suggestion { key, value: "true".into(), frees: 0 });
        }
    }
    let concerned = |name: &str| growth.is_none_or(|growth| growth.owner.as_deref() == Some(name));
    // A leak has no cap.
    let here = |owner: &&PlannedBuffer| owner.place == reached.place && owner.policy != Policy::Leak;
    for owner in plan.owners.iter().filter(here).filter(|owner| concerned(&owner.name)) {
        let held = line.owners.get(&owner.name).copied().unwrap_or_default();
        if let Some(key) = owner.key.as_deref().filter(|_| held > excess) {
            found.extend(reduced_cap(experiment, key, held, excess));
        }
    }
    if let Some(key) = reached.key.filter(|_| growth.is_none()) {
        let enough = Bytes(((reached.held.max(expected) as f64 * MARGIN) as u64).next_multiple_of(1 << 20));
        found.push(Suggestion { key: key.into(), value: format!("\"{}\"", enough.exact()), frees: 0 });
    }
    found
}

/// Forecast peak of the limited memory; 0 without a forecast.
fn expected(plan: &Plan, place: MemoryKind) -> u64 {
    let Some(forecast) = &plan.forecast else { return 0 };
    let expected = match place {
        MemoryKind::Host => forecast.rss_peak.or(Some(forecast.heap_peak)),
        MemoryKind::Device => forecast.device_reserved_peak,
    };
    expected.unwrap_or_default()
}

/// Suggestion with which the run can be resumed, as an option `-s KEY=VALUE`: a higher limit, or else the first key that a
/// resume may change.
pub fn resume_option(record: &PostMortem, is_changeable: impl Fn(&str) -> bool) -> Option<String> {
    let limit = record.suggestions.iter().find(|tip| Some(&tip.key) == record.limit_key.as_ref());
    let tip = limit.or_else(|| record.suggestions.iter().find(|tip| is_changeable(&tip.key)))?;
    Some(format!("-s {}={}", tip.key, tip.value))
}

/// Bytes of a step that shrink with the batch, that is without gradients; `None` if unknown.
fn working(reached: &LimitReached, demand: &Demand, parameters: u64) -> Option<u64> {
    let gradients = parameters * size_of::<f32>() as u64;
    match (reached.place, reached.trigger) {
        (MemoryKind::Host, _) => Some(demand.step.saturating_sub(gradients)),
        // The demand of a step whose allocation was refused is unknown.
        (MemoryKind::Device, Trigger::Refused { .. }) => None,
        (MemoryKind::Device, _) => {
            let held = demand.device_in_use_at_start.unwrap_or_default() + gradients;
            demand.device_reserved_peak.map(|reserved| reserved.saturating_sub(held))
        }
    }
}

/// Batch size whose step needs `excess` bytes less; half the batch if the demand of a step is unknown.
fn batch_size(plan: &Plan, working: Option<u64>, excess: u64) -> Option<Suggestion> {
    if plan.facts.whole_batches {
        return None;
    }
    let batch = (plan.experiment.limits.batch_size as u64).min(plan.facts.batch_items).max(1);
    let smaller = |value: u64, frees| Suggestion { key: "limits.batch_size".into(), value: value.to_string(), frees };
    let Some(working) = working else { return (batch > 1).then(|| smaller(batch / 2, 0)) };
    let each = working / batch;
    let fewer = excess.checked_div(each)? + 1;
    (fewer < batch).then(|| smaller(batch - fewer, fewer * each))
}

/// Value of a buffer's key with which it holds `excess` bytes less.
fn reduced_cap(experiment: &Experiment, key: &str, held: u64, excess: u64) -> Option<Suggestion> {
    let suggestion = |value: String, frees| Suggestion { key: key.to_owned(), value, frees };
    match shape::parse(shape::schema_at(schema::shared(), key)?) {
        Shape::Bytes => {
            let unit = if held > 16 << 20 { 1 << 20 } else { 1 << 10 };
            let left = (held - excess) / unit * unit;
            Some(suggestion(format!("\"{}\"", Bytes(left).exact()), held - left))
        }
        Shape::Integer { least, .. } => {
            let values = serde_json::to_value(experiment).ok()?;
            let value = key.split('.').try_fold(&values, |value, key| value.get(key))?.as_u64()?;
            let fewer = (value as f64 * (held - excess) as f64 / held as f64) as u64;
            let frees = (held as f64 * (1.0 - fewer as f64 / value as f64)) as u64;
            (i64::try_from(fewer).ok()? >= least && fewer > 0).then(|| suggestion(fewer.to_string(), frees))
        }
        _ => None,
    }
}

/// Message of the ending: the limit, the largest owners, growth, and what to do.
pub fn message(record: &PostMortem, run: &Path) -> String {
    let (what, in_use) = match record.sample.device.filter(|_| record.place == MemoryKind::Device) {
        Some(pool) => ("device memory in use", pool.in_use),
        None => ("heap in use", record.sample.host.heap),
    };
    let buffers = record.sample.owners.iter().map(|(name, bytes)| (name.as_str(), *bytes));
    let mut held: Vec<(&str, u64)> = buffers.chain([("outside of buffers", record.unattributed)]).collect();
    held.retain(|(_, bytes)| *bytes > 0);
    held.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let held: Vec<String> = held.iter().take(4).map(|(name, bytes)| format!("{name} {}", Bytes(*bytes))).collect();
    let tips: Vec<String> =
        record.suggestions.iter().take(3).map(|one| format!("-s {}={}", one.key, one.value)).collect();
    let growth = record.growth.as_ref().map_or_else(String::new, |growth| format!("; {}", growth.message));
    let advice = format!("try {}", tips.join(" or "));
    let shows = format!("`{} verdict {}` shows what grows", invocation::program(), run.display());
    let tips = match (&record.growth, tips.is_empty()) {
        (Some(_), true) => format!("{shows}; a higher limit only delays the end"),
        (Some(_), false) => format!("{advice}; {shows}"),
        (None, true) => "use a machine with more memory".into(),
        (None, false) => advice,
    };
    let step = match record.demand.step {
        0 => String::new(),
        bytes => format!("; a step needs {} more", Bytes(bytes)),
    };
    format!(
        "{} at step {}; {what} {}: {}{step}{growth}; {tips}",
        record.message,
        record.step,
        Bytes(in_use),
        held.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;
    use xrun_core::bounded::buffer::Buffer;
    use xrun_core::bounded::ledger::Cap;

    const MIB: u64 = 1 << 20;

    fn reached(excess: u64) -> LimitReached {
        let (limit, held) = (100 * MIB, 100 * MIB + excess);
        LimitReached {
            key: Some("limits.host_memory"),
            place: MemoryKind::Host,
            limit,
            held,
            trigger: Trigger::Measured,
        }
    }

    #[test]
    fn a_smaller_batch_is_suggested_by_the_bytes_per_item() {
        let mut plan = plan_of("[pipeline.dummy]\n[limits]\nbatch_size = 32\n");
        plan.facts.batch_items = 16;
        let tip = batch_size(&plan, Some(160 * MIB), 45 * MIB).unwrap();
        assert_eq!((tip.value.as_str(), tip.frees), ("11", 50 * MIB), "16 items of 10 MiB, five fewer");
        assert_eq!(batch_size(&plan, Some(160 * MIB), 160 * MIB), None, "no batch is small enough");
        let refused = LimitReached::refused(Some(1 << 30), None, 0);
        let tip = batch_size(&plan, working(&refused, &Demand::default(), 0), refused.excess()).unwrap();
        assert_eq!((tip.value.as_str(), tip.frees), ("8", 0), "half, as the demand of a step is unknown");
    }

    #[test]
    fn the_key_of_a_buffer_that_holds_enough_is_suggested() {
        let experiment = plan_of("[pipeline.dummy]\n").experiment;
        let tip = reduced_cap(&experiment, "limits.frame_cache", 64 * MIB, 24 * MIB).unwrap();
        assert_eq!((tip.value.as_str(), tip.frees), ("\"40 MiB\"", 24 * MIB));
        let tip = reduced_cap(&experiment, "limits.metrics_queue", 16_000, 4_000).unwrap();
        assert_eq!((tip.value.as_str(), tip.frees), ("12", 4_000));
    }

    #[test]
    fn the_key_of_a_buffer_is_not_read_from_its_description() {
        let mut plan = plan_of("[pipeline.dummy]\n");
        let line = MemoryLine { owners: [("frame_cache".to_owned(), 64 * MIB)].into(), ..MemoryLine::default() };
        let cache = Buffer::new("frame_cache", Policy::Evict, Cap { items: 9, bytes: 64 * MIB })
            .key("limits.frame_cache")
            .because("`limits.decode_memory` has nothing to do with it");
        let mut owner = PlannedBuffer::from(&cache);
        for key in [owner.key.clone(), None] {
            owner.key.clone_from(&key);
            plan.owners = vec![owner.clone()];
            let tips = suggestions(&plan, &reached(10 * MIB), &line, &Demand::default(), 0, None);
            let keys: Vec<&str> = tips.iter().map(|tip| tip.key.as_str()).collect();
            let expected = ["limits.frame_cache", "limits.host_memory"];
            assert_eq!(keys, if key.is_some() { &expected[..] } else { &expected[1..] });
        }
    }

    #[test]
    fn a_higher_limit_is_the_last_resort_and_no_lower_than_the_forecast() {
        let mut plan = plan_of("[pipeline.dummy]\n");
        let tips = |plan: &Plan, growth: Option<&GrowthToLimit>| {
            let (line, demand) = (MemoryLine::default(), Demand::default());
            let tips = suggestions(plan, &reached(10 * MIB), &line, &demand, 0, growth);
            tips.into_iter().map(|tip| (tip.key, tip.value)).collect::<Vec<_>>()
        };
        let limit = |bytes: &str| ("limits.host_memory".to_owned(), format!("\"{bytes}\""));
        assert_eq!(tips(&plan, None).last(), Some(&limit("121 MiB")));
        let message = "memory is growing".into();
        let growth = GrowthToLimit { verdict: VerdictWord::Growing, message, slope: Some(1e6), owner: None };
        assert_eq!(tips(&plan, Some(&growth)), []);
        plan.forecast = Some(xrun_results::format::Forecast { rss_peak: Some(200 * MIB), ..Default::default() });
        assert_eq!(tips(&plan, None).last(), Some(&limit("220 MiB")), "200 MiB and 10 %");
    }
}
