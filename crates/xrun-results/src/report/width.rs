//! Fitting tables and text to the width of a terminal. Width `None` means no terminal: nothing is left out or
//! wrapped.

use unicode_width::UnicodeWidthStr;

/// Table with two spaces between columns, measured in terminal cells. A column whose title begins with `>` is
/// right-aligned.
pub fn columns(header: &[&str], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..header.len()).map(|at| column_width(header, rows, at)).collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.enumerate().map(|(column, cell)| {
            let space = " ".repeat(widths[column] - cell.width());
            if header[column].starts_with('>') { format!("{space}{cell}") } else { format!("{cell}{space}") }
        });
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    };
    line(&mut header.iter().map(|title| title.trim_start_matches('>')));
    rows.iter().for_each(|row| line(&mut row.iter().map(String::as_str)));
    text
}

/// Table as [`columns`] formats it. If it is wider than `width` characters, it has those columns of `optional` that still fit,
/// the last named first.
pub fn columns_within(header: &[&str], rows: &[Vec<String>], width: Option<usize>, optional: &[&str]) -> String {
    let whole = columns(header, rows);
    let Some(width) = width.filter(|width| !fits(&whole, *width)) else { return whole };
    let is = |at: usize, name: &str| header[at].trim_start_matches('>') == name;
    let mut kept: Vec<usize> = (0..header.len()).filter(|&at| !optional.iter().any(|name| is(at, name))).collect();
    let used = |kept: &[usize]| kept.iter().map(|&at| column_width(header, rows, at) + GAP).sum::<usize>();
    for name in optional.iter().rev() {
        let added = (0..header.len()).find(|&at| is(at, name));
        kept.extend(added.filter(|&at| used(&kept) + column_width(header, rows, at) <= width));
    }
    kept.sort_unstable();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| kept.iter().map(|&at| row[at].clone()).collect()).collect();
    columns(&kept.iter().map(|&at| header[at]).collect::<Vec<_>>(), &rows)
}

/// Table as [`columns`] formats it, with all columns. If it is wider than `width` characters, the texts of its last column
/// are wrapped; if that is not enough, it is split into several tables, each with the first column.
pub fn table(header: &[&str], rows: &[Vec<String>], width: Option<usize>) -> String {
    let whole = columns(header, rows);
    let Some(width) = width.filter(|width| !fits(&whole, *width)) else { return whole };
    let lengths: Vec<usize> = (0..header.len()).map(|at| column_width(header, rows, at)).collect();
    let last = header.len() - 1;
    let is_text = |at: usize| at > 0 && !header[at].starts_with('>');
    let min_width = |at: usize| if at == last && is_text(at) { lengths[at].min(WRAPPED_MIN) } else { lengths[at] };
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    let mut used = usize::MAX;
    for at in 1..header.len() {
        let with = used.saturating_add(GAP + min_width(at));
        match blocks.last_mut().filter(|_| with <= width) {
            Some(block) => {
                block.push(at);
                used = with;
            }
            None => {
                blocks.push(vec![0, at]);
                used = lengths[0] + GAP + min_width(at);
            }
        }
    }
    let text = |block: &Vec<usize>| {
        let header: Vec<&str> = block.iter().map(|&at| header[at]).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(|row| block.iter().map(|&at| row[at].clone()).collect()).collect();
        let end = block[block.len() - 1];
        let before: usize = block[..block.len() - 1].iter().map(|&at| lengths[at] + GAP).sum();
        match is_text(end) && before + lengths[end] > width {
            true => columns(&header, &wrap_last_cell(&rows, width.saturating_sub(before).max(WRAPPED_MIN))),
            false => columns(&header, &rows),
        }
    };
    blocks.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// Width of the gap between columns.
const GAP: usize = 2;
/// Minimum width to which a text is wrapped.
const WRAPPED_MIN: usize = 20;

fn fits(text: &str, width: usize) -> bool {
    text.lines().all(|line| line.width() <= width)
}

fn column_width(header: &[&str], rows: &[Vec<String>], at: usize) -> usize {
    let title = header[at].trim_start_matches('>').width();
    rows.iter().map(|row| row[at].width()).max().unwrap_or(0).max(title)
}

/// Wraps the last cell of each row to `room` characters, adding rows as needed.
fn wrap_last_cell(rows: &[Vec<String>], room: usize) -> Vec<Vec<String>> {
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let Some((text, others)) = row.split_last() else { continue };
        for (at, line) in fold(text, Some(room), 0).lines().enumerate() {
            let others = others.iter().map(|cell| if at == 0 { cell.clone() } else { String::new() });
            all.push(others.chain([line.to_owned()]).collect());
        }
        if text.is_empty() {
            all.push(row.clone());
        }
    }
    all
}

/// Wraps a line at spaces to at most `width` characters; all parts but the first are indented. A longer word stays
/// whole, so that a path can be copied.
pub fn fold(line: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width.filter(|width| line.width() > *width) else { return line.to_owned() };
    let mut folded = String::new();
    let mut used = 0;
    for (number, word) in line.split(' ').enumerate() {
        let length = word.width();
        // Several spaces in a row are the gap after a label.
        if used > indent && !word.is_empty() && used + 1 + length > width {
            folded.truncate(folded.trim_end().len());
            folded.push('\n');
            folded.push_str(&" ".repeat(indent));
            used = indent;
        } else if number > 0 {
            folded.push(' ');
            used += 1;
        }
        folded.push_str(word);
        used += length;
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: Option<usize>) -> String {
        let rows = [vec!["2026-11-20".to_owned(), "stage2".into(), "map50 0.43".into(), "90 MB".into()]];
        columns_within(&["run", "experiment", "best", ">memory"], &rows, width, &["best", "memory", "no such column"])
    }

    #[test]
    fn the_least_important_columns_are_removed_first() {
        assert_eq!(
            table(None),
            "run         experiment  best        memory\n2026-11-20  stage2      map50 0.43   90 MB\n"
        );
        assert_eq!(table(Some(42)), table(None));
        assert_eq!(table(Some(41)), "run         experiment  memory\n2026-11-20  stage2       90 MB\n");
        let cells = [vec!["a".to_owned(), "bbbbbbbb".into(), "c".into()]];
        assert_eq!(
            columns_within(&["one", "two", "three"], &cells, Some(11), &["three", "two"]),
            "one  three\na    c\n"
        );
        assert_eq!(table(Some(29)), "run         experiment\n2026-11-20  stage2\n");
        assert_eq!(table(Some(5)), table(Some(29)), "what is left stays");
    }

    #[test]
    fn a_wide_table_is_wrapped_or_split_with_all_columns() {
        let header = ["buffer", ">items", ">bytes", "because"];
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows =
            [row(["feed", "2", "16 KiB", "a batch for each worker and one in use"]), row(["log", "16", "1 KiB", ""])];
        assert_eq!(super::table(&header, &rows, None), columns(&header, &rows));
        assert_eq!(super::table(&header, &rows, Some(66)), columns(&header, &rows));
        assert_eq!(
            super::table(&header, &rows, Some(50)),
            "buffer  items   bytes  because\n\
             feed        2  16 KiB  a batch for each worker and\n                       one in use\n\
             log        16   1 KiB\n"
        );
        assert_eq!(
            super::table(&header, &rows, Some(30)),
            "buffer  items   bytes\nfeed        2  16 KiB\nlog        16   1 KiB\n\n\
             buffer  because\nfeed    a batch for each\n        worker and one in use\nlog\n"
        );
    }

    #[test]
    fn long_lines_wrap_with_indent_and_words_stay_whole() {
        let line = "outcome       finished: all 490 steps are done";
        assert_eq!(fold(line, None, 14), line);
        assert_eq!(fold(line, Some(80), 14), line);
        assert_eq!(
            fold(line, Some(30), 14),
            "outcome       finished: all\n              490 steps are\n              done"
        );
        let path = "report        /a/long/path/to/a/report.html";
        assert_eq!(fold(path, Some(20), 14), path);
    }
}
