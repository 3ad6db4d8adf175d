//! Groups of processes of a command that play the same role, and the memory of each group.
//!
//! Workers come and go, and a new one may reuse what an ended one left: a role has a series, a process has none. A role is
//! identified by its rank, or by its program and script, or by its being a fork, and by the role of its parent. Numbers and
//! other arguments are ignored, because each worker of a loader has its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use xrun_core::printable;
use xrun_results::secrets;
use xrun_results::watched::{ProcessGroup, RANK_PREFIXES};
use xrun_run::memory::processes;
use xrun_run::memory::processes::{Member, Pages, Status};
use xrun_verdict::names::{GPU_SUFFIX, PRIVATE_SUFFIX, SHARED_SUFFIX};

/// Cap on the roles; processes of further ones belong to [`OTHERS`].
pub const GROUPS_MAX: usize = 24;
/// Role of the process that was started.
pub const MAIN: &str = "main";
/// Role of all processes beyond the cap.
pub const OTHERS: &str = "others";
/// Role of processes that were forked without `exec`.
const WORKERS: &str = "workers";
/// Variables with the rank of a process in a distributed training: those of torchrun and Accelerate, of Slurm and of MPI.
const RANKS: &[&str] = &["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "LOCAL_RANK"];
/// Program whose children are Ray's workers, and the beginning of their titles. Ray sets ranks where no other process sees them.
const RAYLET: &str = "/raylet";
const RAY_TITLE: &str = "ray::";
/// Beginnings of titles of its other processes: workers without work, or that move objects to a disk, and agents.
const RAY_OTHERS: [&str; 6] =
    ["ray::IDLE", "ray::SPILL_", "ray::RESTORE_", "ray::DELETE_", "ray::DashboardAgent", "ray::RuntimeEnvAgent"];
/// Cap on the ranks with a role of their own; the others share one.
const RANKS_MAX: u32 = 16;
/// Role of the processes that ranks have forked.
const WORKERS_OF_RANKS: &str = "workers of ranks";
/// Age from which on a process may create a role: between `fork` and `exec` it has the command line of its parent.
const AGE_MIN: Duration = Duration::from_millis(200);
const NAME_CHARACTERS_MAX: usize = 40;
/// Names of Python's process pools, by a part of their command lines.
const KNOWN: &[(&str, &str)] = &[
    ("multiprocessing.spawn", "spawned workers"),
    ("multiprocessing.forkserver", "fork server"),
    ("multiprocessing.resource_tracker", "resource tracker"),
];

/// Roles so far. A role stays when its processes have ended.
#[derive(Clone, Debug)]
pub struct Groups {
    /// Process id of the main process.
    main: u32,
    /// Ranks of the processes of the newest sample.
    ranks: BTreeMap<u32, Option<Rank>>,
    roles: Vec<Role>,
}

/// Number that tells processes of one program apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Rank in a distributed training.
    Of(u32),
    /// Worker of Ray, numbered in the order in which they got work; a number is given again when its worker has ended.
    RayWorker(u32),
}

impl Rank {
    /// Name of its role.
    fn role(self) -> String {
        let (kind, number) = match self {
            Self::Of(rank) => (RANK_PREFIXES[0], rank),
            Self::RayWorker(number) => (RANK_PREFIXES[1], number),
        };
        if number < RANKS_MAX { format!("{kind}{number}") } else { format!("further {}s", kind.trim_end()) }
    }
}

#[derive(Clone, Debug, Default)]
struct Role {
    name: String,
    /// Index of the role of its parent.
    parent: usize,
    /// Program and script without numbers, or [`WORKERS`] for a fork.
    program: String,
    /// True if it ever had a process.
    had_process: bool,
    /// True if it ever had shared memory.
    had_shared: bool,
    /// True if it ever had GPU memory.
    had_gpu: bool,
}

/// Process at one moment.
#[derive(Clone, Debug)]
pub struct ProcessSample {
    pub member: Member,
    pub status: Status,
    /// `None` where they cannot be read.
    pub pages: Option<Pages>,
    /// Arguments of its command line.
    pub command: Vec<String>,
    /// Number among the processes of its program, if it has one.
    pub rank: Option<Rank>,
    /// True if it may still be between `fork` and `exec`.
    pub young: bool,
    /// GPU memory in bytes.
    pub gpu: u64,
}

impl ProcessSample {
    /// Samples of all members that still run; their parents are indices into the returned list.
    pub fn read_all(members: &[Member]) -> Vec<Self> {
        let mut samples: Vec<Self> = Vec::with_capacity(members.len());
        let mut indices: Vec<Option<usize>> = Vec::with_capacity(members.len());
        for member in members {
            let parent = member.parent.and_then(|at| indices[at]);
            let read = Self::read(Member { parent, ..*member });
            indices.push(read.is_some().then_some(samples.len()));
            samples.extend(read);
        }
        samples
    }

    fn read(member: Member) -> Option<Self> {
        let status = Status::read(member.id)?;
        let pages = Pages::read(member.id);
        // The pages of an exiting process are freed while the kernel adds them up.
        if processes::is_exiting(member.id) {
            return None;
        }
        Some(Self {
            member,
            status,
            pages,
            command: processes::command(member.id)?,
            rank: None,
            young: processes::age(member.id).is_none_or(|age| age < AGE_MIN),
            gpu: 0,
        })
    }

    /// Its pages; where they cannot be read, resident memory, of which shared pages count in full.
    fn pages_or_resident(&self) -> Pages {
        let Status { anonymous, file, shared, swap, .. } = self.status;
        self.pages.unwrap_or(Pages { anonymous, private: anonymous, file, shared, swap })
    }
}

/// Memory of all roles at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupMemory {
    pub groups: BTreeMap<String, ProcessGroup>,
    /// Bytes by owner, as in a line of the trace.
    pub owners: BTreeMap<String, u64>,
}

/// Index of [`OTHERS`] among the roles.
const OTHERS_AT: usize = 1;

impl Groups {
    /// Roles of a command without samples; `main` is its process id.
    pub fn new(main: u32) -> Self {
        let role = |name: &str| Role { name: name.into(), ..Role::default() };
        Self { main, ranks: BTreeMap::new(), roles: vec![role(MAIN), role(OTHERS)] }
    }

    /// Sets the ranks of processes, from the environment that each was started with. They are read once, as a process that sets
    /// its title may overwrite it.
    pub fn read_ranks(&mut self, samples: &mut [ProcessSample]) {
        let ids: BTreeSet<u32> = samples.iter().map(|one| one.member.id).collect();
        self.ranks.retain(|id, _| ids.contains(id));
        let raylets: BTreeSet<usize> = (0..samples.len())
            .filter(|at| samples[*at].command.first().is_some_and(|program| program.ends_with(RAYLET)))
            .collect();
        for one in samples {
            let id = one.member.id;
            let is_ray = one.member.parent.is_some_and(|parent| raylets.contains(&parent));
            one.rank = self.ranks.get(&id).copied().unwrap_or_else(|| {
                let title = one.command.first().filter(|title| title.starts_with(RAY_TITLE));
                let has_work = title.is_some_and(|title| !RAY_OTHERS.iter().any(|other| title.starts_with(other)));
                let rank = match is_ray {
                    true => has_work.then(|| self.next_ray_worker()),
                    false => processes::variable(id, RANKS).and_then(|rank| rank.parse().ok()).map(Rank::Of),
                };
                // A worker gets work later; and between `fork` and `exec` a process has the environment of its parent.
                let is_final = if is_ray { rank.is_some() } else { !one.young };
                if is_final {
                    self.ranks.insert(id, rank);
                }
                rank
            });
        }
    }

    /// Smallest number that no worker has.
    fn next_ray_worker(&self) -> Rank {
        let is_free = |number: &Rank| !self.ranks.values().any(|known| known.as_ref() == Some(number));
        (0..).map(Rank::RayWorker).find(is_free).unwrap_or(Rank::RayWorker(RANKS_MAX))
    }

    /// Sums the memory of processes by role. Parents come before their children.
    pub fn sum(&mut self, samples: &[ProcessSample]) -> GroupMemory {
        let mut roles: Vec<usize> = Vec::with_capacity(samples.len());
        // The process from which each was forked, without `exec` since: they share pages.
        let mut fork_origins: Vec<usize> = Vec::with_capacity(samples.len());
        for (at, one) in samples.iter().enumerate() {
            let parent = one.member.parent;
            // A rank that is forked by its launcher has the command line of that too.
            let rank = one.rank.filter(|_| parent.is_none_or(|parent| samples[parent].rank != one.rank));
            let forked = parent.filter(|&parent| rank.is_none() && samples[parent].command == one.command);
            fork_origins.push(forked.map_or(at, |parent| fork_origins[parent]));
            roles.push(match one.member.id {
                id if id == self.main => 0,
                _ => {
                    let parent_role = parent.map_or(0, |parent| roles[parent]);
                    let (below, name) = match (rank, forked) {
                        (Some(rank), _) => (0, rank.role()),
                        (None, Some(_)) if is_rank(&self.roles[parent_role].name) => (0, WORKERS_OF_RANKS.to_owned()),
                        (None, Some(_)) => (parent_role, WORKERS.to_owned()),
                        (None, None) => (parent_role, role_name(&one.command)),
                    };
                    match self.known_role(below, &name) {
                        Some(role) => role,
                        None if one.young => below,
                        None => self.new_role(below, &name),
                    }
                }
            });
        }
        let mut sums = vec![ProcessGroup::default(); self.roles.len()];
        for (at, one) in samples.iter().enumerate() {
            let (pages, sum) = (one.pages_or_resident(), &mut sums[roles[at]]);
            sum.process_count += 1;
            sum.rss += one.status.rss();
            sum.private += pages.private + pages.swap;
            sum.swap += pages.swap;
            sum.shared += pages.shared;
            sum.file_pages += pages.file;
            sum.gpu = Some(sum.gpu.unwrap_or_default() + one.gpu);
            // Pages that were not copied since a fork belong to the process that was forked.
            sums[roles[fork_origins[at]]].private += pages.anonymous - pages.private;
        }
        self.memory(&sums)
    }

    /// Memory of the roles that ever had a process.
    fn memory(&mut self, sums: &[ProcessGroup]) -> GroupMemory {
        let mut held = GroupMemory::default();
        for (role, sum) in self.roles.iter_mut().zip(sums) {
            role.had_shared |= sum.shared > 0;
            role.had_process |= sum.process_count > 0;
            role.had_gpu |= sum.gpu.is_some_and(|bytes| bytes > 0);
            if !role.had_process {
                continue;
            }
            let gpu = role.had_gpu.then(|| sum.gpu.unwrap_or_default());
            if let Some(bytes) = gpu {
                held.owners.insert(format!("{}{GPU_SUFFIX}", role.name), bytes);
            }
            held.owners.insert(format!("{}{PRIVATE_SUFFIX}", role.name), sum.private);
            if role.had_shared {
                held.owners.insert(format!("{}{SHARED_SUFFIX}", role.name), sum.shared);
            }
            held.groups.insert(role.name.clone(), ProcessGroup { gpu, ..*sum });
        }
        held
    }

    fn known_role(&self, parent: usize, name: &str) -> Option<usize> {
        let program = program_of(name);
        let same = |role: &Role| role.parent == parent && role.program == program;
        self.roles.iter().skip(OTHERS_AT + 1).position(same).map(|at| at + OTHERS_AT + 1)
    }

    /// Creates a role and returns its index; [`OTHERS_AT`] beyond the cap.
    fn new_role(&mut self, parent: usize, name: &str) -> usize {
        // `others` does not count.
        if self.roles.len() > GROUPS_MAX || parent == OTHERS_AT {
            return OTHERS_AT;
        }
        let base = match name {
            WORKERS if parent > 0 => {
                printable::line(&format!("{WORKERS} of {}", self.roles[parent].name), NAME_CHARACTERS_MAX)
            }
            name => name.to_owned(),
        };
        let taken = |name: &str| self.roles.iter().any(|role| role.name == name);
        let mut numbered = (2..).map(|number| format!("{base} {number}"));
        let unique = if taken(&base) { numbered.find(|name| !taken(name)).unwrap_or_default() } else { base };
        self.roles.push(Role { name: unique, parent, program: program_of(name), ..Role::default() });
        self.roles.len() - 1
    }
}

/// Returns whether a role is that of a rank.
fn is_rank(role: &str) -> bool {
    RANK_PREFIXES.iter().any(|kind| role.strip_prefix(kind).is_some_and(|rank| rank.parse::<u32>().is_ok()))
}

/// Program by which a role is recognised.
fn program_of(name: &str) -> String {
    if is_rank(name) { name.to_owned() } else { without_numbers(name) }
}

/// Name with `#` for each number, such as that of a rank in the title of a process.
fn without_numbers(command: &str) -> String {
    let mut text = String::with_capacity(command.len());
    for character in command.chars() {
        if !(character.is_ascii_digit() && text.ends_with('#')) {
            text.push(if character.is_ascii_digit() { '#' } else { character });
        }
    }
    text
}

/// Options of interpreters without a value.
const FLAGS: &[&str] = &["-u", "-B", "-E", "-I", "-O", "-OO", "-s", "-S", "-e", "-x", "-l"];
/// Extensions of scripts.
const SCRIPTS: &[&str] =
    &[".py", ".pyc", ".sh", ".bash", ".jl", ".r", ".R", ".rb", ".pl", ".js", ".mjs", ".ts", ".lua"];

/// Program, and the script or module that it runs: `python loader.py`. Other arguments may be secrets.
fn role_name(command: &[String]) -> String {
    if let Some((_, name)) = KNOWN.iter().find(|(part, _)| command.iter().any(|word| word.contains(part))) {
        return (*name).to_owned();
    }
    let last = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let masked = secrets::mask_arguments(command);
    let mut words = masked.iter().map(String::as_str);
    // A process that sets its own title has it in one argument with spaces.
    let program = words.next().and_then(|word| word.split_ascii_whitespace().next()).map(last).unwrap_or_default();
    let mut words = words.skip_while(|word| FLAGS.contains(word));
    let plain = |word: &&str| word.chars().all(|letter| letter.is_alphanumeric() || "-_./".contains(letter));
    let script = match words.next() {
        Some("-m") if program.starts_with("py") => words.next(),
        word => word.filter(|word| !word.starts_with('-') && SCRIPTS.iter().any(|end| word.ends_with(end))),
    };
    let named = script.filter(plain).map_or(program.clone(), |script| format!("{program} {}", last(script)));
    printable::line(&named, NAME_CHARACTERS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn seen(id: u32, parent: Option<usize>, command: &str, private: u64, anonymous: u64) -> ProcessSample {
        let pages = Pages { anonymous: anonymous * KIB, private: private * KIB, file: 0, shared: 0, swap: 0 };
        ProcessSample {
            member: Member { id, parent },
            status: Status { parent: 0, threads: 1, anonymous: pages.anonymous, ..Status::default() },
            pages: Some(pages),
            command: command.split(' ').map(str::to_owned).collect(),
            young: false,
            rank: None,
            gpu: 0,
        }
    }

    #[test]
    fn each_rank_has_a_role_whatever_its_title() {
        let mut groups = Groups::new(1);
        let rank = |id: u32, rank: u32, title: &str, bytes: u64| ProcessSample {
            rank: Some(Rank::Of(rank)),
            ..seen(id, Some(1), title, bytes, bytes)
        };
        let launcher = || [seen(1, None, "sh run.sh", 1, 1), seen(2, Some(0), "python torchrun", 1, 1)];
        let mut all = launcher().to_vec();
        all.extend((0..20).map(|at| rank(10 + at, at, "python train.py", 5)));
        // A worker of the loader of rank 0, with its environment.
        all.push(ProcessSample { member: Member { id: 40, parent: Some(2) }, ..rank(40, 0, "python train.py", 7) });
        let held = groups.sum(&all);
        assert_eq!((held.groups["rank 0"].private, held.groups["rank 15"].private), (5 * KIB, 5 * KIB), "{held:?}");
        assert_eq!((held.groups["further ranks"].process_count, held.groups["workers of ranks"].process_count), (4, 1));
        let mut titled = launcher().to_vec();
        titled.push(rank(10, 0, "epoch 3", 6));
        assert_eq!(groups.sum(&titled).groups["rank 0"].private, 6 * KIB);
    }

    /// Ray's workers are children of its raylet, with the name of what they run as a title.
    #[test]
    fn workers_of_ray_are_numbered_when_they_get_work() {
        use std::os::unix::process::CommandExt;
        let start = |title: &str| {
            let child = std::process::Command::new("sleep").arg0(title).arg("60").spawn().unwrap();
            // The parent goes on before the kernel has set the title.
            while processes::command(child.id()).is_none_or(|command| command[0] != title) {
                std::thread::yield_now();
            }
            child
        };
        let mut all = ["/opt/raylet", "ray::Trainer.step", "ray::IDLE_SpillWorker", "ray::Trainer"].map(start);
        let mut groups = Groups::new(1);
        let mut ranks = |all: &[std::process::Child]| {
            let parent = |at: usize| (at > 0).then_some(0);
            let members = all.iter().enumerate().map(|(at, child)| Member { id: child.id(), parent: parent(at) });
            let mut samples = ProcessSample::read_all(&members.collect::<Vec<_>>());
            groups.read_ranks(&mut samples);
            samples.iter().map(|one| one.rank).collect::<Vec<_>>()
        };
        let numbered = [None, Some(Rank::RayWorker(0)), None, Some(Rank::RayWorker(1))];
        assert_eq!((ranks(&all), ranks(&all)), (numbered.to_vec(), numbered.to_vec()));
        let end = |mut child: std::process::Child| {
            child.kill().unwrap();
            child.wait().unwrap();
        };
        end(std::mem::replace(&mut all[1], start("ray::evaluate")));
        assert_eq!(ranks(&all), numbered, "a number is given again");
        all.into_iter().for_each(end);
        assert_eq!(Rank::RayWorker(3).role(), "Ray worker 3");
        assert_eq!(Rank::RayWorker(RANKS_MAX).role(), "further Ray workers");
    }

    #[test]
    fn copied_pages_belong_to_workers_and_shared_ones_to_the_parent() {
        let mut groups = Groups::new(1);
        // A list of 900 KiB, read by two workers.
        let before = [
            seen(1, None, "python train.py", 0, 300),
            seen(2, Some(0), "python train.py", 0, 300),
            seen(3, Some(0), "python train.py", 0, 300),
        ];
        let held = groups.sum(&before);
        assert_eq!((held.owners["main/private"], held.owners["workers/private"]), (900 * KIB, 0));
        // Each has copied 300 KiB: 300 KiB are shared by all, and 300 KiB belong to main alone.
        let after = [
            seen(1, None, "python train.py", 300, 500),
            seen(2, Some(0), "python train.py", 300, 500),
            seen(3, Some(0), "python train.py", 300, 500),
        ];
        let held = groups.sum(&after);
        assert_eq!((held.owners["main/private"], held.owners["workers/private"]), (900 * KIB, 600 * KIB));
        assert_eq!(held.groups["workers"].process_count, 2);
        // Roles stay when their processes have ended.
        let held = groups.sum(&after[..1]);
        assert_eq!(held.owners["workers/private"], 0);
    }

    #[test]
    fn gpu_memory_belongs_to_the_role_of_the_process() {
        let mut groups = Groups::new(1);
        let server = |gpu| ProcessSample { gpu, ..seen(2, Some(0), "server", 1, 1) };
        let held = groups.sum(&[seen(1, None, "python train.py", 1, 1), server(5 * KIB)]);
        assert_eq!((held.owners.get("server/GPU"), held.owners.get("main/GPU")), (Some(&(5 * KIB)), None));
        let held = groups.sum(&[seen(1, None, "python train.py", 1, 1), server(0)]);
        assert_eq!(held.groups["server"].gpu, Some(0), "a series continues");
        assert_eq!(held.groups["main"].gpu, None);
    }

    #[test]
    fn roles_have_names_and_a_cap() {
        let mut groups = Groups::new(1);
        let spawned = |number: u32| format!("/usr/bin/python3 -c from multiprocessing.spawn import x(fd={number})");
        let mut all = vec![seen(1, None, "sh -c run", 1, 1), seen(2, Some(0), "/usr/bin/python3 -u a/train.py", 1, 1)];
        all.extend((0..3).map(|at| seen(10 + at, Some(1), &spawned(at), 1, 1)));
        all.push(seen(20, Some(1), "/usr/bin/python3 -u a/train.py", 1, 1));
        let held = groups.sum(&all);
        let names: Vec<&str> = held.groups.keys().map(String::as_str).collect();
        assert_eq!(names, ["main", "python3 train.py", "spawned workers", "workers of python3 train.py"]);
        all.extend((0..40).map(|at| seen(100 + at, Some(0), &format!("tool-{}", "x".repeat(at as usize + 1)), 1, 1)));
        let held = groups.sum(&all);
        assert_eq!(held.groups.len(), GROUPS_MAX + 1);
        assert_eq!(held.groups["others"].process_count, 40 - 20);
    }

    #[test]
    fn role_names_contain_no_secrets() {
        for (command, expected) in [
            ("bash API_KEY=S3cret", "bash"),
            ("/bin/bash -c S3cret", "bash"),
            ("API_KEY=S3cret x", "API_KEY=***"),
            ("python3 -X S3cret child.py", "python3"),
            ("python3 child.py S3cret", "python3 child.py"),
            ("python3 -m S3cret=1", "python3"),
            ("/usr/bin/python3 -u -m torch.distributed.run S3cret", "python3 torch.distributed.run"),
            ("bash -e a/run.sh", "bash run.sh"),
            ("mysql -m S3cret", "mysql"),
            ("curl S3cret", "curl"),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(role_name(&words), expected);
        }
        assert_eq!(role_name(&["worker: S3cret".to_owned()]), "worker:");
    }

    #[test]
    fn workers_that_are_started_anew_for_each_epoch_are_one_role() {
        let mut groups = Groups::new(1);
        let main = || seen(1, None, "python train.py", 1, 1);
        let loader = |id: u32, socket: &str| {
            seen(id, Some(0), &format!("/usr/bin/python loader.py --socket /tmp/pymp-{socket}/listener-x"), 2, 2)
        };
        for (epoch, socket) in ["a8fk", "zzqp", "m_1x"].into_iter().enumerate() {
            let fork = seen(100 + epoch as u32, Some(0), "python train.py", 3, 3);
            let titled = seen(300 + epoch as u32, Some(0), &format!("rank{epoch}: epoch {epoch} {socket}"), 1, 1);
            let held = groups.sum(&[main(), fork, loader(200 + epoch as u32, socket), titled]);
            let processes: Vec<u64> = held.groups.values().map(|group| group.process_count).collect();
            assert_eq!(processes, [1, 1, 1, 1], "{held:?}");
        }
    }

    #[test]
    fn a_process_that_was_just_forked_creates_no_role() {
        let young = ProcessSample { young: true, ..seen(2, Some(0), "sh", 1, 1) };
        let mut groups = Groups::new(1);
        let held = groups.sum(&[seen(1, None, "sh", 1, 1), young.clone()]);
        assert_eq!(held.groups.keys().collect::<Vec<_>>(), ["main"]);
        groups.sum(&[seen(1, None, "sh", 1, 1), ProcessSample { young: false, ..young.clone() }]);
        let held = groups.sum(&[seen(1, None, "sh", 1, 1), young]);
        assert_eq!(held.groups["workers"].process_count, 1, "the role exists");
    }
}
