//! Is the code in order: who imports whom, how long are files, what is left behind?

use std::collections::{BTreeMap, BTreeSet};
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

/// What is compiled for a program, without its tests.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            if !line.trim_start().starts_with("//") {
                kept.push_str(line);
                kept.push('\n');
            }
            continue;
        }
        // What the attribute is of ends with its statement, or with the brace at its own depth.
        let depth = line.len() - line.trim_start().len();
        for line in lines.by_ref() {
            let at_depth = line.len() - line.trim_start().len() == depth;
            if at_depth && (line.trim_end().ends_with(';') || line.trim() == "}") {
                break;
            }
        }
    }
    kept
}

/// Which modules each module imports, and where it does so first.
fn imports() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut imports: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let sources: Vec<(String, String, String)> = all()
        .into_iter()
        .filter_map(|(path, text)| {
            let inside = path.strip_prefix(Path::new(ROOT).join("src")).ok()?.to_path_buf();
            let of_tests = path.file_stem()?.to_str()?.ends_with("tests");
            let module = inside.components().next()?.as_os_str().to_str()?.trim_end_matches(".rs").to_owned();
            let counts = !of_tests && !["main", "lib"].contains(&module.as_str());
            counts.then(|| (module, inside.display().to_string(), without_tests(&text)))
        })
        .collect();
    let modules: BTreeSet<&String> = sources.iter().map(|(module, ..)| module).collect();
    for (module, place, code) in &sources {
        let of_module = imports.entry(module.clone()).or_default();
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            let names: Vec<&str> = match rest.strip_prefix('{') {
                Some(list) => list.split('}').next().unwrap().split(',').map(str::trim).collect(),
                None => vec![rest],
            };
            for name in names {
                let name = name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap().to_owned();
                // Macros of the crate stand beside its modules.
                if name != *module && modules.contains(&name) {
                    of_module.entry(name).or_insert_with(|| place.clone());
                }
            }
        }
    }
    imports
}

#[test]
fn modules_import_what_the_table_says_and_nothing_else() {
    let (table, imports) = (table(), imports());
    for (module, imported) in &imports {
        let may = table.get(module).unwrap_or_else(|| panic!("{module} is not in the table"));
        for (name, place) in imported {
            assert!(may.contains(name), "{place}: `{module}` may not import `{name}`");
        }
        for name in may {
            assert!(imported.contains_key(name), "the table lets `{module}` import `{name}`, and nobody does");
        }
    }
    assert!(table.keys().eq(imports.keys()), "the table names a module that is not there");
}

#[test]
fn no_module_imports_itself_by_way_of_others() {
    let imports = imports();
    // Layer by layer: what imports nothing but what was taken already.
    let mut below: BTreeSet<&str> = BTreeSet::new();
    while below.len() < imports.len() {
        let next: Vec<&str> = imports
            .iter()
            .filter(|(module, imported)| {
                !below.contains(module.as_str()) && imported.keys().all(|name| below.contains(name.as_str()))
            })
            .map(|(module, _)| module.as_str())
            .collect();
        let rest: Vec<&String> = imports.keys().filter(|module| !below.contains(module.as_str())).collect();
        assert!(!next.is_empty(), "there is a ring among {rest:?}");
        below.extend(next);
    }
}

#[test]
fn only_the_program_names_a_pipeline() {
    let kinds = ["fewshot", "qat", "reference_detector", "ReferenceDetector", "Gpt2", "gpt2"];
    for (path, text) in all() {
        let inside = path.strip_prefix(ROOT).unwrap().to_str().unwrap();
        let may =
            ["src/pipelines/", "src/program.rs", "tests/", "benches/", "fuzz/"].iter().any(|f| inside.starts_with(f));
        if may || inside.ends_with("_tests.rs") || inside.ends_with("/tests.rs") {
            continue;
        }
        let code = without_tests(&text);
        for kind in kinds {
            assert!(!code.contains(kind), "{inside} knows of `{kind}`");
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
