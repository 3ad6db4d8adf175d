//! A sweep as an Indexed Job of Kubernetes, which its user applies: xrun has no client.

use super::trials::{RunId, masked};
use crate::records::sweep::SweepRecord;
use xrun_core::experiment::read_sweep::SweepFile;
use xrun_core::experiment::resolved;
use xrun_core::printable;

/// Exit codes after which another try ends alike: invalid input, no fit, divergence, memory limit, verdict, panic.
const FINAL_EXIT_CODES: &str = "[2, 3, 4, 5, 6, 70]";

/// The manifest of a sweep, and a sentence about it: the experiment as a ConfigMap, and a Job with an index for each run. A pod
/// that was evicted, stopped or out of time is tried again and resumes its run.
///
/// # Errors
/// The sweep is a search, or a swept value is a secret.
pub fn job(sweep_file: &SweepFile, record: &SweepRecord) -> Result<(String, String), String> {
    if record.search.is_some() {
        return Err(
            "a search chooses its trials by results: --launcher kubernetes takes the methods grid and random".into()
        );
    }
    let mut values = record.trials.iter().flat_map(|trial| record.keys.iter().zip(trial));
    if values.any(|(key, value)| masked(key, value) != *value) {
        return Err(
            "a swept value is a secret, which a manifest would show; give it to the pods in their environment".into()
        );
    }
    let name: String = record.experiment.to_lowercase().replace(['_', '.'], "-");
    let name = name.trim_end_matches('-');
    let runs = record.order.len();
    let indented = |text: &str, by: usize| text.lines().map(|line| format!("{:by$}{line}\n", "")).collect::<String>();
    let case = |(index, run): (usize, RunId)| {
        let set = record.overrides(run).into_iter().map(|text| format!(" -s {}", printable::shell_word(&text)));
        format!("{index}) set -- --directory \"$all/{run}\"{} ;;\n", set.collect::<String>())
    };
    let cases: String = record.runs().enumerate().map(case).collect();
    let script = format!(
        "all=/results/{name}\nmkdir -p \"$all\"\ncase $JOB_COMPLETION_INDEX in\n{cases}esac\n\
         if [ -e \"$2/manifest.json\" ]; then\n  # A run that was killed elsewhere is free after two minutes.\n  \
         [ -e \"$2/summary.json\" ] || sleep 130\n  exec xrun resume \"$2\" --allow-command\nfi\n\
         exec xrun run /xrun/base.toml \"$@\"\n"
    );
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: xrun-{name}\ndata:\n  base.toml: |\n{}---\n\
         apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: xrun-{name}\nspec:\n  completionMode: Indexed\n  \
         completions: {runs}\n  parallelism: {runs}\n  backoffLimitPerIndex: 3\n  podFailurePolicy:\n    rules:\n    \
         - action: Ignore\n      onPodConditions:\n      - type: DisruptionTarget\n        status: \"True\"\n    \
         - action: FailIndex\n      onExitCodes:\n        containerName: xrun\n        operator: In\n        \
         values: {FINAL_EXIT_CODES}\n  template:\n    spec:\n      restartPolicy: Never\n      \
         terminationGracePeriodSeconds: 60\n      containers:\n      - name: xrun\n        image: xrun\n        \
         command:\n        - /bin/sh\n        - -c\n        - |\n{}        volumeMounts:\n        \
         - {{ name: base, mountPath: /xrun }}\n        - {{ name: results, mountPath: /results }}\n      volumes:\n      \
         - name: base\n        configMap: {{ name: xrun-{name} }}\n      - name: results\n        \
         persistentVolumeClaim: {{ claimName: results }}\n",
        indented(&resolved::to_toml(&sweep_file.base, None), 4),
        indented(&script, 10),
    );
    let note = "edit `image` (it has xrun and the data), `claimName` (a volume that all nodes can write), `parallelism` and \
                `resources`; then kubectl apply -f FILE";
    Ok((text, note.to_owned()))
}
