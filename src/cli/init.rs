//! `xrun init FOLDER`: a folder to begin with.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::new;
use super::terminal::{Failure, Terminal};
use crate::experiment::schema;
use crate::files::write;
use crate::invocation;
use crate::printable;

#[derive(Clone, Debug, Args)]
pub struct InitArguments {
    /// The folder; made if it is not there. Nothing in it is overwritten.
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// Begin with a file with every key of this pipeline, as the subcommand new prints it.
    #[arg(long, value_name = "PIPELINE", conflicts_with = "like")]
    pipeline: Option<String>,
    /// Begin with this example; `new --list` lists them.
    #[arg(long, value_name = "EXAMPLE", default_value = "dummy")]
    like: String,
}

/// Named in the first line of an experiment, so that editors complete keys.
const SCHEMA: &str = "experiment.schema.json";

const GITIGNORE: &str = "\
# Results are large, and made again from what is committed. Those that are kept go below results/reference.
/results/*
!/results/reference/
/reproductions/
";

/// `PROGRAM` stands for the name of the program.
const WORKFLOW: &str = r#"# Checks each experiment, and the memory contracts beside them.
name: experiments

on: [push, pull_request]

permissions:
  contents: read

jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      # XRUN_REPOSITORY is a variable of this repository: from where PROGRAM is installed, such as a git address.
      - name: Install
        run: cargo install --locked --git "${{ vars.XRUN_REPOSITORY }}"
      - name: Check
        run: PROGRAM check --format github *.toml
      # `PROGRAM plan FILE --lock` writes NAME.memory.lock, a contract to commit. It is broken by a change that needs more memory.
      - name: Memory contracts
        run: |
          for lock in *.memory.lock; do
            [ -e "$lock" ] || continue
            PROGRAM check --locked --format github "${lock%.memory.lock}.toml"
          done
"#;

/// `NAME` stands for that of the experiment.
const README: &str = "\
# NAME

Experiments for PROGRAM, a declarative experiment runner.

```console
PROGRAM check NAME.toml    # is the file right?
PROGRAM plan NAME.toml     # what memory and disk will it take?
PROGRAM NAME.toml          # runs it; the last line names a report
PROGRAM ls                 # what was run
```

Results go to `results/`, which git leaves out. `.github/workflows/experiments.yml` checks each file; the variable
`XRUN_REPOSITORY` of the repository says where PROGRAM is installed from.
";

pub fn run(arguments: &InitArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let (name, text) = match &arguments.pipeline {
        Some(pipeline) => (pipeline, new::whole(pipeline)?),
        None => (&arguments.like, new::example(&arguments.like)?),
    };
    let schema = serde_json::to_string_pretty(schema::shared()).map_err(Failure::failed)?;
    let filled = |text: &str| text.replace("PROGRAM", invocation::program()).replace("NAME", name);
    let files = [
        (format!("{name}.toml"), text),
        (SCHEMA.to_owned(), format!("{schema}\n")),
        (".gitignore".to_owned(), GITIGNORE.to_owned()),
        // Here NAME is what a contract is called.
        (".github/workflows/experiments.yml".to_owned(), WORKFLOW.replace("PROGRAM", invocation::program())),
        ("README.md".to_owned(), filled(README)),
    ];
    let folder = &arguments.folder;
    let there: Vec<&str> = files
        .iter()
        .filter(|(name, _)| folder.join(name).symlink_metadata().is_ok())
        .map(|(name, _)| name.as_str())
        .collect();
    if !there.is_empty() {
        let (place, there) = (shown(folder), there.join(", "));
        return Err(Failure::Usage(format!(
            "{place} has these already: {there}; name another folder. Nothing was written"
        )));
    }
    for (name, text) in &files {
        let path = folder.join(name);
        if let Some(above) = path.parent() {
            std::fs::create_dir_all(above)
                .map_err(|error| Failure::Failed(format!("cannot make {}: {error}", shown(above))))?;
        }
        write::replace(&path, text.as_bytes()).map_err(Failure::failed)?;
    }
    let program = invocation::program();
    let enter = if folder == Path::new(".") {
        String::new()
    } else {
        format!("cd {}; ", printable::shell_word(&folder.to_string_lossy()))
    };
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    terminal.say(&format!("{}: written: {}", shown(folder), names.join(", ")));
    terminal.say(&format!("`{enter}{program} {name}.toml` runs it; `{program} new --list` lists what else there is"));
    Ok(0)
}

fn shown(path: &Path) -> String {
    printable::line(&path.display().to_string(), 400)
}
