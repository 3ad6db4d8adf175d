//! Description of a data set of images with conversations for `xrun check`.

use super::ExampleCounts;
use super::library::Library;
use crate::describe::splits;
use xrun_core::dataset::description::Description;
use xrun_core::units::pluralize;

/// Examples, images, splits and lengths of texts.
pub(super) fn describe(library: &Library, seen: &ExampleCounts) -> Description {
    let (examples, images) = (pluralize(library.sample_count(), "example"), pluralize(seen.images, "image"));
    let mut lines = vec![format!("{examples} of {images}: {}", splits(seen.train, seen.held_out))];
    if let [shortest, .., longest] | [shortest @ longest] = seen.texts.as_slice() {
        lines.push(format!("texts of {} to {} tokens", shortest.tokens, longest.tokens));
    }
    Description { lines, warnings: Vec::new() }
}
