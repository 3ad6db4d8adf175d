//! Kernels that were compiled once: are they kept, for the right GPU, whatever the folder is like, and is a start that
//! compiles them shown and stopped?

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Machine;
use crate::workplace::{json, wait_until};

/// Kernels that the stand-in's compiler made in a run.
fn modules(machine: &Machine, arguments: &[&str]) -> (i32, u64) {
    let summary = machine.workplace.path("summary.json");
    let output = machine.command(arguments).env("STAND_IN_SUMMARY", &summary).output().unwrap();
    let code = output.status.code().unwrap();
    assert!(code == 0, "{output:?}");
    (code, json(&summary)["modules"].as_u64().unwrap())
}

fn folders(cache: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(cache.join("kernels")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.sort();
    found
}

const RUN: [&str; 3] = ["tiny.toml", "--progress", "none"];

#[test]
fn a_home_that_two_kinds_of_gpu_share_has_a_folder_for_each() {
    let Some(machine) = Machine::new() else { return };
    assert_eq!(machine.trained(&[]).code, 0);
    let said = machine.xrun(&["warm", "tiny.toml"]);
    assert!(said.code == 0 && said.out.contains(" kernels were compiled in "), "{said:?}");
    let machine = machine.with("STAND_IN_COMPUTE", 7.5);
    let said = machine.trained(&[]);
    assert_eq!(said.code, 0, "what was tuned for another GPU is left alone: {said:?}");
    let names: Vec<String> =
        folders(&machine.cache).iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].contains("-7.5-driver_580.0-nvrtc_13.0-cubecl_0.10.0"), "{names:?}");
    assert!(!machine.workplace.path("target").exists(), "nothing is left in the current folder");
}

#[test]
fn a_second_start_compiles_nothing_and_a_damaged_cache_is_mended() {
    let Some(machine) = Machine::new() else { return };
    let (_, cold) = modules(&machine, &RUN);
    let (_, warm) = modules(&machine, &RUN);
    assert!(cold > 100 && warm < cold, "{cold} kernels and then {warm}");
    let folder = folders(&machine.cache).remove(0);
    let size = || std::fs::metadata(folder.join("cuda/0.10.0/ptx/chunk0.cbor")).unwrap().len();
    let whole = size();
    let file = std::fs::File::options().append(true).open(folder.join("cuda/0.10.0/ptx/chunk0.cbor")).unwrap();
    file.set_len(whole - 100).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
    let (code, _) = modules(&machine, &RUN);
    assert_eq!(code, 0);
    let after = size();
    modules(&machine, &RUN);
    assert_eq!(size(), after, "the one that was cut off was compiled again, once");
}

#[test]
fn a_cache_that_cannot_be_written_costs_time_and_nothing_else() {
    let Some(machine) = Machine::warm() else { return };
    let blocked = machine.workplace.path("blocked");
    std::fs::create_dir_all(&blocked).unwrap();
    std::fs::OpenOptions::new().create_new(true).write(true).open(blocked.join("kernels")).unwrap();
    let machine = Machine { cache: blocked, ..machine };
    let said = machine.trained(&["training.max_steps=1"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("kernels are not kept, every start compiles them anew"), "{said:?}");
}

#[test]
fn a_start_that_compiles_is_counted_and_a_signal_ends_it() {
    let Some(machine) = Machine::new() else { return };
    let machine = machine.with("STAND_IN_COMPILE_MS", 200);
    let mut child = machine.command(&["tiny.toml", "--progress", "plain"]);
    let mut child = child.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    let mut said = lines.map_while(Result::ok);
    let counted = said.find(|line| line.starts_with("compiling kernels: "));
    assert!(counted.is_some_and(|line| line.contains("the next start takes seconds")));
    let asked = Instant::now();
    // SAFETY: a signal to a child that is not yet waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let code = child.wait().unwrap().code();
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    assert_eq!(code, Some(8));
    let run = machine.workplace.latest("tiny");
    let summary = json(&run.join("summary.json"));
    assert_eq!((&summary["outcome"], &summary["exit_code"]), (&"interrupted".into(), &8.into()));
    assert!(summary["message"].as_str().unwrap().contains("while kernels were compiled"), "{summary}");
    wait_until("the process is gone", || !run.join(".reserve").exists());
    let machine = machine.with("STAND_IN_COMPILE_MS", 0);
    let resumed = machine.xrun(&["resume", "latest", "--progress", "none"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
}

#[test]
fn the_time_limit_ends_a_start_that_compiles_and_a_probe_waits_for_it() {
    let Some(machine) = Machine::new() else { return };
    let machine = machine.with("STAND_IN_COMPILE_MS", 100);
    let begun = Instant::now();
    let said = machine.trained(&["training.time_limit=\"8s\""]);
    assert_eq!(said.code, 7, "{said:?}");
    assert!(said.err.contains("was reached after step 0, while kernels were compiled"), "{said:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn what_another_version_left_in_the_cache_is_no_harm() {
    let Some(machine) = Machine::new() else { return };
    assert_eq!(machine.trained(&[]).code, 0);
    let folder = folders(&machine.cache).remove(0);
    let of_another = |name: &str| {
        let name = folder.file_name().unwrap().to_str().unwrap().replace("cubecl_0.10.0", name);
        folder.with_file_name(name).join("cuda/9.9.9/ptx")
    };
    for (place, bytes) in [
        (of_another("cubecl_9.9.9"), &b"\x00\xff not what this version writes"[..]),
        (folder.join("cuda/9.9.9/ptx"), b"{}"),
    ] {
        std::fs::create_dir_all(&place).unwrap();
        let file = std::fs::OpenOptions::new().create_new(true).write(true).open(place.join("chunk0.cbor")).unwrap();
        std::io::Write::write_all(&mut &file, bytes).unwrap();
    }
    let (_, warm) = modules(&machine, &RUN);
    assert!(warm > 0);
    // In place of this version's own kernels: they are compiled again.
    let own = folder.join("cuda/0.10.0/ptx/chunk0.cbor");
    let file = std::fs::File::options().write(true).truncate(true).open(&own).unwrap();
    std::io::Write::write_all(&mut &file, b"\xa1\x61x\x01 of a version to come").unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
    assert_eq!(machine.trained(&[]).code, 0);
    let (_, mended) = modules(&machine, &RUN);
    assert_eq!(mended, warm, "what was compiled again is kept");
}

#[test]
fn a_cache_on_a_full_disk_costs_time_and_nothing_else() {
    let Some(machine) = Machine::new() else { return };
    let small = machine.workplace.path("small disk");
    std::fs::create_dir_all(&small).unwrap();
    let mounted = |arguments: &[&str]| {
        let command = std::process::Command::new(arguments[0]).args(&arguments[1..]).arg(&small).output();
        command.is_ok_and(|output| output.status.success())
    };
    if !mounted(&["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs"]) {
        return crate::workplace::skipped("a small disk cannot be mounted here");
    }
    let machine = Machine { cache: small.join("cache"), ..machine };
    // There is room for the data, and for nothing behind them.
    let generated = machine.xrun(&["tiny.toml", "--device", "cpu", "--dry-run"]);
    let filler = std::fs::OpenOptions::new().create_new(true).write(true).open(small.join("filler")).unwrap();
    while std::io::Write::write_all(&mut &filler, &[0; 4096]).is_ok() {}
    let said = machine.trained(&["training.max_steps=2"]);
    drop(filler);
    let gone = mounted(&["umount"]);
    assert!(gone && generated.code == 0, "{generated:?}");
    assert_eq!(said.code, 0, "{said:?}");
}
