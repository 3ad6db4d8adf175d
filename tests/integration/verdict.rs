//! Is growing memory called growing, and nothing else?

use crate::workplace::{Workplace, json};

const EXPERIMENT: &str =
    "[pipeline.dummy]\nsteps_per_epoch = 100\n[training]\nepochs = 3\n[checkpoint]\nevery_steps = 50\n";

fn workplace() -> Workplace {
    let workplace = Workplace::new();
    workplace.file("trial.toml", EXPERIMENT);
    workplace
}

#[test]
fn a_leak_is_called_growing_with_its_speed_and_fails_the_run_if_asked() {
    let workplace = workplace();
    let leak = ["trial.toml", "-s", "pipeline.dummy.leak_per_step=256 KiB"];
    let said = workplace.xrun(&leak);
    assert_eq!(said.code, 0, "a verdict fails nothing unless asked: {said:?}");
    let verdict = json(&workplace.latest("trial").join("verdict.json"));
    assert_eq!(verdict["verdict"], "growing", "{verdict}");
    let series = verdict["series"].as_array().unwrap();
    let heap = series.iter().find(|one| one["name"] == "heap").unwrap();
    let slope = heap["slope"].as_f64().unwrap();
    assert!((slope / (256.0 * 1024.0) - 1.0).abs() < 0.02, "{slope} bytes a step");
    assert!(said.err.contains("memory is growing: heap in use by 256"), "{said:?}");

    let said = workplace.xrun(&[&leak[..], &["--fail-on", "growing"]].concat());
    assert_eq!(said.code, 6, "{said:?}");
    let run = workplace.latest("trial");
    assert_eq!(json(&run.join("summary.json"))["outcome"], "memory_grew");
    assert_eq!(workplace.xrun(&["resume", "latest"]).code, 2, "all its steps are done");
    let judged = workplace.xrun(&["verdict", "latest", "--fail-on", "growing"]);
    assert_eq!(judged.code, 6);
    assert!(judged.out.starts_with("growing: memory is growing"), "{judged:?}");
}

#[test]
fn a_resume_hides_no_leak() {
    let workplace = workplace();
    let leak = "[pipeline.dummy]\nsteps_per_epoch = 100\nleak_per_step = \"512 KiB\"\nleak_in_ledger = true\n";
    let rest = "[training]\nepochs = 3\n[memory]\nfail_on = \"growing\"\nprobe = false\n";
    workplace.file("leak.toml", &format!("{leak}{rest}[limits]\nhost_memory = \"130 MiB\"\n"));
    let said = workplace.xrun(&["leak.toml", "-q"]);
    assert_eq!(said.code, 5, "{said:?}");
    let run = workplace.latest("leak");
    let first = json(&run.join("summary.json"));
    assert_eq!(json(&run.join("verdict.json"))["verdict"], "growing", "before the resume");
    let said = workplace.xrun(&["resume", "latest", "-s", "limits.host_memory=2 GiB"]);
    assert_eq!(said.code, 6, "{said:?}");
    let (verdict, last) = (json(&run.join("verdict.json")), json(&run.join("summary.json")));
    assert_eq!((&verdict["verdict"], &verdict["owner"]), (&"growing".into(), &"dummy_leak".into()), "{verdict}");
    let message = verdict["message"].as_str().unwrap();
    assert!(message.contains("process 1 of 2 (steps 0 to "), "{message}");
    assert!(said.err.contains(message), "{said:?}");
    assert_eq!(verdict["process"]["segment"], 0);
    assert_eq!(verdict["process"]["last_step"], first["steps"]);
    // The second process had all its memory to itself, and less of it.
    for peak in ["heap_peak", "resident_peak"] {
        assert_eq!(last["memory"][peak], first["memory"][peak], "{peak}");
    }
    let judged = workplace.xrun(&["verdict", "latest", "--json", "--fail-on", "growing"]);
    assert_eq!(judged.code, 6, "{judged:?}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&judged.out).unwrap(), verdict);
}

#[test]
fn a_result_without_its_trace_is_judged_by_its_verdict() {
    let workplace = workplace();
    assert_eq!(workplace.xrun(&["trial.toml", "-q"]).code, 0);
    let run = workplace.latest("trial");
    std::fs::remove_file(run.join("memory.jsonl")).unwrap();
    let said = workplace.xrun(&["verdict", "latest"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.starts_with("bounded: ") && said.err.contains("no memory.jsonl"), "{said:?}");
    std::fs::remove_file(run.join("verdict.json")).unwrap();
    let said = workplace.xrun(&["verdict", "latest"]);
    assert!(said.code == 1 && said.err.contains("memory.jsonl"), "{said:?}");
}

#[test]
fn a_run_without_a_leak_is_bounded_and_a_short_one_says_nothing() {
    let workplace = workplace();
    assert_eq!(workplace.xrun(&["trial.toml", "--fail-on", "suspect"]).code, 0);
    let verdict = json(&workplace.latest("trial").join("verdict.json"));
    assert_eq!(verdict["verdict"], "bounded", "{verdict}");
    assert_eq!(workplace.xrun(&["trial.toml", "-s", "training.max_steps=30", "--fail-on", "suspect"]).code, 0);
    let verdict = json(&workplace.latest("trial").join("verdict.json"));
    assert_eq!(verdict["verdict"], "inconclusive", "{verdict}");
}

#[test]
fn traces_of_other_tools_are_judged() {
    let workplace = Workplace::new();
    let rows = |grow: u64| -> String {
        let row = |step: u64| format!("{step},{},{}\n", 2_000_000_000 + step * grow, 500_000);
        std::iter::once("step,gpu_bytes,other\n".to_owned()).chain((1..=400).map(row)).collect()
    };
    workplace.file("leaky.csv", &rows(1_000_000));
    workplace.file("flat.csv", &rows(0));
    let said = workplace.xrun(&["verdict", "leaky.csv", "--json", "--fail-on", "growing"]);
    assert_eq!(said.code, 6, "{said:?}");
    let verdict: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(verdict["verdict"], "growing");
    let said = workplace.xrun(&["verdict", "flat.csv", "--fail-on", "suspect"]);
    assert_eq!(said.code, 0, "{said:?}");
    for (name, text, part) in [
        ("empty.csv", "", "is empty"),
        ("no_step.csv", "time,bytes\n1,2\n", "no column is named `step` (found: time, bytes)"),
        ("back.csv", "step,bytes\n5,1\n4,1\n", "sort the table"),
        ("words.csv", "step,bytes\n1,many\n", "`bytes` (line 2: \"many\" is no number)"),
        ("none.csv", "step,time_ms\n1,5\n", "`time_ms` (`time` is no size)"),
        ("steps.csv", "step,bytes\nx,5\n", "line 2: column `step`: \"x\" is no whole number"),
        ("twice.csv", "step,time,time\n1,5,6\n", "`time` (a column before it has the same name)"),
        ("open.csv", &format!("step,bytes\n1,\"{}", "7,\n".repeat(200_000)), "quotation mark"),
    ] {
        workplace.file(name, text);
        let said = workplace.xrun(&["verdict", name]);
        assert_eq!(said.code, 1, "{name}: {said:?}");
        assert!(said.err.contains(part), "{name}: {said:?}");
    }
    assert_eq!(workplace.xrun(&["verdict", "nothing_of_this_name"]).code, 2);
}

#[test]
fn columns_of_a_table_are_judged_by_their_names_and_units() {
    let workplace = Workplace::new();
    let table = |separator: &str, before: &str, number: &dyn Fn(f64) -> String| {
        let mut text = format!("{before}{}\n", ["step", "epoch", "time_ms", "rss_mb", "note"].join(separator));
        for step in 0..400u32 {
            let rss = number(1000.0 + 2.5 * f64::from(step));
            let time = 40_000_000 * u64::from(step);
            text += &format!("{step}{separator}{}{separator}{time}{separator}{rss}{separator}warm\n", step / 20);
        }
        text
    };
    workplace.file("plain.csv", &table(",", "", &|rss| rss.to_string()));
    workplace.file("quoted.csv", &table(",", "\u{feff}", &|rss| format!("\"{rss}\"")));
    workplace.file("semicolons.csv", &table(";", "", &|rss| rss.to_string().replace('.', ",")));
    workplace.file("tabs.tsv", &table("\t", "", &|rss| rss.to_string()));
    for name in ["plain.csv", "quoted.csv", "semicolons.csv", "tabs.tsv"] {
        let said = workplace.xrun(&["verdict", name, "--json"]);
        assert_eq!(said.code, 0, "{name}: {said:?}");
        let verdict: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let series = verdict["series"].as_array().unwrap();
        assert_eq!(series.len(), 1, "{name}: {verdict}");
        assert_eq!((&series[0]["name"], &verdict["verdict"]), (&"rss_mb".into(), &"growing".into()));
        assert!((series[0]["slope"].as_f64().unwrap() - 2.5e6).abs() < 1.0, "megabytes, a step: {verdict}");
        assert!(series[0]["slope_per_epoch"].is_null() && verdict["process"].is_null(), "{verdict}");
        assert!(
            said.err.contains("`epoch`") && said.err.contains("`note` (line 2: \"warm\" is no number)"),
            "{said:?}"
        );
    }
    let said = workplace.xrun(&["verdict", "plain.csv", "--column", "time_ms", "--json"]);
    assert!(said.code == 0 && said.out.contains("\"time_ms\"") && !said.out.contains("\"rss_mb\""), "{said:?}");
    for (column, words) in
        [("rss", "no column is named `rss` (found: step, epoch"), ("note", "column `note` cannot be")]
    {
        let said = workplace.xrun(&["verdict", "plain.csv", "--column", column]);
        assert!(said.code == 1 && said.err.contains(words), "{said:?}");
    }
}
