//! Committed schemas and manual against the code. python/tests/test_schemas.py validates files against them.
//!
//! `XRUN_BLESS=1 cargo test --no-default-features --test integration -- schemas` writes them anew.

use std::path::{Path, PathBuf};

use serde_json::Value;
use xrun::experiment::schema;
use xrun::schemas;

use crate::reference_manual::reference;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Committed or generated texts, by path.
fn generated() -> Vec<(PathBuf, String)> {
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap() + "\n";
    let mut files = vec![
        (root().join("schemas/experiment.schema.json"), pretty(&known())),
        (root().join("docs/reference.md"), reference()),
    ];
    for (name, record) in schemas::record_schemas() {
        files.push((root().join(format!("schemas/{name}.schema.json")), pretty(&record)));
    }
    files
}

/// The schema of experiments with the kinds that xrun brings.
pub fn known() -> serde_json::Value {
    xrun::Program::new().built_in().register();
    schema::schema()
}

#[test]
fn schemas_and_manual_are_those_of_the_code() {
    let bless = std::env::var_os("XRUN_BLESS").is_some();
    for (path, expected) in generated() {
        if bless {
            xrun::files::write::replace(&path, expected.as_bytes()).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let name = path.strip_prefix(root()).unwrap().display();
        let how = "XRUN_BLESS=1 cargo test --no-default-features --test integration -- schemas";
        assert!(committed == expected, "{name} is stale; write it anew with: {how}");
    }
}
