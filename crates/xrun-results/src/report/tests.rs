//! Tests of the reports against the files, including hostile and damaged ones.

use super::sample::{HOSTILE, PLAIN, finished, killed};
use super::*;
use crate::format::{ImageEntry, ImageIndex, VERSION};
use crate::index;
use crate::run_state::RunState;
use crate::verdict::VerdictWord;
use xrun_verdict::{BYTES, Context, MemoryJudge, SeriesKind};

/// Replaces the random name of a temporary directory.
fn without_directory(text: &str, directory: &Path) -> String {
    text.replace(&directory.display().to_string(), "RESULTS")
}

#[test]
fn show_describes_a_finished_run_and_a_killed_one() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    write(&run).unwrap();
    let shown = [run, killed(results.path())].map(|run| summary::text(&RunView::open(&run), None));
    insta::assert_snapshot!(without_directory(&shown.join("\n"), results.path()));
}

#[test]
fn ls_lists_runs_and_explains_unreadable_ones() {
    let results = tempfile::tempdir().unwrap();
    finished(results.path(), PLAIN);
    killed(results.path());
    std::fs::create_dir_all(results.path().join("stage2/2026-11-19T09-00-00_ffffff")).unwrap();
    let text = listing::text(index::newest_first(results.path(), None), None);
    assert!(text.lines().take(4).all(|line| line.chars().count() <= 120));
    insta::assert_snapshot!(without_directory(&text, results.path()));
    let narrow = listing::text(index::newest_first(results.path(), None), Some(80));
    let head: Vec<&str> = narrow.lines().next().unwrap().split_whitespace().collect();
    assert!(["run", "experiment", "best", "verdict"].iter().all(|title| head.contains(title)), "{narrow}");
    assert!(narrow.lines().take(4).all(|line| line.chars().count() <= 80), "{narrow}");
    let runs: Vec<RunView> = index::newest_first(results.path(), None).collect();
    assert_eq!(listing::json(&runs[0])["state"], "killed");
    assert_eq!(listing::json(&runs[1])["steps"], 200);
}

#[test]
fn json_has_null_for_unknown_values() {
    let results = tempfile::tempdir().unwrap();
    let json = summary::json(&RunView::open(&finished(results.path(), PLAIN))).unwrap();
    assert_eq!(json["state"], "finished");
    assert_eq!(json["metrics"]["map_50"]["before"], 0.012);
    assert_eq!(json["best"]["step"], 200);
    let json = summary::json(&RunView::open(&killed(results.path()))).unwrap();
    assert_eq!(json["state"], "killed");
    assert_eq!(json["steps"], 56);
    assert!(json["steps_per_second"].is_null());
    assert_eq!((&json["losses"][0]["kind"], &json["losses"][0]["steps"]), (&"detection".into(), &38.into()));
    assert!(json["losses"][1]["last"].as_f64().unwrap() < json["losses"][0]["last"].as_f64().unwrap());
    assert!(json["metrics"]["map_50"]["after"].is_null() && json["metrics"]["map_50"]["best"].is_null());
}

/// Panics unless the page is well-formed: all elements are closed, in order. (Parsed as XML, after closing HTML's
/// void elements.)
pub fn well_formed(page: &str) {
    if let Err(error) = roxmltree::Document::parse(&as_xml(page)) {
        panic!("{error}");
    }
}

/// Texts of all elements with these names, one per line.
pub fn texts_of(page: &str, names: &[&str]) -> String {
    let xml = as_xml(page);
    let document = roxmltree::Document::parse(&xml).unwrap();
    let line = |node: roxmltree::Node<'_, '_>| {
        let texts = node.descendants().filter(|inner| inner.is_text()).filter_map(|inner| inner.text());
        format!("{}: {}\n", node.tag_name().name(), texts.collect::<String>())
    };
    document.descendants().filter(|node| names.contains(&node.tag_name().name())).map(line).collect()
}

fn as_xml(page: &str) -> String {
    // The script is no markup.
    let (before, rest) = page.split_once("<script>").unwrap();
    let (_, after) = rest.split_once("</script>").unwrap();
    let mut text = format!("{before}{after}").replace("<!DOCTYPE html>", "");
    for tag in ["meta", "img"] {
        let mut closed = String::new();
        for (at, part) in text.split(&format!("<{tag} ")).enumerate() {
            match part.split_once('>').filter(|_| at > 0) {
                Some((attributes, rest)) => closed.push_str(&format!("<{tag} {attributes}/>{rest}")),
                None => closed.push_str(part),
            }
        }
        text = closed;
    }
    text
}

#[test]
fn the_page_is_complete_and_loads_nothing() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    write(&run).unwrap();
    let page = std::fs::read_to_string(run.join(layout::REPORT)).unwrap();
    well_formed(&page);
    let shown = ["h1", "h2", "h3", "p", "dt", "dd", "summary", "th", "figcaption"];
    insta::assert_snapshot!(without_directory(&texts_of(&page, &shown), results.path()));
    assert!(page.contains("data:image/png;base64,iVBORw0KGgo") && page.contains("<code>limits.frame_cache</code>"));
    assert_eq!(page.matches("role=\"img\" aria-label=").count(), page.matches("<svg ").count());
    assert_eq!(page.matches("<script").count(), 1);
    for address in ["http://", "https://", "<link", "@import", "url("] {
        assert!(!page.contains(address), "the page has {address}");
    }
    // On a narrow page the first columns are visible without scrolling.
    let place = |title: &str| page.find(&format!(">{title}</th>")).unwrap();
    assert!(place("best") < place("after") && place("after") < place("before"));
}

#[test]
fn memory_comes_first_unless_it_is_bounded() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let mut verdict = MemoryJudge::new(Context::default()).verdict();
    for word in [VerdictWord::Growing, VerdictWord::Suspect, VerdictWord::Inconclusive, VerdictWord::Bounded] {
        verdict.verdict = word;
        write::replace_json(&run.join(layout::VERDICT), &verdict).unwrap();
        let page = page::html(&run_report::open(&run).unwrap());
        let place = |title: &str| page.find(&format!("<h2>{title}</h2>")).unwrap();
        assert_eq!(place("Memory") < place("Result"), word != VerdictWord::Bounded, "{word:?}");
    }
}

#[test]
fn a_leak_has_no_cap() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let mut summary = crate::read::summary(&run).unwrap().unwrap();
    let leak = &mut summary.owners[0];
    (leak.policy, leak.cap_bytes) =
        (xrun_core::bounded::ledger::Policy::Leak, xrun_core::bounded::ledger::NO_CAP.bytes);
    write::replace_json(&run.join(layout::SUMMARY), &summary).unwrap();
    let page = page::html(&run_report::open(&run).unwrap());
    well_formed(&page);
    assert!(page.contains(">none</td>") && !page.contains("8 EiB"));
    let text = summary::text(&RunView::open(&run), None);
    let is_uncapped =
        |line: &str| ["leak", "none"].iter().all(|word| line.split_whitespace().any(|cell| cell == *word));
    assert!(text.lines().any(is_uncapped) && !text.contains("8 EiB"), "{text}");
}

#[test]
fn the_series_of_the_container_comes_last() {
    let mut judge = MemoryJudge::new(Context { steps: 200, ..Context::default() });
    for step in 1..=200 {
        judge.add_value(step, "container", step << 20, SeriesKind::Total, BYTES);
        judge.add_value(step, "heap", (8 << 20) + ((step % 2) << 17), SeriesKind::InUse, BYTES);
    }
    let text = verdict::text(&judge.verdict(), None);
    let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("series")).skip(1).collect();
    assert!(rows[0].starts_with("heap ") && rows[1].starts_with("container "), "{text}");
}

#[test]
fn unknown_peaks_of_a_killed_run_are_null_and_not_zero() {
    let results = tempfile::tempdir().unwrap();
    let run = killed(results.path());
    // The first two samples only, with empty buffers.
    let whole = std::fs::read_to_string(run.join(layout::MEMORY)).unwrap();
    let first: Vec<String> = whole
        .lines()
        .take(2)
        .map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["owners"].as_object_mut().unwrap().values_mut().for_each(|held| *held = 0.into());
            line.to_string()
        })
        .collect();
    let shown = |text: &str| {
        write::replace(&run.join(layout::MEMORY), text.as_bytes()).unwrap();
        (summary::text(&RunView::open(&run), None), summary::json(&RunView::open(&run)).unwrap())
    };
    let (text, json) = shown(&format!("{}\n", first.join("\n")));
    assert!(!text.contains(" 0 B"), "{text}");
    assert!(json["memory"]["heap_peak"].as_u64() > Some(0), "{json}");
    assert!(json["buffers"].as_array().unwrap().iter().all(|owner| owner["peak_bytes"].is_null()), "{json}");
    // No sample at all.
    let (text, json) = shown("");
    assert!(!text.contains(" 0 B") && json["memory"].is_null(), "{text}");
}

#[test]
fn a_killed_run_has_a_page_without_damage_and_a_running_one_is_not_resumable() {
    let results = tempfile::tempdir().unwrap();
    let run = killed(results.path());
    write(&run).unwrap();
    let page = std::fs::read_to_string(run.join(layout::REPORT)).unwrap();
    well_formed(&page);
    assert!(page.contains("56 of 200"));
    assert!(!page.contains("class=\"damage\""), "a truncated last line is no damage");
    let lock = std::fs::File::options().create(true).append(true).open(run.join(layout::LOCK)).unwrap();
    lock.try_lock().unwrap();
    let json = summary::json(&RunView::open(&run)).unwrap();
    assert_eq!((&json["state"], &json["resumable"]), (&"running".into(), &false.into()));
}

#[test]
fn hostile_names_are_escaped() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), HOSTILE);
    write(&run).unwrap();
    let page = std::fs::read_to_string(run.join(layout::REPORT)).unwrap();
    well_formed(&page);
    assert_eq!(page.matches("<script").count(), 1, "that of xrun");
    assert!(page.contains("&lt;script&gt;alert(1)"), "the experiment's name is shown");
    assert!(page.contains("&lt;script&gt;alert(3)"), "the kind of step is shown");
    assert!(page.contains("&lt;script&gt;alert(4)"), "the caption is shown");
    assert!(!page.contains("<img src=x"));
    let text = summary::text(&RunView::open(&run), None);
    let listed = listing::text(index::newest_first(results.path(), None), None);
    for shown in [&page, &text, &listed] {
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']));
    }
    assert!(text.contains("\\u{1b}[2Jmap"));
}

#[test]
fn images_outside_their_directory_are_not_shown() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let directory = run.join(layout::IMAGES);
    let outside = results.path().join("secret.png");
    std::fs::copy(directory.join("0.png"), &outside).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(&outside, directory.join("link.png")).unwrap();
    write::replace(&directory.join("text.png"), b"no picture").unwrap();
    let files =
        ["../../../secret.png", outside.to_str().unwrap(), "link.png", "text.png", "missing.png", "", "..", "0.png"];
    let entries: Vec<ImageEntry> =
        files.iter().map(|file| ImageEntry { file: (*file).into(), caption: String::new() }).collect();
    let images = ImageIndex { version: VERSION, images: entries };
    write::replace_json(&directory.join(layout::IMAGES_INDEX), &images).unwrap();
    let page = page::html(&run_report::open(&run).unwrap());
    assert_eq!(page.matches("data:image/png").count(), 1);
    assert!(texts_of(&page, &["p"]).lines().any(|line| line.starts_with("p: 7 ")), "7 are left out");
}

#[test]
fn an_empty_directory_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(write(directory.path()).unwrap_err(), ReportError::NotARun { .. }));
    assert!(run_report::open(directory.path()).is_err());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is written into it");
}

#[test]
fn damaged_files_are_listed_and_the_rest_is_shown() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let metrics = std::fs::read_to_string(run.join(layout::METRICS)).unwrap();
    let damaged = metrics.replacen("\"kind\"", "\"k\"", 2);
    write::replace(&run.join(layout::METRICS), damaged.as_bytes()).unwrap();
    write::replace(&run.join(layout::PLAN), b"not json").unwrap();
    std::fs::remove_file(run.join(layout::MEMORY)).unwrap();
    std::fs::create_dir(run.join(layout::MEMORY)).unwrap();
    let report = run_report::open(&run).unwrap();
    assert_eq!((report.curves().skipped.lines, report.plan().is_none(), report.damage().len()), (2, true, 3));
    for name in [layout::METRICS, layout::PLAN, layout::MEMORY] {
        assert!(report.damage().iter().any(|damage| damage.contains(name)), "{name}: {:?}", report.damage());
    }
    let page = page::html(&report);
    well_formed(&page);
    assert!(page.contains("class=\"damage\""));
    write::replace(&run.join(layout::SUMMARY), b"{}").unwrap();
    assert!(matches!(RunView::open(&run).state(), RunState::Unreadable(_)));
    well_formed(&page::html(&run_report::open(&run).unwrap()));
}

#[test]
fn a_long_run_gives_a_page_of_bounded_size() {
    let results = tempfile::tempdir().unwrap();
    let run = finished(results.path(), PLAIN);
    let short = page::html(&run_report::open(&run).unwrap()).len();
    let text = std::fs::read_to_string(run.join(layout::MEMORY)).unwrap();
    write::replace(&run.join(layout::MEMORY), text.repeat(80).as_bytes()).unwrap();
    let report = run_report::open(&run).unwrap();
    assert!(report.trace().heap.count > 10_000);
    let long = page::html(&report).len();
    assert!(long < short + 1_500_000, "{short} bytes became {long}");
}
