//! Real training, small: `tiny.toml` of a test, run under a name.

use std::path::PathBuf;

use crate::workplace::{Output, Workplace};

impl Workplace {
    /// Runs `tiny.toml` under a name, with overrides.
    pub fn attempt(&self, name: &str, overrides: &[&str]) -> Output {
        let mut arguments = vec!["tiny.toml", "--name", name, "--progress", "none"];
        arguments.extend(overrides.iter().flat_map(|text| ["-s", text]));
        self.xrun(&arguments)
    }

    /// As [`Self::attempt`]; the run's directory. It must finish.
    pub fn trained(&self, name: &str, overrides: &[&str]) -> PathBuf {
        let output = self.attempt(name, overrides);
        assert_eq!(output.code, 0, "{name}: {output:?}");
        self.latest(name)
    }
}
