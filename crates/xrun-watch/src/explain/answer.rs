//! Messages of the agent, as JSON lines.

use serde::Deserialize;

use xrun_results::explanation::{Cause, TensorCounts};

/// Message of the agent.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Reply {
    /// The window has begun.
    Begun {
        #[serde(rename = "begun")]
        _begun: bool,
    },
    /// Bytes that the agent needs and has left; negative during a census, which it does not measure.
    Needs { needs: i64 },
    /// The window failed.
    Failed {
        #[serde(rename = "failed")]
        why: String,
    },
    /// Answer at the end of the window.
    Answer(Box<Answer>),
}

/// Findings of the window.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    pub process: u32,
    pub forked: bool,
    pub python: String,
    /// File of the program's first module.
    pub script: Option<String>,
    pub seconds: f64,
    pub cost_seconds: f64,
    pub resident_growth: i64,
    /// Bytes that the agent has left.
    pub left: i64,
    pub traced_growth: u64,
    /// True if the collector of reference cycles is on.
    pub collector: bool,
    pub holders: Vec<Found>,
    pub lines: Vec<Stack>,
    pub cuda: Vec<Stack>,
    pub tensors: TensorCounts,
    pub notes: Vec<String>,
    /// True if the census reached its limit on time.
    pub late: bool,
    /// Number of objects that `gc.freeze()` hides.
    pub hidden: u64,
}

/// Container, tensor, group of objects or threads.
#[derive(Clone, Debug, Deserialize)]
pub struct Found {
    pub kind: Cause,
    pub before: Option<u64>,
    pub after: u64,
    pub bytes: u64,
    pub objects: u64,
    pub contents: String,
    pub with_graph: u64,
    /// True if a tensor or an array is a small view of a large one.
    pub view: bool,
    /// True if a tensor with a graph has one element.
    pub scalar: bool,
    /// True if there is an exception.
    pub exception: bool,
    pub births: Vec<Stack>,
    pub holder: Option<Path>,
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    /// Line at which a thread is.
    #[serde(default)]
    pub line: Option<Frame>,
}

/// Path of names to an object.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Path {
    pub path: Option<String>,
    pub name: Option<String>,
    pub file: Option<String>,
    /// True if the path begins in a library.
    pub library: bool,
}

/// Bytes allocated by one stack.
#[derive(Clone, Debug, Deserialize)]
pub struct Stack {
    pub bytes: u64,
    pub count: u64,
    pub frames: Vec<Frame>,
}

/// File and line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Frame(pub String, pub u32);
