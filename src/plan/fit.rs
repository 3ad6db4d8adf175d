//! Does what a run needs fit what there is? The file's own limits, the container, the machine, the device.

use crate::memory::sources;
use crate::results::format::{Forecast, Place};
use crate::settings::sections::Limits;
use crate::units::Bytes;

/// How much there is, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    pub place: Place,
    /// Whether what the driver and the context take counts, too: of what is free on the device, and not of
    /// `limits.device_memory`, which is the pool's.
    pub whole_process: bool,
    pub bytes: u64,
    pub because: String,
}

/// What this process may use of its container's limit; `None` without one.
pub fn container() -> Option<u64> {
    sources::room(&sources::container()?, sources::resident().unwrap_or_default())
}

/// What bounds a run here and now. `device` is what is free on a device with memory of its own.
pub fn rooms(limits: &Limits, device: Option<u64>) -> Vec<Room> {
    let room = |place, bytes: Option<u64>, because: &str| {
        bytes.map(|bytes| Room { place, whole_process: true, bytes, because: because.to_owned() })
    };
    let own = sources::resident().unwrap_or_default();
    let rooms = [
        room(Place::Host, limits.host_memory.map(|limit| limit.0), "`limits.host_memory`"),
        room(Place::Host, container(), "95 % of the container's limit, less what others in it use"),
        room(Place::Host, sources::machine().map(|(_, free)| free + own), "available on this machine"),
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

#[cfg(test)]
mod tests {
    use super::*;

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
