//! Index of the images that show each class, for drawing episodes.
//!
//! It is made once; frames are named by numbers, and nothing is decoded here. Frames and references that also show an
//! object of a held-out class are left out of training, unless a class has hardly any others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rand::seq::index;
use rand_chacha::ChaCha8Rng;

use super::library::{Library, Object};
use xrun_core::dataset::sample::BoundingBox;
use xrun_core::dataset::split::Split;

/// A frame of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Query {
    /// Index into [`Library::videos`].
    pub video: usize,
    /// Index into its frames.
    pub frame: usize,
}

/// An image of one object of a class: one of the class's reference images, or cut out of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exemplar {
    /// One of the class's reference images.
    Reference {
        /// Index into [`Library::classes`].
        class: usize,
        /// Index into its `references`.
        reference: usize,
    },
    /// Cut out of a frame.
    Object {
        /// Index into [`Library::classes`].
        class: usize,
        /// The frame.
        query: Query,
        /// Index into the frame's objects.
        object: usize,
    },
}

impl Exemplar {
    /// Index into [`Library::classes`].
    pub fn class(&self) -> usize {
        match *self {
            Self::Reference { class, .. } | Self::Object { class, .. } => class,
        }
    }

    /// Path of the image relative to the root, and the box of the object in it; `None` is the whole image.
    pub fn place<'a>(&self, library: &'a Library) -> (&'a Path, Option<&'a BoundingBox>) {
        match *self {
            Self::Reference { class, reference } => {
                let reference = &library.classes[class].references[reference];
                (&reference.path, reference.rectangle.as_ref())
            }
            Self::Object { query, object, .. } => {
                let frame = &library.videos[query.video].frames[query.frame];
                (&frame.path, Some(&frame.objects[object].rectangle))
            }
        }
    }
}

/// Images that show one class. Sorted, so that the library's order alone decides.
#[derive(Clone, Debug, Default)]
pub struct ClassIndex {
    /// Frames with an object of the class that is not to be ignored.
    pub frames: Vec<Query>,
    /// These objects, except for those that are reference images.
    pub objects: Vec<Exemplar>,
    /// Reference images, none of them twice.
    pub references: Vec<Exemplar>,
    /// For each of the library's references of the class the frame that it is cut from, as far as the library says.
    pub reference_frames: Vec<Option<Query>>,
}

impl ClassIndex {
    /// Bytes of its lists.
    pub fn bytes(&self) -> u64 {
        let exemplars = (self.objects.capacity() + self.references.capacity()) * size_of::<Exemplar>();
        let frames = self.frames.capacity() * size_of::<Query>();
        (exemplars + frames + self.reference_frames.capacity() * size_of::<Option<Query>>()) as u64
    }
}

/// Frames and videos that show the references of an episode, and are not queried in it.
#[derive(Default)]
pub struct ReferenceFrames {
    /// Frames that the references are cut from.
    pub frames: Vec<Query>,
    videos: Vec<usize>,
}

impl ReferenceFrames {
    /// Returns whether a reference is cut from this frame.
    pub fn frame(&self, query: &Query) -> bool {
        self.frames.contains(query)
    }

    /// Returns whether a reference is from the video of this frame.
    pub fn video(&self, query: &Query) -> bool {
        self.videos.contains(&query.video) || self.frame(query)
    }
}

impl ClassIndex {
    /// References, or objects where there are none.
    pub fn reference_pool(&self) -> &[Exemplar] {
        if self.references.is_empty() { &self.objects } else { &self.references }
    }

    /// The frame that shows an exemplar, if one does.
    pub fn shown_in(&self, exemplar: &Exemplar) -> Option<Query> {
        match *exemplar {
            Exemplar::Reference { reference, .. } => self.reference_frames[reference],
            Exemplar::Object { query, .. } => Some(query),
        }
    }

    /// The first `most` references of the pool in this order that leave a frame of the class to query, and the frames that
    /// show them.
    pub fn choose_references(
        &self,
        library: &Library,
        order: impl Iterator<Item = usize>,
        most: usize,
    ) -> (Vec<Exemplar>, ReferenceFrames) {
        let pool = self.reference_pool();
        let mut chosen = Vec::new();
        let mut seen = ReferenceFrames::default();
        for candidate in order {
            if chosen.len() == most {
                break;
            }
            let frame = self.shown_in(&pool[candidate]);
            if self.frames.iter().all(|query| seen.frame(query) || Some(*query) == frame) {
                continue;
            }
            seen.frames.extend(frame);
            seen.videos.extend(match (frame, pool[candidate]) {
                (Some(query), _) => Some(query.video),
                (None, Exemplar::Reference { class, reference }) => library.classes[class].references[reference].video,
                (None, Exemplar::Object { .. }) => None,
            });
            chosen.push(pool[candidate]);
        }
        (chosen, seen)
    }

    /// Frames of the class from other videos than its references where there are any, else other frames than those that
    /// are references of any class, else other frames than its own references.
    pub fn query_frames(&self, seen: &ReferenceFrames, shown: &[Query]) -> Vec<Query> {
        let only = |keep: &dyn Fn(&Query) -> bool| -> Vec<Query> { self.frames.iter().copied().filter(keep).collect() };
        let found = only(&|query| !seen.video(query) && !shown.contains(query));
        let found = if found.is_empty() { only(&|query| !shown.contains(query)) } else { found };
        if found.is_empty() { only(&|query| !seen.frame(query)) } else { found }
    }

    /// `count` images of the class, references and objects alike, none twice in a row and none twice at all as far as
    /// there are.
    pub fn exemplars(&self, count: usize, generator: &mut ChaCha8Rng) -> Vec<Exemplar> {
        let length = self.references.len() + self.objects.len();
        let different = index::sample(generator, length, count.min(length)).into_vec();
        let at = |place: usize| match place.checked_sub(self.references.len()) {
            Some(object) => self.objects[object],
            None => self.references[place],
        };
        different.into_iter().map(at).cycle().take(count).collect()
    }
}

/// Classes of a split from which episodes can be drawn.
pub fn usable(library: &Library, classes: &[ClassIndex], split: Split) -> Vec<usize> {
    let is_usable = |class: &ClassIndex| {
        // A reference leaves a frame to query.
        !class.choose_references(library, 0..class.reference_pool().len(), 1).0.is_empty()
    };
    let of_split = |&class: &usize| library.classes[class].split == Some(split) && is_usable(&classes[class]);
    (0..classes.len()).filter(of_split).collect()
}

/// Key that is equal for the same image of an object.
fn image_key<'a>(path: &'a Path, rectangle: Option<&BoundingBox>) -> (&'a Path, Option<[u32; 4]>) {
    (path, rectangle.map(|r| [r.left, r.top, r.right, r.bottom].map(f32::to_bits)))
}

/// Upper bound of the bytes of the tables that [`index_classes`] makes and drops.
pub fn table_bytes(library: &Library) -> u64 {
    /// A node of a B-tree is at least nearly half full, and has room for edges.
    const NODES: u64 = 3;
    let frames = library.sample_count() * (size_of::<(&Path, Query)>() + size_of::<&Path>()) as u64;
    let references = library.classes.iter().map(|class| class.references.len() as u64).max().unwrap_or(0);
    (frames + references * size_of::<(&Path, Option<[u32; 4]>)>() as u64) * NODES
}

/// The index of each class, by its number.
pub fn index_classes(library: &Library) -> Vec<ClassIndex> {
    let mut classes = vec![ClassIndex::default(); library.classes.len()];
    let mut frames_by_path = BTreeMap::new();
    for (video, frames) in library.videos.iter().map(|video| &video.frames).enumerate() {
        for (frame, content) in frames.iter().enumerate() {
            let query = Query { video, frame };
            frames_by_path.insert(content.path.as_path(), query);
            for (object, Object { class, ignored, .. }) in content.objects.iter().enumerate() {
                if ignored.is_some() || !library.serves(&library.videos[video], *class) {
                    continue;
                }
                let index = &mut classes[*class];
                index.objects.push(Exemplar::Object { class: *class, query, object });
                if index.frames.last() != Some(&query) {
                    index.frames.push(query);
                }
            }
        }
    }
    for (class, (index, known)) in classes.iter_mut().zip(&library.classes).enumerate() {
        let mut places = BTreeSet::new();
        index.reference_frames.reserve_exact(known.references.len());
        for (reference, image) in known.references.iter().enumerate() {
            if places.insert(image_key(&image.path, image.rectangle.as_ref())) {
                index.references.push(Exemplar::Reference { class, reference });
            }
            index.reference_frames.push(frames_by_path.get(image.path.as_path()).copied());
        }
        let named = |object: &Exemplar| {
            let (path, rectangle) = object.place(library);
            places.contains(&image_key(path, rectangle))
        };
        index.objects.retain(|object| !named(object));
        index.objects.shrink_to_fit();
        index.references.shrink_to_fit();
    }
    // Frames that validation queries are not trained on, not even around the held-out object, as long as a class has more.
    let frames = library.videos.iter().flat_map(|video| &video.frames);
    let held_out = |object: &Object| library.classes[object.class].split == Some(Split::Validation);
    let asked_for: BTreeSet<&Path> =
        frames.filter(|frame| frame.objects.iter().any(held_out)).map(|frame| frame.path.as_path()).collect();
    let is_free = |query: &Query| {
        let frame = &library.videos[query.video].frames[query.frame];
        !asked_for.contains(frame.path.as_path())
    };
    for (index, known) in classes.iter_mut().zip(&library.classes) {
        if known.split == Some(Split::Train) && index.frames.iter().filter(|query| is_free(query)).count() > 1 {
            index.frames.retain(is_free);
            index.objects.retain(|object| !asked_for.contains(object.place(library).0));
            index.references.retain(|reference| !asked_for.contains(reference.place(library).0));
        }
    }
    classes
}
