//! The trials of each mode, and the order of their runs.

use proptest::prelude::*;

use super::*;
use xrun_core::experiment::read_sweep::read;

/// The values of all trials, or what is wrong.
fn expand(sweep: &str) -> Result<Vec<Vec<serde_json::Value>>, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sample.toml");
    xrun_core::files::write::replace(&path, format!("[pipeline.dummy]\n{sweep}").as_bytes()).unwrap();
    let sweep_file = read(&path, &[], std::iter::empty()).map_err(|problems| problems.to_string())?;
    let trials = trials(&sweep_file).map_err(|problems| problems.to_string())?;
    for trial in &trials {
        sweep_file.trial(trial).unwrap();
    }
    Ok(trials.into_iter().map(|trial| trial.into_iter().map(|swept| swept.value).collect()).collect())
}

#[test]
fn a_grid_has_every_combination_and_zip_takes_values_together() {
    let values = "[sweep.values]\nlimits.prefetch = [2, 4]\n\"cleanup.every_steps\" = [0, 1, 5]\n";
    let json = |text: &str| serde_json::from_str::<Vec<Vec<serde_json::Value>>>(text).unwrap();
    assert_eq!(expand(values).unwrap(), json("[[0,2],[0,4],[1,2],[1,4],[5,2],[5,4]]"));
    let zip = expand(&format!("[sweep]\nmethod = \"zip\"\n{values}")).unwrap_err();
    assert!(zip.contains("2 values, and `cleanup.every_steps` has 3"), "{zip}");
    let zip =
        "[sweep]\nmethod = \"zip\"\n[sweep.values]\nlimits.prefetch = [2, 4, 6]\ncleanup.every_steps = [0, 1, 5]\n";
    assert_eq!(expand(zip).unwrap(), json("[[0,2],[1,4],[5,6]]"));
}

#[test]
fn swept_keys_are_below_sweep_or_in_a_table_of_their_own() {
    let apart = "[sweep]\nrepeats = 2\n[sweep.values]\nlimits.prefetch = [2, 4]\n\"cleanup.every_steps\" = [0, 1]\n";
    let both = "[sweep]\nrepeats = 2\nlimits.prefetch = [2, 4]\n[sweep.values]\n\"cleanup.every_steps\" = [0, 1]\n";
    let below = "[sweep]\nlimits.prefetch = [2, 4]\n\"cleanup.every_steps\" = [0, 1]\nrepeats = 2\n";
    let tables = "[sweep.limits]\nprefetch = [2, 4]\n[sweep]\nrepeats = 2\n[sweep.cleanup]\nevery_steps = [0, 1]\n";
    assert_eq!(expand(apart).unwrap().len(), 4);
    for other in [both, below, tables] {
        assert_eq!(expand(other), expand(apart), "{other}");
    }
}

#[test]
fn draws_follow_the_seed_and_never_repeat() {
    let text = |seed: u32| {
        format!(
            "[sweep]\nmethod = \"random\"\ntrials = 12\nseed = {seed}\n[sweep.values]\nlimits.prefetch = [2, 3, 4, 5]\n\
             optimizer.adamw.learning_rate = {{ from = 1e-4, to = 1e-2, scale = \"log\" }}\n"
        )
    };
    let first = expand(&text(1)).unwrap();
    assert_eq!(first.len(), 12);
    assert_eq!(first, expand(&text(1)).unwrap());
    assert_ne!(first, expand(&text(2)).unwrap());
    for trial in &first {
        assert!((1e-4..=1e-2).contains(&trial[1].as_f64().unwrap()), "{trial:?}");
    }
    let few = "[sweep]\nmethod = \"random\"\ntrials = 12\n[sweep.values]\nlimits.prefetch = [2, 3, 4, 5]\n";
    assert!(expand(few).unwrap_err().contains("4 were found"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_grid_is_as_large_as_the_product_of_its_lists(lengths in proptest::collection::vec(1usize..6, 1..4)) {
        let keys = ["limits.prefetch", "cleanup.every_steps", "checkpoint.every_steps"];
        let mut text = "[sweep.values]\n".to_owned();
        for (key, length) in keys.iter().zip(&lengths) {
            text += &format!("{key} = {:?}\n", (2..2 + length).collect::<Vec<_>>());
        }
        let trials = expand(&text).unwrap();
        prop_assert_eq!(trials.len(), lengths.iter().product::<usize>());
        let different: std::collections::HashSet<String> = trials.iter().map(|trial| format!("{trial:?}")).collect();
        prop_assert_eq!(different.len(), trials.len());
    }

    #[test]
    fn each_round_runs_each_trial_once(trials in 1u64..40, repeats in 1u64..5, seed in any::<u32>()) {
        let order = order(trials, repeats, seed);
        prop_assert_eq!(order.len() as u64, trials * repeats);
        for (round, runs) in order.chunks(trials as usize).enumerate() {
            let mut numbers: Vec<u64> = runs.iter().map(|run| run.trial).collect();
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (1..=trials).collect::<Vec<_>>());
            prop_assert!(runs.iter().all(|run| run.repeat == round as u64 + 1));
        }
    }
}

#[test]
fn many_trials_are_abbreviated() {
    assert_eq!(named(&[7]), "trial 7");
    assert_eq!(named(&[1, 2, 3, 4, 5]), "trials 1, 2, 3 and 2 more");
}
