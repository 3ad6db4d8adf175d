"""Submits one run to a HyperQueue server: `pip install hyperqueue`, then `python hyperqueue_job.py`.

HyperQueue does not look at exit codes, so the task itself goes on after codes 7 and 75. A task whose worker ends is started again, and resumes.
"""
from hyperqueue import Client, Job

SCRIPT = """
run=results/cluster/$HQ_JOB_ID
while :; do
    if [ -e "$run/manifest.json" ]; then set -- resume "$run"; else set -- run experiment.toml --directory "$run"; fi
    code=0
    xrun "$@" || code=$?
    case $code in 7 | 75) ;; *) exit $code ;; esac
done
"""


def job() -> Job:
    made = Job(name="xrun", max_fails=0)
    made.program(["/bin/sh", "-c", SCRIPT])
    return made


if __name__ == "__main__":
    print(Client().submit(job()))
