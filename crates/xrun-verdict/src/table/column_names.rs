//! Units of columns by their names, and names of columns that are not sizes.

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
    if let [.., unit, rest] = &mut words[..]
        && rest == "b"
        && ["ki", "mi", "gi", "ti"].contains(&unit.as_str())
    {
        unit.push('b');
        words.pop();
    }
    words
}

/// Bytes of the unit that a name ends with.
pub fn unit(name: &str) -> Option<f64> {
    bytes_of(words(name).last()?)
}

/// Bytes of a unit by its name in lower case.
pub fn bytes_of(unit: &str) -> Option<f64> {
    let exact = match unit {
        "b" | "byte" | "bytes" => 1u64,
        "kb" => 1_000,
        "mb" | "megabytes" => 1_000_000,
        "gb" | "gigabytes" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    Some(exact as f64)
}

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
    "index",
    "id",
    "uuid",
    "pid",
    "uid",
    "gid",
    "rank",
    "count",
    "counts",
    "num",
    "allocations",
    "samples",
    "items",
    "rate",
    "ratio",
    "percent",
    "pct",
    "percentage",
    "util",
    "utilization",
    "temperature",
    "power",
    "watts",
    "mhz",
    "loss",
    "lr",
    "norm",
    "accuracy",
];
/// Words in names of columns of unused memory, which rises when something is freed.
const UNUSED: &[&str] = &["free", "available", "avail"];

/// Reason why a column of this name is not a size that can leak; `None` when it may be one.
pub fn exclusion(name: &str) -> Option<String> {
    if name.contains('%') {
        return Some("a percentage".into());
    }
    let words = words(name);
    let named = |list: &[&str]| words.iter().find(|word| list.contains(&word.as_str())).cloned();
    if let Some(word) = named(UNUSED) {
        return Some(format!("`{word}` is unused memory"));
    }
    named(NOT_SIZES).filter(|_| unit(name).is_none()).map(|word| format!("`{word}` is no size"))
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
            ("Allocated (GB)", Some(1e9)),
            ("gpu_bytes", Some(1.0)),
            ("gpuMemoryBytes", Some(1.0)),
            ("rss", None),
            ("number", None),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
        for name in
            ["time_ms", "epoch", "step_us", "Wall Time", "wallTime", "heap_allocations", "gpu_util", "free_mb", "%MEM"]
        {
            assert!(exclusion(name).is_some(), "{name}");
        }
        for name in ["rss", "heap", "device_in_use", "other", "step_memory_mb"] {
            assert_eq!(exclusion(name), None, "{name}");
        }
    }
}
