//! Tests of finding, ordering and reading runs.

use super::*;
use crate::run_state::{RunState, is_locked};
use crate::view::RunView;
use serde_json::json;
use xrun_core::files::write;

fn run(results: &Path, name: &str) -> PathBuf {
    let path = results.join(name);
    std::fs::create_dir_all(&path).unwrap();
    write::replace_json(&path.join(layout::MANIFEST), &Manifest::default()).unwrap();
    path
}

fn runs(results: &Path) -> Vec<RunView> {
    newest_first(results, None).collect()
}

fn three_runs() -> (tempfile::TempDir, [PathBuf; 3]) {
    let results = tempfile::tempdir().unwrap();
    let names =
        ["stage2/2026-11-19T10-00-00_aaaaaa", "cards/2026-11-20T10-00-00_bbbbbb", "stage2/2026-11-21T10-00-00_cccccc"];
    let paths = names.map(|name| run(results.path(), name));
    (results, paths)
}

#[test]
fn a_run_is_found_by_path_name_beginning_end_and_age() {
    let (results, [first, second, third]) = three_runs();
    let find = |text: &str| find(results.path(), text).unwrap();
    assert_eq!(find(first.to_str().unwrap()), first);
    assert_eq!(find("stage2/2026-11-19T10-00-00_aaaaaa"), first);
    assert_eq!(find("2026-11-20"), second);
    assert_eq!(find("stage2/2026-11-21"), third);
    assert_eq!(find("bbbbbb"), second);
    assert_eq!(find("latest"), third);
    assert_eq!(find("latest~1"), second);
    assert_eq!(find("latest~2"), first);
    assert_eq!((find("stage2/latest~1"), find("stage2~1")), (first.clone(), first));
    assert_eq!(find("cards/latest"), second);
    assert_eq!((find("stage2"), find("cards/")), (third, second));
}

#[test]
fn runs_of_the_same_second_are_ordered_by_creation_time() {
    let directory = tempfile::tempdir().unwrap();
    let second = "2026-11-21T07-14-35";
    let names = [format!("a/{second}_ffffff"), format!("b/{second}_bbbbbb"), format!("a/{second}_000000")];
    for name in names.iter().map(String::as_str).chain(["a/2026-11-21T07-14-34_aaaaaa"]) {
        let created = |directory: &Path| std::fs::metadata(directory).unwrap().created().ok();
        let creation = created(&run(directory.path(), name));
        // The clock of the file system advances in ticks.
        while creation.is_some() && created(tempfile::tempdir_in(directory.path()).unwrap().path()) <= creation {}
    }
    // The newest of one experiment is no newer than those of others for that.
    #[cfg(unix)]
    std::os::unix::fs::symlink(format!("{second}_bbbbbb"), directory.path().join("b/latest")).unwrap();
    let latest = find(directory.path(), "latest").unwrap();
    // Without creation times the name decides.
    let knows = std::fs::metadata(directory.path()).unwrap().created().is_ok();
    let [newest, other] = if knows { ["000000", "ffffff"] } else { ["ffffff", "000000"] };
    assert!(latest.ends_with(format!("{second}_{newest}")), "{}", latest.display());
    assert!(find(directory.path(), "a/latest~1").unwrap().ends_with(format!("{second}_{other}")));
    assert!(!knows || find(directory.path(), "latest~1").unwrap().ends_with(format!("{second}_bbbbbb")));
}

#[test]
fn committed_results_are_found_by_name_and_are_never_the_newest() {
    let (results, [_, _, third]) = three_runs();
    let reference = run(results.path(), "reference/stage2");
    assert_eq!(find(results.path(), "reference/stage2").unwrap(), reference);
    assert_eq!(find(results.path(), "latest").unwrap(), third);
    assert_eq!(runs(results.path()).len(), 3);
    let own = run(results.path(), "reference/2026-11-22T10-00-00_dddddd");
    assert_eq!(find(results.path(), "latest").unwrap(), own, "an experiment may be called so");
}

#[test]
fn reproductions_are_found_by_name_and_shadow_nothing() {
    let (results, [_, _, third]) = three_runs();
    let again = run(results.path(), "stage2/reproductions/2026-11-22T10-00-00_cccccc");
    let trial = run(results.path(), "stage2/sweeps/2026-11-22T10-00-00_eeeeee/trials/0001-1");
    let find = |text: &str| find(results.path(), text).unwrap();
    assert_eq!([find("latest"), find("stage2"), find("cccccc")], [third.clone(), third.clone(), third]);
    let real = |path: &Path| std::fs::canonicalize(path).unwrap();
    assert_eq!(find("stage2/reproductions/2026-11-22T10-00-00_cccccc"), real(&again));
    assert_eq!(find("stage2/2026-11-22T10-00-00_cccccc"), again, "as `xrun show` names it");
    assert_eq!(find("stage2/sweeps/2026-11-22T10-00-00_eeeeee/trials/0001-1"), real(&trial));
    assert_eq!(runs(results.path()).len(), 3);
}

#[test]
fn unknown_and_ambiguous_names_are_errors_with_candidates() {
    let (results, _) = three_runs();
    let error = |text: &str| find(results.path(), text).unwrap_err().to_string();
    assert!(!error("no\u{1b}[2Jsuch").contains('\u{1b}'), "escape sequences do not reach the terminal");
    assert!(check_experiment(results.path(), "cards").is_ok());
    let all = ["stage", "stage3/latest", "", "2026-11", "latest~3"].map(error);
    let unknown = check_experiment(results.path(), "stage3").unwrap_err();
    insta::assert_snapshot!(format!("{}\n{unknown}", all.join("\n")));
    let empty = tempfile::tempdir().unwrap();
    for directory in [empty.path(), Path::new("/no/such/directory")] {
        assert!(find(directory, "latest").unwrap_err().to_string().contains("no runs in"));
    }
}

#[test]
fn runs_are_listed_newest_first_and_symlinks_do_not_count_twice() {
    let (results, [_, second, third]) = three_runs();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&third, results.path().join("stage2/latest")).unwrap();
        std::os::unix::fs::symlink(&third, results.path().join("stage2/the-good-one")).unwrap();
        std::os::unix::fs::symlink(results.path().join("stage2"), results.path().join("same")).unwrap();
        std::os::unix::fs::symlink("/no/such/place", results.path().join("stage2/broken")).unwrap();
    }
    let runs = runs(results.path());
    assert_eq!(runs.len(), 3);
    assert_eq!((&runs[0].path, &runs[1].path), (&third, &second));
    assert_eq!((runs[1].experiment.as_str(), runs[1].run.as_str()), ("cards", "2026-11-20T10-00-00_bbbbbb"));
}

#[test]
fn running_killed_and_damaged_runs_have_different_states() {
    let (_results, [first, second, third]) = three_runs();
    let held = std::fs::File::options().create(true).append(true).open(first.join(layout::LOCK)).unwrap();
    held.try_lock().unwrap();
    assert_eq!(*RunView::open(&first).state(), RunState::Running);
    assert!(is_locked(&first), "asking does not take the lock away");
    drop(held);
    assert_eq!(*RunView::open(&first).state(), RunState::Killed);
    write::replace(&second.join(layout::SUMMARY), b"{ \"version\": 1").unwrap();
    assert!(matches!(RunView::open(&second).state(), RunState::Unreadable(why) if why.contains("summary.json")));
    write::replace(&third.join(layout::MANIFEST), &[0, 159, 146, 150]).unwrap();
    assert!(matches!(RunView::open(&third).state(), RunState::Unreadable(why) if why.contains("manifest.json")));
}

#[test]
fn a_killed_run_has_its_last_step_and_average_loss() {
    let (_results, [first, ..]) = three_runs();
    let line = |step: u64, loss: f64| {
        json!({ "kind": "train", "step": step, "epoch": 1, "batch": "detection", "loss": loss, "learning_rate": 0.1,
                "gradient_norm": null, "gradient_norm_median": null, "values": {} })
    };
    let mut text: String = (1..2_000).map(|step| format!("{}\n", line(step, 1.0 / step as f64))).collect();
    text.push_str("{\"kind\":\"train\",\"step\":2000,\"ep");
    write::replace(&first.join(layout::METRICS), text.as_bytes()).unwrap();
    let killed = RunView::open(&first);
    let (kind, loss) = killed.loss().unwrap();
    assert_eq!((killed.steps(), kind), (Some(1_999), ""), "of one kind there is no need to name it");
    assert!((loss - 1.0 / 1_990.0).abs() < 1e-5, "the average of the last steps: {loss}");
    // The loss of a run is not that of a last step of another kind.
    let other = text.replace(
        "\"step\":1999,\"epoch\":1,\"batch\":\"detection\"",
        "\"step\":1999,\"epoch\":1,\"batch\":\"triplet\"",
    );
    assert_ne!(other, text);
    write::replace(&first.join(layout::METRICS), other.as_bytes()).unwrap();
    let view = RunView::open(&first);
    let (kind, again) = view.loss().unwrap();
    assert!(kind == "detection" && (again - loss).abs() < 1e-4, "{kind} {again}");
}

#[test]
fn unexpected_directories_are_listed_as_unreadable() {
    let (results, _) = three_runs();
    let odd = results.path().join("stage2").join("odd\u{1b}[31m");
    std::fs::create_dir_all(odd.join(layout::METRICS)).unwrap();
    std::fs::create_dir_all(odd.join(layout::MANIFEST)).unwrap();
    write::replace(&results.path().join("stage2/file"), b"not a directory").unwrap();
    let runs = runs(results.path());
    assert_eq!(runs.len(), 4);
    assert_eq!(runs.iter().filter(|run| matches!(run.state(), RunState::Unreadable(_))).count(), 1);
}

#[cfg(unix)]
#[test]
fn the_link_names_the_newest_run_also_after_a_clock_that_was_ahead() {
    let results = tempfile::tempdir().unwrap();
    let names = ["2026-11-21T00-00-00_aaaaaa", "2026-11-20T00-00-00_cccccc", "2999-01-01T00-00-00_bbbbbb"];
    for name in names {
        let path = results.path().join("small").join(name);
        std::fs::create_dir_all(&path).unwrap();
        xrun_core::files::write::replace(&path.join(layout::LOCK), b"").unwrap();
    }
    std::os::unix::fs::symlink(names[0], results.path().join("small/latest")).unwrap();
    let found = |text: &str| find(results.path(), text).unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!([found("latest"), found("small/latest"), found("small")], [names[0]; 3]);
    assert_eq!([found("latest~1"), found("latest~2")], [names[2], names[1]]);
    assert_eq!(runs(results.path())[0].run, names[0], "the list agrees");
    let empty = results.path().join("small/2026-11-22T00-00-00_dddddd");
    std::fs::create_dir(&empty).unwrap();
    assert!(find(results.path(), empty.to_str().unwrap()).unwrap_err().to_string().contains("is not a run"));
}

#[test]
fn the_names_of_many_runs_are_recorded_until_their_directory_changes() {
    let results = tempfile::tempdir().unwrap();
    let experiment = results.path().join("many");
    let name = |number: usize| format!("2026-11-20T10-{:02}-{:02}_aaaaaa", number / 60, number % 60);
    (0..1_000).for_each(|number| std::fs::create_dir_all(experiment.join(name(number))).unwrap());
    let path = results.path().join(layout::INDEX).join("many");
    let now = SystemTime::now();
    let later = now + std::time::Duration::from_secs(10);
    let listed = |now| {
        let walk = || run_names(&experiment, results.path());
        let mut names: Vec<String> = index_file::names(results.path(), "many", now, walk).collect();
        names.sort();
        names
    };
    let all: Vec<String> = (0..1_000).map(name).collect();
    // A directory that has just changed may change once more in the same tick of the clock.
    assert_eq!(listed(now), all);
    assert!(!path.exists());
    assert_eq!(listed(later), all);
    let recorded = std::fs::read_to_string(&path).unwrap();
    assert!(recorded.starts_with("1 ") && recorded.contains(&format!(" 1000\n{}\n", name(0))), "{recorded:.200}");
    // The file is read.
    write::replace(&path, recorded.replace(&name(999), &name(1_007)).as_bytes()).unwrap();
    assert_eq!(listed(later)[999], name(1_007));
    // One that is cut, of another version, with a name that is a path, or of another time, is not.
    let of_another_time = recorded.replacen(' ', " 1", 1);
    let path_in_it = recorded.replace(&name(7), "../x");
    for damaged in [&recorded[..recorded.len() / 2], &recorded.replacen('1', "2", 1), &path_in_it, &of_another_time] {
        write::replace(&path, damaged.as_bytes()).unwrap();
        assert_eq!(listed(later), all);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), recorded);
    }
    // Nor one without the newest run, nor is a directory with a link to another disk recorded.
    let elsewhere = tempfile::tempdir().unwrap();
    for (link, target) in [(layout::LATEST, Path::new("2026-11-21T10-00-00_bbbbbb")), ("linked", elsewhere.path())] {
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(target, experiment.join(link)).unwrap();
        let expected = all.iter().cloned().chain((link == "linked").then(|| link.to_owned()));
        assert_eq!(listed(later), expected.collect::<Vec<_>>());
        assert_eq!(path.exists(), link == layout::LATEST);
    }
}
