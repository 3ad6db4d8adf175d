//! Reading of an experiment file: from its path to a checked experiment or to all of its problems.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::expand::expand;
use super::layers::{self, Layer};
use super::merge::{Merged, exact_location, location};
use super::{Experiment, INITIAL_WEIGHTS, check, overrides, pattern, schema, validate, validate_sweep};
use crate::problem::{Location, Problem, Problems};

/// A checked experiment with the origins of its values.
#[derive(Clone, Debug)]
pub struct CheckedExperiment {
    /// Merged layers and defaults.
    pub experiment: Experiment,
    /// Origin of each value, by dotted key: `experiments/x.toml:12`, `command line`, `default`.
    pub origins: BTreeMap<String, String>,
    /// Content of the experiment's own file.
    pub text: Vec<u8>,
    /// Paths of the experiment's own file and of those that it extends.
    pub files: Vec<PathBuf>,
    /// Key of the data's path, and its location.
    pub data: (String, Option<Location>),
    /// Locations of the values, by dotted key, without defaults.
    pub locations: BTreeMap<String, Location>,
    /// Values that are valid and probably not meant.
    pub warnings: Vec<Problem>,
}

/// Reads and checks an experiment file. `command_line` has `key=value` overrides, `environment` all variables.
///
/// # Errors
/// All problems, with locations.
pub fn read(
    path: &Path,
    command_line: &[String],
    environment: impl Iterator<Item = (String, String)>,
) -> Result<CheckedExperiment, Problems> {
    let (checked, disk_problems) = read_with_disk_problems(path, command_line, environment)?;
    if disk_problems.is_empty() { Ok(checked) } else { Err(disk_problems) }
}

/// As [`read`], but returns problems of the file system, such as missing files, beside the experiment.
///
/// # Errors
/// All problems, if one of them is in the text.
pub fn read_with_disk_problems(
    path: &Path,
    command_line: &[String],
    environment: impl Iterator<Item = (String, String)>,
) -> Result<(CheckedExperiment, Problems), Problems> {
    let set = |_: &[Layer], schema: &Value, problems: &mut Problems| {
        overrides::from_command_line(command_line, schema, problems)
    };
    let mut loaded = Loaded::new(path, environment.collect(), set);
    let (experiment, origins, disk_problems) = loaded.check_as_written()?;
    let Loaded { files, layers, mut warnings, .. } = loaded;
    let data = experiment.dataset.as_ref().map_or_else(String::new, |data| format!("dataset.{}.path", data.name()));
    let data = (data.clone(), location(&layers, &data));
    let locations: BTreeMap<String, Location> =
        origins.keys().filter_map(|key| Some((key.clone(), location(&layers, key)?))).collect();
    let unset = experiment.unset_batch_size();
    warnings.extend(unset.map(|problem| problem.at(locations.get("limits.batch_size").cloned())));
    let (text, files) = (files.text, files.paths);
    Ok((CheckedExperiment { experiment, origins, text, files, data, locations, warnings }, disk_problems))
}

/// Layers of an experiment, each checked against the schema.
pub(super) struct Loaded {
    files: layers::Files,
    pub(super) layers: Vec<Layer>,
    problems: Problems,
    doubtful: BTreeSet<String>,
    warnings: Vec<Problem>,
    environment: BTreeMap<String, String>,
    name: Option<String>,
}

impl Loaded {
    /// Reads the files and the environment; `set` returns the layers of the command line, given those below.
    pub(super) fn new(
        path: &Path,
        environment: BTreeMap<String, String>,
        set: impl FnOnce(&[Layer], &Value, &mut Problems) -> Vec<Layer>,
    ) -> Self {
        let schema = schema::shared();
        let mut files = layers::load(path);
        let mut problems = std::mem::take(&mut files.problems);
        let mut layers = std::mem::take(&mut files.layers);
        layers.extend(overrides::from_environment(environment.iter(), schema, &mut problems));
        layers.iter_mut().for_each(|layer| validate_sweep::collect_swept_keys(&mut layer.entries, schema));
        let mut above = set(&layers, schema, &mut problems);
        above.iter_mut().for_each(|layer| validate_sweep::collect_swept_keys(&mut layer.entries, schema));
        layers.extend(above);

        let mut findings = validate::Findings::default();
        for layer in &mut layers {
            let found = validate::validate(&mut layer.entries, schema);
            findings.problems.extend(found.problems);
            findings.doubtful.extend(found.doubtful);
            findings.warnings.extend(found.warnings);
        }
        layers::keep_last_kinds(&mut layers, schema);
        let name = path.file_stem().map(|stem| pattern::valid_name(&stem.to_string_lossy()));
        if let (Some(start), false) = (&files.start, files.incomplete) {
            validate::missing(&Merged::new(&layers, None), schema, start, &mut findings);
        }
        problems.extend(findings.problems);
        Self { files, layers, problems, doubtful: findings.doubtful, warnings: findings.warnings, environment, name }
    }

    /// Merges the layers and checks the experiment as a whole.
    pub(super) fn check(&mut self) -> Result<(Experiment, BTreeMap<String, String>), Problems> {
        let (experiment, origins, disk_problems) = self.check_as_written()?;
        if disk_problems.is_empty() { Ok((experiment, origins)) } else { Err(disk_problems) }
    }

    /// As [`check`](Self::check), but returns problems of the file system beside the experiment.
    fn check_as_written(&mut self) -> Result<(Experiment, BTreeMap<String, String>, Problems), Problems> {
        let mut problems = std::mem::take(&mut self.problems);
        let merged = Merged::new(&self.layers, self.name.as_deref());
        let experiment = match merged.extract() {
            Ok(experiment) if !self.files.incomplete => experiment,
            Err(problem) if problems.is_empty() => return Err(problem.into()),
            _ => return Err(in_order(problems, &self.layers)),
        };
        let (experiment, found) = self.check_merged(experiment, &merged);
        found.into_iter().for_each(|problem| problems.add(problem));
        let text_is_valid = problems.left_out == 0 && problems.iter().all(|problem| problem.is_disk_problem);
        let problems = in_order(problems, &self.layers);
        if !text_is_valid {
            return Err(problems);
        }
        let origins = merged.origins(&experiment);
        Ok((experiment, origins, problems))
    }

    /// The experiment with one more layer on top, whose values satisfy the schema.
    pub(super) fn with_layer(&self, above: Layer) -> Result<Experiment, Vec<Problem>> {
        let mut layers = self.layers.clone();
        layers.push(above);
        layers::keep_last_kinds(&mut layers, schema::shared());
        let merged = Merged::new(&layers, self.name.as_deref());
        let experiment = merged.extract().map_err(|problem| vec![problem])?;
        let (experiment, found) = self.check_merged(experiment, &merged);
        if found.is_empty() { Ok(experiment) } else { Err(found) }
    }

    /// Checks the merged experiment: paths, and contradictions between values.
    fn check_merged(&self, mut experiment: Experiment, merged: &Merged<'_>) -> (Experiment, Vec<Problem>) {
        let mut whole = Problems::default();
        let written = locate(&mut experiment, merged, &self.environment, &mut whole);
        let mut found = Problems::default();
        check::check(&experiment, &mut found);
        for mut problem in found.iter().cloned() {
            match written.iter().find(|(key, _)| problem.key == *key) {
                // The path itself is invalid, which is already a problem.
                Some((_, None)) => continue,
                Some((_, Some(written))) if written.contains("${") => {
                    let help = format!(
                        "the path is {written} in the file: set the environment variable to the directory that contains \
                                                 it, or set the path with `-s {}=PATH`",
                        problem.key
                    );
                    problem.help = Some(help.into());
                }
                _ => {}
            }
            whole.add(problem);
        }
        let found = locate_problems(whole, merged, &self.doubtful, self.files.start.as_ref());
        (experiment, found)
    }
}

/// Reads a resolved experiment, which has all values. The environment is ignored, so that the file alone determines the run.
///
/// # Errors
/// As [`read`].
pub fn read_resolved(path: &Path, command_line: &[String]) -> Result<CheckedExperiment, Problems> {
    let (checked, disk_problems) = read_with_disk_problems(path, command_line, std::iter::empty())?;
    // A run with a checkpoint no longer needs its initial weights. If they are needed, they are checked later.
    let is_fatal = disk_problems.iter().any(|problem| problem.key != INITIAL_WEIGHTS);
    if is_fatal { Err(disk_problems) } else { Ok(checked) }
}

/// Key of a path, and the path as written; `None` if it is invalid.
type WrittenPath = (String, Option<String>);

/// Makes all paths absolute: against the directory of the file that names them or, from the environment and the command
/// line, against the current directory.
fn locate(
    experiment: &mut Experiment,
    merged: &Merged<'_>,
    environment: &BTreeMap<String, String>,
    problems: &mut Problems,
) -> Vec<WrittenPath> {
    let variable = |name: &str| environment.get(name).cloned();
    let mut all = Vec::new();
    for (key, path) in experiment.paths() {
        let directory = merged.layer(&key).and_then(|layer| layer.directory.clone()).unwrap_or_default();
        let absolute = expand(path, &variable).and_then(|expanded| {
            match std::path::absolute(directory.join(expanded)).map(PathBuf::into_os_string).map(OsString::into_string)
            {
                Ok(Ok(text)) => Ok(text),
                Ok(Err(_)) => Err("the path is not UTF-8".into()),
                Err(error) => Err(format!("invalid path: {error}")),
            }
        });
        match absolute {
            Ok(absolute) => all.push((key, Some(std::mem::replace(path, absolute)))),
            Err(message) => {
                let mut problem = Problem::new(key.as_str(), message);
                if path.contains("${") {
                    problem = problem.help(format!(
                        "`-s {key}=PATH` sets the path without a variable; a comment in the file may state where to get \
                                                 the data"
                    ));
                }
                problems.add(problem);
                all.push((key, None));
            }
        }
    }
    all
}

/// Adds locations to the problems of the whole experiment, and removes those that follow from another problem.
fn locate_problems(
    problems: Problems,
    merged: &Merged<'_>,
    doubtful: &BTreeSet<String>,
    start: Option<&Location>,
) -> Vec<Problem> {
    let unknown = |key: &str| {
        doubtful.iter().any(|doubt| {
            key == doubt
                || key.strip_prefix(doubt.as_str()).is_some_and(|rest| doubt.is_empty() || rest.starts_with('.'))
        })
    };
    let mut found = Vec::new();
    for problem in problems.iter() {
        let mut problem = problem.clone();
        if unknown(&problem.key) || problem.related.iter().any(|related| unknown(&related.key)) {
            continue;
        }
        for related in &mut problem.related {
            related.location = exact_location(merged.layers, &related.key);
        }
        if problem.location.is_none() {
            // The key itself, else a related key, else the section.
            let elsewhere = || problem.related.iter().find_map(|related| related.location.clone());
            let found = exact_location(merged.layers, &problem.key).or_else(elsewhere);
            problem.location = found.or_else(|| location(merged.layers, &problem.key)).or_else(|| start.cloned());
        }
        let main = problem.location.clone();
        problem.related.retain(|related| related.location.is_some() && related.location != main);
        found.push(problem);
    }
    found
}

/// Sorts problems by layer and location.
fn in_order(problems: Problems, layers: &[Layer]) -> Problems {
    let rank = |problem: &Problem| match &problem.location {
        Some(location) => {
            let layer = layers.iter().position(|layer| layer.source == location.source);
            (layer.unwrap_or(layers.len()), location.span.start)
        }
        None => (0, 0),
    };
    let mut list: Vec<Problem> = problems.iter().cloned().collect();
    list.sort_by_key(|problem| rank(problem));
    let mut sorted = Problems::default();
    sorted.left_out = problems.left_out;
    list.into_iter().for_each(|problem| sorted.add(problem));
    sorted
}
