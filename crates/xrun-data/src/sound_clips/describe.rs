//! Description of a data set of sounds for `xrun check`.

use super::library::{ClassSplit, Library};
use crate::describe::{counts, similar_names, single, splits};
use xrun_core::dataset::description::Description;
use xrun_core::dataset::split::Split;
use xrun_core::units::pluralize;

/// Clips, classes and splits.
pub(super) fn describe(library: &Library) -> Description {
    let mut clips = vec![0_u64; library.classes.len()];
    library.clips.iter().for_each(|clip| clips[clip.class as usize] += 1);
    let classes = || library.classes.iter().zip(&clips).map(|(class, count)| (class.name.as_str(), *count));
    let of = |split| library.clips_of(ClassSplit::Federated, split).len() as u64;
    let parts = splits(of(Split::Train), of(Split::Validation));
    let all = pluralize(library.clips.len() as u64, "clip");
    let mut lines = vec![
        format!("{all} of {} classes: {parts} (fold {})", library.classes.len(), library.validation_fold),
        format!("classes: {}", counts(classes())),
    ];
    lines.extend(library.ignored.iter().cloned());
    let mut warnings: Vec<String> = similar_names(classes().map(|(name, _)| name)).into_iter().collect();
    warnings.extend(single(classes(), "clip"));
    if library.silent > 0 {
        warnings.push(format!("silent clips: {} of {}", library.silent, library.clips.len()));
    }
    Description { lines, warnings }
}
