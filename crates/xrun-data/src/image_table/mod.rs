//! Images whose classes are in a table: the whole image is the object.

mod columns;
mod find;
mod rows;

use std::path::Path;

use sha2::Digest;

use crate::boxes::format::Format;
use crate::boxes::open::ReaderInput;
use crate::boxes::raw::{ClassTable, Raw, RawImage};
use crate::directory_settings;
use crate::reading::confined::annotation_file;
use columns::Columns;
use rows::Table;
use xrun_core::dataset::error::DataError;

/// Largest table in bytes.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

directory_settings! {
    /// Images whose classes are in a table, a line an image: CSV, TSV or JSON lines, such as `labels.csv`, the `metadata.csv` of Hugging
    /// Face and the `_classes.csv` of Roboflow.
    ImageTable {
        /// The table, relative to `path`. Default: the one that is there, or one in each of `train/` and `val/`.
        #[serde(skip_serializing_if = "Option::is_none")]
        table: Option<String> = None,
        /// Column of the images: paths, or names without an ending. Default: by its name, or the first that names files.
        #[serde(skip_serializing_if = "Option::is_none")]
        image_column: Option<String> = None,
        /// Column of the classes. Default: by its name, or the other one of two; or a column of 0 and 1 for each class.
        #[serde(skip_serializing_if = "Option::is_none")]
        label_column: Option<String> = None,
        /// Column with `train` and `val` or `test`. Default: by its name, if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        split_column: Option<String> = None,
    }
}

impl Format for ImageTable {
    const NAME: &'static str = "image-table";
    const SECTION: &'static str = "dataset.image-table";
    const ADVICE: &'static str = "name the directory that holds the table and the images";

    fn read(&self, input: ReaderInput<'_>) -> Result<Raw, DataError> {
        let ReaderInput { root, invalid, digest, .. } = input;
        let (mut raw, mut classes) = (Raw::default(), ClassTable::default());
        for (name, part) in find::tables(root, self.table.as_deref())? {
            let path = root.join(&name);
            let bytes = annotation_file(root, &path, FILE_BYTES_MAX)?;
            digest.update(&bytes);
            let table = Table::read(&bytes, &path, invalid)?;
            let beside = Path::new(&name).parent().map_or_else(String::new, |above| above.display().to_string());
            let columns = Columns::choose(self, &table, root, &beside, &path)?;
            raw.notes.push(columns.note(&name));
            for (line, cells) in &table.rows {
                match columns.image(cells) {
                    Ok((file, class, split)) => {
                        let class = classes.number(class, None);
                        raw.images.push(RawImage { part: part.or(split), ..RawImage::of_class(file, class) });
                    }
                    Err((reason, message)) => invalid.add(reason, &path, format!("line {line}: {message}")),
                }
            }
        }
        raw.classes = classes.list;
        Ok(raw)
    }
}

#[cfg(test)]
#[path = "image_table_tests.rs"]
mod tests;
