//! `memory.toml` of a sweep: what does each point need, and what is Slurm asked for?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::units::Bytes;

/// What the points of a sweep need, by probes that were made before the first run. Sizes may be changed: a resume reads
/// them anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SweepMemory {
    /// The version of this record's format.
    pub version: u32,
    /// What Slurm is asked for (`--mem`), least first; empty of a sweep that was not handed to Slurm.
    #[serde(default)]
    pub sizes: Vec<AskedSize>,
    /// What is forecast. Each point is in one of them.
    #[serde(default)]
    pub forecasts: Vec<PointsNeed>,
}

/// Memory that each run of these points is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskedSize {
    /// Of one run.
    pub memory: Bytes,
    /// Counted from 1.
    pub points: Vec<u64>,
}

/// Points that need the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PointsNeed {
    /// The most that a run has resident on the host.
    pub host: Bytes,
    /// The most that it takes of the device; absent where nothing was measured there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Bytes>,
    /// The point that a probe was made of; absent where there was none, and the largest known forecast is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probed: Option<u64>,
    /// Why there was no probe; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Counted from 1.
    pub points: Vec<u64>,
}

impl SweepMemory {
    /// Whether a point has a forecast of its own.
    pub fn has_forecast(&self, point: u64) -> bool {
        self.forecasts.iter().any(|need| need.points.contains(&point))
    }

    /// The forecast of a point; of one that is not listed the largest. `None` where there is no forecast at all.
    pub fn forecast(&self, point: u64) -> Option<&PointsNeed> {
        let own = self.forecasts.iter().find(|need| need.points.contains(&point));
        own.or_else(|| self.forecasts.iter().max_by_key(|need| need.host.0))
    }

    /// What Slurm is asked for a run of a point; of one that is not listed the largest size. `None` without sizes.
    pub fn size(&self, point: u64) -> Option<Bytes> {
        let listed = self.sizes.iter().filter(|size| size.points.contains(&point)).map(|size| size.memory.0).max();
        listed.or_else(|| self.sizes.iter().map(|size| size.memory.0).max()).map(Bytes)
    }

    /// Why it cannot be used; `None` where it can.
    pub fn invalid_reason(&self) -> Option<&'static str> {
        let sizes = self.sizes.iter().map(|size| size.memory.0);
        let mut bytes = sizes.chain(self.forecasts.iter().map(|need| need.host.0));
        let points = self.sizes.iter().map(|size| &size.points).chain(self.forecasts.iter().map(|need| &need.points));
        if bytes.any(|bytes| bytes == 0) {
            return Some("a run needs more memory than 0");
        }
        points.flatten().any(|point| *point == 0).then_some("points are counted from 1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_that_is_not_listed_gets_the_largest() {
        let text = "version = 1\n[[sizes]]\nmemory = \"300 MiB\"\npoints = [1, 3]\n[[sizes]]\nmemory = \"2 GiB\"\npoints = [2]\n\
                    [[forecasts]]\nhost = \"12 MiB\"\npoints = [1]\n[[forecasts]]\nhost = \"1 GiB\"\npoints = [2]\n";
        let memory: SweepMemory = toml::from_str(text).unwrap();
        let asked = |point| memory.size(point).unwrap().0 >> 20;
        assert_eq!([asked(1), asked(2), asked(3), asked(4)], [300, 2048, 300, 2048]);
        assert_eq!(memory.forecast(9).unwrap().host, Bytes::mebibytes(1024));
        assert_eq!(
            (memory.invalid_reason(), SweepMemory { sizes: Vec::new(), ..memory.clone() }.size(1)),
            (None, None)
        );
        let none: SweepMemory = toml::from_str(&text.replace("12 MiB", "0")).unwrap();
        assert!(none.invalid_reason().is_some());
    }
}
