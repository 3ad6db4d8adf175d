//! JSON Schemas of the records that xrun writes.

use serde_json::Value;

use crate::experiment::schema::{generate, titled};
use crate::results::allocations::AllocationRecord;
use crate::results::evaluation::Evaluation;
use crate::results::explanation::Explanation;
use crate::results::format::{LoopState, Manifest, MemoryLine, MetricsLine, PlanFile, PostMortem, Summary};
use crate::results::notes::Notes;
use crate::results::prediction::PredictionRecord;
use crate::results::process::ProcessRecord;
use crate::results::reproduction::Reproduction;
use crate::results::verdict::Verdict;
use crate::sweep::records::sweep::{Process, SweepRecord, Table};
use crate::sweep::records::sweep_memory::SweepMemory;

/// Schemas of the records in the directory of a run or a sweep, by the names of their files in `schemas/`.
pub fn record_schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("manifest", titled("manifest", "manifest.json of a run", generate::<Manifest>(false))),
        ("plan", titled("plan", "plan.json of a run", generate::<PlanFile>(false))),
        ("metrics", titled("metrics", "A line of metrics.jsonl of a run", generate::<MetricsLine>(false))),
        ("memory", titled("memory", "A line of memory.jsonl of a run", generate::<MemoryLine>(false))),
        ("verdict", titled("verdict", "verdict.json of a run", generate::<Verdict>(false))),
        ("summary", titled("summary", "summary.json of a run", generate::<Summary>(false))),
        ("allocations", titled("allocations", "allocations.json of a run", generate::<AllocationRecord>(false))),
        ("post_mortem", titled("post_mortem", "post_mortem.json of a run", generate::<PostMortem>(false))),
        ("explanation", titled("explanation", "explanation.json of a run", generate::<Explanation>(false))),
        ("sweep", titled("sweep", "sweep.toml of a sweep", generate::<SweepRecord>(false))),
        ("sweep_memory", titled("sweep_memory", "memory.toml of a sweep", generate::<SweepMemory>(false))),
        ("processes", titled("processes", "A line of processes.jsonl of a sweep", generate::<Process>(false))),
        ("table", titled("table", "table.json of a sweep", generate::<Table>(false))),
        ("reproduction", titled("reproduction", "reproduction.json of a run", generate::<Reproduction>(false))),
        ("evaluation", titled("evaluation", "evaluation.json of xrun eval", generate::<Evaluation>(false))),
        ("prediction", titled("prediction", "prediction.json of xrun predict", generate::<PredictionRecord>(false))),
        ("notes", titled("notes", "notes.json of a run", generate::<Notes>(false))),
        ("process", titled("process", "process.json of a run", generate::<ProcessRecord>(false))),
        ("loop_state", titled("loop_state", "state.json of a checkpoint", generate::<LoopState>(false))),
    ]
}
