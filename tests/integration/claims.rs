//! Claims of the reports: the page and the short table are those of the kept results.

use std::path::Path;

use xrun::files::write;

use crate::workplace::{Workplace, text};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Lines that surround the short table in README.md.
const BEGIN: &str = "<!-- `xrun claims` -->\n";
const END: &str = "<!-- end -->\n";

#[test]
fn the_page_of_claims_is_that_of_the_kept_results() {
    let workplace = Workplace::new();
    let results = Path::new(ROOT).join("results");
    let said = workplace.xrun(&["claims", "--results", results.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{said:?}");
    let short: Vec<&str> =
        said.out.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| !line.is_empty()).collect();
    let short = format!("\n{}\n\n", short.join("\n"));
    let readme = Path::new(ROOT).join("README.md");
    let content = text(&readme);
    let (before, rest) = content.split_once(BEGIN).unwrap();
    let (old, after) = rest.split_once(END).unwrap();
    let page = Path::new(ROOT).join("docs/claims.md");
    if std::env::var_os("XRUN_BLESS").is_some() {
        write::replace(&page, said.out.as_bytes()).unwrap();
        let content = format!("{before}{BEGIN}{short}{END}{after}");
        write::replace(&readme, content.as_bytes()).unwrap();
    } else {
        assert_eq!(text(&page), said.out, "XRUN_BLESS=1 writes it anew");
        assert_eq!(old, short, "XRUN_BLESS=1 writes it anew");
    }
}

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
fn a_claim_without_its_result_is_an_error_with_its_statement() {
    let workplace = Workplace::new();
    workplace.file("claims.toml", "[[report]]\ntitle = 'r'\n[[report.claim]]\nsays = 'it leaks'\n");
    let said = workplace.xrun(&["claims", "claims.toml"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("it leaks"), "{said:?}");
    assert_eq!(workplace.xrun(&["claims", "missing.toml"]).code, 2);
    workplace.file("wrong.toml", "[[report]]\ntitel = 'r'\n");
    assert_eq!(workplace.xrun(&["claims", "wrong.toml"]).code, 2);
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
