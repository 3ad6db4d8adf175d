//! Columns of each table. Names end with the unit, such as `_bytes` and `_us` (microseconds).

use serde::Serialize;

use super::columns::{ColumnNames, TableColumn};
use crate::format::{MemoryLine, MetricsLine};

type MetricsColumn = TableColumn<MetricsLine>;
type MemoryColumn = TableColumn<MemoryLine>;

/// Columns of the table of training steps.
pub fn training(values: &ColumnNames) -> Vec<MetricsColumn> {
    let mut columns = vec![
        MetricsColumn::integer("step", |line| Some(line.step())),
        MetricsColumn::integer("epoch", epoch),
        MetricsColumn::word("batch", |line| match line {
            MetricsLine::Train { batch, .. } => Some(batch.clone()),
            MetricsLine::Validation { .. } => None,
        }),
        MetricsColumn::number("loss", |line| match line {
            MetricsLine::Train { loss, .. } => Some(*loss),
            MetricsLine::Validation { .. } => None,
        }),
        MetricsColumn::number("learning_rate", |line| match line {
            MetricsLine::Train { learning_rate, .. } => *learning_rate,
            MetricsLine::Validation { .. } => None,
        }),
        MetricsColumn::number("gradient_norm", |line| match line {
            MetricsLine::Train { gradient_norm, .. } => *gradient_norm,
            MetricsLine::Validation { .. } => None,
        }),
        MetricsColumn::number("gradient_norm_median", |line| match line {
            MetricsLine::Train { gradient_norm_median, .. } => *gradient_norm_median,
            MetricsLine::Validation { .. } => None,
        }),
    ];
    columns.extend(values.iter().cloned().map(|name| {
        MetricsColumn::number(format!("value_{name}"), move |line| match line {
            MetricsLine::Train { values, .. } => values.get(&name).copied(),
            MetricsLine::Validation { .. } => None,
        })
    }));
    columns
}

/// Columns of the table of validations. `intervals` names the metrics that are means over episodes.
pub fn validation(metrics: &ColumnNames, intervals: &ColumnNames) -> Vec<MetricsColumn> {
    let mut columns =
        vec![MetricsColumn::integer("step", |line| Some(line.step())), MetricsColumn::integer("epoch", epoch)];
    columns.extend(metrics.iter().cloned().map(|name| {
        MetricsColumn::number(format!("metric_{name}"), move |line| match line {
            MetricsLine::Train { .. } => None,
            MetricsLine::Validation { metrics, .. } => metrics.get(&name).copied().flatten(),
        })
    }));
    columns.extend(intervals.iter().cloned().map(|name| {
        MetricsColumn::number(format!("half_width_{name}"), move |line| match line {
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
pub fn memory(owners: &ColumnNames, phases: &ColumnNames) -> Vec<MemoryColumn> {
    let mut columns = vec![
        MemoryColumn::integer("segment", |line| Some(line.segment.into())),
        MemoryColumn::integer("time_us", |line| Some(line.time_us)),
        MemoryColumn::integer("step", |line| Some(line.step)),
        MemoryColumn::integer("epoch", |line| Some(line.epoch)),
        MemoryColumn::word("point", |line| word(line.point)),
        MemoryColumn::integer("heap_bytes", |line| Some(line.host.heap)),
        MemoryColumn::integer("heap_peak_bytes", |line| Some(line.host.heap_peak)),
        MemoryColumn::integer("heap_allocations", |line| Some(line.host.heap_allocations)),
        MemoryColumn::integer("rss_bytes", |line| line.host.rss),
        MemoryColumn::integer("rss_peak_bytes", |line| line.host.rss_peak),
        MemoryColumn::integer("anonymous_bytes", |line| line.host.anonymous),
        MemoryColumn::integer("file_bytes", |line| line.host.file),
        MemoryColumn::integer("swap_bytes", |line| line.host.swap),
        MemoryColumn::integer("libraries_bytes", |line| line.host.libraries),
        MemoryColumn::integer("device_in_use_bytes", |line| Some(line.device?.in_use)),
        MemoryColumn::integer("device_reserved_bytes", |line| Some(line.device?.reserved)),
        MemoryColumn::integer("device_allocations", |line| Some(line.device?.allocations)),
        MemoryColumn::integer("driver_process_bytes", |line| line.driver?.process),
        MemoryColumn::integer("driver_device_bytes", |line| Some(line.driver?.device)),
        MemoryColumn::integer("gpu_utilisation_percent", |line| line.driver?.load?.utilisation_percent.map(u64::from)),
        MemoryColumn::integer("gpu_power_milliwatts", |line| line.driver?.load?.power_milliwatts.map(u64::from)),
        MemoryColumn::integer("container_current_bytes", |line| Some(line.container?.current)),
        MemoryColumn::integer("container_anonymous_bytes", |line| line.container?.anonymous),
        MemoryColumn::integer("container_peak_bytes", |line| line.container?.peak),
        MemoryColumn::integer("container_limit_bytes", |line| line.container?.limit),
        MemoryColumn::integer("freed_bytes", |line| line.freed),
        MemoryColumn::integer("cost_us", |line| Some(line.cost_us)),
    ];
    columns.extend(
        owners.iter().cloned().map(|name| {
            MemoryColumn::integer(format!("owner_{name}_bytes"), move |line| line.owners.get(&name).copied())
        }),
    );
    columns.extend(
        phases.iter().cloned().map(|name| {
            MemoryColumn::integer(format!("phase_{name}_us"), move |line| line.phases_us.get(&name).copied())
        }),
    );
    columns
}

/// Serialized name of an enum variant.
fn word(value: impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}
