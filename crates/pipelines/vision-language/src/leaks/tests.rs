//! Tests of forecasts of leaks against the bytes that they come to hold.

use super::super::prepare::tests::{Made, prepared};
use super::*;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::files::write::replace;

/// Fourteen training examples with three images of different sizes, and one held-out example.
fn files(made: &Made) -> String {
    let directory = made.directory.path();
    for (name, width, height) in [("a", 40, 30), ("b", 20, 50), ("c", 32, 32), ("d", 8, 8)] {
        let image = HostImage { width, height, rgb: vec![9; width * height * 3].into() };
        replace(&directory.join(format!("{name}.png")), &image.to_png().unwrap()).unwrap();
    }
    let line = |number: usize, name: &str| {
        let question = "long ".repeat(number % 4);
        format!("{{\"text\": \"{question}\", \"image\": \"{name}.png\", \"response\": \"{{\\\"n\\\": {number}}}\"}}\n")
    };
    let train: String = (0..14).map(|number| line(number, ["a", "b", "c"][number % 3])).collect();
    replace(&directory.join("sizes.jsonl"), train.as_bytes()).unwrap();
    replace(&directory.join("held.jsonl"), line(1, "d").as_bytes()).unwrap();
    let path = |name: &str| directory.join(name);
    format!("source = \"messages\"\npath = {:?}\nvalidation_path = {:?}", path("sizes.jsonl"), path("held.jsonl"))
}

fn experiment(made: &Made, leak: &str, steps: u64, workers: usize) -> Experiment {
    let training = format!(
        "max_steps = {steps}\nbatch_size = 2\ngradient_accumulation = 2\n[limits]\nworkers = {workers}\nprefetch = 1\n[leaks]\n\
         {leak} = true\n"
    );
    made.with("", &training, &files(made))
}

/// Bytes that the leak holds after `count` batches, which `workers` threads prepared in turn.
fn held(experiment: &Experiment, batches: &BatchLoader, count: u64, workers: u64) -> u64 {
    let ledger = Ledger::default();
    let prepare = data::prepare(batches.clone(), &experiment.leaks, &ledger);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let prepare = &prepare;
            scope.spawn(move || {
                (0..count).filter(|number| number % workers == worker).for_each(|number| {
                    prepare(number).unwrap();
                })
            });
        }
    });
    ledger.read()[0].bytes
}

#[test]
fn bytes_of_kept_images_and_examples_equal_the_forecast() {
    let made = Made::new();
    for (leak, key) in [(&IMAGES_DECODED_IN_PLACE, "images_decoded_in_place"), (&DATA_PER_WORKER, "data_per_worker")] {
        // An epoch has seven batches, a step two.
        for steps in [1, 2, 3, 9] {
            let experiment = experiment(&made, key, steps, 0);
            let (_, prepared) = prepared(&experiment).unwrap();
            let counted = leak_growth(leak, &prepared.batches, &experiment);
            let held = held(&experiment, &prepared.batches, steps * 2, 1);
            assert_eq!(counted.total(), Some(held), "{key}, {steps} steps");
        }
    }
}

#[test]
fn each_worker_keeps_a_copy_of_its_examples() {
    let made = Made::new();
    let experiment = experiment(&made, "data_per_worker", 10, 3);
    let (_, prepared) = prepared(&experiment).unwrap();
    let LeakGrowth::Total(counted) = leak_growth(&DATA_PER_WORKER, &prepared.batches, &experiment) else {
        panic!("it ends when all is kept");
    };
    // The workers are three batches ahead of the last step.
    let held = held(&experiment, &prepared.batches, 23, 3);
    assert!((counted as f64 / held as f64 - 1.0).abs() < 0.1, "{counted} expected, {held} held");
}

#[test]
fn all_examples_are_formatted_at_the_start() {
    let made = Made::new();
    let experiment = experiment(&made, "formatted_examples", 1, 0);
    let (_, prepared) = prepared(&experiment).unwrap();
    let ledger = Ledger::default();
    let _kept = data::formatted(&prepared.batches, &experiment.leaks, &ledger).unwrap();
    let counted = leak_growth(&FORMATTED_EXAMPLES, &prepared.batches, &experiment);
    assert_eq!(counted, LeakGrowth::Total(ledger.read()[0].bytes));
}

#[test]
fn growth_per_batch_is_multiplied_by_the_batches_of_a_step_or_validation() {
    let made = Made::new();
    let experiment = experiment(&made, "log_history", 5, 0);
    let (_, prepared) = prepared(&experiment).unwrap();
    let given = |leak: &Leak| match leak_growth(leak, &prepared.batches, &experiment) {
        LeakGrowth::Linear(growth) => (growth.with, growth.given(10)),
        _ => panic!("it has no end"),
    };
    assert_eq!(given(&PROCESSED_BATCHES), (GrowthEvent::Step, 20));
    assert_eq!(given(&LABELS_AND_LOGITS), (GrowthEvent::Step, 10));
    // One held-out example is one batch, whatever `validation.batches` is.
    assert_eq!(given(&VALIDATION_LOGITS), (GrowthEvent::Validation, 10));
}
