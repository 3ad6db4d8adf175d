//! `--until STEP`: how far does this process take the run?

use clap::Args;

use super::terminal::Failure;

#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Until {
    /// Stop after this step, with a checkpoint: the subcommand resume goes on later, with the numbers of a run that never
    /// stopped. Unlike --steps it leaves the schedule, and everything else, as it is.
    #[arg(id = "until", long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    pub step: Option<u64>,
}

impl Until {
    /// Refuses a command: xrun does not know when its step is done, and cannot stop it exactly there.
    pub fn check(self, is_command: bool) -> Result<(), Failure> {
        match self.step.filter(|_| is_command) {
            None => Ok(()),
            Some(_) => Err(Failure::Usage(
                "--until is for pipelines whose steps xrun does itself: it cannot stop a command exactly after a step"
                    .into(),
            )),
        }
    }
}
