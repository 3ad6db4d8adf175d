//! Numbers of classes, references and frames from which episodes are drawn.

use serde::{Deserialize, Serialize};

use super::classes::{ClassIndex, Query, index_classes, usable};
use super::library::Library;
use xrun_core::dataset::split::Split;

/// Classes from which episodes can be drawn, whatever the settings ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drawn {
    /// Classes that are trained on.
    pub train: DrawnClasses,
    /// Classes that are validated on, and never trained on.
    pub held_out: DrawnClasses,
}

/// The classes of a split that can be drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrawnClasses {
    /// Number of classes.
    pub count: usize,
    /// The class with the fewest different references.
    pub references: Option<Fewest>,
    /// The class with the fewest frames to query besides one of its references.
    pub frames: Option<Fewest>,
    /// Images of single objects that triplets can be made of.
    pub images: usize,
}

/// A class that has fewer of something than all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fewest {
    /// The class's name.
    pub class: String,
    /// Number of them.
    pub count: usize,
}

/// Maximum number of references of a class that are counted: an episode asks for no more.
const REFERENCES_COUNTED_MAX: usize = 64;
/// Number of references of a class for which frames are counted.
const REFERENCES_TRIED_MAX: usize = 16;

/// The classes of a library that episodes can be drawn from.
pub fn drawn_classes(library: &Library) -> Drawn {
    let index = index_classes(library);
    let of = |split| drawn_of(library, &index, &usable(library, &index, split), split);
    Drawn { train: of(Split::Train), held_out: of(Split::Validation) }
}

fn drawn_of(library: &Library, index: &[ClassIndex], classes: &[usize], split: Split) -> DrawnClasses {
    let fewest = |count: &dyn Fn(&ClassIndex) -> usize| {
        let counted = classes.iter().map(|&class| (count(&index[class]), class));
        counted.min().map(|(count, class)| Fewest { class: library.classes[class].name.clone(), count })
    };
    DrawnClasses {
        count: classes.len(),
        references: fewest(&|class| {
            let pool = class.reference_pool().len();
            class.choose_references(library, 0..pool, REFERENCES_COUNTED_MAX).0.len()
        }),
        frames: fewest(&|class| class.fewest_frames(library, split)),
        images: classes.iter().map(|&class| index[class].references.len() + index[class].objects.len()).sum(),
    }
}

impl ClassIndex {
    /// Number of different frames that an episode with one reference can query, for the reference that leaves fewest.
    fn fewest_frames(&self, library: &Library, split: Split) -> usize {
        let beside = |reference: usize| {
            let (chosen, seen) = self.choose_references(library, std::iter::once(reference), 1);
            let frames = self.query_frames(&seen, &seen.frames);
            let of_video = |frames: &[Query]| match &library.videos[frames[0].video] {
                // A validation asks for frames of a sequence one after another, the object seen or not.
                video if split == Split::Validation && video.sequence => video.frames.len(),
                _ => frames.len(),
            };
            let count = frames.chunk_by(|a, b| a.video == b.video).map(of_video).sum();
            (!chosen.is_empty()).then_some(count)
        };
        (0..self.reference_pool().len()).take(REFERENCES_TRIED_MAX).filter_map(beside).min().unwrap_or(0)
    }
}
