//! A CPU build on a machine with a GPU.

use crate::watch_limits::stand_in;
use crate::workplace::{Output, Workplace};

const CURE: &str = "cargo build --release --features cuda";

#[test]
fn a_build_without_cuda_says_how_to_get_it() {
    let workplace = Workplace::with("tiny.toml", "[pipeline.dummy]\nsteps_per_epoch = 3\n[memory]\nprobe = false\n");
    let refused = workplace.xrun(&["tiny.toml", "--device", "cuda"]);
    assert_eq!((refused.code, refused.err.lines().count()), (1, 1), "{refused:?}");
    assert!(refused.err.contains(CURE), "{refused:?}");
    insta::assert_snapshot!(refused.err);
    let Some(directory) = stand_in(&workplace) else { return };
    let on_gpu = |arguments: &[&str]| {
        let mut command = workplace.command(arguments);
        command.env("LD_LIBRARY_PATH", &directory).env("STAND_IN_GPU_FILE", workplace.path("held.txt"));
        Output::from(command.output().unwrap())
    };
    let listed = on_gpu(&["check", "--devices"]);
    assert!(listed.out.contains(CURE), "{listed:?}");
    assert!(listed.out.lines().any(|line| line.split_whitespace().take(3).eq(["auto", "is", "cpu"])), "{listed:?}");
    let auto = on_gpu(&["tiny.toml", "--dry-run", "--device", "auto"]);
    assert!(auto.code == 0 && auto.err.contains(CURE) && auto.out.contains("cpu ("), "{auto:?}");
}
