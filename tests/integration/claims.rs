//! Kept results that claims of the reports refer to.

use std::path::Path;

use crate::workplace::{Workplace, text};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_kept_verdicts_are_those_of_their_logs() {
    let workplace = Workplace::new();
    let logs = std::fs::read_dir(Path::new(ROOT).join("results/verdicts")).unwrap().flatten().map(|entry| entry.path());
    let logs: Vec<_> = logs.filter(|path| path.extension().is_some_and(|extension| extension == "txt")).collect();
    assert!(!logs.is_empty());
    for log in logs {
        let output = workplace.exits(0, &["verdict", log.to_str().unwrap(), "--json"]);
        assert_eq!(
            output.out,
            text(&log.with_extension("json")),
            "{}: results/take-claims makes it again",
            log.display()
        );
    }
}

#[test]
fn the_table_of_a_sweep_is_kept_and_its_runs_are_compared_by_component() {
    let workplace = Workplace::new();
    let file = "[pipeline.dummy]\n[training]\nmax_steps = 6\n[sweep]\n\"limits.prefetch\" = [1, 2]\n";
    workplace.file("small.toml", file);
    workplace.exits(0, &["sweep", "small.toml", "--progress", "none"]);
    workplace.exits(0, &["keep", "small/sweeps/latest", "--name", "kept", "--json"]);
    let table = text(&workplace.path("results/reference/kept/table.json"));
    assert!(table.contains("\"owner.") && !table.contains(workplace.path("").to_str().unwrap()), "{table}");
    workplace.exits(2, &["keep", "small/sweeps/latest", "--name", "kept"]); // it exists
    workplace.exits(0, &["keep", "small/sweeps/latest", "--name", "kept", "--replace"]);
    let compared = workplace.exits(0, &["compare", "--components", "small/sweeps/latest"]);
    for row in ["before the first step", "heap, peak", "RSS, peak", "validation"] {
        assert!(compared.out.lines().any(|line| line.trim_start().starts_with(row)), "{row}: {}", compared.out);
    }
}
