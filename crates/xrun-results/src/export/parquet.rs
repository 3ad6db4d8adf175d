//! Parquet writer, one row group per block. All columns are optional: values that were not measured are null.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use super::columns::{ColumnValues, TableColumn};

/// Parquet file, written block by block.
pub struct Writer<'a>(SerializedFileWriter<&'a mut (dyn Write + Send)>);

impl<'a> Writer<'a> {
    pub fn open<L>(file: &'a mut (dyn Write + Send), columns: &[TableColumn<L>]) -> io::Result<Self> {
        let fields: Result<_, ParquetError> = columns.iter().map(|column| field(column).map(Arc::new)).collect();
        let schema = fields.and_then(|fields| Type::group_type_builder("run").with_fields(fields).build());
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            // Statistics per row group only: page statistics would accumulate until the end of the file.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_created_by(concat!("xrun version ", env!("CARGO_PKG_VERSION")).into())
            .build();
        let schema = schema.map_err(io_error)?;
        SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)).map(Self).map_err(io_error)
    }

    pub fn write_block<L>(&mut self, columns: &[TableColumn<L>]) -> io::Result<()> {
        self.row_group(columns).map_err(io_error)
    }

    fn row_group<L>(&mut self, columns: &[TableColumn<L>]) -> Result<(), ParquetError> {
        let mut group = self.0.next_row_group()?;
        for column in columns {
            let Some(mut out) = group.next_column()? else { break };
            match &column.values {
                ColumnValues::Integers(_, values) => write_column::<Int64Type, _>(&mut out, values, |value| *value)?,
                ColumnValues::Numbers(_, values) => write_column::<DoubleType, _>(&mut out, values, |value| *value)?,
                ColumnValues::Words(_, values) => {
                    write_column::<ByteArrayType, _>(&mut out, values, |word| ByteArray::from(word.as_str()))?;
                }
            }
            out.close()?;
        }
        group.close().map(drop)
    }

    pub fn close(self) -> io::Result<()> {
        self.0.close().map(drop).map_err(io_error)
    }
}

fn field<L>(column: &TableColumn<L>) -> Result<Type, ParquetError> {
    let (physical, logical) = match &column.values {
        ColumnValues::Integers(..) => (Physical::INT64, None),
        ColumnValues::Numbers(..) => (Physical::DOUBLE, None),
        ColumnValues::Words(..) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

/// Writes a column of a row group: definition levels and values.
fn write_column<T: DataType, V>(
    out: &mut SerializedColumnWriter<'_>,
    values: &[Option<V>],
    convert: impl Fn(&V) -> T::T,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let present: Vec<T::T> = values.iter().flatten().map(convert).collect();
    out.typed::<T>().write_batch(&present, Some(&levels), None).map(drop)
}

/// Unwraps an I/O error, so that a full disk is reported as one.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    }
}
