//! Do the habits of the verdict's benchmark behave as they say? Its own unit tests run here too.

#[path = "../../benches/verdict/goals.rs"]
mod goals;
#[path = "../../benches/verdict/interval.rs"]
mod interval;
#[path = "../../benches/verdict/judged/mod.rs"]
mod judged;
#[path = "../../benches/verdict/outcome.rs"]
mod outcome;
#[path = "../../benches/verdict/series.rs"]
mod series;
#[path = "../../benches/verdict/table.rs"]
mod table;
#[path = "../../benches/verdict/tally.rs"]
mod tally;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use series::{Ar1, Asked, Draw, Family, Habit, MIB, Noise, Run, Set, Truth};
use tally::{GROWTH_MIN, Row, TIMES};

/// The sets, with short runs only: what holds of them holds of long ones.
const SHORT: [Set; 1] = [Set { draw: |asked, rng| short(&judged::SET, asked, rng), ..judged::SET }];
/// Enough for each growth and noise.
const RUNS: u64 = 16;

fn short(set: &Set, asked: Asked, rng: &mut ChaCha8Rng) -> Draw {
    std::iter::repeat_with(|| (set.draw)(asked, rng)).find(|draw| draw.steps < 2500).unwrap()
}

/// Runs of every habit of every set.
fn each(mut look: impl FnMut(&Set, &Habit, u64, &Run)) {
    for set in &SHORT {
        for habit in set.habits {
            for number in 0..RUNS {
                look(set, habit, number, &tally::run(set, habit, number, set.seed).0);
            }
        }
    }
}

#[test]
fn lengths_are_those_of_the_issue_with_and_without_epochs() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for set in &SHORT {
        let set = [judged::SET].into_iter().find(|long| long.name == set.name).unwrap();
        let asked = Asked { noise: MIB, growth: 0.0, growth_min: GROWTH_MIN };
        let draws: Vec<Draw> = (0..2000).map(|_| (set.draw)(asked, &mut rng)).collect();
        let steps = || draws.iter().map(|draw| draw.steps);
        assert!((200..300).contains(&steps().min().unwrap()), "the shortest has {:?} steps", steps().min());
        assert!((90_000..=100_000).contains(&steps().max().unwrap()), "the longest has {:?} steps", steps().max());
        let with = draws.iter().filter(|draw| draw.steps_per_epoch > 0).count();
        assert!((400..1600).contains(&with), "{with} of 2000 have epochs");
        assert!(draws.iter().all(|draw| draw.settled <= draw.planned / 4));
    }
}

#[test]
fn a_run_has_samples_in_order_from_its_first_step_to_its_last() {
    each(|set, habit, number, run| {
        let name = format!("{}: {}, {number}", set.name, habit.name);
        assert!(run.samples.is_sorted_by(|one, next| one.step < next.step), "{name}");
        assert!(run.samples.len() >= 190, "{name}: {} samples", run.samples.len());
        assert!(run.samples.iter().all(|sample| sample.bytes.is_finite() && sample.level >= 0.0), "{name}");
        assert!(run.steps >= run.samples.last().unwrap().step, "{name}: planned for {}", run.steps);
        assert!(run.settled <= run.steps / 4, "{name}: settled after {} of {}", run.settled, run.steps);
    });
}

#[test]
fn a_leak_grows_by_what_was_asked_and_begins_where_it_says() {
    each(|set, habit, number, run| {
        if habit.family != Family::Growing {
            return;
        }
        let name = format!("{}: {}, {number}", set.name, habit.name);
        let (Truth::Growing { since, seen, growth } | Truth::Slowing { since, seen, growth }) = run.truth else {
            panic!("{name} is {:?}", run.truth)
        };
        assert_eq!(growth, TIMES[number as usize / 4] * GROWTH_MIN, "{name}");
        let newest = run.newest();
        let at = |step| newest[newest.partition_point(|sample| sample.step < step).min(newest.len() - 1)].level;
        let end = newest.last().unwrap().level;
        // A sample may be up to ten steps after the leak began, and after the last stair.
        let near = growth / 15.0;
        assert!((end - at(since) - growth).abs() <= near, "{name}: {} MiB", (end - at(since)) / MIB);
        assert!(since <= seen && seen <= newest.last().unwrap().step, "{name}: {since}, {seen}");
        let later = newest.iter().filter(|sample| sample.step >= since);
        assert!(later.is_sorted_by(|one, next| one.level <= next.level), "{name} falls");
        let idle = newest.iter().filter(|sample| sample.step >= since && sample.step < seen);
        assert!(idle.into_iter().all(|sample| sample.level == at(since)), "{name} grows before {seen}");
    });
}

#[test]
fn a_bounded_habit_is_at_rest_or_steps_when_it_ends() {
    let mut at_rest = 0;
    each(|set, habit, number, run| {
        if habit.family != Family::Bounded {
            return;
        }
        let name = format!("{}: {}, {number}", set.name, habit.name);
        assert_eq!(run.truth, Truth::Bounded, "{name} rises by {} MiB at last", run.late_rise() / MIB);
        if run.late_rise() <= GROWTH_MIN / 2.0 {
            at_rest += 1;
            return;
        }
        let newest = run.newest();
        let third = &newest[newest.len() - newest.len() / 3..];
        let moves = third.windows(2).filter(|pair| pair[0].level != pair[1].level).count();
        assert!(moves <= 4, "{name} moves {moves} times in its last third");
    });
    assert!(at_rest > 0);
}

#[test]
fn a_cache_that_fills_is_neither_bounded_nor_a_leak() {
    each(|_, habit, number, run| match habit.family {
        Family::Filling => {
            assert!(matches!(run.truth, Truth::Between | Truth::Slowing { .. }), "{}, {number}", habit.name);
        }
        Family::Walk => assert_eq!(run.truth, Truth::Walk),
        Family::Bounded | Family::Growing => {}
    });
}

#[test]
fn noise_has_the_deviation_that_was_asked_for() {
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

/// The same numbers twice, and tables that hold each habit.
#[test]
fn the_tables_are_the_same_each_time_and_complete() {
    let set = &SHORT[0];
    let short = |habit: &&Habit| ["flat", "linear", "restarted", "random walk"].contains(&habit.name);
    let tables = || {
        let habits = set.habits.iter().filter(short);
        let rows: Vec<Row> = habits.flat_map(|habit| (0..2).map(|n| tally::row(set, habit, n, 1))).collect();
        assert_eq!(rows[1].json()["number"], 1);
        table::markdown(set, &rows, "it")
    };
    let text = tables();
    assert_eq!(text, tables());
    for habit in set.habits.iter().filter(short) {
        assert!(text.contains(&format!("| {} |", habit.name)), "{} is missing from\n{text}", habit.name);
    }
}
