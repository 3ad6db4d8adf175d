//! Programs on a terminal: job control of watched commands and sweeps.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::workplace::{Workplace, json, text, wait_until};

/// A terminal whose session a program leads.
pub struct Terminal {
    pub ours: File,
    /// Keeps the terminal open.
    _theirs: OwnedFd,
    pub child: Child,
    seen: Vec<u8>,
}

impl Terminal {
    pub fn open(mut command: Command, columns: u16) -> Self {
        let (mut ours, mut theirs) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: both places live until the call returns, and nobody else has what was opened.
        let (ours, theirs) = unsafe {
            assert_eq!(libc::openpty(&mut ours, &mut theirs, null, std::ptr::null(), std::ptr::null()), 0);
            libc::fcntl(ours, libc::F_SETFL, libc::O_NONBLOCK);
            (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
        };
        let end = || Stdio::from(theirs.try_clone().unwrap());
        resize(&ours, columns);
        // SAFETY: system calls between fork and exec.
        unsafe {
            command.pre_exec(|| match (libc::setsid(), libc::ioctl(0, libc::TIOCSCTTY, 0)) {
                (1.., 0) => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let child = command.env_remove("COLUMNS").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Self { ours, _theirs: theirs, child, seen: Vec::new() }
    }

    /// All that was written so far, as text.
    pub fn text(&mut self) -> String {
        let mut block = [0; 4096];
        while let Ok(count) = self.ours.read(&mut block) {
            if count == 0 {
                break;
            }
            self.seen.extend(&block[..count]);
        }
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    pub fn wait_for(&mut self, text: &str) {
        wait_until(text, || self.text().contains(text));
    }

    /// Types a command of a shell, whose prompt must be there: what is typed before may be lost.
    fn at_prompt(&mut self, line: &str) {
        wait_until("a prompt", || self.text().ends_with("$ "));
        self.type_line(line);
    }

    fn type_line(&mut self, line: &str) {
        self.ours.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

pub fn resize(terminal: &File, columns: u16) {
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the place lives until the call returns.
    assert_eq!(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) }, 0);
}

/// An interactive shell on a terminal, whose variable `xrun` is the program.
fn shell(workplace: &Workplace) -> Terminal {
    let mut command = Command::new("bash");
    command.args(["--norc", "--noprofile", "-i"]).env("PS1", "$ ").env("TERM", "dumb").env_remove("HISTFILE");
    let xrun = workplace.command(&[]);
    command.envs(xrun.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("xrun", xrun.get_program());
    command.current_dir(workplace.directory.path());
    Terminal::open(command, 200)
}

/// State of a process, such as `T` for a stopped one; `None` once it has ended.
fn state(process: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next().filter(|state| *state != 'Z')
}

/// The number in a file, once it is there.
fn number(path: &Path) -> i32 {
    let read = || std::fs::read_to_string(path).ok()?.trim().parse().ok();
    wait_until("a number is written", || read().is_some());
    read().unwrap()
}

fn parent(process: i32) -> i32 {
    let status = text(Path::new(&format!("/proc/{process}/status")));
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

fn send(process: i32, signal: i32) {
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

/// Asks on the terminal without echo, as for a password.
const ASKS: &str =
    "'stty -echo </dev/tty; touch asks; read -r word </dev/tty; stty echo </dev/tty; echo \"got $word\"'";

#[test]
fn a_command_that_asks_on_the_terminal_gets_it_as_from_a_shell() {
    let workplace = Workplace::new();
    let mut terminal = shell(&workplace);
    let lent = |name: &str| {
        let log = workplace.path("results").join(name).join("latest/log.txt");
        wait_until("the command gets the terminal", || {
            std::fs::read_to_string(&log).is_ok_and(|log| log.contains("Ctrl-C and Ctrl-Z"))
        });
    };
    let watch = |name: &str| format!("\"$xrun\" watch --name {name} --every 20ms -- sh -c {ASKS}");
    terminal.at_prompt(&watch("asks"));
    lent("asks");
    terminal.type_line("secret");
    terminal.wait_for("got secret");
    terminal.at_prompt("echo code $?");
    terminal.wait_for("code 0");
    assert_eq!(json(&workplace.latest("asks").join("summary.json"))["outcome"], "finished");
    // In the background it is told to wait.
    terminal.at_prompt(&format!("{} &", watch("waits")));
    terminal.wait_for("(`fg`)");
    terminal.type_line("fg");
    lent("waits");
    // Stopped and continued with its command.
    terminal.ours.write_all(b"\x1a").unwrap();
    terminal.wait_for("Stopped");
    terminal.at_prompt("fg; echo code $?");
    wait_until("fg has begun", || terminal.text().rsplit("echo code").next().unwrap().contains("--name waits"));
    terminal.type_line("mellon");
    terminal.wait_for("got mellon");
    std::fs::remove_file(workplace.path("asks")).unwrap();
    terminal.at_prompt(&watch("ends"));
    lent("ends");
    wait_until("it asks", || workplace.path("asks").exists());
    terminal.ours.write_all(b"\x03").unwrap();
    terminal.at_prompt("echo code $?");
    terminal.wait_for("code 130");
    assert_eq!(json(&workplace.latest("ends").join("summary.json"))["outcome"], "interrupted");
    terminal.at_prompt("exit");
    terminal.child.wait().unwrap();
}

/// Returns whether a process has a handler for a signal.
fn catches(process: i32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

#[test]
fn a_stop_and_its_end_reach_the_command() {
    let workplace = Workplace::new();
    let mut terminal = shell(&workplace);
    terminal.at_prompt(
        "\"$xrun\" watch --every 20ms --name stops -- sh -c 'echo $$ > id; while [ ! -e end ]; do sleep 0.02; done'",
    );
    let command = number(&workplace.path("id"));
    let xrun = parent(command);
    for by_key in [true, false] {
        match by_key {
            true => terminal.ours.write_all(b"\x1a").unwrap(),
            false => send(xrun, libc::SIGTSTP),
        }
        wait_until("both are stopped", || [xrun, command].into_iter().all(|process| state(process) == Some('T')));
        terminal.at_prompt("fg");
        wait_until("both go on", || [xrun, command].into_iter().all(|process| state(process) != Some('T')));
        // Until then a second stop would be the kernel's own, of xrun alone.
        wait_until("xrun handles it again", || catches(xrun, libc::SIGTSTP));
    }
    // A command that others have stopped is told of the first signal.
    send(command, libc::SIGSTOP);
    wait_until("the command is stopped", || state(command) == Some('T'));
    terminal.ours.write_all(b"\x03").unwrap();
    wait_until("both have ended", || state(xrun).or(state(command)).is_none());
    assert_eq!(json(&workplace.latest("stops").join("summary.json"))["outcome"], "interrupted");
    terminal.at_prompt("exit");
    terminal.child.wait().unwrap();
}

#[test]
fn a_stop_and_its_end_reach_the_runs_of_a_sweep() {
    let workplace = Workplace::with(
        "long.toml",
        "[pipeline.dummy]\nsteps_per_epoch = 100000\nstep_microseconds = 5000\n[memory]\nprobe = false\n",
    );
    let mut terminal = shell(&workplace);
    terminal.at_prompt("\"$xrun\" sweep long.toml --jobs 2 -s experiment.seed=1,2");
    let trials = workplace.path("results/long/sweeps/latest/trials");
    let mut runs = Vec::new();
    wait_until("two runs have begun", || {
        let found = std::fs::read_dir(&trials).into_iter().flatten().flatten();
        let process = |run: std::fs::DirEntry| {
            let record = run.path().join("process.json");
            record.exists().then(|| i32::try_from(json(&record)["process"].as_u64().unwrap()).unwrap())
        };
        runs = found.filter_map(process).collect::<Vec<i32>>();
        runs.len() == 2
    });
    let sweep = parent(runs[0]);
    runs.push(sweep);
    terminal.ours.write_all(b"\x1a").unwrap();
    wait_until("all are stopped", || runs.iter().all(|process| state(*process) == Some('T')));
    terminal.at_prompt("fg");
    wait_until("all go on", || runs.iter().all(|process| state(*process).is_some_and(|state| state != 'T')));
    terminal.ours.write_all(b"\x03").unwrap();
    wait_until("all have ended", || runs.iter().all(|process| state(*process).is_none()));
    terminal.at_prompt("exit");
    terminal.child.wait().unwrap();
}
