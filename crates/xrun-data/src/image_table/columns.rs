//! Columns of a table of labels: which has the images, which the classes, and which the splits.

use std::path::Path;

use super::ImageTable;
use super::rows::Table;
use crate::boxes::raw::{HELD_OUT, TRAIN};
use crate::reading::confined::{Root, leads_down};
use crate::reading::invalid::Fault;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_core::printable;

/// Names of columns of images, in lower case.
const IMAGES: [&str; 12] = [
    "file_name",
    "filename",
    "image",
    "image_path",
    "path",
    "file",
    "filepath",
    "img",
    "image_id",
    "image_name",
    "id",
    "name",
];
/// Names of columns of classes, in lower case.
const LABELS: [&str; 11] = [
    "label",
    "class",
    "category",
    "target",
    "labels",
    "class_name",
    "category_name",
    "label_name",
    "breed",
    "species",
    "y",
];
/// Names of columns of splits, in lower case.
const SPLITS: [&str; 4] = ["split", "subset", "set", "partition"];
/// Directories of images beside a table.
const DIRECTORIES: [&str; 6] = ["", "images", "train", "img", "imgs", "data"];
/// Endings that names may lack.
const ENDINGS: [&str; 4] = [".jpg", ".png", ".jpeg", ".webp"];
/// Number of rows that are tried to find the files of a column.
const TRIED_MAX: usize = 16;

/// Classes of the images.
#[derive(Debug)]
enum Labels {
    /// Class in this column.
    Column(usize),
    /// 1 in the column of the class, 0 in the others.
    OneHot(Vec<usize>),
}

/// Columns in use.
#[derive(Debug)]
pub struct Columns<'a> {
    names: &'a [String],
    image: usize,
    /// Directory of the images, relative to the root, and what is behind their names.
    directory: String,
    ending: &'static str,
    labels: Labels,
    split: Option<usize>,
}

impl<'a> Columns<'a> {
    /// Chooses the columns that the settings name, or those that names and files tell. `beside` is the directory of the table.
    ///
    /// # Errors
    /// A column is not there, or none is clearly meant.
    pub fn choose(
        settings: &ImageTable,
        table: &'a Table,
        root: &Root,
        beside: &str,
        path: &Path,
    ) -> Result<Self, DataError> {
        let lower: Vec<String> = table.columns.iter().map(|name| name.to_lowercase()).collect();
        let known = |names: &[&str]| names.iter().find_map(|name| lower.iter().position(|column| column == name));
        let asked = |key: &str, name: &Option<String>| {
            let position = |name: &String| {
                table.columns.iter().position(|column| column == name).ok_or_else(|| {
                    let message = format!("there is no column \"{name}\"; the table has {}", table.named());
                    DataError::value(format!("dataset.image-table.{key}"), message)
                })
            };
            name.as_ref().map(position).transpose()
        };
        let unclear = |what: &str, key: &str| {
            let columns = table.named();
            Err(DataError::file(path, format!("no column is clearly {what}: {columns}; name it with `{key}`")))
        };
        let asked_image = asked("image_column", &settings.image_column)?;
        let candidates = match asked_image {
            Some(image) => vec![image],
            None => known(&IMAGES).into_iter().chain(0..lower.len()).collect(),
        };
        let found = candidates.into_iter().find_map(|column| Some((column, place(table, root, beside, column)?)));
        let missing = || Some((asked_image.or_else(|| known(&IMAGES))?, (beside.to_owned(), "")));
        let Some((image, (directory, ending))) = found.or_else(missing) else {
            return unclear("that of the images", "image_column");
        };
        let split = asked("split_column", &settings.split_column)?.or_else(|| known(&SPLITS));
        let others: Vec<usize> = (0..lower.len()).filter(|at| *at != image && Some(*at) != split).collect();
        let one_hot = || {
            let is_flag =
                |(_, cells): &(u64, Vec<String>)| others.iter().all(|at| matches!(cells[*at].as_str(), "0" | "1"));
            others.len() > 1 && table.rows.iter().all(is_flag)
        };
        let label = asked("label_column", &settings.label_column)?.or_else(|| known(&LABELS).filter(|at| *at != image));
        let labels = match (label, others.as_slice()) {
            (Some(label), _) => Labels::Column(label),
            (None, [only]) => Labels::Column(*only),
            (None, _) if one_hot() => Labels::OneHot(others),
            (None, _) if lower.iter().any(|name| name == "objects" || name == "xmin") => {
                let message = "has boxes, which are read from COCO's, VOC's or YOLO's files; export one of them";
                return Err(DataError::file(path, message));
            }
            (None, _) => return unclear("that of the classes", "label_column"),
        };
        Ok(Self { names: &table.columns, image, directory, ending, labels, split })
    }

    /// File, class and split of the image of a row.
    ///
    /// # Errors
    /// The row names no image, or not one class.
    pub fn image<'b>(&'b self, cells: &'b [String]) -> Result<(String, &'b str, Option<Split>), Fault> {
        let name = cells[self.image].as_str();
        if name.is_empty() {
            return Err(("no_file_name", format!("the column \"{}\" is empty", self.names[self.image])));
        }
        let class = match &self.labels {
            Labels::Column(at) => Some(cells[*at].as_str()).filter(|class| !class.is_empty()).ok_or(0),
            Labels::OneHot(columns) => match columns.iter().filter(|at| cells[**at] == "1").collect::<Vec<_>>()[..] {
                [only] => Ok(self.names[*only].as_str()),
                ref several => Err(several.len()),
            },
        };
        let class = class.map_err(|count| ("not_one_class", format!("has {count} classes, expected one")))?;
        let split = self.split.and_then(|at| match cells[at].to_lowercase().as_str() {
            part if TRAIN.contains(&part) => Some(Split::Train),
            part if HELD_OUT.contains(&part) => Some(Split::Validation),
            _ => None,
        });
        Ok((joined(&self.directory, name, self.ending), class, split))
    }

    /// Line that says what was taken for what.
    pub fn note(&self, table: &str) -> String {
        let name = |at: usize| printable::line(&self.names[at], 40);
        let classes = match &self.labels {
            Labels::Column(at) => format!("classes from `{}`", name(*at)),
            Labels::OneHot(columns) => format!("a column of 0 and 1 for each of {} classes", columns.len()),
        };
        let directory = if self.directory.is_empty() { String::new() } else { format!(" in {}/", self.directory) };
        let split = self.split.map_or_else(String::new, |at| format!(", splits from `{}`", name(at)));
        let table = printable::line(table, 80);
        format!("{table}: images from `{}`{}{directory}, {classes}{split}", name(self.image), self.ending)
    }
}

/// Path relative to the root of an image of this name.
fn joined(directory: &str, name: &str, ending: &str) -> String {
    if directory.is_empty() { format!("{name}{ending}") } else { format!("{directory}/{name}{ending}") }
}

/// Directory and ending with which most of the first names of a column are files; `None` where none is.
fn place(table: &Table, root: &Root, beside: &str, column: usize) -> Option<(String, &'static str)> {
    let names = || {
        table
            .rows
            .iter()
            .take(TRIED_MAX)
            .map(|(_, cells)| cells[column].as_str())
            .filter(|name| !name.is_empty() && leads_down(name))
    };
    let directories = DIRECTORIES.iter().map(|name| match (beside, *name) {
        ("", name) => name.to_owned(),
        (beside, "") => beside.to_owned(),
        (beside, name) => format!("{beside}/{name}"),
    });
    let endings = || std::iter::once("").chain(ENDINGS);
    let all = directories.flat_map(|directory| endings().map(move |ending| (directory.clone(), ending)));
    let found = |(directory, ending): &(String, &'static str)| {
        names().filter(|name| root.join(joined(directory, name, ending)).is_file()).count()
    };
    let mut best = (0, None);
    for place in all {
        let count = found(&place);
        if count > best.0 {
            best = (count, Some(place));
        }
    }
    best.1
}
