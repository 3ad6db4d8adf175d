//! Does what a run needs fit what there is? The file's own limits, the container, the machine, the device.

use super::{Plan, forecast};
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::Place;
use xrun_core::device::machine;
use xrun_core::settings::sections::Limits;
use xrun_core::units::Bytes;
use xrun_results::format::{Forecast, ForecastRow};
use xrun_watch::memory::sources;

/// How much there is, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Which memory this is room in: the host's or the device's.
    pub place: Place,
    /// Whether what the driver and the context take counts, too: of what is free on the device, and not of
    /// `limits.device_memory`, which is the pool's.
    pub whole_process: bool,
    /// How much a run may use at most.
    pub bytes: u64,
    /// Who sets the bound, for people: `` `limits.host_memory` ``, `available on this machine`.
    pub because: String,
}

/// What this process may use of its container's limit; `None` without one.
pub fn container() -> Option<u64> {
    sources::container()?.room(sources::rss().unwrap_or_default())
}

/// What bounds a run here and now. `device` is what is free on a device with memory of its own.
pub fn rooms(limits: &Limits, device: Option<u64>) -> Vec<Room> {
    let room = |place, bytes: Option<u64>, because: &str| {
        bytes.map(|bytes| Room { place, whole_process: true, bytes, because: because.to_owned() })
    };
    let own = sources::rss().unwrap_or_default();
    let rooms = [
        room(Place::Host, limits.host_memory.map(|limit| limit.0), "`limits.host_memory`"),
        room(Place::Host, container(), "95 % of the container's limit, less what others in it use"),
        room(Place::Host, machine::memory().map(|(_, free)| free + own), "available on this machine"),
        room(Place::Device, limits.device_memory.map(|limit| limit.0), "`limits.device_memory`")
            .map(|room| Room { whole_process: false, ..room }),
        room(Place::Device, device, "free on the device"),
    ];
    rooms.into_iter().flatten().collect()
}

/// Bytes that the forecast leaves in a room; negative where it does not fit. `None` where the forecast says nothing.
pub fn left(forecast: &Forecast, room: &Room) -> Option<i128> {
    let needed = match room.place {
        Place::Host => forecast.resident_peak.or(Some(forecast.heap_peak)),
        Place::Device if room.whole_process => forecast.device_peak.or(forecast.device_reserved_peak),
        Place::Device => forecast.device_reserved_peak,
    };
    Some(i128::from(room.bytes) - i128::from(needed?))
}

/// The room with the least left.
pub fn tightest<'a>(forecast: &Forecast, rooms: &'a [Room]) -> Option<(&'a Room, i128)> {
    rooms.iter().filter_map(|room| Some((room, left(forecast, room)?))).min_by_key(|(_, left)| *left)
}

/// Whether it fits, as a sentence.
pub fn sentence(forecast: &Forecast, rooms: &[Room]) -> (bool, String) {
    let Some((room, left)) = tightest(forecast, rooms) else {
        return (true, "fits, as far as can be said: nothing here has a limit".into());
    };
    let amount = |bytes: i128| Bytes(u64::try_from(bytes.abs()).unwrap_or(u64::MAX));
    let needed = amount(i128::from(room.bytes) - left);
    match left >= 0 {
        true => (true, format!("fits: {needed} of {} ({})", Bytes(room.bytes), room.because)),
        false => (
            false,
            format!(
                "does not fit: {needed} are needed and there are {} ({}), {} too few",
                Bytes(room.bytes),
                room.because,
                amount(left)
            ),
        ),
    }
}

/// As many parts are named: nobody turns more keys at once.
const NAMED_MAX: usize = 3;

/// Where it does not fit: the largest parts of what is needed there that a key makes smaller, each with its key; and the key
/// of the first, where keys can make up for what is missing. `None` where it fits, and where no part has a key.
pub fn advice(plan: &Plan, forecast: &Forecast, rooms: &[Room]) -> Option<(String, Option<String>)> {
    let (room, left) = tightest(forecast, rooms).filter(|(_, left)| *left < 0)?;
    // A leak has no cap; its key, if it has one, says how fast it grows.
    let of_owner = |name: &str| plan.owners.iter().find(|owner| owner.name == name && owner.policy != Policy::Leak);
    let key = |row: &ForecastRow| match forecast::is_of_a_step(&row.name) {
        true => Some(plan.batch_key().to_owned()),
        false => of_owner(&row.name)?.key.clone(),
    };
    let here = forecast.rows.iter().filter(|row| row.place == room.place && row.bytes > 0);
    let mut parts: Vec<(&ForecastRow, String)> = here.filter_map(|row| Some((row, key(row)?))).collect();
    parts.sort_by_key(|(row, _)| std::cmp::Reverse(row.bytes));
    let named = parts.iter().take(NAMED_MAX);
    let named: Vec<String> = named.map(|(row, key)| format!("{} {} (`{key}`)", row.name, Bytes(row.bytes))).collect();
    let said = format!("the largest parts that a key makes smaller: {}", named.join(", "));
    let all = parts.iter().fold(0_u64, |sum, (row, _)| sum.saturating_add(row.bytes));
    let (_, first) = parts.into_iter().next()?;
    match i128::from(all) + left < 0 {
        true => Some((format!("{said}; all of them are {}, less than what is missing", Bytes(all)), None)),
        false => Some((said, Some(first))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;
    use xrun_results::format::Basis;

    fn room(bytes: u64, because: &str) -> Room {
        Room { place: Place::Host, whole_process: true, bytes, because: because.into() }
    }

    #[test]
    fn the_tightest_room_decides() {
        let forecast = Forecast { heap_peak: 10, resident_peak: Some(100 << 20), ..Forecast::default() };
        let rooms = [room(1 << 30, "the machine"), room(90 << 20, "the limit")];
        let (fits, said) = sentence(&forecast, &rooms);
        assert!(!fits);
        assert_eq!(said, "does not fit: 100.0 MiB are needed and there are 90.0 MiB (the limit), 10.0 MiB too few");
        let (fits, said) = sentence(&forecast, &rooms[..1]);
        assert!(fits);
        assert_eq!(said, "fits: 100.0 MiB of 1.0 GiB (the machine)");
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_keys_that_make_it_smaller() {
        let plan = plan_of("[pipeline.dummy]\n");
        let row = |name: &str, place, bytes| ForecastRow {
            name: name.into(),
            place,
            bytes,
            basis: Basis::Cap,
            about: String::new(),
        };
        let rows = vec![
            row("weights", Place::Host, 90 << 20),
            row("log_lines", Place::Host, 1 << 20),
            row("activations", Place::Host, 2 << 20),
            row("memory_lines", Place::Device, 50 << 20),
            row("gradient_norms", Place::Host, 800),
            row("metrics_lines", Place::Host, 700),
        ];
        let forecast = Forecast { heap_peak: 100 << 20, rows, ..Forecast::default() };
        let (said, first) = advice(&plan, &forecast, &[room(98 << 20, "the limit")]).unwrap();
        assert_eq!(
            said,
            "the largest parts that a key makes smaller: activations 2.0 MiB (`limits.batch_size`), log_lines 1.0 MiB \
             (`limits.log_queue`), gradient_norms 800 B (`limits.gradient_norm_window`)"
        );
        assert_eq!(first.as_deref(), Some("limits.batch_size"));
        let (said, first) = advice(&plan, &forecast, &[room(90 << 20, "the limit")]).unwrap();
        assert!(said.ends_with("; all of them are 3.0 MiB, less than what is missing") && first.is_none(), "{said}");
        assert_eq!(advice(&plan, &forecast, &[room(1 << 30, "the machine")]), None, "it fits");
    }

    #[test]
    fn a_device_that_was_not_measured_is_no_bound() {
        let forecast = Forecast { heap_peak: 10, ..Forecast::default() };
        let device = Room { place: Place::Device, whole_process: true, bytes: 5, because: "free on the device".into() };
        assert!(sentence(&forecast, &[device]).0);
    }

    #[test]
    fn a_device_has_room_for_the_context_too_and_a_limit_is_the_pools() {
        let forecast = Forecast { device_reserved_peak: Some(100), device_peak: Some(150), ..Forecast::default() };
        let room = |whole_process, bytes| Room { place: Place::Device, whole_process, bytes, because: String::new() };
        assert_eq!(left(&forecast, &room(true, 120)), Some(-30));
        assert_eq!(left(&forecast, &room(false, 120)), Some(20));
    }
}
