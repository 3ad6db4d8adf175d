//! What is a command sent first, so that it can save?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a command is sent first, so that it can save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
pub enum Signal {
    /// SIGTERM: end.
    #[default]
    #[serde(rename = "TERM")]
    #[value(name = "TERM", alias = "SIGTERM")]
    Term,
    /// SIGINT: what Ctrl-C sends.
    #[serde(rename = "INT")]
    #[value(name = "INT", alias = "SIGINT")]
    Int,
    /// SIGHUP: the terminal is gone.
    #[serde(rename = "HUP")]
    #[value(name = "HUP", alias = "SIGHUP")]
    Hup,
    /// SIGUSR1: means what the command gave it to mean.
    #[serde(rename = "USR1")]
    #[value(name = "USR1", alias = "SIGUSR1")]
    Usr1,
    /// SIGUSR2: means what the command gave it to mean.
    #[serde(rename = "USR2")]
    #[value(name = "USR2", alias = "SIGUSR2")]
    Usr2,
}

impl Signal {
    /// As it is typed.
    pub fn word(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Hup => "HUP",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
        }
    }
}
