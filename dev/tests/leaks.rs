//! `dev leaks` with the dummy pipeline.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests write samples and stop at what is wrong")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const DUMMY: &str = "[pipeline.dummy]\nsteps_per_epoch = 300\n";

fn leaks(directory: &Path, arguments: &[&str]) -> Output {
    let dev = PathBuf::from(env!("CARGO_BIN_EXE_dev"));
    // Cargo builds it for the tests of its own package.
    assert!(dev.with_file_name("xrun").is_file(), "build the program first: cargo build");
    Command::new(dev).arg("leaks").arg("--dir").arg(directory).args(arguments).output().unwrap()
}

#[test]
fn a_leak_is_found_with_its_owner_and_a_wrong_owner_is_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let leak = "leak_per_step = \"256 KiB\"\nleak_in_ledger = true\n";
    let expected = |owner: &str| format!("[leaks.expected]\nbytes_per_step = 262144\nowner = \"{owner}\"\n");
    for (name, owner) in [("kept", "dummy_leak"), ("blamed", "somebody_else")] {
        let file = |kind: &str, text: String| {
            std::fs::write(directory.path().join(format!("{name}.{kind}.toml")), text).unwrap();
        };
        file("leaky", format!("{DUMMY}{leak}{}", expected(owner)));
        file("bounded", DUMMY.into());
    }
    let output = leaks(directory.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let wrong: Vec<(&str, usize)> =
        rows.iter().map(|row| (row["name"].as_str().unwrap(), row["wrong"].as_array().unwrap().len())).collect();
    assert_eq!(wrong, [("blamed", 1), ("kept", 0)]);
    assert_eq!((&rows[1]["leaky"], &rows[1]["owner_named"]), (&"growing".into(), &"dummy_leak".into()));
    assert!(rows[1]["suspected_at"].as_u64().is_some_and(|step| step < 300), "{rows:?}");
    let one = leaks(directory.path(), &["kept"]);
    assert!(one.status.success() && String::from_utf8_lossy(&one.stdout).contains("as expected"), "{one:?}");
}

#[test]
fn a_leak_of_device_pools_is_left_out_where_there_is_no_pool_and_is_not_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("{DUMMY}[leaks.expected]\ngrows = \"per_thread_pools\"\nowner = \"leak_it\"\n");
    std::fs::write(directory.path().join("it.leaky.toml"), text).unwrap();
    let output = leaks(directory.path(), &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(rows[0]["wrong"] == serde_json::json!([]) && rows[0]["left_out"].is_string(), "{rows:?}");
}

#[test]
fn what_does_not_exist_is_answered_with_what_does() {
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/leaks");
    let output = leaks(&known, &["gradient"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("gradients, log_history"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(leaks(empty.path(), &[]).status.code(), Some(2));
    std::fs::write(empty.path().join("a.leaky.toml"), "[pipeline.dummy]\n").unwrap();
    let output = leaks(empty.path(), &[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("[leaks.expected]"), "{error}");
}
