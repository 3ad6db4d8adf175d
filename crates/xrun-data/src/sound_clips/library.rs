//! Index of a data set of sounds: classes, clips, folds and columns, without any samples.

use std::path::PathBuf;

use super::ClipCounts;
use super::describe;
use super::settings::LoaderSettings;
use xrun_core::dataset::description::Description;
use xrun_core::dataset::error::InvalidItems;
use xrun_core::dataset::open_dataset::OpenDataset;
use xrun_core::dataset::split::Split;

/// Split of the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClassSplit {
    /// Classes that the nodes train on. All classes of a directory are.
    Federated,
    /// Classes that train an encoder before the run; only generated sets have them.
    Pretraining,
    /// Classes in no training, which show whether features or labels were learned; only generated sets have them.
    Unseen,
}

/// A class: the `category` and the `target` of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// The table's `category`.
    pub name: String,
    /// Number of the class in the table, by which classes are ordered.
    pub target: u32,
    /// Its split.
    pub split: ClassSplit,
    /// Words whose drawn vectors add up to the class's targets: classes that share one have related targets.
    pub words: Vec<String>,
}

/// A clip, without its samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clip {
    /// WAV file, relative to [`Library::directory`].
    pub file: String,
    /// Index into [`Library::classes`].
    pub class: u32,
    /// The table's `fold`.
    pub fold: u32,
}

/// A column of the table, by which clips can be dealt to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The word in the table's header.
    pub name: String,
    /// Distinct values, in the order of their first occurrence in the table.
    pub values: Vec<String>,
    /// Index into `values`, a clip each in the order of [`Library::clips`].
    pub of_clip: Vec<u32>,
}

/// The index of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Library {
    /// Directory of the clips.
    pub directory: PathBuf,
    /// Classes of the nodes, then public ones, then unseen ones; each in the order of their targets.
    pub classes: Vec<Class>,
    /// Clips in the order of the table.
    pub clips: Vec<Clip>,
    /// All columns of the table but `filename`.
    pub columns: Vec<Column>,
    /// The clips of this fold are held out.
    pub validation_fold: u32,
    /// Clips of nothing but zeros. Not counted in a generated set, which has none.
    pub silent: u64,
    /// Notes about files in the directories of the clips that are not used.
    pub ignored: Vec<String>,
    /// SHA-256 of the table and of all clips, in hexadecimal.
    pub digest: String,
    /// Items that were left out.
    pub skipped: InvalidItems,
    /// Bytes that decoding the largest clip takes.
    pub decoding_bytes: u64,
    /// Bytes that opening took at most beside the index: the table, and digests of the clips.
    pub opening_bytes: u64,
}

impl Library {
    /// Numbers of the clips of a split of the classes and of the folds, ascending.
    pub fn clips_of(&self, of: ClassSplit, split: Split) -> Vec<u32> {
        let wanted = |clip: &Clip| self.classes[clip.class as usize].split == of && self.split(clip) == split;
        (0_u32..).zip(&self.clips).filter(|(_, clip)| wanted(clip)).map(|(number, _)| number).collect()
    }

    /// Numbers of all clips of a split of the classes, ascending, whatever their fold.
    pub fn all_of(&self, split: ClassSplit) -> Vec<u32> {
        let wanted = |clip: &Clip| self.classes[clip.class as usize].split == split;
        (0_u32..).zip(&self.clips).filter(|(_, clip)| wanted(clip)).map(|(number, _)| number).collect()
    }

    /// The indices of the classes of a split, which follow one another.
    pub fn classes_of(&self, split: ClassSplit) -> std::ops::Range<usize> {
        let first = self.classes.iter().take_while(|class| class.split < split).count();
        first..first + self.classes.iter().filter(|class| class.split == split).count()
    }

    /// Split of a clip, by its fold.
    pub fn split(&self, clip: &Clip) -> Split {
        if clip.fold == self.validation_fold { Split::Validation } else { Split::Train }
    }

    /// A column of the table by its name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> u64 {
        let clips = self.clips.capacity() * size_of::<Clip>();
        let names: usize = self.clips.iter().map(|clip| clip.file.capacity()).sum();
        let classes: usize = self.classes.iter().map(|class| size_of::<Class>() + class.name.capacity()).sum();
        let columns: usize = self.columns.iter().map(Column::bytes).sum();
        (clips + names + classes + columns) as u64
    }
}

impl OpenDataset for Library {
    const SAMPLE_NOUN: &'static str = "sounds with classes";
    type Summary = ClipCounts;
    type LoaderSettings = LoaderSettings;

    fn skipped(&self) -> InvalidItems {
        self.skipped.clone()
    }

    fn summary(&self) -> Self::Summary {
        let [mut train, mut held_out] = [vec![0; self.classes_of(ClassSplit::Federated).len()], Vec::new()];
        held_out.clone_from(&train);
        for clip in &self.clips {
            let counts = if self.split(clip) == Split::Train { &mut train } else { &mut held_out };
            if let Some(count) = counts.get_mut(clip.class as usize) {
                *count += 1;
            }
        }
        let columns = self.columns.iter().map(|column| column.name.clone()).collect();
        ClipCounts { train, held_out, silent: self.silent, columns }
    }

    fn description(&self) -> Description {
        describe::describe(self)
    }
}

impl Column {
    fn bytes(&self) -> usize {
        let values: usize = self.values.iter().map(|value| size_of::<String>() + value.capacity()).sum();
        size_of::<Self>() + values + self.of_clip.capacity() * size_of::<u32>()
    }
}
