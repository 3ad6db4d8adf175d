//! Leaks that more than one pipeline can have.

use crate::experiment::leaks::Leak;
use crate::leak;

pub const LOSS_WITH_GRAPH: Leak = leak!(
    "loss_with_graph",
    with_tensors,
    "Add up the losses with their graphs (as a progress line that shows their mean does)."
);
