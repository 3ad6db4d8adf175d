//! Meaning of the names of columns: memory in use, a percentage, work done, or something else; and their units.

/// Splits a name into words in lower case: `rss_mb`, `memory.used [MiB]`, `gpuMemoryBytes`.
pub fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    // `MiB` and `KiB` have a capital in the middle.
    let mut at = 1;
    while at < words.len() {
        if words[at] == "b" && ["ki", "mi", "gi", "ti"].contains(&words[at - 1].as_str()) {
            words[at - 1].push('b');
            words.remove(at);
        }
        at += 1;
    }
    words
}

/// Bytes of the unit that a name has: at its end, in brackets, or as one of its words.
pub fn unit(name: &str) -> Option<f64> {
    let bracketed = name.trim_end().strip_suffix([')', ']']).and_then(|name| name.rsplit(['(', '[']).next());
    let letter = bracketed.and_then(|unit| super::numbers::cell_unit(unit.trim(), false));
    let words = words(name);
    let last = words.last()?;
    // A column `b` is no column of bytes.
    letter.or_else(|| bytes_of(last).filter(|_| words.len() > 1 || last.len() > 1)).or_else(|| {
        // `allocated_bytes.all.current`
        words.iter().rev().filter(|word| word.len() > 1).find_map(|word| bytes_of(word))
    })
}

/// Bytes of a unit by its name in lower case.
pub fn bytes_of(unit: &str) -> Option<f64> {
    let exact = match unit {
        "b" | "byte" | "bytes" => 1u64,
        "kb" => 1_000,
        "mb" | "megabyte" | "megabytes" => 1_000_000,
        "gb" | "gigabyte" | "gigabytes" => 1_000_000_000,
        "tb" | "terabytes" => 1_000_000_000_000,
        // GNU time and ulimit count 1024.
        "kib" | "kbytes" | "kilobytes" => 1 << 10,
        "mib" | "mbytes" => 1 << 20,
        "gib" | "gbytes" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    Some(exact as f64)
}

/// Words of memory, by themselves or in a word (`gpumem`, `maxrss`).
const MEMORY: &[&str] = &["mem", "memory", "rss", "vram", "uss", "pss", "maxrss", "ram", "speicher"];
/// Other words of memory.
const MEMORY_USE: &[&str] = &[
    "heap",
    "alloc",
    "allocated",
    "reserved",
    "rss",
    "swap",
    "footprint",
    "hwm",
    "vmhwm",
    "anon",
    "anonymous",
    "cached",
    "used",
    "usage",
    "malloc",
    "tracemalloc",
    "working",
    "res",
    "fb",
];
/// Words in names of columns that are not sizes.
const NOT_SIZES: &[&str] = &[
    "time",
    "timestamp",
    "date",
    "datetime",
    "duration",
    "elapsed",
    "wall",
    "clock",
    "ns",
    "us",
    "ms",
    "s",
    "sec",
    "secs",
    "second",
    "seconds",
    "minute",
    "minutes",
    "hour",
    "hours",
    "runtime",
    "uptime",
    "eta",
    "index",
    "uuid",
    "pid",
    "ppid",
    "uid",
    "gid",
    "count",
    "counts",
    "num",
    "allocations",
    "items",
    "rate",
    "ratio",
    "percent",
    "pct",
    "perc",
    "percentage",
    "util",
    "utilization",
    "temperature",
    "temp",
    "power",
    "watts",
    "mhz",
    "loss",
    "lr",
    "norm",
    "accuracy",
    "cpu",
    "core",
    "cores",
    "fps",
    "threads",
    "processes",
    "pids",
    "fds",
    "files",
];
/// Words of positions, which a name of memory may have, too: `step_memory`, `rank_mem`.
const POSITIONS: &[&str] = &[
    "epoch",
    "epochs",
    "step",
    "steps",
    "iteration",
    "iterations",
    "iter",
    "round",
    "rounds",
    "segment",
    "id",
    "rank",
    "samples",
];
/// Words of work that is done or moved: it is counted in bytes, too, and rises by nature.
const WORK: &[&str] = &[
    "token",
    "tokens",
    "flo",
    "flos",
    "flop",
    "flops",
    "tflop",
    "tflops",
    "sample",
    "examples",
    "sequences",
    "images",
    "seen",
    "consumed",
    "processed",
    "batches",
    "read",
    "reads",
    "written",
    "write",
    "writes",
    "sent",
    "send",
    "received",
    "recv",
    "transmitted",
    "tx",
    "rx",
    "io",
    "net",
    "network",
    "disk",
    "block",
    "download",
    "downloaded",
    "upload",
    "uploaded",
    "throughput",
    "bandwidth",
    "faults",
    "minflt",
    "majflt",
    "packets",
    "requests",
];
/// Words in names of columns of unused memory, which rises when something is freed.
const UNUSED: &[&str] = &["free", "available", "avail", "memfree", "kbmemfree", "kbavail"];
/// Words of the address space of a process, which is reserved and not used.
const ADDRESS_SPACE: &[&str] = &["vms", "vsz", "virt", "vmsize", "vmpeak", "vsize"];

/// Meaning of a column by its name.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// Memory in use.
    Memory,
    /// Percentage of memory.
    Percent,
    /// Anything; a size if it has a unit.
    Other,
    /// No size that can leak, with the reason.
    Excluded(String),
}

/// Returns whether one of the words is of memory.
fn is_memory(words: &[String]) -> bool {
    words.iter().any(|word| {
        MEMORY.contains(&word.as_str())
            || ["rss", "vram"].iter().any(|part| word.starts_with(part) || word.ends_with(part))
            || word.contains("mem")
    })
}

/// Meaning of a column of this name.
pub fn role(name: &str) -> Role {
    let words = words(name);
    let named = |list: &[&str]| words.iter().find(|word| list.contains(&word.as_str())).cloned();
    let is_percent = name.contains('%') || named(&["percent", "pct", "perc", "percentage"]).is_some();
    let memory = is_memory(&words);
    if is_percent {
        let is_load = named(&["util", "utilization", "cpu", "disk", "free", "available"]).is_some();
        return match memory && !is_load {
            true => Role::Percent,
            false => Role::Excluded("a percentage".into()),
        };
    }
    if let Some(word) = named(ADDRESS_SPACE) {
        return Role::Excluded(format!("`{word}` is address space, not memory"));
    }
    if let Some(word) = named(UNUSED) {
        return Role::Excluded(format!("`{word}` is unused memory"));
    }
    if let Some(word) = named(WORK).filter(|_| !memory) {
        return Role::Excluded(format!("`{word}` counts work, not memory"));
    }
    let has_unit = unit(name).is_some();
    let other = named(NOT_SIZES).or_else(|| named(POSITIONS).filter(|_| !memory));
    if let Some(word) = other.filter(|_| !has_unit) {
        return Role::Excluded(format!("`{word}` is no size"));
    }
    match named(MEMORY_USE) {
        _ if memory => Role::Memory,
        // Of a GPU `usage` is its load.
        Some(word) if word == "usage" && words.iter().any(|word| word == "gpu") => Role::Other,
        Some(_) => Role::Memory,
        None => Role::Other,
    }
}

/// Returns whether a name is that of the RSS of a process, which is made of whole pages.
pub fn is_resident(name: &str) -> bool {
    words(name).iter().any(|word| word.contains("rss") || word == "rss")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_units_or_are_excluded() {
        for (name, expected) in [
            ("rss_mb", Some(1e6)),
            ("rssMiB", Some(1_048_576.0)),
            ("memory.used [MiB]", Some(1_048_576.0)),
            ("RSS (KiB)", Some(1024.0)),
            ("RES(M)", Some(1_048_576.0)),
            ("Maximum resident set size (kbytes)", Some(1024.0)),
            ("Allocated (GB)", Some(1e9)),
            ("gpu_bytes", Some(1.0)),
            ("gpuMemoryBytes", Some(1.0)),
            ("allocated_bytes.all.current", Some(1.0)),
            ("rss", None),
            ("number", None),
            ("b", None),
            ("mem_b", Some(1.0)),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
        for name in [
            "time_ms",
            "epoch",
            "step_us",
            "Wall Time",
            "wallTime",
            "heap_allocations",
            "gpu_util",
            "free_mb",
            "%CPU",
            "tokens",
            "total_flos",
            "read_bytes",
            "net_sent_mb",
            "num_input_tokens_seen",
            "VSZ",
            "vms",
        ] {
            assert!(matches!(role(name), Role::Excluded(_)), "{name}");
        }
        for name in ["rss", "heap", "gpu_mem", "maxrss", "step_memory_mb", "kbmemused", "VRAM", "max_mem", "Speicher"] {
            assert_eq!(role(name), Role::Memory, "{name}");
        }
        assert_eq!((role("%MEM"), role("mem_percent"), role("memory%")), (Role::Percent, Role::Percent, Role::Percent));
        assert_eq!((role("device_in_use"), role("value")), (Role::Other, Role::Other));
    }
}
