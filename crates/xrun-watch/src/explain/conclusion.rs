//! Conclusion from the answer of an agent: cause, holder, line, certainty and the usual repair.

use super::answer::{Answer, Found, Frame, Stack};
use super::source;
use xrun_core::printable;
use xrun_core::units::Bytes;
use xrun_results::explanation::{Allocation, Cause, Certainty, Explanation, Holder, SourceLine};
use xrun_results::format::VERSION;

/// Fraction of the growth from which on a candidate is the cause with high or medium certainty.
const HIGH: f64 = 0.5;
const MEDIUM: f64 = 0.2;
/// Fraction of the growth beyond which objects without a holder are rather those of the current step.
const OBJECTS_MAX: f64 = 1.6;
/// Fraction of a candidate's bytes from which on another one makes it less certain.
const RIVAL: f64 = 0.7;
/// Fraction of the expected growth below which a window says nothing of native memory.
const GREW: f64 = 0.5;
/// Ratio to the expected growth beyond which the growth in a window is that of the current step.
const EXPECTED_MAX: f64 = 1.5;
/// Growth in a window below which it says nothing.
const GROWTH_MIN: u64 = 64 << 10;
/// Number of blocks of a line in a window from which on it may stand for native memory.
const BLOCKS_MIN: u64 = 100;
const NAME_CHARACTERS_MAX: usize = 120;

/// Window whose answer is explained.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// Newest step at its start, and its number of steps.
    pub step: u64,
    pub steps: u64,
    /// Growth in bytes by the verdict at its start; 0 where that is unknown.
    pub expected: u64,
    /// Process id of the command's first process.
    pub main: u32,
    /// True if files in /dev/shm grow.
    pub unmapped: bool,
}

/// Candidate with the bytes that it accounts for.
struct Candidate<'a> {
    found: &'a Found,
    bytes: u64,
    certainty: Certainty,
}

/// Concludes from an answer. Unexplained growth is that of nobody: without a candidate the cause is native or unknown.
pub fn conclude(answer: &Answer, observed: Observed) -> Explanation {
    let growth = u64::try_from(answer.resident_growth).unwrap_or_default();
    // Within a step a program needs more memory than at its end: growth counts as far as it was to be expected.
    let expected = observed.expected as f64;
    let most = if observed.expected == 0 { f64::INFINITY } else { EXPECTED_MAX * expected };
    let whole = (growth as f64).min(most).max(expected).max(GROWTH_MIN as f64);
    let fraction = |bytes: u64| (bytes as f64 / whole).min(1.0);
    let candidate = best(answer, growth, whole);
    let explained = candidate.as_ref().map_or(0, |one| one.bytes);
    let native_fraction =
        if growth == 0 { 0.0 } else { 1.0 - (explained.max(visible(answer)) as f64 / growth as f64).min(1.0) };
    let read = answer.holders.iter().find(|one| one.kind == Cause::CopyOnWrite).filter(|_| answer.forked);
    let line_grows = answer.lines.first().is_some_and(|line| fraction(line.bytes) >= MEDIUM);
    let grew = growth >= GROWTH_MIN && growth as f64 >= GREW * observed.expected as f64;
    let (cause, found, certainty) = match (&candidate, read) {
        _ if observed.unmapped => (Cause::SharedMemory, None, Certainty::High),
        (Some(one), _) => (one.found.kind, Some(one.found), one.certainty),
        (None, Some(read)) if grew && !line_grows => (Cause::CopyOnWrite, Some(read), Certainty::Medium),
        _ if line_grows && grew => (Cause::Line, None, Certainty::Medium),
        _ if grew && native_fraction >= MEDIUM && answer.hidden == 0 && !answer.late => {
            (Cause::Native, None, if native_fraction >= 0.8 { Certainty::Medium } else { Certainty::Low })
        }
        _ => (Cause::Unknown, None, Certainty::Low),
    };
    let reason = match () {
        () if cause != Cause::Unknown => String::new(),
        () if answer.hidden > 0 => format!("`gc.freeze()` hides {} objects from the census", answer.hidden),
        () if answer.late => "there are more objects than the census could look at in its time".to_owned(),
        () if !grew => "memory hardly grew while the program was looked at".to_owned(),
        () => "no object accounts for a fifth of the growth".to_owned(),
    };
    let line = match (cause, found) {
        (Cause::SharedMemory, _) => shared_memory_line(answer),
        (Cause::Native | Cause::Line, _) => {
            answer.lines.first().and_then(|line| place(&line.frames, answer.script.as_deref()))
        }
        (_, Some(found)) => line_of(found, answer),
        (_, None) => None,
    };
    let line =
        line.filter(|_| cause != Cause::Native || answer.lines.first().is_some_and(|one| one.count >= BLOCKS_MIN));
    let remedy = remedy(cause, found, line.as_ref(), answer);
    let message = match cause {
        Cause::Unknown => unknown_message(&reason),
        _ => message(cause, found, line.as_ref(), certainty, native_fraction, remedy),
    };
    Explanation {
        version: VERSION,
        message,
        cause,
        certainty,
        holder: found.and_then(path),
        line,
        remedy: remedy.to_owned(),
        process: answer.process,
        is_worker: answer.process != observed.main,
        python: answer.python.clone(),
        step: observed.step,
        window_steps: observed.steps,
        window_seconds: answer.seconds,
        cost_seconds: answer.cost_seconds,
        growth,
        native_fraction,
        holders: answer.holders.iter().map(holder).collect(),
        allocations: answer.lines.iter().map(allocation).collect(),
        cuda: answer.cuda.iter().map(allocation).collect(),
        tensors: answer.tensors,
        notes: answer.notes.clone(),
    }
}

/// Explanation where no process has answered.
pub fn unanswered(main: u32, reason: &str) -> Explanation {
    Explanation { version: VERSION, message: unknown_message(reason), process: main, ..Explanation::default() }
}

fn unknown_message(reason: &str) -> String {
    format!("the cause of the growth was not found: {reason}")
}

/// Bytes of the growth that objects of Python account for: tensors by their storages, the rest by its allocations.
fn visible(answer: &Answer) -> u64 {
    answer.tensors.end.bytes.saturating_sub(answer.tensors.start.bytes) + answer.traced_growth
}

fn path(found: &Found) -> Option<String> {
    found.holder.as_ref()?.path.clone()
}

/// Returns whether a group of objects is held by nothing that has a name, such as what a graph has saved.
fn is_unheld(found: &Found) -> bool {
    found.kind == Cause::Objects && path(found).is_none()
}

/// The candidate that accounts for most of the growth. What a graph has saved has no name, and counts for the holder of the
/// graph if that has grown; so does growth that no object accounts for, where nothing else is seen to grow.
fn best(answer: &Answer, growth: u64, whole: f64) -> Option<Candidate<'_>> {
    // Saved inputs have no graph themselves.
    let saved: u64 = answer.holders.iter().filter(|one| is_unheld(one)).map(|one| one.bytes).sum();
    let unexplained = growth.saturating_sub(visible(answer));
    // Without a name it is an intermediate result that something else has saved.
    let chains: Vec<&Found> =
        answer.holders.iter().filter(|one| one.kind == Cause::Graph && path(one).is_some()).collect();
    // Several tensors contain the state that is carried from step to step: its own line uses its name.
    let carried = chains.iter().find(|one| is_recurrent(one)).or(chains.first()).copied();
    let holds_graph = |found: &Found| {
        found.kind == Cause::Graph || (found.kind == Cause::Container && found.before.is_some() && found.with_graph > 0)
    };
    // Beside a graph that has grown they are what it has saved, also where no name leads to it.
    let is_saved = |one: &Found| is_unheld(one) && answer.holders.iter().any(holds_graph);
    let is_candidate = |one: &&Found| match one.kind {
        Cause::CopyOnWrite => false,
        Cause::Graph => carried.is_some_and(|best| std::ptr::eq(*one, best)),
        Cause::Objects => one.bytes as f64 <= OBJECTS_MAX * whole && !is_saved(one) && !(answer.late && is_unheld(one)),
        _ => true,
    };
    let seen = |found: &Found| found.bytes + if holds_graph(found) { saved } else { 0 };
    let rank = |found: &&Found| (seen(found), holds_graph(found), found.with_graph, found.objects);
    let candidates = || answer.holders.iter().filter(is_candidate);
    let most = candidates().max_by_key(rank)?;
    let part = seen(most) as f64 / whole;
    if part >= MEDIUM {
        let rival = candidates().filter(|one| !std::ptr::eq(*one, most)).map(seen).max().unwrap_or_default();
        let is_certain = part >= HIGH && !answer.late && !is_unheld(most) && (rival as f64) < RIVAL * seen(most) as f64;
        let certainty = if is_certain { Certainty::High } else { Certainty::Medium };
        return Some(Candidate { found: most, bytes: seen(most), certainty });
    }
    let graph = candidates().filter(|one| holds_graph(one)).max_by_key(rank)?;
    let bytes = seen(graph) + unexplained;
    (bytes as f64 >= HIGH * whole).then_some(Candidate { found: graph, bytes, certainty: Certainty::Medium })
}

fn is_recurrent(found: &Found) -> bool {
    let name = found.holder.as_ref().and_then(|holder| holder.name.as_deref());
    let frames = found.births.iter().flat_map(|birth| &birth.frames);
    name.is_some_and(|name| frames.map(source::line).any(|line| source::is_recurrence(&line.text, name)))
}

/// The line that adds to a holder or creates what it holds.
fn line_of(found: &Found, answer: &Answer) -> Option<SourceLine> {
    let frames: Vec<Frame> = found.births.iter().flat_map(|birth| birth.frames.clone()).collect();
    let holder = found.holder.as_ref();
    let file = holder.and_then(|holder| holder.file.as_deref());
    let named = holder.filter(|holder| !holder.library).and_then(|holder| holder.path.as_deref());
    let adding = named.and_then(|path| source::adding_line(&names(path), &frames, file));
    let within = file.filter(|_| named.is_some()).or(answer.script.as_deref());
    adding.or_else(|| place(&frames, within)).or_else(|| found.line.as_ref().map(source::line)).or_else(|| {
        let used = answer.lines.first().filter(|_| found.kind == Cause::CopyOnWrite)?;
        place(&used.frames, None)
    })
}

/// Names in a path such as `train.py, main(): trainer.queue`, the last first.
fn names(path: &str) -> Vec<&str> {
    let names = path.rsplit_once(": ").map_or(path, |(_, names)| names);
    let words = names.rsplit(|character: char| !character.is_alphanumeric() && character != '_');
    words.filter(|word| word.starts_with(|first: char| first.is_alphabetic() || first == '_')).collect()
}

/// The frame in a file, or the innermost one.
fn place(frames: &[Frame], file: Option<&str>) -> Option<SourceLine> {
    let within = frames.iter().find(|Frame(path, _)| Some(path.as_str()) == file);
    within.or(frames.first()).map(source::line)
}

/// The line that creates shared memory, if it is among the lines that allocate.
fn shared_memory_line(answer: &Answer) -> Option<SourceLine> {
    let mut lines = answer.lines.iter().flat_map(|line| &line.frames).map(source::line);
    lines.find(|line| line.text.contains("SharedMemory(") || line.text.contains("share_memory"))
}

/// Usual repair; empty where none is known.
fn remedy(cause: Cause, found: Option<&Found>, line: Option<&SourceLine>, answer: &Answer) -> &'static str {
    let path = found.and_then(path).unwrap_or_default();
    let text = line.map_or("", |line| line.text.as_str());
    let kind = found.and_then(|found| found.type_name.as_deref()).unwrap_or_default();
    let has = |part: &str| path.contains(part) || text.contains(part);
    match cause {
        Cause::SharedMemory => "call `unlink()` on shared memory that is no longer needed",
        Cause::CopyOnWrite => "store it as an array (numpy, torch, `array`), whose elements have no reference counts",
        Cause::Threads => "end or join earlier threads, or shut their executor down",
        Cause::Native => "close or free what a library makes; a profiler of native memory finds the function",
        Cause::Graph | Cause::Container if found.is_some_and(|found| found.scalar && found.with_graph > 0) => {
            "keep the number, `.item()`, or `.detach()` the tensor"
        }
        Cause::Graph => "`.detach()` the value that is carried to the next step",
        _ if has("_hooks") || has("register_hook") || has("_hook(") => "call `remove()` on the handle of the hook",
        _ if has("lru_cache") || has("functools.cache") => {
            "set a `maxsize`, and cache no method, as the cache keeps its instance"
        }
        _ if has("figure") || has("Gcf") || path.contains("pyplot") => "`pyplot.close(figure)` after use",
        _ if has("addHandler") || path.contains("handlers") => "add the handler once, before the loop",
        _ if has("atexit") || has("finalize") => "register functions that do not refer to the object",
        _ if found.is_some_and(|found| found.exception) => {
            "keep `str(error)`: an exception holds all variables of its frames"
        }
        Cause::Container if found.is_some_and(|found| found.with_graph > 0) => {
            "`.detach()` the tensor before it is kept, or keep numbers only"
        }
        Cause::Container if found.is_some_and(|found| found.view) => {
            "keep a copy (`.copy()`, `.clone()`): a view holds its whole tensor"
        }
        Cause::Container if path.contains("queue") || text.contains(".put") => {
            "give the queue a `maxsize`, for the producer to wait"
        }
        Cause::Container if kind.contains("deque") => "give it a `maxlen`",
        Cause::Container if kind.contains("dict") || kind.contains("Dict") => {
            "bound it by size, or remove entries after use"
        }
        Cause::Container => "keep only what is needed: a sum, a `deque(maxlen=…)`, or `clear()` after each epoch",
        Cause::Replaced => "keep a bounded number of rows, or write them to a file",
        Cause::Objects if !answer.collector => {
            "a reference cycle, and the collector is off: `gc.enable()`, or break the cycle"
        }
        Cause::Objects if text.contains("create_graph") || found.is_some_and(|found| found.with_graph > 0) => {
            "set gradients that have a graph to None, or use `torch.autograd.grad`"
        }
        Cause::Objects => "`del` the last reference, and break reference cycles",
        Cause::Line => "create it once, outside of the loop",
        Cause::Unknown => "",
    }
}

/// Explanation as a sentence.
fn message(
    cause: Cause,
    found: Option<&Found>,
    line: Option<&SourceLine>,
    certainty: Certainty,
    native_fraction: f64,
    remedy: &str,
) -> String {
    let short = |text: &str| printable::line(text, NAME_CHARACTERS_MAX);
    let name = found.and_then(path).map(|path| short(&path));
    let contents = found.map(|found| short(&found.contents)).filter(|text| !text.is_empty());
    let of_contents = contents.map_or(String::new(), |contents| format!(" of {contents}"));
    let counts = found.map_or(String::new(), |found| match found.before {
        Some(before) => format!("{before} → {}", found.after),
        None => found.after.to_string(),
    });
    let kind = found.and_then(|found| found.type_name.as_deref()).map(short).unwrap_or_default();
    let no_name = || "a container that no name of the program leads to".to_owned();
    let subject = match cause {
        Cause::Container => {
            format!("{} ({kind}, {counts}) grows by objects{of_contents}", name.unwrap_or_else(no_name))
        }
        Cause::Graph => {
            format!("the graph of {} ({kind}) grows with each step", name.unwrap_or_else(|| "a tensor".into()))
        }
        Cause::Replaced => {
            let sizes = found.map(|found| (found.before.unwrap_or_default(), found.after)).unwrap_or_default();
            let subject = name.unwrap_or_else(|| "an array".into());
            format!("{subject} is replaced by larger ones ({} → {})", Bytes(sizes.0), Bytes(sizes.1))
        }
        Cause::Objects => match name {
            Some(name) => format!("objects{of_contents} accumulate, held by {name}"),
            None => {
                format!(
                    "objects{of_contents} accumulate in a reference cycle or in a library ({counts} since the window began)"
                )
            }
        },
        Cause::Threads => format!("threads accumulate ({counts})"),
        Cause::CopyOnWrite => {
            let subject = name.unwrap_or_else(|| "objects of the parent process".into());
            format!("reading {subject} ({kind}) in a forked process copies its pages, as reference counts are written")
        }
        Cause::Line => "objects accumulate that one line creates".to_owned(),
        Cause::Unknown => String::new(),
        Cause::SharedMemory => "files in /dev/shm accumulate: shared memory that is not unlinked".to_owned(),
        Cause::Native => {
            format!(
                "native memory that Python does not see accounts for {:.0} % of the growth",
                100.0 * native_fraction
            )
        }
    };
    let place = line.map_or(String::new(), |line| {
        let file = line.file.rsplit('/').next().unwrap_or(&line.file);
        let text = if line.text.is_empty() { String::new() } else { format!(" `{}`", short(&line.text)) };
        format!(", at {file}:{}{text}", line.line)
    });
    let certain = match cause {
        Cause::Native => String::new(),
        _ => format!("; {} the cause", certainty.words()),
    };
    let repair = if remedy.is_empty() { String::new() } else { format!("; usual repair: {remedy}") };
    format!("{subject}{place}{certain}{repair}")
}

fn holder(found: &Found) -> Holder {
    Holder {
        kind: found.kind,
        path: path(found),
        type_name: found.type_name.clone(),
        before: found.before,
        after: found.after,
        contents: found.contents.clone(),
        bytes: found.bytes,
        with_graph: found.with_graph,
        births: found.births.iter().map(allocation).collect(),
    }
}

fn allocation(stack: &Stack) -> Allocation {
    let frames = stack.frames.iter().map(source::line).collect();
    Allocation { bytes: stack.bytes, count: stack.count, frames }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn found(kind: &str, path: Option<&str>, before: Option<u64>, bytes: u64, with_graph: u64) -> serde_json::Value {
        let holder = path.map(|path| serde_json::json!({"path": path, "name": path, "file": null, "library": false}));
        serde_json::json!({"kind": kind, "before": before, "after": 40, "bytes": bytes, "objects": 20, "contents": "Tensor[2]",
            "with_graph": with_graph, "view": false, "scalar": false, "exception": false, "births": [], "holder": holder, "type": "list"})
    }

    fn concluded(growth: u64, expected: u64, rest: &[(&str, u64)], holders: &[serde_json::Value]) -> Explanation {
        let mut answer = serde_json::json!({"process": 1, "forked": false, "python": "3.13.0", "script": null, "seconds": 5.0,
            "cost_seconds": 0.2, "resident_growth": growth, "left": 0, "traced_growth": 0, "collector": true, "holders": holders,
            "lines": [], "cuda": [], "notes": [], "late": false, "hidden": 0, "tensors": {
                "start": {"count": 0, "bytes": 0, "with_graph": 0}, "end": {"count": 0, "bytes": 0, "with_graph": 0}}});
        for (name, value) in rest {
            answer[*name] = if *name == "late" { serde_json::json!(true) } else { serde_json::json!(value) };
        }
        let answer: Answer = serde_json::from_value(answer).unwrap();
        conclude(&answer, Observed { step: 100, steps: 20, expected, main: 1, unmapped: false })
    }

    #[test]
    fn the_current_step_is_not_accused_of_what_a_container_holds() {
        let current = || found("objects", Some("train(): loss"), None, MIB, 8);
        let container = found("container", Some("bus.handlers"), Some(20), 11 * MIB, 0);
        let named = concluded(12 * MIB, 0, &[], &[current(), container]);
        assert_eq!((named.holder.as_deref(), named.certainty), (Some("bus.handlers"), Certainty::High), "{named:?}");
        // Growth that nothing accounts for is that of nobody.
        let native = concluded(12 * MIB, 0, &[], &[current()]);
        assert_eq!(native.cause, Cause::Native, "{native:?}");
        // Neither is that of the step after which a validation did not come.
        let hardly = concluded(0, 4 * MIB, &[], &[found("objects", None, None, MIB / 8, 8)]);
        assert_eq!((hardly.cause, hardly.line), (Cause::Unknown, None));
    }

    #[test]
    fn what_a_graph_saves_is_that_of_the_container_whose_tensors_hold_it() {
        let losses = || found("container", Some("losses"), Some(20), 80, 20);
        for with_graph in [0, 40] {
            let saved = || found("objects", None, None, 8 * MIB, with_graph);
            let named = concluded(10 * MIB, 0, &[], &[saved(), losses()]);
            assert_eq!((named.holder.as_deref(), named.certainty), (Some("losses"), Certainty::High), "{named:?}");
            // Saved by a graph that no name leads to: not a reference cycle.
            let unnamed = concluded(10 * MIB, 0, &[], &[saved(), found("graph", None, None, 4, 1)]);
            assert!(matches!(unnamed.cause, Cause::Native | Cause::Unknown), "{unnamed:?}");
        }
        let named = concluded(10 * MIB, 0, &[], &[losses()]);
        assert_eq!((named.holder.as_deref(), named.certainty), (Some("losses"), Certainty::Medium), "{named:?}");
    }

    #[test]
    fn a_census_that_was_cut_short_is_not_certain_and_says_so() {
        let objects = found("objects", None, None, 8 * MIB, 0);
        let cut = concluded(8 * MIB, 0, &[("late", 1)], &[objects]);
        assert_eq!(cut.cause, Cause::Unknown, "{cut:?}");
        let container = found("container", Some("cache"), Some(20), 8 * MIB, 0);
        let cut = concluded(8 * MIB, 0, &[("late", 1)], &[container]);
        assert_eq!((cut.cause, cut.certainty), (Cause::Container, Certainty::Medium));
        let hidden = concluded(8 * MIB, 0, &[("hidden", 5000)], &[]);
        assert!(hidden.cause == Cause::Unknown && hidden.message.contains("5000"), "{hidden:?}");
    }
}
