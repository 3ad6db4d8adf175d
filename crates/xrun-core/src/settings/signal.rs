//! Signals that request a command to save and exit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Signal that requests a command to save and exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Signal {
    /// Termination request.
    #[default]
    #[serde(rename = "TERM")]
    Term,
    /// Interrupt, as sent by Ctrl-C.
    #[serde(rename = "INT")]
    Int,
    /// Hangup, as sent by a closing terminal.
    #[serde(rename = "HUP")]
    Hup,
    /// User-defined signal 1.
    #[serde(rename = "USR1")]
    Usr1,
    /// User-defined signal 2.
    #[serde(rename = "USR2")]
    Usr2,
}

impl Signal {
    /// Name in the file, without `SIG`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Hup => "HUP",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
        }
    }
}
