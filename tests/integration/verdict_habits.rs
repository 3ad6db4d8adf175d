//! Tests of the habits of the verdict's benchmark: their series agree with their ground truth. The benchmark's unit tests run here too.

#[path = "../../benches/leakbench/assessment.rs"]
mod assessment;
#[path = "../../benches/leakbench/goals.rs"]
mod goals;
#[path = "../../benches/leakbench/interval.rs"]
mod interval;
#[path = "../../benches/leakbench/judged/mod.rs"]
mod judged;
#[path = "../../benches/leakbench/series.rs"]
mod series;
#[path = "../../benches/leakbench/table.rs"]
mod table;
#[path = "../../benches/leakbench/tally.rs"]
mod tally;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use series::{Ar1, Category, Conditions, Habit, MIB, Noise, Run, Scenario, Set, Truth};
use tally::{GROWTH_MIN, GROWTH_MULTIPLES, Row};

/// Sets restricted to short runs.
const SHORT: [Set; 1] = [Set { draw: |conditions, rng| short(&judged::SET, conditions, rng), ..judged::SET }];
/// Runs of a habit: one for each growth and noise.
const RUNS: u64 = 16;

fn short(set: &Set, conditions: Conditions, rng: &mut ChaCha8Rng) -> Scenario {
    std::iter::repeat_with(|| (set.draw)(conditions, rng)).find(|scenario| scenario.steps < 2500).unwrap()
}

/// Generates runs of every habit of every set.
fn for_each_run(mut check: impl FnMut(&Set, &Habit, u64, &Run)) {
    for set in &SHORT {
        for habit in set.habits {
            for number in 0..RUNS {
                check(set, habit, number, &tally::generate(set, habit, number, set.seed).0);
            }
        }
    }
}

#[test]
fn runs_have_200_to_100_000_steps_with_and_without_epochs() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for set in &SHORT {
        let set = [judged::SET].into_iter().find(|long| long.name == set.name).unwrap();
        let conditions = Conditions { noise: MIB, growth: 0.0, growth_min: GROWTH_MIN };
        let scenarios: Vec<Scenario> = (0..2000).map(|_| (set.draw)(conditions, &mut rng)).collect();
        let steps = || scenarios.iter().map(|scenario| scenario.steps);
        assert!((200..300).contains(&steps().min().unwrap()), "the shortest has {:?} steps", steps().min());
        assert!((90_000..=100_000).contains(&steps().max().unwrap()), "the longest has {:?} steps", steps().max());
        let with = scenarios.iter().filter(|scenario| scenario.steps_per_epoch > 0).count();
        assert!((400..1600).contains(&with), "{with} of 2000 have epochs");
        assert!(scenarios.iter().all(|scenario| scenario.settled <= scenario.planned / 4));
    }
}

#[test]
fn a_run_has_samples_in_order_from_its_first_step_to_its_last() {
    for_each_run(|set, habit, number, run| {
        let name = format!("{}: {}, {number}", set.name, habit.name);
        assert!(run.samples.is_sorted_by(|one, next| one.step < next.step), "{name}");
        assert!(run.samples.len() >= 190, "{name}: {} samples", run.samples.len());
        assert!(run.samples.iter().all(|sample| sample.bytes.is_finite() && sample.level >= 0.0), "{name}");
        assert!(run.steps >= run.samples.last().unwrap().step, "{name}: planned for {}", run.steps);
        assert!(run.settled <= run.steps / 4, "{name}: settled after {} of {}", run.settled, run.steps);
    });
}

#[test]
fn a_leak_grows_by_its_conditions_from_its_first_step() {
    for_each_run(|set, habit, number, run| {
        if habit.category != Category::Growing {
            return;
        }
        let name = format!("{}: {}, {number}", set.name, habit.name);
        let (Truth::Growing { since, visible_from, growth } | Truth::Slowing { since, visible_from, growth }) =
            run.truth
        else {
            panic!("{name} is {:?}", run.truth)
        };
        assert_eq!(growth, GROWTH_MULTIPLES[number as usize / 4] * GROWTH_MIN, "{name}");
        let newest = run.last_process();
        let at = |step| newest[newest.partition_point(|sample| sample.step < step).min(newest.len() - 1)].level;
        let end = newest.last().unwrap().level;
        // A sample may be up to ten steps after the leak began, and after the last stair.
        let near = growth / 15.0;
        assert!((end - at(since) - growth).abs() <= near, "{name}: {} MiB", (end - at(since)) / MIB);
        assert!(
            since <= visible_from && visible_from <= newest.last().unwrap().step,
            "{name}: {since}, {visible_from}"
        );
        let later = newest.iter().filter(|sample| sample.step >= since);
        assert!(later.is_sorted_by(|one, next| one.level <= next.level), "{name} falls");
        let idle = newest.iter().filter(|sample| sample.step >= since && sample.step < visible_from);
        assert!(idle.into_iter().all(|sample| sample.level == at(since)), "{name} grows before {visible_from}");
    });
}

#[test]
fn a_bounded_habit_is_flat_or_steps_in_its_last_third() {
    let mut flat = 0;
    for_each_run(|set, habit, number, run| {
        if habit.category != Category::Bounded {
            return;
        }
        let name = format!("{}: {}, {number}", set.name, habit.name);
        assert_eq!(run.truth, Truth::Bounded, "{name} rises by {} MiB at last", run.late_rise() / MIB);
        if run.late_rise() <= GROWTH_MIN / 2.0 {
            flat += 1;
            return;
        }
        let newest = run.last_process();
        let third = &newest[newest.len() - newest.len() / 3..];
        let moves = third.windows(2).filter(|pair| pair[0].level != pair[1].level).count();
        assert!(moves <= 4, "{name} moves {moves} times in its last third");
    });
    assert!(flat > 0);
}

#[test]
fn a_filling_cache_is_neither_bounded_nor_a_leak() {
    for_each_run(|_, habit, number, run| match habit.category {
        Category::Filling => {
            assert!(matches!(run.truth, Truth::Between | Truth::Slowing { .. }), "{}, {number}", habit.name);
        }
        Category::RandomWalk => assert_eq!(run.truth, Truth::RandomWalk),
        Category::Bounded | Category::Growing => {}
    });
}

#[test]
fn noise_has_the_given_deviation_and_correlation() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let kinds = [Noise::Gaussian(3.0), Noise::Upward(3.0), Noise::Uniform(3.0), Noise::Correlated(Ar1::new(3.0, 4.0))];
    for mut noise in kinds {
        let values: Vec<f64> = (0..100_000).map(|_| noise.next(&mut rng)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.1 && (variance.sqrt() - 3.0).abs() < 0.1, "{noise:?}: {mean}, {}", variance.sqrt());
        let pairs = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>();
        let correlation = pairs / values.len() as f64 / variance;
        let expected = if matches!(noise, Noise::Correlated(_)) { (-0.25_f64).exp() } else { 0.0 };
        assert!((correlation - expected).abs() < 0.02, "{noise:?}: {correlation}");
    }
}

#[test]
fn tables_are_reproducible_and_complete() {
    let set = &SHORT[0];
    let short = |habit: &&Habit| ["flat", "linear", "restarted", "random walk"].contains(&habit.name);
    let tables = || {
        let habits = set.habits.iter().filter(short);
        let rows: Vec<Row> = habits.flat_map(|habit| (0..2).map(|n| tally::judge_run(set, habit, n, 1))).collect();
        assert_eq!(rows[1].json()["number"], 1);
        table::markdown(set, &rows, "it")
    };
    let text = tables();
    assert_eq!(text, tables());
    for habit in set.habits.iter().filter(short) {
        assert!(text.contains(&format!("| {} |", habit.name)), "{} is missing from\n{text}", habit.name);
    }
}
