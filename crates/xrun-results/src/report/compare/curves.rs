//! Which curves of a run are laid over those of others? As many as fit the page, thinned as in `series`.

use crate::report::curves::{KINDS_MAX, METRICS_MAX};
use crate::report::material::Material;
use crate::report::series::Series;

/// The curves of one run: at most [`KINDS_MAX`] losses, [`METRICS_MAX`] metrics and four of memory, 48 KB each.
#[derive(Clone, Debug, Default)]
pub struct RunCurves {
    /// Smoothed, by kind of step.
    pub losses: Vec<(String, Series)>,
    pub metrics: Vec<(String, Series)>,
    pub heap: Series,
    pub resident: Series,
    pub in_use: Series,
    pub reserved: Series,
}

impl RunCurves {
    pub fn of(material: &Material) -> Self {
        let (curves, trace) = (&material.curves, &material.trace);
        Self {
            losses: curves.losses.iter().take(KINDS_MAX).map(|loss| (loss.kind.clone(), loss.smooth.clone())).collect(),
            metrics: curves.metrics.iter().take(METRICS_MAX).cloned().collect(),
            heap: trace.heap.clone(),
            resident: trace.resident.clone(),
            in_use: trace.in_use.clone(),
            reserved: trace.reserved.clone(),
        }
    }
}
