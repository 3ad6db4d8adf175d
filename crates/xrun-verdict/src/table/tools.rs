//! Tools whose columns have known units.

use super::column_names::{Role, role, words};

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * 1024.0;

/// Tool that wrote a table or a log, recognised by the names of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `nvidia-smi --query-gpu` or `--query-compute-apps`.
    NvidiaSmi,
    /// `nvidia-smi dmon` or `pmon`.
    Dmon,
    /// psrecord, whose MB are MiB.
    Psrecord,
    /// ps, top or pidstat.
    Ps,
    /// `sar -r`.
    Sar,
    /// `docker stats`.
    Docker,
    /// `/proc/N/status`, `smaps` or `meminfo`.
    Proc,
    /// psutil's `memory_info`, in bytes.
    Psutil,
    /// OpenMMLab, detectron2 and other trainers that log `max_memory_allocated` in MiB.
    Trainer,
}

impl Tool {
    /// Tool of a table with these columns.
    pub fn of(names: &[String]) -> Option<Self> {
        let has = |name: &str| names.iter().any(|found| found == name);
        let all = |names: &[&str]| names.iter().all(|name| has(name));
        Some(match () {
            () if names.iter().any(|name| is_nvidia_smi(name)) => Self::NvidiaSmi,
            () if has("fb") && (has("gpu") || has("sm")) => Self::Dmon,
            () if all(&["Real (MB)", "Virtual (MB)"]) || all(&["elapsed_time", "nproc", "mem_real", "mem_virtual"]) => {
                Self::Psrecord
            }
            () if ["RSS", "VSZ", "RES"].iter().any(|name| has(name))
                && ["PID", "COMMAND", "CMD", "Command", "%MEM"].iter().any(|name| has(name)) =>
            {
                Self::Ps
            }
            () if names.iter().any(|name| name == "RSS" || name == "VSZ")
                && names.iter().all(|name| is_of_ps(name)) =>
            {
                Self::Ps
            }
            () if has("kbmemused") => Self::Sar,
            () if has("MEM USAGE / LIMIT") || all(&["MemUsage", "MemPerc"]) => Self::Docker,
            () if ["VmRSS", "Rss", "MemTotal", "Pss"].iter().any(|name| has(name)) => Self::Proc,
            () if all(&["rss", "vms"]) => Self::Psutil,
            () if has("data_time") || has("max mem") => Self::Trainer,
            () => return None,
        })
    }

    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::NvidiaSmi => "nvidia-smi",
            Self::Dmon => "nvidia-smi dmon",
            Self::Psrecord => "psrecord, whose MB are MiB",
            Self::Ps => "ps or top, whose sizes are in KiB",
            Self::Sar => "sar, whose sizes are in KiB",
            Self::Docker => "docker stats",
            Self::Proc => "/proc, whose kB are KiB",
            Self::Psutil => "psutil, whose sizes are in bytes",
            Self::Trainer => "a trainer that logs memory in MiB",
        }
    }

    /// Bytes of the unit and the meaning of a column; `None` for a column that the tool does not have.
    pub fn column(self, name: &str) -> Option<(Option<f64>, Role)> {
        let excluded = |reason: &str| Some((None, Role::Excluded(reason.into())));
        let memory = |unit: f64| Some((Some(unit), Role::Memory));
        match self {
            Self::NvidiaSmi => nvidia_smi_column(name),
            Self::Dmon => match name {
                "fb" | "ccpm" => memory(MIB),
                "bar1" => excluded("mapped addresses, not memory"),
                _ => excluded("no memory in use"),
            },
            Self::Psrecord => match name {
                "mem_real" | "Real (MB)" => memory(MIB),
                "mem_virtual" | "Virtual (MB)" => excluded("address space, not memory"),
                _ => excluded("no size"),
            },
            Self::Ps => match name {
                "RSS" | "RES" | "SWAP" | "USS" | "PSS" => memory(KIB),
                "VSZ" | "VIRT" | "SIZE" | "SZ" => excluded("address space, not memory"),
                "SHR" => excluded("part of `RES`"),
                "%MEM" => excluded("a percentage of the same memory"),
                "PR" | "NI" | "TTY" | "TT" | "START" | "STIME" | "TIME" | "TIME+" | "NLWP" | "S" | "STAT" => {
                    excluded("no size")
                }
                _ => None,
            },
            Self::Sar => match name {
                "kbmemused" | "kbswpused" | "kbanonpg" => memory(KIB),
                _ if name.starts_with("kb") => excluded("not memory in use"),
                _ if name.starts_with('%') => excluded("a percentage of the same memory"),
                _ => None,
            },
            Self::Docker => match name {
                "MEM USAGE / LIMIT" | "MemUsage" => Some((None, Role::Memory)),
                "MEM %" | "MemPerc" => excluded("a percentage of the same memory"),
                _ => excluded("no memory in use"),
            },
            Self::Proc => match name {
                "VmSize" | "VmPeak" | "VmLib" | "VmExe" | "VmData" | "VmStk" | "VmallocTotal" => {
                    excluded("address space, not memory")
                }
                "MemTotal" | "SwapTotal" | "CommitLimit" => excluded("constant"),
                "MemFree" | "MemAvailable" | "SwapFree" => excluded("unused memory"),
                _ if name.starts_with("Vm") || name.starts_with("Rss") => memory(KIB),
                "Pss" | "Swap" | "SwapPss" | "Anonymous" | "AnonPages" => memory(KIB),
                _ => None,
            },
            Self::Psutil => match name {
                "rss" | "uss" | "pss" | "swap" => memory(1.0),
                "vms" | "text" | "lib" | "data" => excluded("address space, not memory"),
                _ => None,
            },
            Self::Trainer => match name {
                "memory" | "max_mem" | "max mem" => memory(MIB),
                _ => None,
            },
        }
    }

    /// Returns whether `kB` in cells are KiB.
    pub fn has_kibi(self) -> bool {
        matches!(self, Self::Proc | Self::Ps)
    }
}

/// Returns whether a name is one that ps prints, or that of the times between its lines.
fn is_of_ps(name: &str) -> bool {
    ["RSS", "VSZ", "PID", "ELAPSED", "TIME", "CMD", "COMMAND", "%CPU", "%MEM", "time"].contains(&name)
}

/// Unit of a column whose name alone says which tool wrote it: `ru_maxrss` of Linux is in KiB.
pub fn unit_of_name(name: &str) -> Option<f64> {
    matches!(words(name).join("_").as_str(), "ru_maxrss" | "maxrss" | "max_rss_kb" | "vm_rss" | "vm_hwm").then_some(KIB)
}

/// Returns whether a column has a name of nvidia-smi's `--query-gpu` or `--query-compute-apps`.
fn is_nvidia_smi(name: &str) -> bool {
    let plain = name.split(['[', ' ']).next().unwrap_or_default();
    let starts = ["memory.", "utilization.", "temperature.", "power.", "clocks.", "fb_memory_usage."];
    starts.iter().any(|start| plain.starts_with(start)) || ["used_gpu_memory", "used_memory"].contains(&plain)
}

/// Unit and meaning of a column of nvidia-smi: only memory in use can leak. It is in MiB, also with `nounits`.
fn nvidia_smi_column(name: &str) -> Option<(Option<f64>, Role)> {
    let plain = name.split(['[', ' ']).next().unwrap_or_default();
    // A column that the user added.
    if !plain.contains('.') && !is_nvidia_smi(plain) {
        return None;
    }
    Some(match plain {
        "memory.used" | "used_gpu_memory" | "used_memory" | "fb_memory_usage.used" => (Some(MIB), Role::Memory),
        "memory.total" | "memory.reserved" => (None, Role::Excluded("constant".into())),
        _ => match role(name) {
            Role::Excluded(reason) => (None, Role::Excluded(reason)),
            _ => (None, Role::Excluded("no memory in use".into())),
        },
    })
}
