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
pub fn folder_at(key: &str, path: &Path, help: &str, problems: &mut Problems) {
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
