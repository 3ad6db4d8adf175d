//! CSV writer (RFC 4180). Values that were not measured are empty cells.

use std::io::{self, Write};

use super::columns::{ColumnValues, TableColumn};

/// CSV file, written block by block.
pub struct Writer<'a>(csv::Writer<&'a mut (dyn Write + Send)>);

impl<'a> Writer<'a> {
    pub fn open<L>(file: &'a mut (dyn Write + Send), columns: &[TableColumn<L>]) -> io::Result<Self> {
        let mut writer = csv::Writer::from_writer(file);
        writer.write_record(columns.iter().map(|column| &column.name))?;
        Ok(Self(writer))
    }

    pub fn write_block<L>(&mut self, columns: &[TableColumn<L>]) -> io::Result<()> {
        for row in 0..columns.first().map_or(0, TableColumn::rows) {
            for column in columns {
                let cell = match &column.values {
                    ColumnValues::Integers(_, values) => values[row].map(|value| value.to_string()),
                    // Shortest text that reads back to the same bits.
                    ColumnValues::Numbers(_, values) => values[row].map(|value| format!("{value:?}")),
                    ColumnValues::Words(_, values) => values[row].clone(),
                };
                self.0.write_field(crate::report::epochs::without_formula(cell.unwrap_or_default()))?;
            }
            self.0.write_record(None::<&[u8]>)?;
        }
        Ok(())
    }

    pub fn close(mut self) -> io::Result<()> {
        self.0.flush()
    }
}
