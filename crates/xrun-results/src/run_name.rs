//! Names of runs and sweeps on the command line.

use std::path::{Path, PathBuf};

use xrun_core::files::layout;

/// Shortest name by which commands find a run: `experiment/run`, `reference/experiment`,
/// `experiment/sweeps/sweep/trials/0001-1`, or its path if it is elsewhere.
pub fn run(path: &Path, experiment: &str) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let words: Vec<String> = absolute.iter().rev().take(5).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().rev().map(String::as_str).collect();
    match words.as_slice() {
        [of, layout::SWEEPS, _, layout::TRIALS, _] if *of == experiment => words.join("/"),
        [.., of, layout::REPRODUCTIONS, run] if *of == experiment => format!("{of}/{}/{run}", layout::REPRODUCTIONS),
        [.., layout::REFERENCE, name] => format!("{}/{name}", layout::REFERENCE),
        [.., of, run] if *of == experiment => format!("{of}/{run}"),
        _ => path.display().to_string(),
    }
}

/// Directory of a sweep: a path, or `experiment/sweeps/latest` below the results. Symlinks are resolved, because
/// `latest` changes when a sweep starts.
pub fn sweep(results: &Path, text: &Path) -> Option<PathBuf> {
    let place =
        [text.to_path_buf(), results.join(text)].into_iter().find(|place| place.join(layout::SWEEP).is_file())?;
    Some(std::fs::canonicalize(&place).unwrap_or(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_run_is_one_that_commands_find() {
        let name = |path: &str| run(Path::new(path), "dummy");
        assert_eq!(name("/a/results/dummy/2026-11-22_ab"), "dummy/2026-11-22_ab");
        assert_eq!(name("/a/results/dummy/sweeps/s1/trials/0003-1"), "dummy/sweeps/s1/trials/0003-1");
        assert_eq!(name("/a/results/dummy/reproductions/r1"), "dummy/reproductions/r1");
        assert_eq!(name("/a/results/reference/dummy"), "reference/dummy");
        assert_eq!(name("copies/r1"), "copies/r1", "it lies elsewhere");
    }
}
