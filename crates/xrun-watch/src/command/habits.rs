//! Notices on settings of a PyTorch program that hide a leak or are taken for one: its environment and the text of its script.
//!
//! The script is read as text and never executed. Each notice is one line with the reason.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex_lite::Regex;
use xrun_core::files::file;

/// Largest script that is read, in bytes.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;

/// Options of CUDA's allocator in PyTorch, by either name of the variable.
const ALLOCATOR_VARIABLES: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

static WORKERS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b(?:dataloader_)?num_workers\s*=\s*[1-9]"));
static RETAIN_GRAPH: LazyLock<Regex> = LazyLock::new(|| pattern(r"\bretain_graph\s*=\s*True"));

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| unreachable!("a constant pattern: {error}"))
}

/// Notices on a command, from the variables that it will have and the Python script among its arguments.
pub fn notices(command: &[OsString], variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut notices = Vec::new();
    for name in ALLOCATOR_VARIABLES {
        let is_on = |value: &String| value.replace(' ', "").to_ascii_lowercase().contains("expandable_segments:true");
        if variable(name).as_ref().is_some_and(is_on) {
            notices.push(format!(
                "{name} has expandable_segments: it delays an out-of-memory error by reducing fragmentation, and does not stop growth of \
                 allocated memory; judge growth without it"
            ));
        }
    }
    let Some((path, text)) = script(command) else { return notices };
    let shown = path.display();
    let mut found = |pattern: &Regex, reason: &str| {
        if let Some(place) = pattern.find(&text) {
            let line = 1 + text[..place.start()].matches('\n').count();
            notices.push(format!("{shown}:{line}: {}: {reason}", place.as_str()));
        }
    };
    found(
        &WORKERS,
        "forked workers copy pages of Python objects that they only read, since reading changes their reference counts; keep large \
         lists of a dataset in an array or a file (pytorch#13246)",
    );
    found(
        &RETAIN_GRAPH,
        "the graph and its saved activations live until the loss does; drop the loss, or call backward() once on the sum",
    );
    notices
}

/// Path and text of the first argument that is a readable Python file.
fn script(command: &[OsString]) -> Option<(PathBuf, String)> {
    let path = command.iter().map(Path::new).find(|path| path.extension().is_some_and(|ending| ending == "py"))?;
    let bytes = file::bytes(path, SCRIPT_BYTES_MAX).ok()?;
    Some((path.to_path_buf(), String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices_of(script: &str, variable: Option<(&str, &str)>) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("train.py");
        xrun_core::files::write::replace(&path, script.as_bytes()).unwrap();
        let command: Vec<OsString> = vec!["python3".into(), path.into()];
        notices(&command, |name| variable.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned()))
    }

    #[test]
    fn each_habit_is_one_notice_with_its_line() {
        let script = "import torch\nloader = DataLoader(data, num_workers=4)\nloss.backward(retain_graph=True)\n";
        let variable = Some(("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64, expandable_segments:True"));
        let found = notices_of(script, variable);
        assert_eq!(found.len(), 3);
        assert!(found[1].contains("train.py:2:") && found[2].contains("train.py:3:"), "{found:?}");
    }

    #[test]
    fn a_program_without_these_habits_has_no_notice() {
        let script = "loader = DataLoader(data, num_workers=0)\nloss.backward(retain_graph=False)\n";
        assert!(notices_of(script, Some(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False"))).is_empty());
        assert!(notices(&["sleep".into(), "1".into()], |_| None).is_empty());
        assert!(notices(&["python3".into(), "missing.py".into()], |_| None).is_empty());
    }
}
