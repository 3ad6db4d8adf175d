//! Is the code in order: who imports whom, how long are files, what is left behind?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const LINES_MAX: usize = 500;

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, into),
            path if path.extension().is_some_and(|extension| extension == "rs") => into.push(path),
            _ => {}
        }
    }
}

fn all() -> Vec<(PathBuf, String)> {
    let mut paths = Vec::new();
    for folder in ["src", "tests", "benches", "fuzz"] {
        sources(&Path::new(ROOT).join(folder), &mut paths);
    }
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The table in `docs/architecture.md`: module, and what it may import.
fn table() -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(Path::new(ROOT).join("docs/architecture.md")).unwrap();
    let rows = text.lines().filter_map(|line| {
        let (module, may) = line.strip_prefix("| `")?.split_once("` |")?;
        let may = may.trim_end_matches('|').split_whitespace().map(str::to_owned).collect();
        Some((module.to_owned(), may))
    });
    rows.collect()
}

#[test]
fn modules_import_only_what_the_table_allows() {
    let table = table();
    assert!(table.len() >= 15, "the table was not found");
    for (path, text) in all() {
        let Ok(inside) = path.strip_prefix(Path::new(ROOT).join("src")) else { continue };
        let module = inside.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        if ["main", "lib"].contains(&module) {
            continue;
        }
        let may = table.get(module).unwrap_or_else(|| panic!("{module} is not in the table"));
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(list) => list.split('}').next().unwrap().split(',').map(str::trim).collect(),
                None => vec![rest],
            };
            for name in names {
                let name = name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap();
                let allowed = name.is_empty() || name == module || may.iter().any(|may| may == name);
                assert!(allowed, "{}: `{module}` may not import `{name}`", path.display());
            }
        }
    }
}

#[test]
fn only_device_nn_and_pipelines_name_burn() {
    for (path, text) in all() {
        let inside = path.strip_prefix(ROOT).unwrap().to_str().unwrap();
        let may =
            ["src/device/", "src/nn/", "src/pipelines/", "benches/", "tests/"].iter().any(|f| inside.starts_with(f));
        let names = text.lines().any(|line| line.trim_start().starts_with("use burn") || line.contains(" burn::"));
        assert!(may || !names, "{inside} names Burn");
    }
}

#[test]
fn files_are_short_and_begin_with_what_they_answer() {
    for (path, text) in all() {
        assert!(text.lines().count() <= LINES_MAX, "{} has {} lines", path.display(), text.lines().count());
        assert!(text.starts_with("//! "), "{} does not say what it is for", path.display());
    }
}

#[test]
fn every_file_is_part_of_the_crate() {
    let all = all();
    for (path, _) in &all {
        let inside = path.strip_prefix(ROOT).unwrap().to_str().unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if !inside.starts_with("src/") || ["main", "lib", "mod"].contains(&name) {
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
