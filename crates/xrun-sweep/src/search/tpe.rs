//! The tree-structured Parzen estimator: the values of the next trial.
//!
//! Bergstra, Bardenet, Bengio and Kégl 2011, "Algorithms for Hyper-Parameter Optimization", section 4. The trials before are
//! split in two: the fraction `gamma` with the lowest cost is good, the rest is not. For each key the values of either
//! half give a density: of numbers a sum of Gaussians, one at each value, as wide as the larger distance to its neighbours,
//! and a wide one for the whole range; of choices their counts, each plus one. Candidates are drawn from the density of the
//! good ones, and the one with the largest ratio of the two densities, `l / g`, is the next trial. Keys are treated as
//! independent.
//!
//! A trial is a pure function of the seed, its number and the observations.

use std::f64::consts::{PI, SQRT_2};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::records::search::{Dimension, TpeSearch};
use xrun_core::experiment::number_range::NumberRange;
use xrun_core::seed::normal;

/// The result of a trial.
#[derive(Clone, Debug)]
pub struct Observation {
    /// Number of the trial, from 1.
    pub trial: u64,
    /// Its value of each swept key.
    pub values: Vec<Value>,
    /// Its cost, which is minimized.
    pub cost: f64,
}

/// The trials `before` with the random ones of the start added, `samples` in all at most.
pub fn startup_trials(search: &TpeSearch, seed: u32, samples: u64, before: &[Vec<Value>]) -> Vec<Vec<Value>> {
    let mut trials = before.to_vec();
    for trial in trials.len() as u64 + 1..=samples.min(search.startup) {
        let Some((values, _)) = propose(search, seed, trial, &[], &trials) else { break };
        trials.push(values);
    }
    trials
}

/// Largest number of draws for a trial that is new.
const TRIES_MAX: u64 = 1000;

/// The values of the trial with number `trial`, from 1, which are none of `before`, and whether they follow from observations:
/// from two observations on, after the random ones of the start. `None` when (nearly) all different trials are used up.
pub fn propose(
    search: &TpeSearch,
    seed: u32,
    trial: u64,
    observations: &[Observation],
    before: &[Vec<Value>],
) -> Option<(Vec<Value>, bool)> {
    // A stream for each trial, independent of the numbers that earlier trials drew.
    let mut generator = ChaCha8Rng::seed_from_u64(u64::from(seed));
    generator.set_stream(trial);
    let space = &search.space;
    let is_new = |values: &Vec<Value>| !before.contains(values);
    if trial > search.startup && observations.len() > 1 {
        let split = Split::new(space, search.gamma, observations);
        let candidates = (0..search.candidates).map(|_| split.draw(space, &mut generator));
        // The first one of equal candidates.
        let best = candidates.filter(|(values, _)| is_new(values)).reduce(|a, b| if b.1 > a.1 { b } else { a });
        if let Some((values, _)) = best {
            return Some((values, true));
        }
    }
    let random = |generator: &mut ChaCha8Rng| -> Vec<Value> {
        let draw = |dimension: &Dimension| match dimension {
            Dimension::Range(range) => range.at(generator.random()),
            Dimension::Choice(list) => list[generator.random_range(0..list.len())].clone(),
        };
        space.iter().map(draw).collect()
    };
    (0..TRIES_MAX).map(|_| random(&mut generator)).find(is_new).map(|values| (values, false))
}

/// The densities of the good trials and of the others, for each key.
struct Split {
    good: Vec<Density>,
    other: Vec<Density>,
}

impl Split {
    fn new(space: &[Dimension], gamma: f64, observations: &[Observation]) -> Self {
        let mut order: Vec<&Observation> = observations.iter().collect();
        order.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.trial.cmp(&b.trial)));
        let good = ((gamma * order.len() as f64).ceil() as usize).clamp(1, order.len().saturating_sub(1).max(1));
        let (good, other) = order.split_at(good);
        let densities = |half: &[&Observation]| {
            let density =
                |(at, dimension)| Density::new(dimension, half.iter().map(|observation| &observation.values[at]));
            space.iter().enumerate().map(density).collect()
        };
        Self { good: densities(good), other: densities(other) }
    }

    /// A candidate, and the logarithm of its density ratio.
    fn draw(&self, space: &[Dimension], generator: &mut ChaCha8Rng) -> (Vec<Value>, f64) {
        let mut score = 0.0;
        let each = space.iter().zip(self.good.iter().zip(&self.other));
        let values = each.map(|(dimension, (good, other))| {
            let value = good.draw(dimension, generator);
            score += good.at(dimension, &value).ln() - other.at(dimension, &value).ln();
            value
        });
        (values.collect(), score)
    }
}

/// Probability density of the values of a key.
enum Density {
    /// Mean and standard deviation of each Gaussian, as fractions of the range.
    Numbers(Vec<(f64, f64)>),
    /// Probability of each choice.
    Choices(Vec<f64>),
}

impl Density {
    fn new<'a>(dimension: &Dimension, values: impl Iterator<Item = &'a Value>) -> Self {
        match dimension {
            Dimension::Range(range) => Self::Numbers(gaussians(range, values)),
            Dimension::Choice(list) => {
                let mut counts = vec![1.0; list.len()];
                for at in values.filter_map(|value| list.iter().position(|one| one == value)) {
                    counts[at] += 1.0;
                }
                let all: f64 = counts.iter().sum();
                Self::Choices(counts.iter().map(|count| count / all).collect())
            }
        }
    }

    fn draw(&self, dimension: &Dimension, generator: &mut ChaCha8Rng) -> Value {
        match (self, dimension) {
            (Self::Numbers(gaussians), Dimension::Range(range)) => {
                let (middle, width) = gaussians[generator.random_range(0..gaussians.len())];
                // Draws outside of the range are repeated: half of them, at the very end of a range.
                let mut drawn = (0..TRIES_MAX).map(|_| middle + width * normal(generator));
                range.at(drawn.find(|fraction| (0.0..=1.0).contains(fraction)).unwrap_or(middle))
            }
            (Self::Choices(fractions), Dimension::Choice(list)) => {
                let mut rest: f64 = generator.random();
                let at = fractions.iter().position(|fraction| {
                    rest -= fraction;
                    rest < 0.0
                });
                list[at.unwrap_or(list.len() - 1)].clone()
            }
            _ => Value::Null,
        }
    }

    fn at(&self, dimension: &Dimension, value: &Value) -> f64 {
        match (self, dimension) {
            (Self::Numbers(gaussians), Dimension::Range(range)) => {
                let fraction = range.fraction(value);
                let each = gaussians.iter().map(|&(middle, width)| {
                    let within = cumulative((1.0 - middle) / width) - cumulative(-middle / width);
                    (-((fraction - middle) / width).powi(2) / 2.0).exp() / (width * (2.0 * PI).sqrt() * within)
                });
                each.sum::<f64>() / gaussians.len() as f64
            }
            (Self::Choices(fractions), Dimension::Choice(list)) => {
                list.iter().position(|one| one == value).map_or(f64::MIN_POSITIVE, |at| fractions[at])
            }
            _ => 1.0,
        }
    }
}

/// Gaussians for each value, and a wide one in the middle as a prior.
fn gaussians<'a>(range: &NumberRange, values: impl Iterator<Item = &'a Value>) -> Vec<(f64, f64)> {
    const WHOLE: (f64, f64) = (0.5, 1.0);
    let mut middles: Vec<f64> = values.map(|value| range.fraction(value)).collect();
    middles.push(WHOLE.0);
    middles.sort_by(f64::total_cmp);
    // Values close together do not make a Gaussian arbitrarily narrow.
    let narrowest = 1.0 / (1.0 + middles.len() as f64).min(100.0);
    let gap = |a: usize, b: usize| middles.get(a).zip(middles.get(b)).map_or(0.0, |(a, b)| (b - a).abs());
    let whole = middles.iter().position(|middle| *middle == WHOLE.0);
    let each = (0..middles.len()).map(|at| {
        let width = gap(at, at + 1).max(if at > 0 { gap(at - 1, at) } else { 0.0 });
        if Some(at) == whole { WHOLE } else { (middles[at], width.clamp(narrowest, 1.0)) }
    });
    each.collect()
}

/// The fraction of the standard normal distribution below `x`.
fn cumulative(x: f64) -> f64 {
    0.5 * (1.0 + libm::erf(x / SQRT_2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn search(startup: u64, space: &[Dimension]) -> TpeSearch {
        TpeSearch { startup, gamma: 0.15, candidates: 24, space: space.to_vec() }
    }

    fn range(from: f64, to: f64, logarithmic: bool, integer: bool) -> Dimension {
        Dimension::Range(NumberRange { from, to, logarithmic, integer })
    }

    fn values_of(observations: &[Observation]) -> Vec<Vec<Value>> {
        observations.iter().map(|observation| observation.values.clone()).collect()
    }

    /// The results of a number of trials, of which `startup` are drawn at random.
    fn results(
        seed: u32,
        (trials, startup): (u64, u64),
        space: &[Dimension],
        cost: &dyn Fn(&[Value]) -> f64,
    ) -> Vec<Observation> {
        let mut observations: Vec<Observation> = Vec::new();
        for trial in 1..=trials {
            let before = values_of(&observations);
            let (values, by_results) = propose(&search(startup, space), seed, trial, &observations, &before).unwrap();
            assert!(!before.contains(&values) && (trial > startup || !by_results));
            observations.push(Observation { trial, cost: cost(&values), values });
        }
        observations
    }

    /// The least of a parabola over a logarithm and a number: 40 trials, at each of eight seeds.
    #[test]
    fn it_finds_lower_costs_than_random_trials() {
        let space = [range(1e-5, 1.0, true, false), range(-2.0, 2.0, false, false)];
        let cost = |values: &[Value]| {
            let (rate, x) = (values[0].as_f64().unwrap(), values[1].as_f64().unwrap());
            (rate.log10() + 2.5).powi(2) + (x - 0.7).powi(2)
        };
        let least = |seed, startup| {
            let costs = results(seed, (40, startup), &space, &cost).into_iter().map(|observation| observation.cost);
            costs.fold(f64::INFINITY, f64::min)
        };
        let both: Vec<(f64, f64)> = (0..8).map(|seed| (least(seed, 10), least(seed, 40))).collect();
        let wins = both.iter().filter(|(tpe, random)| tpe < random).count();
        let sum = |pick: fn(&(f64, f64)) -> f64| both.iter().map(pick).sum::<f64>();
        assert!(wins >= 6, "{wins} of 8: {both:?}");
        assert!(sum(|both| both.0) < 0.5 * sum(|both| both.1), "{both:?}");
    }

    #[test]
    fn a_choice_that_is_better_is_taken_more_often() {
        let space =
            [range(0.0, 1.0, false, false), Dimension::Choice(["a", "b", "c", "d"].map(|one| json!(one)).to_vec())];
        let cost = |values: &[Value]| values[0].as_f64().unwrap() + if values[1] == "c" { 0.0 } else { 3.0 };
        for seed in 0..4 {
            let all = results(seed, (40, 10), &space, &cost);
            let later = all[20..].iter().filter(|observation| observation.values[1] == "c").count();
            assert!(later >= 10, "of 20 trials {later} have it, and of four choices random ones have five");
        }
    }

    #[test]
    fn values_stay_in_their_ranges_and_no_trial_is_repeated() {
        let space = [range(1.0, 6.0, false, true), Dimension::Choice(vec![json!(true), json!(false)])];
        let all = results(0, (12, 10), &space, &|values| values[0].as_f64().unwrap());
        let is_valid = |values: &Vec<Value>| (1..=6).contains(&values[0].as_i64().unwrap()) && values[1].is_boolean();
        let before = values_of(&all);
        assert!(before.iter().all(is_valid), "{before:?}");
        assert_eq!(propose(&search(10, &space), 0, 13, &all, &before), None, "all twelve were there");
    }

    #[test]
    fn a_trial_is_a_function_of_the_seed_its_number_and_the_observations() {
        let space = [range(0.0, 1.0, false, false)];
        let observations: Vec<Observation> = (1..=10)
            .map(|trial| Observation {
                trial,
                values: vec![json!(trial as f64 / 11.0)],
                cost: (trial as f64 - 3.0).abs(),
            })
            .collect();
        let before = values_of(&observations);
        let proposed = |seed, trial, observations: &[Observation]| {
            propose(&search(10, &space), seed, trial, observations, &before)
        };
        assert_eq!(proposed(1, 11, &observations), proposed(1, 11, &observations));
        let mut turned = observations.clone();
        turned.reverse();
        assert_eq!(
            proposed(1, 11, &observations),
            proposed(1, 11, &turned),
            "the order in which results came is no matter"
        );
        assert_ne!(proposed(1, 11, &observations), proposed(2, 11, &observations));
        assert_ne!(proposed(1, 11, &observations), proposed(1, 12, &observations));
        let mut other = observations.clone();
        other[8].cost = -1.0;
        assert_ne!(proposed(1, 11, &observations), proposed(1, 11, &other));
        let failed: Vec<Observation> = observations
            .iter()
            .cloned()
            .map(|observations| Observation { cost: f64::INFINITY, ..observations })
            .collect();
        assert!(proposed(1, 11, &failed).is_some(), "where all failed it still draws");
    }

    /// Two values, at 0.2 and 0.8, and the whole range: by hand, with a table of the normal distribution.
    #[test]
    fn a_density_is_what_the_paper_says() {
        let dimension = range(0.0, 1.0, false, false);
        let values = [json!(0.2), json!(0.8)];
        let density = Density::new(&dimension, values.iter());
        let Density::Numbers(gaussians) = &density else { panic!() };
        // The neighbour of either is the middle of the range, 0.3 away; a quarter would be the narrowest.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-5;
        assert!(near(gaussians[0].1, 0.3) && gaussians[1] == (0.5, 1.0) && near(gaussians[2].1, 0.3), "{gaussians:?}");
        // At 0.2: 1.32981 / 0.74368 of the first, 0.38139 / 0.38292 of the whole, 0.17997 / 0.74368 of the last.
        let at = density.at(&dimension, &json!(0.2));
        assert!(near(at, 1.008_713), "{at}");
        let sum: f64 =
            (0..1000).map(|at| density.at(&dimension, &json!((f64::from(at) + 0.5) / 1000.0)) / 1000.0).sum();
        assert!((sum - 1.0).abs() < 1e-3, "{sum}");
        let choice = Dimension::Choice(vec![json!("a"), json!("b"), json!("c")]);
        let chosen = [json!("a"), json!("a"), json!("c")];
        let density = Density::new(&choice, chosen.iter());
        let shares = ["a", "b", "c"].map(|one| density.at(&choice, &json!(one)));
        assert!(near(shares[0], 3.0 / 6.0) && near(shares[1], 1.0 / 6.0) && near(shares[2], 2.0 / 6.0), "{shares:?}");
    }
}
