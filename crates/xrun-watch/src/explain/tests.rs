//! Tests of the agent in processes of Python: it explains growth, and the program does not notice it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;
use xrun_core::files::write::replace;
use xrun_results::explanation::Cause;

/// A program whose steps are driven by lines on its standard input.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    steps: u64,
}

/// Lines of a program: each line on standard input is a step, after which it prints `done`.
const STEPS: &str = "\nimport sys\nfor line in sys.stdin:\n    step(line)\n    print('done', flush=True)\n";

/// Says that a test cannot run and why, past the capture of `cargo test`.
fn skipped(why: &str) {
    let thread = std::thread::current();
    writeln!(std::io::stderr().lock(), "SKIPPED: {}: {why}", thread.name().unwrap_or("a test")).unwrap();
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skipped("there is no python3");
    }
    found
}

fn python(explainer: Option<&Explainer>) -> Command {
    let mut command = Command::new("python3");
    command.env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
    if let Some(explainer) = explainer {
        command.env("PYTHONPATH", explainer.python_path(None));
    }
    command
}

impl Program {
    fn start(command: &mut Command, script: &Path) -> Self {
        let mut child = command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, steps: 0 }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn step(&mut self) {
        self.steps += 1;
        self.input.write_all(b"step\n").unwrap();
        assert_eq!(self.line(), "done");
    }

    /// Steps until the processes have answered.
    fn answers(&mut self, explainer: &mut Explainer, processes: &[u32]) -> Vec<WindowAnswer> {
        (0..30).for_each(|_| self.step());
        explainer.ask(processes);
        loop {
            let begun = explainer.windows.iter().any(|window| matches!(window.stage, Stage::Begun { .. }));
            if begun && self.steps < 200 {
                self.step();
            }
            if let Some(answers) = explainer.poll(self.steps) {
                return answers.unwrap();
            }
            std::thread::yield_now();
        }
    }

    fn end(self) -> std::process::ExitStatus {
        let Self { mut child, input, output, .. } = self;
        drop((input, output));
        child.wait().unwrap()
    }
}

/// Runs a program under the agent, and returns the explanation of its growth with the directory of its script.
fn explained(text: &str) -> (Option<Explanation>, tempfile::TempDir) {
    let (directory, script) = script(text);
    let mut explainer = Explainer::create().unwrap();
    let mut program = Program::start(&mut python(Some(&explainer)), &script);
    let process = program.child.id();
    let answers = program.answers(&mut explainer, &[process]);
    assert_eq!(answers.len(), 1);
    assert!(program.end().success());
    (conclude(&answers, process, false, |_, _| 0.0), directory)
}

fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("train.py");
    replace(&script, format!("{text}{STEPS}").as_bytes()).unwrap();
    (directory, script)
}

/// Asks a process that must not answer; returns whether it did.
fn answers_at_once(explainer: &mut Explainer, process: u32) -> bool {
    explainer.ask(&[process]);
    loop {
        if let Some(answers) = explainer.poll(0) {
            return answers.is_ok();
        }
        std::thread::yield_now();
    }
}

#[test]
fn local_variables_closures_and_default_arguments_are_named() {
    if !has_python() {
        return;
    }
    let cases = [
        (
            "def make():\n    rows = {}\n    def step(line):\n        rows[len(rows)] = b'x' * (300_000 + len(rows))\n    return step\nstep = make()\n",
            "rows",
        ),
        ("def step(line, kept=[]):\n    kept.append(bytearray(b'x') * 300_000)\n", "kept"),
        (
            "import functools\n@functools.lru_cache(maxsize=None)\ndef load(at):\n    return bytearray(b'x') * 300_000\ncount = 0\n\
          def step(line):\n    global count\n    count += 1\n    load(count)\n",
            "load",
        ),
    ];
    for (text, name) in cases {
        let (found, _directory) = explained(text);
        let found = found.unwrap();
        let holder = found.holder.clone().unwrap_or_default();
        assert!(found.cause == Cause::Container && holder.contains(name), "{name}: {found:?}");
    }
}

#[test]
fn memory_that_python_does_not_see_is_said_to_be_native() {
    if !has_python() {
        return;
    }
    let text = "import ctypes\nlibrary = ctypes.CDLL(None)\nlibrary.malloc.restype = ctypes.c_void_p\n\
                def step(_):\n    ctypes.memset(ctypes.c_void_p(library.malloc(300_000)), 1, 300_000)\n";
    let (found, _directory) = explained(text);
    let found = found.unwrap();
    assert_eq!(found.cause, Cause::Native, "{found:?}");
    assert!(found.native_fraction > 0.9, "{found:?}");
}

#[test]
fn a_program_computes_the_same_with_and_without_the_agent() {
    if !has_python() {
        return;
    }
    let text = "import random, sys, os, threading, gc, weakref\nrandom.seed(7)\nkept, weights = [], [random.random() for _ in range(64)]\n\
                class Node:\n    pass\nalive = weakref.WeakSet()\n\
                def step(_):\n    for at in range(64):\n        weights[at] += random.gauss(0, 1) * weights[at - 1]\n\
                \x20   node = Node()\n    node.self = node\n    alive.add(node)\n    kept.append({at: str(at) for at in range(200)})\n\
                \x20   sys.stderr.write(repr((weights, sorted(map(hash, kept[-1])), threading.active_count(), sys.path, sorted(sys.modules), \
                gc.isenabled(), gc.get_threshold(), os.environ.get('HOME'))))\n";
    let run = |explainer: Option<&mut Explainer>| {
        let (directory, script) = script(text);
        let errors = directory.path().join("errors");
        let mut command = python(explainer.as_deref());
        let file = std::fs::OpenOptions::new().create_new(true).write(true).open(&errors).unwrap();
        command.stderr(file).current_dir(directory.path());
        let mut program = Program::start(&mut command, &script);
        match explainer {
            Some(explainer) => {
                let process = program.child.id();
                assert_eq!(program.answers(explainer, &[process]).len(), 1);
            }
            None => (0..30).for_each(|_| program.step()),
        }
        while program.steps < 200 {
            program.step();
        }
        assert!(program.end().success());
        let text = std::fs::read_to_string(errors).unwrap();
        text.replace(&directory.path().display().to_string(), "DIRECTORY")
    };
    let plain = run(None);
    let watched = run(Some(&mut Explainer::create().unwrap()));
    assert!(plain.len() > 100_000 && plain == watched, "{}\n{}", &plain[..2000], &watched[..2000]);
}

#[test]
fn the_program_finds_its_own_sitecustomize() {
    if !has_python() {
        return;
    }
    let explainer = Explainer::create().unwrap();
    let own = tempfile::tempdir().unwrap();
    replace(&own.path().join("sitecustomize.py"), b"import builtins\nbuiltins.own = __file__\n").unwrap();
    let mut command = python(None);
    command.env("PYTHONPATH", explainer.python_path(Some(own.path().as_os_str().to_owned())));
    let output =
        command.args(["-c", "import sys; print(own, sys.path, sys.modules['sitecustomize'].__file__)"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(text.starts_with(&own.path().display().to_string()), "{text}");
    assert!(!text.contains(&explainer.directory.path().display().to_string()), "{text}");
}

#[test]
fn python_without_site_or_environment_runs_without_the_agent() {
    if !has_python() {
        return;
    }
    let mut explainer = Explainer::create().unwrap();
    for option in ["-I", "-S", "-E"] {
        let (_directory, script) = script("def step(_):\n    pass\n");
        let mut command = python(Some(&explainer));
        command.arg(option);
        let mut program = Program::start(&mut command, &script);
        program.step();
        assert!(!answers_at_once(&mut explainer, program.child.id()), "{option}");
        assert!(program.end().success(), "{option}");
    }
}

#[test]
fn forked_and_executed_processes_answer() {
    if !has_python() {
        return;
    }
    // The first process forks; the child does the work, and executes another Python half way.
    let text = "import os, sys\nif len(sys.argv) == 1:\n    child = os.fork()\n    if child:\n        print(child, flush=True)\n\
                \x20       os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n    os.execv(sys.executable, [sys.executable, __file__, 'again'])\n\
                def work():\n    kept = []\n    while True:\n        kept.append(bytearray(b'x') * 300_000)\n        yield\n\
                worker = work()\ndef step(_):\n    next(worker)\n";
    let (_directory, script) = script(text);
    let mut explainer = Explainer::create().unwrap();
    let mut program = Program::start(&mut python(Some(&explainer)), &script);
    let child: u32 = program.line().parse().unwrap();
    let parent = program.child.id();
    let answers = program.answers(&mut explainer, &[parent, child]);
    assert_eq!(answers.len(), 2);
    let found = conclude(&answers, parent, false, |_, _| 0.0).unwrap();
    assert_eq!((found.process, found.is_worker, found.cause), (child, true, Cause::Container), "{found:?}");
    assert!(found.holder.as_ref().is_some_and(|holder| holder.contains("kept")), "{found:?}");
    assert!(program.end().success());
}

#[test]
fn a_fork_has_no_second_thread_and_no_warning() {
    if !has_python() {
        return;
    }
    let explainer = Explainer::create().unwrap();
    let text = "import os, sys, multiprocessing\nthreads = lambda: len(os.listdir('/proc/self/task'))\nimport warnings\n\
                warnings.simplefilter('error')\n\
                for _ in range(20):\n    child = os.fork()\n    if child == 0:\n        os._exit(0)\n    os.waitpid(child, 0)\n\
                if __name__ == '__main__':\n    with multiprocessing.get_context('fork').Pool(2) as pool:\n\
                \x20       print(sum(pool.map(abs, range(-50, 50))))\n\
                \x20   with multiprocessing.get_context('spawn').Pool(1) as pool:\n        print(sum(pool.map(abs, range(-50, 50))))\n";
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("forks.py");
    replace(&script, text.as_bytes()).unwrap();
    let output = python(Some(&explainer)).arg(&script).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((text.as_str(), output.stderr.as_slice(), output.status.code()), ("2500\n2500\n", &b""[..], Some(0)));
}

#[test]
fn tracemalloc_that_is_missing_or_in_use_is_noted() {
    if !has_python() {
        return;
    }
    let cases = [
        ("import sys\nsys.modules['_tracemalloc'] = None\n", "no tracemalloc"),
        ("import tracemalloc\ntracemalloc.start()\n", "uses tracemalloc itself"),
    ];
    for (start, note) in cases {
        let text = format!("{start}kept = []\ndef step(_):\n    kept.append(bytearray(300_000))\n");
        let (_directory, script) = script(&text);
        let mut explainer = Explainer::create().unwrap();
        let mut program = Program::start(&mut python(Some(&explainer)), &script);
        let process = program.child.id();
        let answers = program.answers(&mut explainer, &[process]);
        assert!(answers[0].answer.notes.iter().any(|one| one.contains(note)), "{:?}", answers[0].answer.notes);
        assert!(program.end().success());
    }
}

#[test]
fn another_interpreter_in_the_process_ends_without_the_agent() {
    if !has_python() {
        return;
    }
    let explainer = Explainer::create().unwrap();
    let text = "import os\ntry:\n    import _interpreters as interpreters\nexcept ImportError:\n    import _xxsubinterpreters as interpreters\n\
                before = len(os.listdir('/proc/self/task'))\none = interpreters.create()\ninterpreters.run_string(one, 'x = 1')\n\
                assert len(os.listdir('/proc/self/task')) == before\ninterpreters.destroy(one)\nprint('ended')\n";
    let output = python(Some(&explainer)).args(["-c", text]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ended\n", "{output:?}");
}

/// Number of a user who is not this one.
const NOBODY: u32 = 65534;

#[test]
fn another_user_is_refused() {
    use std::os::unix::process::CommandExt;
    // SAFETY: returns a number.
    if !has_python() || unsafe { libc::geteuid() } != 0 {
        skipped("only root can become another user");
        return;
    }
    let mut explainer = Explainer::create().unwrap();
    let directory = explainer.directory.path().to_path_buf();
    let open = "import sys\ntry:\n    open(sys.argv[1] + '/agent.py')\nexcept OSError as error:\n    print(type(error).__name__)\n";
    let mut command = Command::new("/usr/bin/python3");
    let output =
        command.args(["-c", open]).arg(&directory).env("PYTHONPATH", &directory).current_dir("/").uid(NOBODY).output();
    let Ok(output) = output else { return };
    assert_eq!(
        (String::from_utf8_lossy(&output.stdout).as_ref(), output.status.code()),
        ("PermissionError\n", Some(0))
    );
    // Even where the directory is open to all, the kernel names the user.
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::set_permissions(directory.join(SOCKET), std::fs::Permissions::from_mode(0o777)).unwrap();
    explainer.ask(&[1]);
    let connect = "import socket, sys\none = socket.socket(socket.AF_UNIX)\none.connect(sys.argv[1] + '/socket')\nprint(flush=True)\n\
                   print(one.recv(100))\n";
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", connect]).arg(&directory).current_dir("/").uid(NOBODY).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    output.read_line(&mut text).unwrap();
    assert!(explainer.poll(0).is_none() && explainer.windows.is_empty());
    output.read_line(&mut text).unwrap();
    assert!(child.wait().unwrap().success() && text.contains("b''"), "{text}");
}

#[test]
fn the_directory_is_private_and_removed() {
    let explainer = Explainer::create().unwrap();
    let directory = explainer.directory.path().to_path_buf();
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    drop(explainer);
    assert!(!directory.exists());
}

#[test]
fn cuda_memory_is_told_by_line() {
    if !has_python() {
        return;
    }
    let text = "import sys, types\ntorch, cuda, memory = (types.ModuleType(name) for name in ('torch', 'torch.cuda', 'torch.cuda.memory'))\n\
                torch.cuda, cuda.memory, cuda.is_initialized = cuda, memory, lambda: True\n\
                sys.modules.update({'torch': torch, 'torch.cuda': cuda, 'torch.cuda.memory': memory})\n\
                calls = []\nmemory._record_memory_history = lambda **options: calls.append(options['enabled'])\n\
                frames = [{'filename': __file__, 'line': 3, 'name': 'train'}]\n\
                events = [{'action': 'alloc', 'addr': 1, 'size': 512, 'frames': frames}, {'action': 'alloc', 'addr': 2, 'size': 1024, 'frames': frames},\n\
                \x20         {'action': 'free_completed', 'addr': 1, 'size': 512, 'frames': []}]\n\
                memory._snapshot = lambda: {'device_traces': [events]}\nkept = []\n\
                def step(_):\n    kept.append(bytearray(b'x') * 300_000)\n    assert len(calls) <= 2\n";
    let (found, _directory) = explained(text);
    let found = found.unwrap();
    assert_eq!(found.cuda.len(), 1, "{found:?}");
    assert_eq!((found.cuda[0].bytes, found.cuda[0].count, found.cuda[0].frames[0].line), (1024, 1, 3));
}
