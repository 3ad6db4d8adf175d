//! `xrun new --project DIR`: create a project directory.

use std::path::Path;

use super::terminal::{Failure, Terminal};
use crate::experiment::schema;
use crate::files::write;
use crate::invocation;
use crate::printable;

/// File of the schema, to which the first line of an experiment refers so that editors complete keys.
const SCHEMA: &str = "experiment.schema.json";

const GITIGNORE: &str = "\
# Results are large and reproducible from what is committed. `PROGRAM keep RUN` copies one to results/reference.
/results/*
!/results/reference/
";

/// Workflow of GitHub Actions. `PROGRAM` is replaced by the name of the program.
const WORKFLOW: &str = r#"# Checks all experiments and their memory contracts.
name: experiments

on: [push, pull_request]

permissions:
  contents: read

jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      # XRUN_REPOSITORY is a variable of this repository: the git URL from which PROGRAM is installed.
      - name: Install
        run: cargo install --locked --git "${{ vars.XRUN_REPOSITORY }}"
      - name: Check
        run: PROGRAM check --format github *.toml
      # `PROGRAM plan FILE --lock` writes NAME.memory.lock, a contract to commit. A change that needs more memory violates it.
      - name: Memory contracts
        run: |
          for lock in *.memory.lock; do
            [ -e "$lock" ] || continue
            PROGRAM check --locked --format github "${lock%.memory.lock}.toml"
          done
"#;

/// README of the project. `NAME` is replaced by the name of the experiment.
const README: &str = "\
# NAME

Experiments for PROGRAM, a declarative experiment runner.

```console
PROGRAM check NAME.toml    # check the file and its data
PROGRAM plan NAME.toml     # forecast memory
PROGRAM NAME.toml          # run it; the last line names the report
PROGRAM ls                 # list runs
```

Results are written to `results/`, which git ignores. `.github/workflows/experiments.yml` checks all experiments; set the
repository variable `XRUN_REPOSITORY` to the git URL from which PROGRAM is installed.
";

/// Creates a project around an experiment file of this name and text.
///
/// # Errors
/// One of the files exists, or cannot be written.
pub fn create(directory: &Path, name: &str, text: String, terminal: &Terminal) -> Result<u8, Failure> {
    let schema = serde_json::to_string_pretty(schema::shared()).map_err(Failure::failed)?;
    let filled = |text: &str| text.replace("PROGRAM", invocation::program()).replace("NAME", name);
    let files = [
        (format!("{name}.toml"), text),
        (SCHEMA.to_owned(), format!("{schema}\n")),
        (".gitignore".to_owned(), filled(GITIGNORE)),
        // NAME.memory.lock is literal here.
        (".github/workflows/experiments.yml".to_owned(), WORKFLOW.replace("PROGRAM", invocation::program())),
        ("README.md".to_owned(), filled(README)),
    ];
    let existing: Vec<&str> = files
        .iter()
        .filter(|(name, _)| directory.join(name).symlink_metadata().is_ok())
        .map(|(name, _)| name.as_str())
        .collect();
    if !existing.is_empty() {
        let (directory, existing) = (shown(directory), existing.join(", "));
        return Err(Failure::Usage(format!(
            "{directory}: files already exist: {existing}; nothing was written, choose another directory"
        )));
    }
    for (name, text) in &files {
        let path = directory.join(name);
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above)
                .map_err(|error| Failure::Failed(format!("cannot create {}: {error}", shown(above))))?;
        }
        write::replace(&path, text.as_bytes()).map_err(Failure::failed)?;
    }
    let program = invocation::program();
    let cd = if directory == Path::new(".") {
        String::new()
    } else {
        format!("cd {}; ", printable::shell_word(&directory.to_string_lossy()))
    };
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    terminal.info(&format!("{}: created {}", shown(directory), names.join(", ")));
    terminal.info(&format!("`{cd}{program} {name}.toml` runs it; `{program} new --list` lists pipelines and examples"));
    Ok(0)
}

fn shown(path: &Path) -> String {
    printable::line(&path.display().to_string(), 400)
}
