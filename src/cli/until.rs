//! Option `--until STEP`.

use clap::Args;

use super::terminal::Failure;

#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Until {
    /// Stop after this step with a checkpoint; `resume` continues later with the numbers of a run that never stopped. Unlike
    /// --steps, the full-length learning-rate schedule is kept.
    #[arg(id = "until", long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    pub step: Option<u64>,
}

impl Until {
    /// Refuses the option for a command, which xrun cannot stop exactly after a step.
    pub fn check(self, is_command: bool) -> Result<(), Failure> {
        match self.step.filter(|_| is_command) {
            None => Ok(()),
            Some(_) => Err(Failure::Usage(
                "--until cannot be used with a command: xrun cannot stop it exactly after a step".into(),
            )),
        }
    }
}
