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
        let said = workplace.xrun(&["verdict", log.to_str().unwrap(), "--json"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(
            said.out,
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
    assert_eq!(workplace.xrun(&["sweep", "small.toml", "--progress", "none"]).code, 0);
    let said = workplace.xrun(&["keep", "small/sweeps/latest", "--name", "kept", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let table = text(&workplace.path("results/reference/kept/table.json"));
    assert!(table.contains("\"owner.") && !table.contains(workplace.path("").to_str().unwrap()), "{table}");
    assert_eq!(workplace.xrun(&["keep", "small/sweeps/latest", "--name", "kept"]).code, 2, "it exists");
    assert_eq!(workplace.xrun(&["keep", "small/sweeps/latest", "--name", "kept", "--replace"]).code, 0);
    let compared = workplace.xrun(&["compare", "--components", "small/sweeps/latest"]);
    assert_eq!(compared.code, 0, "{compared:?}");
    for row in ["before the first step", "heap, peak", "RSS, peak", "validation"] {
        assert!(compared.out.lines().any(|line| line.starts_with(row)), "{row}: {}", compared.out);
    }
}
