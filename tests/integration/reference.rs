//! Are the committed results whole, small, and what comes out today?

use std::path::{Path, PathBuf};

use crate::workplace::{Workplace, json, text};

/// Longer ones are reproduced by hand: `xrun reproduce reference/stage2`.
const SECONDS_MAX: f64 = 10.0;
/// By which the mean of a number may be off elsewhere: other processors round sums otherwise. The dummy adds up nothing.
const TOLERANCE: &str = "1e-3";

fn references() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/reference");
    let folders = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    folders.filter(|path| path.is_dir()).collect()
}

#[test]
fn committed_results_are_whole_small_and_name_no_place_of_their_machine() {
    let references = references();
    assert!(!references.is_empty());
    for reference in references {
        let shown = reference.display();
        let mut size = 0;
        for entry in std::fs::read_dir(&reference).unwrap().flatten() {
            assert!(entry.path().is_file(), "{shown}: no folders, so no checkpoints");
            size += entry.metadata().unwrap().len();
        }
        assert!(size < 2 << 20, "{shown} has {size} bytes");
        let summary = json(&reference.join("summary.json"));
        assert_eq!(summary["outcome"], "finished", "{shown}");
        let name = reference.file_name().unwrap().to_str().unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("experiments/{name}.toml"));
        assert_eq!(text(&reference.join("experiment.toml")), text(&file), "{shown} is of another file: make it again");
        assert!(text(&reference.join("report.html")).contains("<svg"), "{shown}");
        let manifest = json(&reference.join("manifest.json"));
        assert_eq!((&manifest["host"]["name"], &manifest["working_directory"]), (&"a machine".into(), &"/xrun".into()));
        let readme = include_str!("../../results/reference/README.md");
        assert!(readme.contains(&format!("({name}/report.html)")), "{name} is not in the README");
    }
}

#[test]
fn short_committed_results_come_out_again() {
    let workplace = Workplace::new();
    let mut count = 0;
    for reference in references() {
        let seconds = json(&reference.join("summary.json"))["seconds"].as_f64().unwrap();
        let needs_burn = !text(&reference.join("resolved.toml")).contains("[pipeline.dummy]");
        if seconds > SECONDS_MAX || (needs_burn && cfg!(not(feature = "train"))) {
            continue;
        }
        let path = reference.to_str().unwrap();
        let said = workplace.xrun(&["reproduce", path, "--tolerance", TOLERANCE, "-q"]);
        assert_eq!(said.code, 0, "{path}: {said:?}");
        count += 1;
    }
    assert!(count >= 1, "none is short");
}
