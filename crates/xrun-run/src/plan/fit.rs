//! Comparison of a forecast with the memory budgets: the limits of the file, the container, the machine and the device.

use super::{Plan, forecast};
use crate::memory::sources;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::MemoryKind;
use xrun_core::device::machine;
use xrun_core::settings::sections::Limits;
use xrun_core::units::Bytes;
use xrun_results::format::{Forecast, ForecastRow};

/// Memory that a run may use, and what sets the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Memory that it bounds: the host's or the device's.
    pub place: MemoryKind,
    /// True if the driver's context counts as well: for the free memory of a device, but not for `limits.device_memory`, which
    /// bounds the pool.
    pub whole_process: bool,
    /// Bytes that a run may use.
    pub bytes: u64,
    /// Description of what sets the bound: `` `limits.host_memory` ``, `available on this machine`.
    pub because: String,
}

/// Bytes of the container's limit that this process may use; `None` without a limit.
fn container_budget() -> Option<u64> {
    sources::container()?.budget(sources::rss().unwrap_or_default())
}

/// Memory budgets of a run on this machine at this time. `device` is the free memory of a device other than the CPU.
pub fn memory_budgets(limits: &Limits, device: Option<u64>) -> Vec<MemoryBudget> {
    let budget = |place, bytes: Option<u64>, because: &str| {
        bytes.map(|bytes| MemoryBudget { place, whole_process: true, bytes, because: because.to_owned() })
    };
    let own = sources::rss().unwrap_or_default();
    let budgets = [
        budget(MemoryKind::Host, limits.host_memory.map(|limit| limit.0), "`limits.host_memory`"),
        budget(MemoryKind::Host, container_budget(), "95 % of the container's limit, less the use of other processes"),
        budget(MemoryKind::Host, machine::memory().map(|(_, free)| free + own), "available on this machine"),
        budget(MemoryKind::Device, limits.device_memory.map(|limit| limit.0), "`limits.device_memory`")
            .map(|budget| MemoryBudget { whole_process: false, ..budget }),
        budget(MemoryKind::Device, device, "free on the device"),
    ];
    budgets.into_iter().flatten().collect()
}

/// Bytes of a budget that the forecast leaves; negative if it does not fit, `None` if the forecast has no such memory.
pub fn left(forecast: &Forecast, budget: &MemoryBudget) -> Option<i128> {
    let needed = match budget.place {
        MemoryKind::Host => forecast.rss_peak.or(Some(forecast.heap_peak)),
        MemoryKind::Device if budget.whole_process => forecast.device_peak.or(forecast.device_reserved_peak),
        MemoryKind::Device => forecast.device_reserved_peak,
    };
    Some(i128::from(budget.bytes) - i128::from(needed?))
}

/// Budget with the fewest bytes left, and these bytes.
pub fn tightest<'a>(forecast: &Forecast, budgets: &'a [MemoryBudget]) -> Option<(&'a MemoryBudget, i128)> {
    budgets.iter().filter_map(|budget| Some((budget, left(forecast, budget)?))).min_by_key(|(_, left)| *left)
}

/// Returns whether the forecast fits all budgets, with a message.
pub fn message(forecast: &Forecast, budgets: &[MemoryBudget]) -> (bool, String) {
    let Some((budget, left)) = tightest(forecast, budgets) else {
        return (true, "fits: no memory limit is known".into());
    };
    let amount = |bytes: i128| Bytes(u64::try_from(bytes.abs()).unwrap_or(u64::MAX));
    let needed = amount(i128::from(budget.bytes) - left);
    match left >= 0 {
        true => (true, format!("fits: {needed} of {} ({})", Bytes(budget.bytes), budget.because)),
        false => (
            false,
            format!(
                "does not fit: needs {needed} of {} ({}), {} short",
                Bytes(budget.bytes),
                budget.because,
                amount(left)
            ),
        ),
    }
}

/// Largest number of parts that advice names.
const NAMED_MAX: usize = 3;

/// Advice for a forecast that does not fit: the largest parts that a key reduces, and the key of the largest if the keys can
/// save enough. `None` if the forecast fits or no part has a key.
pub fn advice(plan: &Plan, forecast: &Forecast, budgets: &[MemoryBudget]) -> Option<(String, Option<String>)> {
    let (budget, left) = tightest(forecast, budgets).filter(|(_, left)| *left < 0)?;
    // The key of a leak, if it has one, sets how fast it grows, not a cap.
    let buffer = |name: &str| plan.owners.iter().find(|owner| owner.name == name && owner.policy != Policy::Leak);
    let key = |row: &ForecastRow| match forecast::is_step_memory(&row.name) {
        true => Some(plan.batch_key().to_owned()),
        false => buffer(&row.name)?.key.clone(),
    };
    let here = forecast.rows.iter().filter(|row| row.place == budget.place && row.bytes > 0);
    let mut parts: Vec<(&ForecastRow, String)> = here.filter_map(|row| Some((row, key(row)?))).collect();
    parts.sort_by_key(|(row, _)| std::cmp::Reverse(row.bytes));
    let named = parts.iter().take(NAMED_MAX);
    let named: Vec<String> = named.map(|(row, key)| format!("{} {} (`{key}`)", row.name, Bytes(row.bytes))).collect();
    let largest = format!("largest parts that a key reduces: {}", named.join(", "));
    let all = parts.iter().fold(0_u64, |sum, (row, _)| sum.saturating_add(row.bytes));
    let (_, first) = parts.into_iter().next()?;
    match i128::from(all) + left < 0 {
        true => Some((format!("{largest}; these are only {} in all, which is not enough", Bytes(all)), None)),
        false => Some((largest, Some(first))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;
    use xrun_results::format::Basis;

    fn budget(bytes: u64, because: &str) -> MemoryBudget {
        MemoryBudget { place: MemoryKind::Host, whole_process: true, bytes, because: because.into() }
    }

    #[test]
    fn the_tightest_budget_decides() {
        let forecast = Forecast { heap_peak: 10, rss_peak: Some(100 << 20), ..Forecast::default() };
        let budgets = [budget(1 << 30, "the machine"), budget(90 << 20, "the limit")];
        let (fits, text) = message(&forecast, &budgets);
        assert!(!fits);
        insta::assert_snapshot!(text, @"does not fit: needs 100.0 MiB of 90.0 MiB (the limit), 10.0 MiB short");
        let (fits, text) = message(&forecast, &budgets[..1]);
        assert!(fits);
        insta::assert_snapshot!(text, @"fits: 100.0 MiB of 1.0 GiB (the machine)");
    }

    #[test]
    fn advice_names_the_keys_that_reduce_the_largest_parts() {
        let plan = plan_of("[pipeline.dummy]\n");
        let row = |name: &str, place, bytes| ForecastRow {
            name: name.into(),
            place,
            bytes,
            basis: Basis::Cap,
            about: String::new(),
        };
        let rows = vec![
            row("weights", MemoryKind::Host, 90 << 20),
            row("log_lines", MemoryKind::Host, 1 << 20),
            row("activations", MemoryKind::Host, 2 << 20),
            row("memory_lines", MemoryKind::Device, 50 << 20),
            row("gradient_norms", MemoryKind::Host, 800),
            row("metrics_lines", MemoryKind::Host, 700),
        ];
        let forecast = Forecast { heap_peak: 100 << 20, rows, ..Forecast::default() };
        let (text, first) = advice(&plan, &forecast, &[budget(98 << 20, "the limit")]).unwrap();
        insta::assert_snapshot!(
            text,
            @"largest parts that a key reduces: activations 2.0 MiB (`limits.batch_size`), log_lines 1.0 MiB (`limits.log_queue`), gradient_norms 800 B (`limits.gradient_norm_window`)"
        );
        assert_eq!(first.as_deref(), Some("limits.batch_size"));
        let (_, first) = advice(&plan, &forecast, &[budget(90 << 20, "the limit")]).unwrap();
        assert_eq!(first, None, "the keys do not save enough");
        assert_eq!(advice(&plan, &forecast, &[budget(1 << 30, "the machine")]), None, "it fits");
    }

    #[test]
    fn free_device_memory_includes_the_context_and_a_limit_bounds_the_pool() {
        let forecast = Forecast { device_reserved_peak: Some(100), device_peak: Some(150), ..Forecast::default() };
        let left = |whole_process| {
            left(&forecast, &MemoryBudget { place: MemoryKind::Device, whole_process, ..budget(120, "") })
        };
        assert_eq!((left(true), left(false)), (Some(-30), Some(20)));
        let device = MemoryBudget { place: MemoryKind::Device, ..budget(5, "free on the device") };
        assert!(message(&Forecast { heap_peak: 10, ..Forecast::default() }, &[device]).0, "it was not measured");
    }
}
