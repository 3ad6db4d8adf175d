//! Which processes of a command play the same role, and what does each role hold?
//!
//! Workers come and go, and what one of them leaves behind the next one may take up: a role has a series, a process has
//! none. A role is a command line below a role; numbers in it do not count, as loaders give each worker its own.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::memory::processes;
use crate::memory::processes::{Member, Pages, Status};
use xrun_core::printable;
use xrun_results::secrets;
use xrun_results::watched::Group;
use xrun_verdict::names::{GPU, PRIVATE, SHARED};

/// Roles that have a name; the rest are [`OTHERS`].
pub const GROUPS_MAX: usize = 16;
/// The process that was started.
pub const MAIN: &str = "main";
/// What finds no room for a role of its own.
pub const OTHERS: &str = "others";
const WORKERS: &str = "workers";
/// A process between `fork` and `exec` has the command line of its parent. One that is younger makes no new role.
const AGE_MIN: Duration = Duration::from_millis(200);
const NAME_CHARACTERS_MAX: usize = 40;
/// What process pools of Python are called; their command lines say nothing else.
const KNOWN: &[(&str, &str)] = &[
    ("multiprocessing.spawn", "spawned workers"),
    ("multiprocessing.forkserver", "fork server"),
    ("multiprocessing.resource_tracker", "resource tracker"),
];

/// The roles so far. They stay when their processes are gone.
#[derive(Clone, Debug)]
pub struct Groups {
    main: u32,
    known: Vec<Role>,
}

#[derive(Clone, Debug)]
struct Role {
    name: String,
    /// The role of the parent, and the command line below it.
    parent: usize,
    command: String,
    /// It has ever had a process, and shared memory.
    seen: bool,
    shares: bool,
    computes: bool,
}

/// One process as it was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    pub member: Member,
    pub status: Status,
    /// `None` where they may not be read.
    pub pages: Option<Pages>,
    /// Its words.
    pub command: Vec<String>,
    pub young: bool,
    /// Bytes on GPUs.
    pub gpu: u64,
}

impl Seen {
    /// All that are still there, with their places among these.
    pub fn read_all(members: &[Member]) -> Vec<Self> {
        let mut seen: Vec<Self> = Vec::with_capacity(members.len());
        let mut places: Vec<Option<usize>> = Vec::with_capacity(members.len());
        for member in members {
            let parent = member.parent.and_then(|at| places[at]);
            let read = Self::read(Member { parent, ..*member });
            places.push(read.is_some().then_some(seen.len()));
            seen.extend(read);
        }
        seen
    }

    fn read(member: Member) -> Option<Self> {
        let status = Status::read(member.id)?;
        let pages = Pages::read(member.id);
        // One that ends gives its pages back while they are added up.
        if processes::is_exiting(member.id) {
            return None;
        }
        Some(Self {
            member,
            status,
            pages,
            command: processes::command(member.id)?,
            young: processes::age(member.id).is_none_or(|age| age < AGE_MIN),
            gpu: 0,
        })
    }

    /// What is known of its pages: where they cannot be told apart, each counts in full.
    fn pages(&self) -> Pages {
        let Status { anonymous, file, shared, swap, .. } = self.status;
        self.pages.unwrap_or(Pages { anonymous, own: anonymous, file, shared, swap })
    }
}

/// What all roles hold at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Held {
    pub groups: BTreeMap<String, Group>,
    /// By owner, as in a line of the trace.
    pub owners: BTreeMap<String, u64>,
}

const OTHERS_AT: usize = 1;

impl Groups {
    /// Those of the command whose process is `main`.
    pub fn new(main: u32) -> Self {
        let role = |name: &str| Role {
            name: name.into(),
            parent: 0,
            command: String::new(),
            seen: false,
            shares: false,
            computes: false,
        };
        Self { main, known: vec![role(MAIN), role(OTHERS)] }
    }

    /// Adds up what processes hold, by role. Parents stand before their children.
    pub fn add_up(&mut self, seen: &[Seen]) -> Held {
        let mut roles: Vec<usize> = Vec::with_capacity(seen.len());
        // Whose pages a process shares since it was forked.
        let mut lineage: Vec<usize> = Vec::with_capacity(seen.len());
        for (at, one) in seen.iter().enumerate() {
            let parent = one.member.parent;
            let forked = parent.filter(|&parent| seen[parent].command == one.command);
            lineage.push(forked.map_or(at, |parent| lineage[parent]));
            roles.push(match one.member.id {
                id if id == self.main => 0,
                _ => {
                    let below = parent.map_or(0, |parent| roles[parent]);
                    match self.known_role(below, &one.command) {
                        Some(role) => role,
                        None if one.young => below,
                        None => self.new_role(below, &one.command, forked.is_some()),
                    }
                }
            });
        }
        let mut sums = vec![Group::default(); self.known.len()];
        for (at, one) in seen.iter().enumerate() {
            let (pages, sum) = (one.pages(), &mut sums[roles[at]]);
            sum.processes += 1;
            sum.resident += one.status.resident();
            sum.private += pages.own + pages.swap;
            sum.swap += pages.swap;
            sum.shared += pages.shared;
            sum.file += pages.file;
            sum.gpu = Some(sum.gpu.unwrap_or_default() + one.gpu);
            // Pages that were not copied since a fork are those of the process that was forked.
            sums[roles[lineage[at]]].private += pages.anonymous - pages.own;
        }
        self.held(&sums)
    }

    fn held(&mut self, sums: &[Group]) -> Held {
        let mut held = Held::default();
        for (role, sum) in self.known.iter_mut().zip(sums) {
            role.shares |= sum.shared > 0;
            role.seen |= sum.processes > 0;
            role.computes |= sum.gpu.is_some_and(|bytes| bytes > 0);
            if !role.seen {
                continue;
            }
            let gpu = role.computes.then(|| sum.gpu.unwrap_or_default());
            if let Some(bytes) = gpu {
                held.owners.insert(format!("{}{GPU}", role.name), bytes);
            }
            held.owners.insert(format!("{}{PRIVATE}", role.name), sum.private);
            if role.shares {
                held.owners.insert(format!("{}{SHARED}", role.name), sum.shared);
            }
            held.groups.insert(role.name.clone(), Group { gpu, ..*sum });
        }
        held
    }

    fn known_role(&self, parent: usize, command: &[String]) -> Option<usize> {
        let plain = without_numbers(&command.join(" "));
        let same = |role: &Role| role.parent == parent && role.command == plain;
        self.known.iter().skip(OTHERS_AT + 1).position(same).map(|at| at + OTHERS_AT + 1)
    }

    fn new_role(&mut self, parent: usize, command: &[String], forked: bool) -> usize {
        // `main` is a role, `others` is none.
        if self.known.len() > GROUPS_MAX || parent == OTHERS_AT {
            return OTHERS_AT;
        }
        let base = match forked {
            true if parent == 0 => WORKERS.to_owned(),
            true => printable::line(&format!("{WORKERS} of {}", self.known[parent].name), NAME_CHARACTERS_MAX),
            false => name(command),
        };
        let taken = |name: &str| self.known.iter().any(|role| role.name == name);
        let mut numbered = (2..).map(|number| format!("{base} {number}"));
        let name = if taken(&base) { numbered.find(|name| !taken(name)).unwrap_or_default() } else { base };
        self.known.push(Role {
            name,
            parent,
            command: without_numbers(&command.join(" ")),
            seen: false,
            shares: false,
            computes: false,
        });
        self.known.len() - 1
    }
}

/// Numbers become `#`: those of pipes, ranks and temporary files differ from worker to worker.
fn without_numbers(command: &str) -> String {
    let mut text = String::with_capacity(command.len());
    for character in command.chars() {
        match character.is_ascii_digit() {
            true if text.ends_with('#') => {}
            true => text.push('#'),
            false => text.push(character),
        }
    }
    text
}

/// Options of interpreters that no value follows.
const FLAGS: &[&str] = &["-u", "-B", "-E", "-I", "-O", "-OO", "-s", "-S", "-e", "-x", "-l"];
/// Ends of scripts.
const SCRIPTS: &[&str] =
    &[".py", ".pyc", ".sh", ".bash", ".jl", ".r", ".R", ".rb", ".pl", ".js", ".mjs", ".ts", ".lua"];

/// The program, and the script or module that it runs: `python loader.py`. Other words may be secrets.
fn name(command: &[String]) -> String {
    if let Some((_, name)) = KNOWN.iter().find(|(part, _)| command.iter().any(|word| word.contains(part))) {
        return (*name).to_owned();
    }
    let last = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let masked = secrets::words(command);
    let mut words = masked.iter().map(String::as_str);
    // A process that names itself does so in one word with spaces.
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

    fn seen(id: u32, parent: Option<usize>, command: &str, own: u64, anonymous: u64) -> Seen {
        let pages = Pages { anonymous: anonymous * KIB, own: own * KIB, file: 0, shared: 0, swap: 0 };
        Seen {
            member: Member { id, parent },
            status: Status { parent: 0, threads: 1, anonymous: pages.anonymous, ..Status::default() },
            pages: Some(pages),
            command: command.split(' ').map(str::to_owned).collect(),
            young: false,
            gpu: 0,
        }
    }

    #[test]
    fn what_workers_copy_is_theirs_and_what_they_share_is_their_parents() {
        let mut groups = Groups::new(1);
        // A list of 900 KiB, read by two workers.
        let before = [
            seen(1, None, "python train.py", 0, 300),
            seen(2, Some(0), "python train.py", 0, 300),
            seen(3, Some(0), "python train.py", 0, 300),
        ];
        let held = groups.add_up(&before);
        assert_eq!((held.owners["main/private"], held.owners["workers/private"]), (900 * KIB, 0));
        // Each has copied 300 KiB of it: 300 are shared by all, and 300 are left to main.
        let after = [
            seen(1, None, "python train.py", 300, 500),
            seen(2, Some(0), "python train.py", 300, 500),
            seen(3, Some(0), "python train.py", 300, 500),
        ];
        let held = groups.add_up(&after);
        assert_eq!((held.owners["main/private"], held.owners["workers/private"]), (900 * KIB, 600 * KIB));
        assert_eq!(held.groups["workers"].processes, 2);
        // Roles stay when their processes are gone.
        let held = groups.add_up(&after[..1]);
        assert_eq!(held.owners["workers/private"], 0);
    }

    #[test]
    fn what_is_held_on_gpus_belongs_to_the_role_that_holds_it() {
        let mut groups = Groups::new(1);
        let with = |gpu| Seen { gpu, ..seen(2, Some(0), "server", 1, 1) };
        let held = groups.add_up(&[seen(1, None, "python train.py", 1, 1), with(5 * KIB)]);
        assert_eq!((held.owners.get("server/GPU"), held.owners.get("main/GPU")), (Some(&(5 * KIB)), None));
        let held = groups.add_up(&[seen(1, None, "python train.py", 1, 1), with(0)]);
        assert_eq!(held.groups["server"].gpu, Some(0), "a series that began goes on");
        assert_eq!(held.groups["main"].gpu, None);
    }

    #[test]
    fn roles_have_names_and_are_few() {
        let mut groups = Groups::new(1);
        let spawned = |number: u32| format!("/usr/bin/python3 -c from multiprocessing.spawn import x(fd={number})");
        let mut all = vec![seen(1, None, "sh -c run", 1, 1), seen(2, Some(0), "/usr/bin/python3 -u a/train.py", 1, 1)];
        all.extend((0..3).map(|at| seen(10 + at, Some(1), &spawned(at), 1, 1)));
        all.push(seen(20, Some(1), "/usr/bin/python3 -u a/train.py", 1, 1));
        let held = groups.add_up(&all);
        let names: Vec<&str> = held.groups.keys().map(String::as_str).collect();
        assert_eq!(names, ["main", "python3 train.py", "spawned workers", "workers of python3 train.py"]);
        all.extend((0..40).map(|at| seen(100 + at, Some(0), &format!("tool-{}", "x".repeat(at as usize + 1)), 1, 1)));
        let held = groups.add_up(&all);
        assert_eq!(held.groups.len(), GROUPS_MAX + 1);
        assert_eq!(held.groups["others"].processes, 40 - 12);
    }

    #[test]
    fn a_name_has_no_words_that_may_be_secrets() {
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
            assert_eq!(name(&words), expected);
        }
        assert_eq!(name(&["worker: S3cret".to_owned()]), "worker:");
    }

    #[test]
    fn a_process_that_was_just_forked_has_no_role_yet() {
        let young = Seen { young: true, ..seen(2, Some(0), "sh", 1, 1) };
        let mut groups = Groups::new(1);
        let held = groups.add_up(&[seen(1, None, "sh", 1, 1), young.clone()]);
        assert_eq!(held.groups.keys().collect::<Vec<_>>(), ["main"]);
        groups.add_up(&[seen(1, None, "sh", 1, 1), Seen { young: false, ..young.clone() }]);
        let held = groups.add_up(&[seen(1, None, "sh", 1, 1), young]);
        assert_eq!(held.groups["workers"].processes, 1, "the role is there");
    }
}
