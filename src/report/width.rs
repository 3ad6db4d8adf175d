//! How do tables and sentences fit a terminal? `None` as width: it is none, and nothing is left out or folded.

use super::listing::columns;

/// A table as [`columns`] writes it. Where it is wider than `width` characters, columns go, in the order in which
/// `first_to_go` names them, until it fits or all of those are gone.
pub fn columns_within(header: &[&str], rows: &[Vec<String>], width: Option<usize>, first_to_go: &[&str]) -> String {
    let (mut header, mut rows) = (header.to_vec(), rows.to_vec());
    let mut text = columns(&header, &rows);
    for name in first_to_go {
        if width.is_none_or(|width| text.lines().all(|line| line.chars().count() <= width)) {
            break;
        }
        let Some(at) = header.iter().position(|title| title.trim_start_matches('>') == *name) else { continue };
        header.remove(at);
        rows.iter_mut().for_each(|row| drop(row.remove(at)));
        text = columns(&header, &rows);
    }
    text
}

/// Breaks a line at spaces so that each part has at most `width` characters; the parts behind the first are indented. A
/// word that is longer stays whole: a path can be copied.
pub fn fold(line: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width.filter(|width| line.chars().count() > *width) else { return line.to_owned() };
    let mut folded = String::new();
    let mut used = 0;
    for (number, word) in line.split(' ').enumerate() {
        let length = word.chars().count();
        // Several spaces in a row are the gap behind a label.
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
    fn the_least_important_columns_go_first_and_only_as_far_as_needed() {
        assert_eq!(
            table(None),
            "run         experiment  best        memory\n2026-11-20  stage2      map50 0.43   90 MB\n"
        );
        assert_eq!(table(Some(42)), table(None));
        assert_eq!(table(Some(41)), "run         experiment  memory\n2026-11-20  stage2       90 MB\n");
        assert_eq!(table(Some(29)), "run         experiment\n2026-11-20  stage2\n");
        assert_eq!(table(Some(5)), table(Some(29)), "what is left stays");
    }

    #[test]
    fn long_lines_fold_below_their_value_and_words_stay_whole() {
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
