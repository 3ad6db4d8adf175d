//! Losses of a run of any length in a bounded number of bins.

/// Maximum number of bins; when they are full, pairs of them merge.
pub const BINS_MAX: usize = 128;

/// Mean and variance of consecutive losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Last step.
    pub step: u64,
    /// Number of losses.
    pub count: u64,
    /// Mean of the losses.
    pub mean: f64,
    /// Sum of the squared deviations from the mean.
    pub squares: f64,
    /// Sum of the squared differences between each loss and the one before it.
    pub differences: f64,
    /// Lowest loss.
    pub lowest: f64,
}

impl Bin {
    fn of(step: u64, loss: f64, before: f64) -> Self {
        Self { step, count: 1, mean: loss, squares: 0.0, differences: (loss - before).powi(2), lowest: loss }
    }

    /// Joins the bin with a later one (Chan, Golub and LeVeque 1979).
    fn join(&mut self, later: &Self) {
        let (one, other) = (self.count as f64, later.count as f64);
        let difference = later.mean - self.mean;
        self.squares += later.squares + difference * difference * one * other / (one + other);
        self.differences += later.differences;
        self.mean += difference * other / (one + other);
        self.step = later.step;
        self.count += later.count;
        self.lowest = self.lowest.min(later.lowest);
    }
}

/// Losses of one kind of steps.
#[derive(Clone, Debug)]
pub struct LossOfKind {
    /// Kind of the steps.
    pub kind: String,
    /// First losses; the very first is that of the untrained model.
    pub first: Vec<f64>,
    /// All losses, in order.
    pub bins: Vec<Bin>,
    /// Number of losses.
    pub count: u64,
    width: u64,
    newest: Option<f64>,
}

/// Number of losses that are kept from the start.
const FIRST_MAX: usize = 4;

impl LossOfKind {
    /// Losses of a kind without steps, in an empty `bins` with or without capacity.
    pub fn new(kind: &str, mut bins: Vec<Bin>) -> Self {
        // All at once: growth of their own would be in the heap that a run is judged by.
        bins.reserve_exact(BINS_MAX);
        let first = Vec::with_capacity(FIRST_MAX);
        Self { kind: kind.to_owned(), first, bins, count: 0, width: 1, newest: None }
    }

    /// Adds a finite loss.
    pub fn add(&mut self, step: u64, loss: f64) {
        self.count += 1;
        if self.first.len() < FIRST_MAX {
            self.first.push(loss);
        }
        let bin = Bin::of(step, loss, self.newest.replace(loss).unwrap_or(loss));
        match self.bins.last_mut() {
            Some(last) if last.count < self.width => last.join(&bin),
            _ => {
                if self.bins.len() == BINS_MAX {
                    self.merge_pairs();
                }
                self.bins.push(bin);
            }
        }
    }

    fn merge_pairs(&mut self) {
        for at in 0..BINS_MAX / 2 {
            let mut bin = self.bins[2 * at];
            bin.join(&self.bins[2 * at + 1]);
            self.bins[at] = bin;
        }
        self.bins.truncate(BINS_MAX / 2);
        self.width *= 2;
    }
}

/// Level of consecutive bins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Mean of all losses.
    pub mean: f64,
    /// Standard error of the mean, from the scatter between the bins, which allows for correlated losses.
    pub error: f64,
    /// Standard deviation of a single loss about its course, from the differences between neighbours, so that a trend does
    /// not count.
    pub deviation: f64,
    /// Number of losses.
    pub count: u64,
    /// Lowest loss.
    pub lowest: f64,
}

impl Level {
    /// Standard error of the mean of independent losses.
    pub fn least_error(&self) -> f64 {
        self.deviation / (self.count as f64).sqrt()
    }
}

/// Level of bins; `None` without any.
pub fn level(bins: &[Bin]) -> Option<Level> {
    let mut all = *bins.first()?;
    bins[1..].iter().for_each(|bin| all.join(bin));
    let count = all.count as f64;
    let deviation = (all.differences / (2.0 * count)).sqrt();
    let between: f64 = bins.iter().map(|bin| (bin.mean - all.mean).powi(2)).sum();
    let bins = bins.len() as f64;
    let by_bins = (between / (bins - 1.0).max(1.0) / bins).sqrt();
    let error = if bins < 3.0 { (all.squares / (count - 1.0).max(1.0) / count).sqrt() } else { by_bins };
    Some(Level { mean: all.mean, error, deviation, count: all.count, lowest: all.lowest })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn merged_bins_have_the_mean_and_variance_of_all_losses(losses in prop::collection::vec(-1e3f64..1e3, 2..900)) {
            let mut kind = LossOfKind::new("train", Vec::new());
            losses.iter().zip(1..).for_each(|(loss, step)| kind.add(step, *loss));
            prop_assert!(kind.bins.len() <= BINS_MAX);
            let found = level(&kind.bins).unwrap();
            let count = losses.len() as f64;
            let mean = losses.iter().sum::<f64>() / count;
            let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / (count - 1.0);
            prop_assert!((found.mean - mean).abs() < 1e-6);
            let squares: f64 = kind.bins.iter().map(|bin| bin.squares).sum();
            prop_assert!(squares <= variance * (count - 1.0) + 1e-6 * (1.0 + variance) * count);
            let differences: f64 = losses.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
            prop_assert!((found.deviation - (differences / (2.0 * count)).sqrt()).abs() < 1e-6 * (1.0 + found.deviation));
            prop_assert_eq!(found.count, losses.len() as u64);
            prop_assert_eq!(kind.bins.last().unwrap().step, losses.len() as u64);
        }
    }
}
