//! Order in the code: dead files, undocumented files, scattered `cfg`, snippets that no longer compile.

use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, into),
            path if path.extension().is_some_and(|extension| extension == "rs") => into.push(path),
            _ => {}
        }
    }
}

fn all() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    for directory in ["src", "crates", "tests", "benches", "fuzz"] {
        sources(&Path::new(ROOT).join(directory), &mut paths);
    }
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn files_begin_with_a_doc_comment() {
    for (path, text) in all() {
        assert!(text.starts_with("//! "), "{} does not say what it is for", path.display());
    }
}

#[test]
fn every_file_is_part_of_the_crate() {
    let all = all();
    for (path, _) in &all {
        let inside = path.strip_prefix(ROOT).unwrap().to_str().unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if !(inside.starts_with("src/") || inside.contains("/src/")) || ["main", "lib", "mod"].contains(&name) {
            continue;
        }
        let named = all
            .iter()
            .any(|(_, text)| text.contains(&format!("mod {name};")) || text.contains(&format!("\"{name}.rs\"")));
        assert!(named, "{inside} is dead: no `mod {name};`");
    }
}

#[test]
fn cfg_feature_stands_only_before_mod_use_and_macros() {
    for (path, text) in all() {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            if !line.starts_with("#[cfg(") || !line.contains("feature") {
                continue;
            }
            let next = lines[number + 1..].iter().find(|line| !line.starts_with("#[")).unwrap_or(&"");
            let fine = ["mod ", "pub mod ", "use ", "pub use "].iter().any(|start| next.starts_with(start));
            assert!(fine, "{}:{}: {next}", path.display(), number + 1);
        }
    }
}

/// Snippets of the guide name their file in the first line.
#[test]
fn snippets_of_the_guide_stand_in_the_example() {
    let guide = std::fs::read_to_string(Path::new(ROOT).join("docs/add-a-pipeline.md")).unwrap();
    let flat = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let mut count = 0;
    for block in guide.split("```rust\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let (first, code) = block.split_once('\n').unwrap();
        let file = first.strip_prefix("// ").unwrap_or_else(|| panic!("{first} names no file"));
        let text =
            std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(flat(&text).contains(&flat(code)), "{file} has no longer:\n{code}");
        count += 1;
    }
    assert!(count >= 8, "{count} snippets were found");
}
