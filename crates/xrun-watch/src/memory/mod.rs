//! How much memory is in use, and who holds it?
//!
//! `heap` counts what the program asked for, `sources` asks the system, the ledger asks the owners, and `trace` puts one
//! moment of all of them into a line. They stand beside the flow: the loop calls them at rest points, they call nobody.

pub mod cgroup;
pub mod gpus;
pub mod killed;
pub mod own_cgroup;
pub mod processes;
pub mod sources;
