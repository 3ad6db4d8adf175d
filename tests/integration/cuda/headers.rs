//! Kernels that copy asynchronously take the compiler longest: are they left out of the least tuning, and only there?

use super::Machine;
use crate::workplace::json;

/// A run with empty caches.
struct ColdStart {
    /// Kernels that the compiler was asked for, and those of them that include cooperative groups.
    asked: u64,
    with_groups: u64,
    /// Kernels that the device was given.
    loaded: u64,
    /// The toolkit that a hook was told of.
    toolkit_of_hook: String,
}

fn cold_start(overrides: &[&str], variables: &[(&str, &str)]) -> Option<(ColdStart, Machine)> {
    let machine = Machine::new()?;
    let place = &machine.workplace;
    let (sources, summary, told) = (place.path("sources"), place.path("summary.json"), place.path("told"));
    std::fs::create_dir(&sources).unwrap();
    let hook = format!("hooks.on_end=[\"sh\", \"-c\", \"echo $CUDA_PATH > {}\"]", told.display());
    let mut arguments = vec!["tiny.toml", "--progress", "none", "-s", &hook];
    arguments.extend(overrides.iter().flat_map(|text| ["-s", text]));
    let mut command = machine.command(&arguments);
    command.env("STAND_IN_SOURCES", &sources).env("STAND_IN_SUMMARY", &summary).envs(variables.iter().copied());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let kernels: Vec<String> = std::fs::read_dir(&sources)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let start = ColdStart {
        asked: kernels.len() as u64,
        with_groups: kernels.iter().filter(|source| source.contains("cooperative_groups.h")).count() as u64,
        loaded: json(&summary)["modules"].as_u64().unwrap(),
        toolkit_of_hook: std::fs::read_to_string(told).unwrap().trim().to_owned(),
    };
    Some((start, machine))
}

#[test]
fn the_least_tuning_compiles_no_kernel_that_copies_asynchronously() {
    let Some((start, machine)) = cold_start(&[], &[]) else { return };
    assert!(start.with_groups > 10, "{} of {} kernels include cooperative groups", start.with_groups, start.asked);
    assert_eq!(start.loaded, start.asked - start.with_groups);
    let toolkit = machine.toolkit.display().to_string();
    assert_eq!(start.toolkit_of_hook, toolkit, "a program of somebody else's has all headers");
    // Once more with what was compiled and tuned: nothing is refused.
    let said = machine.trained(&[]);
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn more_tuning_tries_every_way() {
    let level = [("CUBECL_AUTOTUNE_LEVEL", "balanced")];
    let balanced: (&[&str], &[(&str, &str)]) = (&["device.autotune=\"balanced\""], &[]);
    for (overrides, variables) in [balanced, (&[], &level)] {
        let Some((start, _)) = cold_start(overrides, variables) else { return };
        assert!(start.with_groups > 10 && start.loaded == start.asked, "{} of {}", start.loaded, start.asked);
    }
}
