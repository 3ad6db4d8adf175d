//! Measurement of memory: this process, other processes, cgroups, GPUs; and the kernel's counts of OOM kills.

pub mod cgroup;
pub mod gpus;
pub mod killed;
pub mod own_cgroup;
pub mod processes;
pub mod shared_files;
pub mod sources;
