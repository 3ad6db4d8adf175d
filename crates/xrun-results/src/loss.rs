//! Loss by kind of step, so that a detection step is never compared with a triplet step.
//!
//! Exponential moving average with bias correction, as in Adam (Kingma and Ba 2015). Two numbers per kind, whatever
//! the length of the run; kinds beyond [`KINDS_MAX`] share one entry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of kinds; the rest are `other kinds`.
pub const KINDS_MAX: usize = 32;
/// Name of the entry for all kinds beyond the cap.
pub const OTHER_KINDS: &str = "other kinds";

/// Loss of the steps of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindLoss {
    /// Kind of step: `detection`, `triplet`, `4_bit`, …
    pub kind: String,
    /// Number of steps of this kind.
    pub steps: u64,
    /// Loss of the first step of this kind.
    pub first: f64,
    /// Moving average after the last step of this kind.
    pub last: f64,
    /// Moving average before bias correction; a resume continues from it.
    pub average: f64,
    /// Bias correction: sum of the weights of all steps so far, approaching 1.
    pub weight: f64,
}

impl KindLoss {
    /// Adds a step to a moving average over about `over` steps. A loss that is not finite is ignored.
    pub fn add(&mut self, loss: f64, over: f64) {
        if !loss.is_finite() {
            return;
        }
        if self.steps == 0 {
            self.first = loss;
        }
        let decay = 1.0 - 2.0 / (over + 1.0);
        self.steps += 1;
        self.average = decay * self.average + (1.0 - decay) * loss;
        self.weight = decay * self.weight + (1.0 - decay);
        self.last = self.average / self.weight;
    }
}

/// Adds a step to the entry of its kind.
pub fn add(losses: &mut Vec<KindLoss>, kind: &str, loss: f64, over: f64) {
    let at = losses.iter().position(|known| known.kind == kind).unwrap_or_else(|| {
        if losses.len() < KINDS_MAX {
            let kind = if losses.len() + 1 < KINDS_MAX { kind } else { OTHER_KINDS };
            losses.push(KindLoss { kind: kind.to_owned(), ..KindLoss::default() });
        }
        losses.len() - 1
    });
    losses[at].add(loss, over);
}

/// Number of steps that the moving average spans in a run of `steps` steps.
pub fn averaging_window(steps: Option<u64>) -> f64 {
    steps.map_or(20.0, |steps| (steps as f64 / 20.0).clamp(5.0, 200.0).round())
}

/// Kind with the most steps; the first one of equals. Shown where there is room for one loss only.
pub fn dominant(losses: &[KindLoss]) -> Option<&KindLoss> {
    let most = losses.iter().map(|loss| loss.steps).max()?;
    losses.iter().find(|loss| loss.steps == most && most > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_separate_averages_with_bias_correction() {
        let mut losses = Vec::new();
        for step in 0..100 {
            add(&mut losses, "detection", if step < 50 { 8.0 } else { 2.0 }, 5.0);
            if step % 2 == 0 {
                add(&mut losses, "triplet", 0.0, 5.0);
            }
            add(&mut losses, "detection", f64::NAN, 5.0);
        }
        let [detection, triplet] = losses.as_slice() else { panic!("{losses:?}") };
        assert_eq!((detection.steps, detection.first, triplet.steps, triplet.last), (100, 8.0, 50, 0.0));
        assert!((detection.last - 2.0).abs() < 1e-6, "{detection:?}");
        assert_eq!(dominant(&losses).unwrap().kind, "detection");
        // By hand: decay 2/3, so (2/3 * 3 + 6) / (2/3 + 1) = 8 / (5/3) = 4.8 after a loss of 3 and one of 6.
        let mut two = KindLoss::default();
        two.add(3.0, 5.0);
        assert_eq!(two.last, 3.0);
        two.add(6.0, 5.0);
        assert!((two.last - 4.8).abs() < 1e-12, "{two:?}");
    }

    #[test]
    fn the_number_of_kinds_is_capped() {
        let mut losses = Vec::new();
        for kind in 0..200 {
            add(&mut losses, &format!("kind {kind}"), 1.0, 5.0);
        }
        assert_eq!((losses.len(), losses.last().unwrap().kind.as_str()), (KINDS_MAX, OTHER_KINDS));
        assert_eq!(losses.iter().map(|loss| loss.steps).sum::<u64>(), 200);
    }
}
