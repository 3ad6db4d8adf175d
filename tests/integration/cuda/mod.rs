//! The CUDA build on a GPU that is none: `tests/stand_in`. What is missing, what fails.
//!
//! `XRUN_CI_CUDA=1` asks for them, as `.ci/cuda` does: the first of them compiles the kernels of a small model. Otherwise, and
//! without a C compiler, they say SKIPPED and pass.

mod faults;
mod missing;
mod pool;
mod start;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::workplace::{Output, Workplace, skipped};

/// Few-shot detection in a model so small that few kernels are compiled for it.
const TINY: &str = include_str!("../../experiments/tiny/cuda-few-shot.toml");

/// The stand-in's directory, which has the driver's libraries; `None` where it cannot be built.
fn stand_in() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        if std::env::var_os("XRUN_CI_CUDA").is_none_or(|value| value != "1") {
            return Err("tests of the CUDA build run with XRUN_CI_CUDA=1".into());
        }
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand_in");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand_in/build.sh");
        match Command::new("sh").arg(script).arg(&directory).output() {
            Ok(output) if output.status.success() => Ok(directory),
            other => Err(format!("the stand-in for CUDA cannot be built (is there a C compiler?): {other:?}")),
        }
    });
    built.as_deref().map_err(|why| skipped(why)).ok()
}

/// A directory with experiments and a cache of its own, on a machine that seems to have a GPU.
struct Machine {
    workplace: Workplace,
    driver: PathBuf,
    cache: PathBuf,
    variables: Vec<(String, String)>,
}

impl Machine {
    /// `None`, and says so, where there is no stand-in.
    fn new() -> Option<Self> {
        let driver = stand_in()?.to_owned();
        let workplace = Workplace::with("tiny.toml", TINY);
        let cache = workplace.path("cache");
        Some(Self { workplace, driver, cache, variables: Vec::new() })
    }

    /// With a variable of the stand-in or of the environment.
    fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((name.into(), value.to_string()));
        self
    }

    /// With a copy of the stand-in of which some files are left out.
    fn without(mut self, files: &[&str]) -> Self {
        let copy = self.workplace.path("driver");
        let copied = Command::new("cp").arg("-r").arg(&self.driver).arg(&copy).status().unwrap();
        assert!(copied.success());
        for file in files {
            std::fs::remove_file(copy.join(file)).unwrap();
        }
        self.driver = copy;
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.workplace.command(arguments);
        for variable in ["VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_VISIBLE_DEVICES"] {
            command.env_remove(variable);
        }
        command.env("XRUN_CACHE", &self.cache).env("HOME", self.workplace.path("home"));
        command.env("LD_LIBRARY_PATH", &self.driver);
        for (name, value) in &self.variables {
            match value.as_str() {
                "(unset)" => command.env_remove(name),
                value => command.env(name, value),
            };
        }
        command
    }

    fn xrun(&self, arguments: &[&str]) -> Output {
        Output::from(self.command(arguments).output().unwrap())
    }

    /// Trains `tiny.toml`, with overrides.
    fn trained(&self, overrides: &[&str]) -> Output {
        let mut arguments = vec!["tiny.toml", "--progress", "none"];
        arguments.extend(overrides.iter().flat_map(|text| ["-s", text]));
        self.xrun(&arguments)
    }
}
