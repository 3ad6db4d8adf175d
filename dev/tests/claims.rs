//! `dev claims`: the page and the short table are those of the kept results.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests write samples and stop at what is wrong")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Lines that surround the short table in README.md.
const BEGIN: &str = "<!-- `cargo dev claims` -->\n";
const END: &str = "<!-- end -->\n";

fn claims(results: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dev")).arg("claims").arg("--results").arg(results).output().unwrap()
}

#[test]
fn the_page_of_claims_is_that_of_the_kept_results() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = claims(&root.join("results"));
    assert!(output.status.success(), "{output:?}");
    let page = String::from_utf8(output.stdout).unwrap();
    let short: Vec<&str> =
        page.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| !line.is_empty()).collect();
    let short = format!("\n{}\n\n", short.join("\n"));
    let (readme, document) = (root.join("README.md"), root.join("docs/claims.md"));
    let content = std::fs::read_to_string(&readme).unwrap();
    let (before, rest) = content.split_once(BEGIN).unwrap();
    let (old, after) = rest.split_once(END).unwrap();
    if std::env::var_os("XRUN_BLESS").is_some() {
        std::fs::write(&document, &page).unwrap();
        std::fs::write(&readme, format!("{before}{BEGIN}{short}{END}{after}")).unwrap();
    } else {
        assert_eq!(std::fs::read_to_string(&document).unwrap(), page, "XRUN_BLESS=1 writes it anew");
        assert_eq!(old, short, "XRUN_BLESS=1 writes it anew");
    }
}

#[test]
fn a_claim_without_its_result_is_an_error_with_its_statement() {
    let results = tempfile::tempdir().unwrap();
    assert_eq!(claims(results.path()).status.code(), Some(2), "there is no file");
    for (text, named) in [
        ("[[report]]\ntitle = 'r'\n[[report.claim]]\nsays = 'it leaks'\n", "it leaks"),
        ("[[report]]\ntitel = 'r'\n", "titel"),
    ] {
        std::fs::write(results.path().join("claims.toml"), text).unwrap();
        let output = claims(results.path());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(named), "{error}");
    }
}
