//! Tests of LeakBench: its series agree with their truth, and the verdict reaches its goals on the judged half. The benchmark's unit
//! tests run here too.

#[path = "../../benches/leakbench/assessment.rs"]
mod assessment;
#[path = "../../benches/leakbench/goals.rs"]
mod goals;
#[path = "../../benches/leakbench/interval.rs"]
mod interval;
#[path = "../../benches/leakbench/judged/mod.rs"]
mod judged;
#[path = "../../benches/leakbench/rivals/mod.rs"]
mod rivals;
#[path = "../../benches/leakbench/series.rs"]
mod series;
#[path = "../../benches/leakbench/table.rs"]
mod table;
#[path = "../../benches/leakbench/tally.rs"]
mod tally;

use rand_chacha::ChaCha8Rng;
use series::{Category, Claim, Conditions, Habit, Run, Scenario, Set, Truth};
use tally::Row;

/// The judged half, restricted to short runs.
const SHORT: Set = Set { draw: short, ..judged::SET };

fn short(conditions: Conditions, rng: &mut ChaCha8Rng) -> Scenario {
    std::iter::repeat_with(|| (judged::SET.draw)(conditions, rng)).find(|scenario| scenario.steps < 1500).unwrap()
}

/// Checks some runs of every habit.
fn for_each_run(runs: u64, mut check: impl FnMut(&Habit, u64, &Run, Conditions)) {
    for habit in SHORT.habits {
        for number in 0..runs {
            let (run, conditions) = tally::generate(&SHORT, habit, number, SHORT.seed);
            check(habit, number, &run, conditions);
        }
    }
}

#[test]
fn a_run_has_samples_in_order_a_leak_begins_within_it_and_all_that_is_bounded_has_come_to_rest() {
    for_each_run(8, |habit, number, run, conditions| {
        let name = format!("{}, {number}", habit.name);
        let last = run.samples.last().unwrap().step;
        assert!(run.samples.is_sorted_by(|one, next| one.step < next.step), "{name}");
        assert!(run.samples.len() >= 190 && run.steps >= last, "{name}: {} samples", run.samples.len());
        assert!(run.samples.iter().all(|sample| sample.bytes.is_finite() && sample.level >= 0.0), "{name}");
        match run.truth {
            Truth::Growing { since, visible_from, growth } if habit.expected.category == Category::Growing => {
                assert!(since <= visible_from && visible_from < last, "{name}: {since}, {visible_from}");
                assert!(growth >= tally::GROWTHS.0 && growth == conditions.growth, "{name}: {growth}");
            }
            Truth::Slowing { growth, .. } => assert!(growth >= conditions.growth_min, "{name}: {growth}"),
            Truth::Growing { .. } => panic!("{name} leaks"),
            Truth::Bounded | Truth::Between => assert_eq!(conditions.growth, 0.0, "{name}"),
            Truth::RandomWalk => assert_eq!(habit.expected.category, Category::RandomWalk, "{name}"),
        }
    });
}

#[test]
fn the_truth_follows_from_the_level_in_the_last_third() {
    let conditions = Conditions { noise: 0.0, growth: 0.0, growth_min: tally::GROWTH_MIN };
    let scenario = Scenario {
        conditions,
        first: 0,
        steps: 300,
        every: 1,
        planned: 300,
        steps_per_epoch: 0,
        cadences: Vec::new(),
        settled: 0,
        base: 0.0,
    };
    let rising = |rate: f64| scenario.run(Claim::Settles, |step| rate * series::MIB * step as f64, |_| 0.0).truth;
    assert_eq!(rising(0.05), Truth::Bounded, "5 MiB in the last third");
    assert_eq!(rising(0.12), Truth::Between, "12 MiB");
    assert!(matches!(rising(1.0), Truth::Slowing { .. }), "100 MiB");
}

/// Rates on few short runs are less sure than those of the benchmark, and these runs are harder: the goals here are looser.
#[test]
fn the_verdict_reaches_its_goals_on_short_runs_of_the_judged_half() {
    let judged = |habit| (0..3).map(move |number| tally::judge_run(&SHORT, habit, number, SHORT.seed));
    let rows: Vec<Row> = SHORT.habits.iter().flat_map(judged).collect();
    let goals = goals::goals(&SHORT, &rows);
    let text = table::markdown(&SHORT, &rows);
    let by_habit = table::habits(&SHORT, &rows);
    assert!(SHORT.habits.iter().all(|habit| by_habit.contains(habit.name)), "{by_habit}");
    assert!(goals.iter().all(|goal| text.contains(goal.name)), "{text}");
    let fraction = |named: &str| goals.iter().find(|goal| goal.name.starts_with(named)).unwrap().rate.fraction();
    assert!(fraction("bounded, called growing") <= 0.03, "{text}");
    assert!(fraction("leaks found") >= 0.92, "{text}");
    assert!(fraction("leaks called bounded") <= 0.02, "{text}");
    assert!(fraction("dates") >= 0.85, "{text}");
    assert_eq!(rows[1].json()["number"], 1);
    for (rival, rows) in
        rivals::RIVALS.iter().enumerate().map(|(at, rival)| (rival, rows.iter().filter(move |row| row.rivals[at])))
    {
        assert!(rows.count() < SHORT.habits.len() * 3, "{} reports growth of everything", rival.name);
    }
}
