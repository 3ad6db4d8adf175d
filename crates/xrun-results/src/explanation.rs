//! Record `explanation.json`: the line of a Python program that makes its memory grow, and the object that holds it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `explanation.json` of a watched Python program whose memory grows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The version of this record's format.
    pub version: u32,
    /// The growth, its line, its holder and the usual repair, as a sentence for people.
    pub message: String,
    /// Kind of the growth.
    pub cause: Cause,
    /// Certainty of line and holder.
    pub certainty: Certainty,
    /// Path of names to the holder, such as `train.py: losses`; `null` if no name of the program leads to it.
    pub holder: Option<String>,
    /// Line that adds to the holder or, if it was not found, that creates what is kept; `null` if neither is known.
    pub line: Option<SourceLine>,
    /// Usual repair; empty if none is known.
    pub remedy: String,
    /// Number of the explained process.
    pub process: u32,
    /// True if it is not the command's first process.
    pub is_worker: bool,
    /// Version of its Python.
    pub python: String,
    /// Newest step at the start of the window.
    pub step: u64,
    /// Number of steps in the window; 0 if steps are unknown.
    pub window_steps: u64,
    /// Duration of the window in seconds.
    pub window_seconds: f64,
    /// Processor time in seconds that the window cost the program, without the cost of tracing its allocations.
    pub cost_seconds: f64,
    /// Growth of the process's anonymous and shared memory in the window, in bytes.
    pub growth: u64,
    /// Fraction of that growth that objects of Python do not account for; 0 if the process did not grow.
    pub native_fraction: f64,
    /// Holders that were found, the most important first.
    pub holders: Vec<Holder>,
    /// Lines whose memory was allocated in the window and lives at its end, most bytes first.
    pub allocations: Vec<Allocation>,
    /// Lines whose CUDA memory of PyTorch was allocated in the window and lives at its end.
    pub cuda: Vec<Allocation>,
    /// Tensors and arrays at both ends.
    pub tensors: TensorCounts,
    /// Limits that were reached, for people.
    pub notes: Vec<String>,
}

/// Kind of growth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A container has more and more items.
    Container,
    /// A tensor's autograd graph reaches back over all steps.
    Graph,
    /// A tensor, an array or a table is replaced by a larger one.
    Replaced,
    /// Objects that no container of the program holds: reference cycles, or objects held by a library.
    Objects,
    /// Threads that do not end.
    Threads,
    /// A forked process reads objects of its parent, whose reference counts make it copy the pages.
    CopyOnWrite,
    /// Lines whose allocations live, without a single holder.
    Line,
    /// Files in /dev/shm.
    SharedMemory,
    /// Memory that Python does not see.
    Native,
    /// None of these was found; the message says why.
    #[default]
    Unknown,
}

/// Certainty of an explanation, by the fraction of the growth that it accounts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// A smaller part, or several candidates.
    #[default]
    Low,
    /// A fifth or more.
    Medium,
    /// Half or more.
    High,
}

impl Certainty {
    /// Certainty as an adverb of a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Low => "possibly",
            Self::Medium => "probably",
            Self::High => "almost certainly",
        }
    }
}

/// Line of a source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceLine {
    /// Path of the file.
    pub file: String,
    /// Number of the line, from 1.
    pub line: u32,
    /// Text of the line; empty if the file could not be read.
    pub text: String,
}

/// Container, tensor or group of objects that holds what was born in the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// Kind of growth.
    pub kind: Cause,
    /// Path of names to it; `null` if none leads to it.
    pub path: Option<String>,
    /// Its type; `null` for a group.
    pub type_name: Option<String>,
    /// Items or bytes at the start; `null` if unknown.
    pub before: Option<u64>,
    /// Items or bytes at the end.
    pub after: u64,
    /// Description of what it holds, such as `Tensor[64, 10] float32 with graph (AddmmBackward0)`.
    pub contents: String,
    /// Bytes of that which was born in the window.
    pub bytes: u64,
    /// Number of tensors with a graph among them.
    pub with_graph: u64,
    /// Lines that created most of it.
    pub births: Vec<Allocation>,
}

/// Allocations of one stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Allocation {
    /// Bytes.
    pub bytes: u64,
    /// Number of blocks or objects.
    pub count: u64,
    /// Frames of the program, the innermost first.
    pub frames: Vec<SourceLine>,
}

/// Numbers of tensors at both ends of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TensorCounts {
    /// At the start.
    pub start: TensorCount,
    /// At the end.
    pub end: TensorCount,
}

/// Tensors of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TensorCount {
    /// Number of tensors.
    pub count: u64,
    /// Bytes of their storages, each once.
    pub bytes: u64,
    /// Number of tensors with a graph.
    pub with_graph: u64,
}
