//! With which headers are kernels compiled: all of the toolkit's, or those without cooperative groups?
//!
//! CubeCL 0.10 tunes a matrix product by trying up to 29 ways of computing it, and compiles each way first. About a third of
//! these ways copy asynchronously. Only those include NVIDIA's cooperative groups, which take the compiler longer than all
//! other headers together: with them a cold start of stage 2 takes 2.3 times the processor time. CubeCL has no setting that
//! leaves these ways out. But a way that does not compile is not tried, so that headers which refuse to be compiled do it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::toolkit::{self, ROOT_VARIABLE};
use crate::results::write;

/// In a folder of ours: a link to the toolkit that it stands for.
const STANDS_FOR: &str = "stands_for";
/// What kernels with asynchronous copies include first, below `include`.
const LEFT_OUT: [&str; 2] = ["cooperative_groups.h", "cooperative_groups/memcpy_async.h"];
/// What stands in their place.
const REFUSAL: &str = "#error \"xrun leaves this way out while it tunes: device.autotune = \\\"minimal\\\"\"\n";

/// Has kernels compiled with all headers from now on, or with those that leave asynchronous copies out. Says whether it is so
/// now: a process of several threads stays as it is. To be called before the device is looked for.
///
/// # Errors
/// The folder of headers cannot be made.
pub fn choose(all: bool, cache: &Path) -> io::Result<bool> {
    let Some(root) = toolkit::root() else { return Ok(all) };
    let named = std::env::var_os(ROOT_VARIABLE).map(PathBuf::from);
    let wanted = if all { root.clone() } else { fewer(&root, cache)? };
    if named.as_ref().unwrap_or(&root) == &wanted {
        return Ok(true);
    }
    // A library may have started threads of its own, and a program that trains by itself may have, too.
    if fs::read_dir("/proc/self/task").map_or(1, Iterator::count) > 1 {
        return Ok(false);
    }
    // SAFETY: no other thread runs that could read the environment.
    unsafe { std::env::set_var(ROOT_VARIABLE, wanted) };
    Ok(true)
}

/// For a program of somebody else's: it gets the toolkit as it is.
pub fn give_all(command: &mut Command) {
    if let Some(root) = std::env::var_os(ROOT_VARIABLE).and_then(|named| stands_for(named.as_ref())) {
        command.env(ROOT_VARIABLE, root);
    }
}

/// The toolkit that a folder of ours stands for; `None` of any other folder.
pub fn stands_for(folder: &Path) -> Option<PathBuf> {
    fs::read_link(folder.join(STANDS_FOR)).ok()
}

/// Makes a folder below `cache` that is the toolkit in `root`, but for the headers that are left out.
fn fewer(root: &Path, cache: &Path) -> io::Result<PathBuf> {
    let folder = cache.join("headers").join(toolkit::digits_of(root));
    let include = folder.join("include");
    fs::create_dir_all(include.join("cooperative_groups"))?;
    link(root, &folder.join(STANDS_FOR))?;
    for kind in ["lib", "lib64", "targets"] {
        if root.join(kind).exists() {
            link(&root.join(kind), &folder.join(kind))?;
        }
    }
    for entry in fs::read_dir(root.join("include"))? {
        let entry = entry?;
        if !LEFT_OUT.iter().any(|name| Path::new(name).starts_with(entry.file_name())) {
            link(&entry.path(), &include.join(entry.file_name()))?;
        }
    }
    for name in LEFT_OUT {
        let path = include.join(name);
        if fs::read(&path).ok().as_deref() != Some(REFUSAL.as_bytes()) {
            write::replace(&path, REFUSAL.as_bytes()).map_err(io::Error::other)?;
        }
    }
    Ok(folder)
}

/// Another process may make the same link at the same time.
fn link(to: &Path, at: &Path) -> io::Result<()> {
    if fs::read_link(at).is_ok_and(|now| now == to) {
        return Ok(());
    }
    let new = at.with_file_name(format!(".{}.{}", std::process::id(), toolkit::digits_of(at)));
    match std::os::unix::fs::symlink(to, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs::read_link(at)? != to => {
            std::os::unix::fs::symlink(to, &new)?;
            fs::rename(&new, at)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write::replace(path, text.as_bytes()).unwrap();
    }

    #[test]
    fn all_headers_are_there_but_those_of_asynchronous_copies() {
        let folder = tempfile::tempdir().unwrap();
        let (root, cache) = (folder.path().join("cuda"), folder.path().join("cache"));
        for name in ["cuda_runtime.h", "crt/host_defines.h", "cuda/barrier", "cooperative_groups.h"] {
            file(&root.join("include").join(name), name);
        }
        file(&root.join("include/cooperative_groups/memcpy_async.h"), "copies");
        file(&root.join("lib64/libnvrtc.so"), "library");
        let ours = fewer(&root, &cache).unwrap();
        let read = |name: &str| fs::read_to_string(ours.join(name)).unwrap();
        for name in ["cuda_runtime.h", "crt/host_defines.h", "cuda/barrier"] {
            assert_eq!(read(&format!("include/{name}")), name);
        }
        assert_eq!(read("lib64/libnvrtc.so"), "library");
        for name in LEFT_OUT {
            assert!(read(&format!("include/{name}")).starts_with("#error"), "{name}");
        }
        assert_eq!(fs::read_to_string(root.join("include/cooperative_groups.h")).unwrap(), "cooperative_groups.h");
        assert_eq!((stands_for(&ours), stands_for(&root)), (Some(root.clone()), None));

        file(&root.join("include/cuda_fp16.h"), "newer");
        assert_eq!(fewer(&root, &cache).unwrap(), ours, "one folder for each toolkit");
        assert_eq!(read("include/cuda_fp16.h"), "newer");
    }

    #[test]
    fn two_processes_may_make_them_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (root, cache) = (folder.path().join("cuda"), folder.path().join("cache"));
        for number in 0..40 {
            file(&root.join(format!("include/{number}.h")), "header");
        }
        let made = std::thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| fewer(&root, &cache)));
            both.map(|one| one.join().unwrap())
        });
        for one in made {
            assert_eq!(fs::read_dir(one.unwrap().join("include")).unwrap().count(), 42);
        }
    }
}
