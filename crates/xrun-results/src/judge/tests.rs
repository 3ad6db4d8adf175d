//! `xrun-verdict` does not depend on `xrun-core`, so some definitions exist twice; these tests compare them.

use super::sample;
use crate::format::{ContainerMemory, HostMemory, MemoryLine, VERSION};
use xrun_core::bounded::ledger::NO_CAP;

#[path = "../../../xrun-verdict/src/units.rs"]
mod units;

#[test]
fn copied_definitions_are_equal() {
    assert_eq!((xrun_verdict::NO_CAP, xrun_verdict::VERSION), (NO_CAP.bytes, VERSION));
    for at in 0..630u64 {
        let power = 1u64 << (at / 10);
        for bytes in [power - 1, power, power / 10 * (at % 10) + power, power / 20 * 19 + power / 20 * (at % 10) / 9] {
            assert_eq!(units::bytes(bytes), xrun_core::units::Bytes(bytes).to_string());
            let (low, high) = (-(bytes as f64) / 7.0, bytes as f64 / 3.0);
            assert_eq!(units::interval(low, high), xrun_core::units::interval(low, high));
        }
        let seconds = (at * at) as f64 / 9.0;
        assert_eq!(units::seconds(seconds), xrun_core::units::seconds(seconds));
    }
}

#[test]
fn a_sample_has_the_memory_budget_of_the_container() {
    const MIB: u64 = 1 << 20;
    let line = MemoryLine {
        host: HostMemory { rss: Some(51 * MIB), ..HostMemory::default() },
        container: Some(ContainerMemory {
            current: 51 * MIB,
            anonymous: None,
            kernel: None,
            peak: None,
            limit: Some(300 * MIB),
        }),
        ..MemoryLine::default()
    };
    assert_eq!(sample(&line).container_budget, Some(285 * MIB));
}
