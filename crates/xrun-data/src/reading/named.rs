//! Checks of files and directories that settings name.

use std::path::Path;

use xrun_core::problem::{Problem, Problems};

/// Adds what is wrong with a file that is named at `key`.
pub fn file(key: &str, path: &str, problems: &mut Problems) {
    match std::fs::metadata(Path::new(path)) {
        Ok(found) if found.is_file() => {}
        Ok(_) => {
            problems
                .add(Problem::new(key, format!("{path} is not a file")).help("name the file itself").as_disk_problem());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let problem = Problem::new(key, format!("there is no file {path}"));
            problems.add(
                problem.help("a relative path is meant from the directory of the file that names it").as_disk_problem(),
            );
        }
        Err(error) => problems.add(Problem::new(key, format!("{path} cannot be read: {error}")).as_disk_problem()),
    }
}

/// Adds what is wrong with a directory that is named at `key`; `help` says what should be named.
pub fn directory_at(key: &str, path: &Path, help: &str, problems: &mut Problems) {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => {
            problems.add(Problem::new(key, format!("{shown} is a file, not a directory")).help(help).as_disk_problem());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let problem = Problem::new(key, format!("there is no directory {shown}"));
            problems.add(
                problem.help("a relative path is meant from the directory of the file that names it").as_disk_problem(),
            );
        }
        Err(error) => problems.add(Problem::new(key, format!("{shown} cannot be read: {error}")).as_disk_problem()),
    }
}

/// Adds what is wrong with the keys about symlinks in the table `section`.
pub fn check_links(section: &str, follow: bool, root: Option<&str>, problems: &mut Problems) {
    let key = |name: &str| format!("{section}.{name}");
    match (follow, root) {
        (true, None) => {
            let problem = Problem::new(key("follow_links"), "is true, but `link_root` is missing");
            problems.add(problem.help("add `link_root = \"…\"`, the directory that symlinks may lead into"));
        }
        (false, Some(_)) => {
            let problem = Problem::new(key("link_root"), "has no effect without `follow_links = true`");
            problems.add(problem.help("add `follow_links = true`, or remove it").related(key("follow_links")));
        }
        (true, Some(path)) => {
            let help = "name the directory that symlinks may lead into";
            directory_at(&key("link_root"), Path::new(path), help, problems);
        }
        (false, None) => {}
    }
}
