//! Draws are reproducible, of the right classes, and disjoint from their references.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::*;
use proptest::prelude::*;
use xrun_core::dataset::sample::{BoundingBox, HostImage, IgnoreReason, ImageSource};
use xrun_data::boxes::drawn::{Fewest, drawn_classes};
use xrun_data::boxes::library::{Class, Frame, Object, Reference, Video};
use xrun_data::boxes::validation_split;
use xrun_data::reading::orientation::ExifOrientation;

/// Parameters of a library for tests.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub train: usize,
    pub held_out: usize,
    pub videos: usize,
    pub frames: usize,
    pub references: usize,
    pub sequence: bool,
}

pub const SHAPE: Shape = Shape { train: 5, held_out: 3, videos: 3, frames: 6, references: 4, sequence: true };

/// Library with videos of 64 x 48 pixels. Each shows its class in all frames but the first, and the next class of the library in the
/// last; reference images are separate files. The last class is unused.
pub fn library(shape: Shape) -> Library {
    let count = shape.train + shape.held_out + 1;
    let split = |class: usize| match class {
        class if class < shape.train => Some(Split::Train),
        class if class < shape.train + shape.held_out => Some(Split::Validation),
        _ => None,
    };
    let mut library = Library {
        section: "dataset.coco",
        root: PathBuf::new(),
        exif_orientation: ExifOrientation::Apply,
        classes: vec![],
        videos: vec![],
        notes: Vec::new(),
        digest: String::new(),
        skipped: xrun_core::dataset::error::InvalidItems::default(),
        largest: None,
        opening_bytes: 0,
    };
    for class in 0..count {
        let reference = |index: usize| Reference {
            path: format!("references/{class}/{index}.png").into(),
            rectangle: None,
            video: None,
        };
        let references = (0..shape.references).map(reference).collect();
        library.classes.push(Class { name: format!("class {class}"), split: split(class), references });
        for video in 0..shape.videos {
            let name = format!("video {class} {video}");
            let frame = |index: usize| {
                let object = |class: usize, left: f32| Object {
                    class,
                    rectangle: BoundingBox { left, top: 8.0, right: left + 20.0, bottom: 30.0 },
                    area: 440.0,
                    ignored: None,
                };
                let mut objects = Vec::new();
                if index > 0 || shape.frames == 1 {
                    objects.push(object(class, index as f32));
                }
                if index + 1 == shape.frames {
                    objects.push(object((class + 1) % count, 40.0));
                }
                Frame { path: format!("{name}/{index}.png").into(), width: 64, height: 48, objects }
            };
            let frames = (0..shape.frames).map(frame).collect();
            library.videos.push(Video { name, sequence: shape.sequence, part: None, frames });
        }
    }
    library
}

/// Grey images of the size of the frames of [`library`].
pub struct GreyFrames;

impl ImageSource for GreyFrames {
    fn image(&self, _: &Path) -> Result<HostImage, DataError> {
        Ok(HostImage { width: 64, height: 48, rgb: vec![128; 64 * 48 * 3].into() })
    }
}

pub fn episodes(library: Library, settings: FewshotDetection, seed: u32) -> Result<Episodes, DataError> {
    Episodes::new(Arc::new(library), settings, seed, 1)
}

fn small() -> FewshotDetection {
    FewshotDetection { n_way: 3, n_shot: 2, n_query: 4, ..FewshotDetection::default() }
}

fn shows(episodes: &Episodes, query: Query, class: usize) -> bool {
    let frame = &episodes.library.videos[query.video].frames[query.frame];
    frame.objects.iter().any(|object| object.class == class && object.ignored.is_none())
}

#[test]
fn a_training_episode_has_train_classes_and_frames_that_show_them() {
    let episodes = episodes(library(SHAPE), small(), 0).unwrap();
    let mut drawn = BTreeSet::new();
    for number in 0..50 {
        let episode = episodes.draw(number);
        assert_eq!(episode, episodes.draw(number), "the same each time");
        assert_eq!((episode.classes.len(), episode.queries.len()), (3, 12));
        assert_eq!(episode.classes.iter().collect::<BTreeSet<_>>().len(), 3, "no class twice");
        for (way, &class) in episode.classes.iter().enumerate() {
            drawn.insert(class);
            assert!(episode.references[way].iter().all(|reference| reference.class() == class));
            assert_ne!(episode.references[way][0], episode.references[way][1]);
            assert!(episode.queries[way * 4..][..4].iter().all(|query| shows(&episodes, *query, class)));
        }
    }
    assert_eq!(drawn, BTreeSet::from([0, 1, 2, 3, 4]), "all train classes and no other");
    assert_ne!(self::episodes(library(SHAPE), small(), 1).unwrap().draw(0), episodes.draw(0), "the seed draws");
}

#[test]
fn validation_has_held_out_classes_and_runs_of_consecutive_frames() {
    let episodes = episodes(library(SHAPE), small(), 0).unwrap();
    for index in 0..20 {
        let episode = episodes.draw_validation(index);
        assert_eq!(episode, episodes.draw_validation(index));
        assert!(episode.classes.iter().all(|class| (5..8).contains(class)), "{:?}", episode.classes);
        assert!(episode.queries.is_sorted_by(|a, b| a < b), "no frame twice");
        for run in episode.queries.chunk_by(|a, b| a.video == b.video) {
            assert!(run.windows(2).all(|pair| pair[1].frame == pair[0].frame + 1), "{run:?}");
            assert!(episode.classes.iter().any(|class| run.iter().any(|query| shows(&episodes, *query, *class))));
        }
        assert!(episode.queries.chunk_by(|a, b| a.video == b.video).any(|run| run.len() >= 4), "a whole run");
    }
}

#[test]
fn without_reference_images_references_are_crops_of_other_videos_than_the_queries() {
    let episodes =
        episodes(library(Shape { references: 0, ..SHAPE }), FewshotDetection { n_shot: 1, ..small() }, 0).unwrap();
    for number in 0..50 {
        let episode = episodes.draw(number);
        for (way, references) in episode.references.iter().enumerate() {
            let Exemplar::Object { query: shown, .. } = references[0] else { panic!("there are no reference images") };
            assert!(episode.queries[way * 4..][..4].iter().all(|query| query.video != shown.video));
        }
    }
}

#[test]
fn a_reference_that_is_a_frame_is_not_a_query() {
    // Ordinary detection data: stills, and references that are crops of them.
    let mut library = library(Shape { references: 0, frames: 1, videos: 2, sequence: false, ..SHAPE });
    for class in 0..library.classes.len() {
        let path = library.videos[class * 2].frames[0].path.clone();
        library.classes[class].references.push(Reference { path, rectangle: None, video: Some(class * 2) });
    }
    let episodes = episodes(library, small(), 0).unwrap();
    for episode in
        (0..30).map(|number| episodes.draw(number)).chain((0..10).map(|index| episodes.draw_validation(index)))
    {
        for &class in &episode.classes {
            // Each still shows two classes, so that it may be a query of another class of the episode.
            let others = episode
                .classes
                .iter()
                .any(|other| shows(&episodes, Query { video: class * 2, frame: 0 }, *other) && *other != class);
            assert!(others || episode.queries.iter().all(|query| query.video != class * 2), "{episode:?}");
        }
    }
}

#[test]
fn the_class_with_the_fewest_references_and_frames_is_found() {
    let fewest = |class: &str, count: usize| Some(Fewest { class: class.into(), count });
    let drawn = drawn_classes(&library(SHAPE));
    assert_eq!((drawn.train.count, drawn.held_out.count), (5, 3));
    assert_eq!(drawn.train.references.as_ref().unwrap().count, 4, "reference images are separate files");
    // Queries of sequences are runs: all 6 frames of 3 videos, and those of the neighbouring class.
    assert!(drawn.held_out.frames.as_ref().unwrap().count >= 18, "{drawn:?}");
    // One class has fewer than the others.
    let mut few = library(Shape { sequence: false, ..SHAPE });
    few.classes[2].references.truncate(1);
    few.videos.retain(|video| !(video.name.starts_with("video 2") && video.name != "video 2 0"));
    let drawn = drawn_classes(&few);
    assert_eq!(drawn.train.references, fewest("class 2", 1));
    // Frames 1 to 5 of its only video, and the last one of each of the 3 videos of the class before it.
    assert_eq!(drawn.train.frames, fewest("class 2", 8));
    // An episode draws as many different frames as were counted.
    let settings = FewshotDetection { n_way: 5, n_query: 20, ..FewshotDetection::default() };
    let episode = Episodes::new(Arc::new(few), settings, 1, 1).unwrap().draw(0);
    let at = episode.classes.iter().position(|class| *class == 2).unwrap();
    let different: BTreeSet<&Query> = episode.queries[20 * at..][..20].iter().collect();
    assert_eq!(different.len(), 8);
}

#[test]
fn too_few_usable_classes_are_an_error() {
    // The last has no videos to crop references from.
    let shapes =
        [Shape { held_out: 0, ..SHAPE }, Shape { train: 1, ..SHAPE }, Shape { references: 0, videos: 0, ..SHAPE }];
    let messages = shapes.map(|shape| episodes(library(shape), small(), 0).unwrap_err().to_string());
    insta::assert_snapshot!(messages.join("\n"), @r"
    no image can be held out for validation; the images are of too few videos
    at least 2 classes are needed to train on for triplets (`triplet_ratio = 0` needs one), found 1; a class needs a reference image (or an object to crop one from) and another image that shows it. `train_classes` and `validation_classes` select the classes
    at least 2 classes are needed to train on, found 0; a class needs a reference image (or an object to crop one from) and another image that shows it. `train_classes` and `validation_classes` select the classes
    ");
}

#[test]
fn ignored_objects_are_never_drawn() {
    let mut library = library(SHAPE);
    for object in library.videos.iter_mut().flat_map(|video| &mut video.frames).flat_map(|frame| &mut frame.objects) {
        object.ignored = (object.rectangle.left < 3.0).then_some(IgnoreReason::Difficult);
    }
    let episodes = episodes(library, small(), 0).unwrap();
    for number in 0..30 {
        let episode = episodes.draw(number);
        for (way, &class) in episode.classes.iter().enumerate() {
            assert!(episode.queries[way * 4..][..4].iter().all(|query| shows(&episodes, *query, class)));
        }
        for triplet in episodes.draw_triplets(number) {
            for exemplar in [triplet.anchor, triplet.positive, triplet.negative] {
                if let Exemplar::Object { query, object, .. } = exemplar {
                    let frame = &episodes.library.videos[query.video].frames[query.frame];
                    assert!(frame.objects[object].ignored.is_none());
                }
            }
        }
    }
}

#[test]
fn triplets_are_two_images_of_one_class_and_one_of_another_of_few_classes() {
    let episodes = episodes(library(SHAPE), small(), 0).unwrap();
    for number in 0..50 {
        let triplets = episodes.draw_triplets(number);
        assert_eq!(triplets, episodes.draw_triplets(number));
        assert_eq!(triplets.len(), 8);
        let mut by_class = BTreeMap::new();
        for triplet in &triplets {
            assert_eq!(triplet.anchor.class(), triplet.positive.class());
            assert_ne!(triplet.anchor, triplet.positive);
            assert_ne!(triplet.anchor.class(), triplet.negative.class());
            for exemplar in [triplet.anchor, triplet.positive, triplet.negative] {
                assert!(exemplar.class() < 5, "a train class");
                by_class.entry(exemplar.class()).or_insert_with(Vec::new).push(exemplar);
            }
        }
        assert_eq!(by_class.len(), 4);
        for images in by_class.values() {
            assert!(images.len() >= 4, "two anchors and two positives at least");
            assert_eq!(images.iter().collect::<BTreeSet<_>>().len(), images.len(), "no image twice");
        }
    }
}

#[test]
fn all_batches_of_a_step_are_of_one_kind() {
    let settings = FewshotDetection { triplet_ratio: 0.5, ..small() };
    let episodes = Episodes::new(Arc::new(library(SHAPE)), settings, 0, 3).unwrap();
    use StepKind::{Detection, Triplet};
    let kinds: Vec<StepKind> = (0..9).map(|number| episodes.kind_of_batch(number)).collect();
    assert_eq!(kinds, [[Detection; 3], [Triplet; 3], [Detection; 3]].concat());
}

proptest! {
    #[test]
    fn any_library_is_accepted_or_refused_without_a_panic(
        train in 0usize..5, held_out in 0usize..4, videos in 0usize..4, frames in 1usize..5, references in 0usize..3,
        sequence in any::<bool>(), n_way in 1usize..8, n_shot in 1usize..5, n_query in 1usize..9, triplets in 1usize..20,
        seed in any::<u32>(),
    ) {
        let shape = Shape { train, held_out, videos, frames, references, sequence };
        let settings = FewshotDetection {
            n_way, n_shot, n_query, triplet_batch_size: triplets, ..FewshotDetection::default()
        };
        let mut library = library(shape);
        if held_out == 0 {
            validation_split::divide(&mut library, 0.3, seed);
        }
        let Ok(episodes) = Episodes::new(Arc::new(library), settings, seed, 1) else { return Ok(()) };
        let episode = episodes.draw(u64::from(seed));
        prop_assert_eq!(episode.queries.len(), episodes.n_way() * n_query);
        let held_out = episodes.draw_validation(u64::from(seed));
        prop_assert!(held_out.queries.len() <= n_way * n_query);
        for references in &held_out.references {
            prop_assert!(!held_out.queries.is_empty() && references.len() == n_shot);
        }
        for references in &episode.references {
            prop_assert_eq!(references.len(), n_shot);
        }
        prop_assert_eq!(episodes.draw_triplets(1).len(), triplets);
    }
}

#[test]
fn a_frame_that_is_a_reference_of_one_class_is_not_a_query_of_another() {
    let mut library = library(Shape { references: 0, ..SHAPE });
    for frame in library.videos.iter_mut().flat_map(|video| &mut video.frames) {
        // Each frame shows two classes of its split.
        let Some(first) = frame.objects.first().cloned() else { continue };
        let class = if first.class < 5 { (first.class + 1) % 5 } else { 5 + (first.class - 5 + 1) % 3 };
        frame.objects = vec![first.clone(), Object { class, ..first }];
    }
    let episodes = episodes(library, small(), 0).unwrap();
    for number in 0..60 {
        for episode in [episodes.draw(number), episodes.draw_validation(number)] {
            let shown = episode.references.iter().flatten().filter_map(|exemplar| match exemplar {
                Exemplar::Object { query, .. } => Some(*query),
                Exemplar::Reference { .. } => None,
            });
            let both: Vec<Query> = shown.filter(|query| episode.queries.contains(query)).collect();
            assert!(both.is_empty(), "episode {number}: {both:?}");
        }
    }
}

/// Library of stills with references that are crops of them, as of COCO and VOC data without a list of references.
fn crops_of_stills(per_class: usize) -> Library {
    let mut library = library(Shape { references: 0, frames: 1, videos: per_class, sequence: false, ..SHAPE });
    for (number, video) in library.videos.iter_mut().enumerate() {
        let object = video.frames[0].objects.remove(0);
        let path = video.frames[0].path.clone();
        let (rectangle, video_of) = (Some(object.rectangle), Some(number));
        library.classes[object.class].references.push(Reference { path, rectangle, video: video_of });
        video.frames[0].objects = vec![object];
    }
    library
}

#[test]
fn no_crop_is_drawn_twice() {
    let library = crops_of_stills(8);
    let mut listed_twice = library.clone();
    for class in &mut listed_twice.classes {
        class.references.extend(class.references.clone());
    }
    for library in [library, listed_twice] {
        // Eight triplets of four classes: 4 images of a class as anchor and positive, and up to 4 as negative.
        let episodes = episodes(library, small(), 0).unwrap();
        for number in 0..100 {
            let mut crops = BTreeSet::new();
            for Triplet { anchor, positive, negative } in episodes.draw_triplets(number) {
                let crop = |exemplar: &Exemplar| {
                    let (path, rectangle) = exemplar.place(&episodes.library);
                    format!("{path:?} {rectangle:?}")
                };
                assert_ne!(crop(&anchor), crop(&positive), "the positive is the anchor");
                crops.extend([crop(&anchor), crop(&positive), crop(&negative)]);
            }
            assert!(crops.len() >= 20, "{} of 24 images, of 8 a class", crops.len());
        }
    }
}

#[test]
fn references_are_not_crops_of_frames_that_show_a_held_out_object() {
    let mut library = crops_of_stills(4);
    // One still of each train class shows an object of a held-out class, too; of class 0 all but one do.
    for class in 0..5 {
        for still in 0..if class == 0 { 3 } else { 1 } {
            let objects = &mut library.videos[class * 4 + still].frames[0].objects;
            let first = objects[0].clone();
            objects.push(Object { class: 6, ignored: Some(IgnoreReason::Difficult), ..first });
        }
    }
    let episodes = episodes(library, small(), 0).unwrap();
    let shows_held_out = |exemplar: &Exemplar| {
        let path = exemplar.place(&episodes.library).0;
        let mut frames = episodes.library.videos.iter().flat_map(|video| &video.frames);
        frames.any(|frame| frame.path == path && frame.objects.iter().any(|object| object.class == 6))
    };
    let mut drawn_for_class_0 = false;
    for number in 0..100 {
        let episode = episodes.draw(number);
        let triplets = episodes.draw_triplets(number);
        let drawn = triplets.iter().flat_map(|triplet| [triplet.anchor, triplet.positive, triplet.negative]);
        for exemplar in episode.references.into_iter().flatten().chain(drawn) {
            drawn_for_class_0 |= exemplar.class() == 0 && shows_held_out(&exemplar);
            assert!(exemplar.class() == 0 || !shows_held_out(&exemplar), "{exemplar:?}");
        }
    }
    assert!(drawn_for_class_0, "a class with a single other still uses these, too");
}

#[test]
fn fixed_classes_are_validated_on_images_that_training_never_shows() {
    for seed in 0..20 {
        let mut library = crops_of_stills(6);
        library.classes.iter_mut().for_each(|class| class.split = Some(Split::Train));
        // Some stills show a second class, and one none.
        for still in (0..library.videos.len()).step_by(4) {
            let first = library.videos[still].frames[0].objects[0].clone();
            library.videos[still].frames[0].objects.push(Object { class: (first.class + 1) % 9, ..first });
        }
        library.videos[7].frames[0].objects.clear();
        validation_split::divide(&mut library, 0.2, seed);
        let settings = FewshotDetection { n_way: 3, n_query: 2, ..small() };
        let episodes = Episodes::new(Arc::new(library), settings, seed, 1).unwrap();
        let path = |query: &Query| episodes.library.videos[query.video].frames[query.frame].path.clone();
        let count = episodes.validation_episodes(100);
        let drawn: Vec<Episode> = (0..count).map(|index| episodes.draw_validation(index)).collect();
        let validated: Vec<PathBuf> = drawn.iter().flat_map(|episode| &episode.queries).map(path).collect();
        let different: BTreeSet<&PathBuf> = validated.iter().collect();
        assert_eq!((different.len(), episodes.validation_frames(1)), (validated.len(), Some((validated.len(), 6))));
        let has_all =
            |episode: &Episode| episode.classes == (0..9).collect::<Vec<_>>() && episode.references.is_empty();
        assert!(drawn.iter().all(has_all), "all classes at once");
        let queries = || drawn.iter().flat_map(|episode| &episode.queries);
        assert!((0..9).all(|class| queries().any(|query| shows(&episodes, *query, class))), "each class is validated");
        let mut trained = BTreeSet::new();
        let mut exemplars: Vec<Exemplar> = (0..9).map(|class| episodes.first_reference(class)).collect();
        for number in 0..50 {
            let episode = episodes.draw(number);
            assert!(has_all(&episode) && episode.queries.len() == 6);
            trained.extend(episode.queries.iter().map(path));
            let triplets = episodes.draw_triplets(number);
            exemplars.extend(triplets.iter().flat_map(|triplet| [triplet.anchor, triplet.positive, triplet.negative]));
        }
        trained.extend(exemplars.iter().map(|exemplar| exemplar.place(&episodes.library).0.to_path_buf()));
        assert!(trained.iter().all(|path| !different.contains(path)), "seed {seed}");
    }
}
