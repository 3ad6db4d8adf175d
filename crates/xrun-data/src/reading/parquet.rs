//! Parquet files as JSON lines: each is converted once, into the cache, since rows of Parquet cannot be read one by one.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use xrun_core::dataset::digest::digest_of_file;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::{cache, generated};
use xrun_core::files::file;
use xrun_core::{panics, printable};

/// First bytes of a Parquet file.
const MAGIC: &[u8] = b"PAR1";
/// Maximum size of a Parquet file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Maximum size of its rows as JSON lines.
const LINES_BYTES_MAX: u64 = 16 * 1024 * 1024 * 1024;
/// Directory of converted rows in the cache.
const SUBDIRECTORY: &str = "rows";
/// Maximum number of converted files that are kept.
const CONVERTED_MAX: usize = 32;

/// JSON lines with the rows of a file, an object each with the columns as keys; bytes are base64. `None` if the file is not Parquet.
///
/// # Errors
/// The file cannot be read or is damaged, or the cache cannot be written.
pub fn json_lines(path: &Path) -> Result<Option<PathBuf>, DataError> {
    let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
    let mut start = Vec::new();
    let mut opened = file::open(path).map_err(failed)?;
    Read::take(&mut opened, MAGIC.len() as u64).read_to_end(&mut start).map_err(failed)?;
    if start != MAGIC {
        return Ok(None);
    }
    let length = opened.metadata().map_err(failed)?.len();
    if length > FILE_BYTES_MAX {
        let message = format!("has {length} bytes, at most {FILE_BYTES_MAX} are read of a Parquet file");
        return Err(DataError::file(path, message));
    }
    let directory = cache::directory().join(SUBDIRECTORY);
    let place = directory.join(format!("{}.jsonl", &digest_of_file(path)?[..32]));
    generated::file(&place, |lines| {
        // The crate panics on some damaged files.
        panics::caught(|| convert(path, opened, lines))
            .unwrap_or_else(|_| Err(DataError::file(path, "is a damaged Parquet file: its rows cannot be read")))
    })?;
    cache::remove_oldest(&directory, CONVERTED_MAX);
    Ok(Some(place))
}

fn convert(path: &Path, parquet: File, lines: &Path) -> Result<(), DataError> {
    let unreadable = |error: ParquetError| {
        let message = printable::line(&error.to_string(), 200);
        let hint = match message.contains("compress") || message.contains("Disabled feature") {
            true => "; write it with the compression \"snappy\", which is the default of pandas and datasets, or none",
            false => "",
        };
        DataError::file(path, format!("is a Parquet file that cannot be read: {message}{hint}"))
    };
    let unwritable = |error: std::io::Error| generated::not_made(lines, &error);
    let reader = SerializedFileReader::new(parquet).map_err(unreadable)?;
    let rows = reader.get_row_iter(None).map_err(unreadable)?;
    let new = std::fs::OpenOptions::new().write(true).create_new(true).open(lines).map_err(unwritable)?;
    let (mut out, mut written) = (BufWriter::new(new), 0);
    for row in rows {
        let line = row.map_err(unreadable)?.to_json_value().to_string();
        written += line.len() as u64 + 1;
        if written > LINES_BYTES_MAX {
            return Err(DataError::file(path, format!("has more than {LINES_BYTES_MAX} bytes of rows")));
        }
        out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).map_err(unwritable)?;
    }
    out.into_inner().map_err(|error| unwritable(error.into_error()))?.sync_all().map_err(unwritable)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// Values of a column, one of each row, at the definition level of a value that is there.
    pub(crate) enum Column<'a> {
        Bytes(i16, &'a [&'a [u8]]),
        Numbers(i16, &'a [i32]),
    }

    /// Writes rows as `datasets` does.
    pub(crate) fn write_rows(path: &Path, schema: &str, columns: &[Column<'_>]) {
        let file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).open(path).unwrap();
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for column in columns {
            let mut out = group.next_column().unwrap().unwrap();
            match column {
                Column::Bytes(level, values) => {
                    let bytes: Vec<ByteArray> = values.iter().map(|value| ByteArray::from(value.to_vec())).collect();
                    let (levels, rows) = (vec![*level; bytes.len()], vec![0; bytes.len()]);
                    out.typed::<ByteArrayType>().write_batch(&bytes, Some(&levels), Some(&rows)).unwrap();
                }
                Column::Numbers(level, values) => {
                    let (levels, rows) = (vec![*level; values.len()], vec![0; values.len()]);
                    out.typed::<Int32Type>().write_batch(values, Some(&levels), Some(&rows)).unwrap();
                }
            }
            out.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn a_file_of_another_kind_is_none_and_a_damaged_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        let put = |bytes: &[u8]| xrun_core::files::write::replace(&path, bytes).unwrap();
        for other in [&b""[..], b"PAR", b"{\"data\": []}"] {
            put(other);
            assert_eq!(json_lines(&path).unwrap(), None);
        }
        write_rows(&path, "message rows { optional binary a (UTF8); }", &[Column::Bytes(1, &[&b"x"[..]; 40])]);
        let whole = std::fs::read(&path).unwrap();
        for end in [4, 12, whole.len() / 2, whole.len() - 1] {
            put(&whole[..end]);
            assert!(json_lines(&path).unwrap_err().to_string().contains("a.parquet"), "{end}");
        }
        for at in 4..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            put(&bytes);
            // It may be another text; it is never a panic.
            let _ = json_lines(&path);
        }
    }
}
