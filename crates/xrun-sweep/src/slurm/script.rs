//! The script of a job array, `slurm.sh` in the sweep's directory.

use std::path::Path;
use std::time::Duration;

use super::super::launcher::ALLOW_COMMAND;
use super::SlurmError;
use xrun_core::experiment::launcher::Slurm;
use xrun_core::files::layout;

/// Bytes of a mebibyte, the `M` of Slurm.
const MEBIBYTE: u64 = 1024 * 1024;

/// An array of runs.
#[derive(Clone, Debug)]
pub struct Array<'a> {
    /// Name of the job.
    pub name: &'a str,
    /// The place of task 0 in the order of the sweep.
    pub first: usize,
    /// Numbers of its tasks.
    pub tasks: &'a [usize],
    /// Starts when all tasks of this job have ended.
    pub after: Option<u64>,
    /// Its runs stop after this step.
    pub until: Option<u64>,
}

/// The script of an array. `(retry_failed, allowed)`: it resumes runs that failed, and starts the programs that their
/// directories name, whoever created these.
///
/// # Errors
/// A path has characters that a script cannot name.
pub fn script(
    program: &Path,
    sweep: &Path,
    settings: &Slurm,
    array: &Array<'_>,
    (retry_failed, allowed): (bool, bool),
) -> Result<String, SlurmError> {
    let (program, sweep_path) = (plain(program)?, plain(sweep)?);
    let mut asked = vec![
        format!("--job-name={}", array.name),
        format!("--array={}", ranges(array.tasks, settings.array_limit)),
        format!("--output=\"{sweep_path}/{}/%A_%a.txt\"", layout::SLURM_OUTPUT),
        "--open-mode=append".into(),
        "--nodes=1".into(),
        "--ntasks=1".into(),
        "--requeue".into(),
        format!("--signal=B:TERM@{}", settings.grace.0.as_secs()),
    ];
    asked.extend(array.after.map(|job| format!("--dependency=afterany:{job}")));
    asked.extend(settings.partition.iter().map(|name| format!("--partition={name}")));
    asked.extend(settings.account.iter().map(|name| format!("--account={name}")));
    asked.extend(settings.time.map(|time| format!("--time={}", time_of(time.0))));
    asked.extend(settings.memory.map(|memory| format!("--mem={}M", memory.0.div_ceil(MEBIBYTE).max(1))));
    asked.extend(settings.cpus.map(|cpus| format!("--cpus-per-task={cpus}")));
    asked.extend(settings.gpus.as_ref().filter(|gpus| gpus.count() > 0).map(|gpus| format!("--gres=gpu:{gpus}")));
    let mut text = String::from("#!/bin/bash\n# Written by xrun each time that runs of this sweep are submitted.\n");
    asked.iter().for_each(|option| text.push_str(&format!("#SBATCH {option}\n")));
    // Slurm reads its options up to the first command, and silently ignores an option after a space.
    let lines = settings.extra_lines.iter().map(|line| line.trim_start());
    let (options, commands): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with('#'));
    options.iter().chain(&commands).for_each(|line| text.push_str(&format!("{line}\n")));
    let retry = if retry_failed { " --retry-failed" } else { "" };
    let allow = if allowed { format!(" {ALLOW_COMMAND}") } else { String::new() };
    let until = array.until.map_or_else(String::new, |step| format!(" --until {step}"));
    let task = match array.first {
        0 => "$SLURM_ARRAY_TASK_ID".to_owned(),
        first => format!("$((SLURM_ARRAY_TASK_ID + {first}))"),
    };
    // `exec`: a shell would not forward the signals.
    text.push_str(&format!("exec '{program}' sweep --resume '{sweep_path}' --task \"{task}\"{until}{retry}{allow}\n"));
    Ok(text)
}

fn plain(path: &Path) -> Result<&str, SlurmError> {
    let odd = |text: &&str| text.contains(['"', '\'', '\\', '%', '\n', '\r']);
    path.to_str().filter(|text| !odd(text)).ok_or_else(|| {
        SlurmError::Failed(format!(
            "Slurm's scripts cannot name the directory {}, which has one of \" ' \\ % or a line break; choose another with \
             --results DIR",
            path.display()
        ))
    })
}

/// `0-3,7%2` for 0, 1, 2, 3, 7, two at a time.
fn ranges(tasks: &[usize], limit: Option<u32>) -> String {
    let mut sorted = tasks.to_vec();
    sorted.sort_unstable();
    let ranges = sorted.chunk_by(|one, next| one + 1 == *next).map(|range| match range {
        [only] => only.to_string(),
        _ => format!("{}-{}", range[0], range[range.len() - 1]),
    });
    let limit = limit.map_or_else(String::new, |limit| format!("%{limit}"));
    ranges.collect::<Vec<_>>().join(",") + &limit
}

/// `1-02:30:00`: days, hours, minutes, seconds.
fn time_of(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("{days}-{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::experiment::launcher::Gpus;
    use xrun_core::units::{Bytes, Span};

    #[test]
    fn places_are_written_as_ranges() {
        assert_eq!(ranges(&[3, 0, 1, 7, 2, 9, 10], None), "0-3,7,9-10");
        assert_eq!(ranges(&[5], Some(2)), "5%2");
    }

    #[test]
    fn times_are_written_as_slurm_reads_them() {
        assert_eq!(time_of(Duration::from_secs(95_400)), "1-02:30:00");
        assert_eq!(time_of(Duration::from_millis(59_001)), "0-00:01:00");
    }

    #[test]
    fn all_options_are_before_the_first_command() {
        let settings = Slurm {
            partition: Some("gpu,long".into()),
            account: Some("lab".into()),
            time: Some(Span(Duration::from_secs(7200))),
            memory: Some(Bytes((700 << 20) + 1)),
            gpus: Some(Gpus::Typed("a100:2".into())),
            cpus: Some(4),
            array_limit: Some(3),
            extra_lines: vec!["module load cuda".into(), " #SBATCH --constraint=a100".into()],
            ..Slurm::default()
        };
        let sweep = Path::new("/data/my sweeps/s1");
        let array = Array { name: "xrun_s1", first: 0, tasks: &[0, 1], after: None, until: None };
        insta::assert_snapshot!(script(Path::new("/bin/xrun"), sweep, &settings, &array, (true, true)).unwrap());
        let second = Array { name: "xrun_s1_from_1000", first: 1000, after: Some(12), until: Some(24), ..array };
        let text = script(Path::new("/bin/xrun"), sweep, &settings, &second, (true, false)).unwrap();
        for part in [
            "--job-name=xrun_s1_from_1000\n",
            "--array=0-1%3\n",
            "--dependency=afterany:12\n",
            "_ID + 1000))\" --until 24",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_path_that_a_script_cannot_hold_is_refused() {
        for path in ["/a\"b", "/a'b", "/a%b", "/a\nb", "/a\\b"] {
            let array = Array { name: "xrun_s", first: 0, tasks: &[0], after: None, until: None };
            let error =
                script(Path::new("/bin/xrun"), Path::new(path), &Slurm::default(), &array, (false, false)).unwrap_err();
            assert!(error.to_string().contains("cannot name the directory"), "{error}");
        }
    }
}
