//! Meaning of the names of columns: memory in use, unused memory, a percentage, work done, or something else; and their units.

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * 1024.0;

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

/// Name in lower case, its words joined by `_`.
pub fn plain(name: &str) -> String {
    words(name).join("_")
}

/// Bytes of the unit that a name has: at its end, in brackets, or as one of its words.
pub fn unit(name: &str) -> Option<f64> {
    let bracketed = name.trim_end().strip_suffix([')', ']']).and_then(|name| name.rsplit(['(', '[']).next());
    let letter = bracketed.and_then(|unit| super::numbers::cell_unit(unit.trim(), false));
    let words = words(name);
    let last = words.last()?;
    // A column `b` is no column of bytes.
    let by_last = letter.or_else(|| bytes_of(last).filter(|_| words.len() > 1 || last.len() > 1));
    // `allocated_bytes.all.current`
    by_last.or_else(|| words.iter().rev().filter(|word| word.len() > 1).find_map(|word| bytes_of(word)))
}

/// Bytes of a unit by its name in lower case.
pub fn bytes_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "b" | "byte" | "bytes" => 1.0,
        "kb" => 1e3,
        "mb" | "megabyte" | "megabytes" => 1e6,
        "gb" | "gigabyte" | "gigabytes" => 1e9,
        "tb" | "terabytes" => 1e12,
        // GNU time and ulimit count 1024.
        "kib" | "kbytes" | "kilobytes" => KIB,
        "mib" | "mbytes" => MIB,
        "gib" | "gbytes" => KIB * MIB,
        "tib" => MIB * MIB,
        _ => return None,
    })
}

/// Words of memory, by themselves or in a word (`gpumem`, `maxrss`).
const MEMORY: &str = "mem memory rss vram uss pss maxrss ram speicher arbeitsspeicher";
/// Other words of memory.
const MEMORY_USE: &str = "heap alloc allocated reserved swap swpd footprint hwm vmhwm anon anonymous used usage malloc \
                          tracemalloc working res fb";
/// Words in names of columns that are not sizes.
const NOT_SIZES: &str = "time timestamp date datetime duration elapsed wall clock ns us ms s sec secs second seconds minute \
                         minutes hour hours runtime uptime eta index uuid pid ppid uid gid count counts num allocations items \
                         rate ratio percent pct perc percentage util utilization temperature temp power watts mhz loss lr norm \
                         accuracy cpu core cores fps threads processes pids fds files";
/// Words of positions, which a name of memory may have, too: `step_memory`, `rank_mem`.
const POSITIONS: &str = "epoch epochs step steps iteration iterations iter round rounds segment id rank samples";
/// Words of work that is done or moved: it is counted in bytes, too, and rises by nature.
const WORK: &str = "token tokens flo flos flop flops tflop tflops sample examples sequences images seen consumed processed \
                    batches read reads written write writes sent send received recv transmitted tx rx io net network disk \
                    block download downloaded upload uploaded throughput bandwidth faults minflt majflt packets requests";
/// Words in names of columns of unused memory, which rises when something is freed.
const UNUSED: &str = "free available avail memfree kbmemfree kbavail";
/// Words of the address space of a process, which is reserved and not used.
const ADDRESS_SPACE: &str = "vms vsz virt vmsize vmpeak vsize";
/// Words of what was released in all, or was asked for.
const TOTALS: &str = "freed tot cumulative tried requested";

/// Meaning of a column by its name.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// Memory in use.
    Memory,
    /// Percentage of memory.
    Percent,
    /// Memory that is not in use.
    Unused,
    /// Anything; a size if it has a unit.
    Other,
    /// No size that can leak, with the reason.
    Excluded(String),
}

/// Returns whether a list of words has this one.
fn is_in(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|one| one == word)
}

/// Returns whether one of the words is of memory.
fn is_memory(words: &[String]) -> bool {
    let has = |word: &String| ["rss", "vram"].iter().any(|part| word.starts_with(part) || word.ends_with(part));
    words.iter().any(|word| is_in(MEMORY, word) || word.contains("mem") || has(word))
}

/// Meaning of a column of this name.
pub fn role(name: &str) -> Role {
    let words = words(name);
    let named = |list: &str| words.iter().find(|word| is_in(list, word)).cloned();
    let memory = is_memory(&words);
    let excluded = |text: String| Role::Excluded(text);
    if name.contains('%') || named("percent pct perc percentage").is_some() {
        let is_load = named("util utilization cpu disk free available").is_some();
        return if memory && !is_load { Role::Percent } else { excluded("a percentage".into()) };
    }
    if let Some(word) = named(ADDRESS_SPACE) {
        return excluded(format!("`{word}` is address space, not memory"));
    }
    if named(UNUSED).is_some() {
        return Role::Unused;
    }
    // `allocated_bytes.all.allocated` of PyTorch is the sum of all allocations, and `.current` what is left of them.
    let is_sum = name.matches('.').count() > 1 && name.ends_with(".allocated");
    if let Some(word) = named(TOTALS).or(is_sum.then(|| "allocated".into())) {
        return excluded(format!("`{word}` is a total or a request, not memory in use"));
    }
    if named("cached buffers").is_some() && !memory {
        return excluded("the page cache, which the system takes back".into());
    }
    if let Some(word) = named(WORK).filter(|_| !memory) {
        return excluded(format!("`{word}` counts work, not memory"));
    }
    let other = named(NOT_SIZES).or_else(|| named(POSITIONS).filter(|_| !memory));
    if let Some(word) = other.filter(|_| unit(name).is_none()) {
        return excluded(format!("`{word}` is no size"));
    }
    match named(MEMORY_USE) {
        // Of a GPU `usage` is its load.
        Some(word) if !memory && word == "usage" && words.iter().any(|word| word == "gpu") => Role::Other,
        None if !memory => Role::Other,
        _ => Role::Memory,
    }
}

/// Returns whether a name is that of the RSS of a process, which is made of whole pages.
pub fn is_resident(name: &str) -> bool {
    words(name).iter().any(|word| word.contains("rss"))
}

/// Columns whose unit or meaning only their tool tells: one of the columns that must be there, names (with `*` at their end for
/// any other letters), and the unit, or the reason why they are no memory in use.
const KNOWN: &[(&str, &str, Result<f64, &str>)] = &[
    ("", "memory.used|used_gpu_memory|used_memory|fb_memory_usage.used", Ok(MIB)),
    ("", "memory.total|memory.reserved", Err("constant")),
    ("", "utilization.*|temperature.*|power.*|clocks.*", Err("no memory in use")),
    ("", "ru_maxrss|maxrss|max_rss_kb|vm_rss|vm_hwm|kbmemused|kbswpused|kbanonpg", Ok(KIB)),
    ("kbmemused", "kb*|%*", Err("not memory in use")),
    ("fb", "fb|ccpm", Ok(MIB)),
    ("fb", "mem|pwr|sm|enc|dec|jpg|ofa|gtemp|mtemp|mclk|pclk|bar1", Err("no memory in use")),
    ("Real (MB)|mem_real", "Real (MB)|mem_real", Ok(MIB)),
    ("Real (MB)|mem_real", "Virtual (MB)|mem_virtual", Err("address space, not memory")),
    ("MEM %|MemPerc", "MEM %|MemPerc", Err("a percentage of the same memory")),
    (PS, "RSS|RES|SWAP|USS|PSS", Ok(KIB)),
    (PS, "VSZ|VIRT|SIZE|SZ", Err("address space, not memory")),
    (PS, "SHR", Err("part of `RES`")),
    (PS, "%MEM", Err("a percentage of the same memory")),
    (PS, "PR|NI|TTY|TT|START|STIME|TIME|TIME+|NLWP|S|STAT", Err("no size")),
    (PROC, "VmSize|VmPeak|VmLib|VmExe|VmData|VmStk|VmallocTotal", Err("address space, not memory")),
    (PROC, "MemTotal|SwapTotal|CommitLimit", Err("constant")),
    (PROC, "Vm*|Rss*|Pss|Swap|SwapPss|Anonymous|AnonPages", Ok(KIB)),
    ("vms", "rss|uss|pss|swap", Ok(1.0)),
    ("vms", "text|lib|data|shared", Err("address space, not memory")),
    ("data_time|max mem", "memory|max_mem|max mem", Ok(MIB)),
    ("swpd", "swpd|free + buff + cache", Ok(KIB)),
];
/// Columns that ps, top and pidstat print.
const PS: &str = "PID|COMMAND|CMD|Command|%MEM";
/// Columns of ps, of which a table may have no others.
const PS_ONLY: &str = "RSS|VSZ|PID|ELAPSED|TIME|CMD|COMMAND|%CPU|%MEM|time";
/// Lines of `/proc`, whose kB are KiB.
const PROC: &str = "VmRSS|Rss|MemTotal|Pss";

fn is_listed(list: &str, name: &str) -> bool {
    list.split('|').any(|one| one.strip_suffix('*').map_or(name == one, |start| name.starts_with(start)))
}

/// Returns whether the columns are those of ps or top, which have times that are not those of the rows.
pub fn is_ps(names: &[String]) -> bool {
    names.iter().any(|name| is_listed("RSS|VSZ|RES", name))
        && (names.iter().any(|name| is_listed(PS, name)) || names.iter().all(|name| is_listed(PS_ONLY, name)))
}

/// Returns whether the columns are those of nvidia-smi, which may leave out the index of the GPU.
pub fn is_nvidia_smi(names: &[String]) -> bool {
    names.iter().any(|name| is_listed("memory.used*|utilization.*|used_gpu_memory*|used_memory*", name))
}

/// Returns whether `kB` in cells are KiB.
pub fn has_kibi(names: &[String]) -> bool {
    is_ps(names) || names.iter().any(|name| is_listed(PROC, name))
}

/// Unit of a column that its tool defines, or the reason why it is no memory in use; `None` for all others.
pub fn known(name: &str, names: &[String]) -> Option<Result<f64, &'static str>> {
    let has = |needs: &str| match needs {
        "" => true,
        PS => is_ps(names),
        _ => names.iter().any(|name| is_listed(needs, name)),
    };
    let bare = name.split(" [").next().unwrap_or(name);
    let found = KNOWN.iter().find(|(needs, listed, _)| {
        (is_listed(listed, bare) || (needs.is_empty() && is_listed(listed, &plain(name)))) && has(needs)
    });
    found.map(|(.., meaning)| *meaning)
}
