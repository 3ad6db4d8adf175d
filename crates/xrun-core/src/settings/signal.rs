//! What is a command sent first, so that it can save?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a command is sent first, so that it can save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
pub enum Signal {
    /// The usual request to end.
    #[default]
    #[serde(rename = "TERM")]
    #[value(name = "TERM", alias = "SIGTERM")]
    Term,
    /// As Ctrl-C sends it.
    #[serde(rename = "INT")]
    #[value(name = "INT", alias = "SIGINT")]
    Int,
    /// As a terminal sends it when it closes.
    #[serde(rename = "HUP")]
    #[value(name = "HUP", alias = "SIGHUP")]
    Hup,
    /// Means what the command takes it for.
    #[serde(rename = "USR1")]
    #[value(name = "USR1", alias = "SIGUSR1")]
    Usr1,
    /// The same, another one.
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
