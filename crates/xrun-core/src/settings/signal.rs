//! Signals that request a command to save and exit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Signal that requests a command to save and exit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum Signal {
    /// Termination request.
    #[default]
    Term,
    /// Interrupt, as sent by Ctrl-C.
    Int,
    /// Hangup, as sent by a closing terminal.
    Hup,
    /// User-defined signal 1.
    Usr1,
    /// User-defined signal 2.
    Usr2,
}

impl Signal {
    /// Name in the file, without `SIG`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
