//! The former place of what is in `graph.rs`.

pub use super::graph::{beside, has_graph, without_graph};
