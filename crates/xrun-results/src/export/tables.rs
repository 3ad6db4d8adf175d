//! Columns of each table. Names end with the unit, such as `_bytes` and `_us` (microseconds).

use serde::Serialize;

use super::columns::{Column, Names};
use crate::format::{MemoryLine, MetricsLine};

type OfMetrics = Column<MetricsLine>;
type OfMemory = Column<MemoryLine>;

/// Columns of the table of training steps.
pub fn training(values: &Names) -> Vec<OfMetrics> {
    let mut columns = vec![
        OfMetrics::integer("step", |line| Some(line.step())),
        OfMetrics::integer("epoch", epoch),
        OfMetrics::word("batch", |line| match line {
            MetricsLine::Train { batch, .. } => Some(batch.clone()),
            MetricsLine::Validation { .. } => None,
        }),
        OfMetrics::number("loss", |line| match line {
            MetricsLine::Train { loss, .. } => Some(*loss),
            MetricsLine::Validation { .. } => None,
        }),
        OfMetrics::number("learning_rate", |line| match line {
            MetricsLine::Train { learning_rate, .. } => *learning_rate,
            MetricsLine::Validation { .. } => None,
        }),
        OfMetrics::number("gradient_norm", |line| match line {
            MetricsLine::Train { gradient_norm, .. } => *gradient_norm,
            MetricsLine::Validation { .. } => None,
        }),
        OfMetrics::number("gradient_norm_median", |line| match line {
            MetricsLine::Train { gradient_norm_median, .. } => *gradient_norm_median,
            MetricsLine::Validation { .. } => None,
        }),
    ];
    columns.extend(values.iter().cloned().map(|name| {
        OfMetrics::number(format!("value_{name}"), move |line| match line {
            MetricsLine::Train { values, .. } => values.get(&name).copied(),
            MetricsLine::Validation { .. } => None,
        })
    }));
    columns
}

/// Columns of the table of validations. `intervals` names the metrics that are means over episodes.
pub fn validation(metrics: &Names, intervals: &Names) -> Vec<OfMetrics> {
    let mut columns = vec![OfMetrics::integer("step", |line| Some(line.step())), OfMetrics::integer("epoch", epoch)];
    columns.extend(metrics.iter().cloned().map(|name| {
        OfMetrics::number(format!("metric_{name}"), move |line| match line {
            MetricsLine::Train { .. } => None,
            MetricsLine::Validation { metrics, .. } => metrics.get(&name).copied().flatten(),
        })
    }));
    columns.extend(intervals.iter().cloned().map(|name| {
        OfMetrics::number(format!("half_width_{name}"), move |line| match line {
            MetricsLine::Train { .. } => None,
            MetricsLine::Validation { intervals, .. } => intervals.get(&name).map(|interval| interval.half_width),
        })
    }));
    columns
}

fn epoch(line: &MetricsLine) -> Option<u64> {
    match line {
        MetricsLine::Train { epoch, .. } | MetricsLine::Validation { epoch, .. } => Some(*epoch),
    }
}

/// Columns of the table of memory samples.
pub fn memory(owners: &Names, phases: &Names) -> Vec<OfMemory> {
    let mut columns = vec![
        OfMemory::integer("segment", |line| Some(line.segment.into())),
        OfMemory::integer("time_us", |line| Some(line.time_us)),
        OfMemory::integer("step", |line| Some(line.step)),
        OfMemory::integer("epoch", |line| Some(line.epoch)),
        OfMemory::word("point", |line| word(line.point)),
        OfMemory::integer("heap_bytes", |line| Some(line.host.heap)),
        OfMemory::integer("heap_peak_bytes", |line| Some(line.host.heap_peak)),
        OfMemory::integer("heap_allocations", |line| Some(line.host.heap_allocations)),
        OfMemory::integer("resident_bytes", |line| line.host.resident),
        OfMemory::integer("resident_peak_bytes", |line| line.host.resident_peak),
        OfMemory::integer("anonymous_bytes", |line| line.host.anonymous),
        OfMemory::integer("file_bytes", |line| line.host.file),
        OfMemory::integer("swap_bytes", |line| line.host.swap),
        OfMemory::integer("libraries_bytes", |line| line.host.libraries),
        OfMemory::integer("device_in_use_bytes", |line| Some(line.device?.in_use)),
        OfMemory::integer("device_reserved_bytes", |line| Some(line.device?.reserved)),
        OfMemory::integer("device_allocations", |line| Some(line.device?.allocations)),
        OfMemory::integer("driver_process_bytes", |line| line.driver?.process),
        OfMemory::integer("driver_device_bytes", |line| Some(line.driver?.device)),
        OfMemory::integer("gpu_utilisation_percent", |line| line.driver?.load?.utilisation_percent.map(u64::from)),
        OfMemory::integer("gpu_power_milliwatts", |line| line.driver?.load?.power_milliwatts.map(u64::from)),
        OfMemory::integer("container_current_bytes", |line| Some(line.container?.current)),
        OfMemory::integer("container_anonymous_bytes", |line| line.container?.anonymous),
        OfMemory::integer("container_peak_bytes", |line| line.container?.peak),
        OfMemory::integer("container_limit_bytes", |line| line.container?.limit),
        OfMemory::integer("freed_bytes", |line| line.freed),
        OfMemory::integer("cost_us", |line| Some(line.cost_us)),
    ];
    columns.extend(
        owners
            .iter()
            .cloned()
            .map(|name| OfMemory::integer(format!("owner_{name}_bytes"), move |line| line.owners.get(&name).copied())),
    );
    columns.extend(
        phases
            .iter()
            .cloned()
            .map(|name| OfMemory::integer(format!("phase_{name}_us"), move |line| line.phases_us.get(&name).copied())),
    );
    columns
}

/// Serialized name of an enum variant.
fn word(value: impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}
