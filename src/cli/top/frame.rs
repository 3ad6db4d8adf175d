//! What does a look at the runs become on a terminal of so many characters?

use unicode_width::UnicodeWidthChar;

use super::row::Row;
use super::runs::Seen;
use crate::printable;
use crate::report::listing::columns_within;
use crate::report::width::fold;

/// What is left out first where a terminal is narrow.
const FIRST_TO_GO: [&str; 4] = ["experiment", "loss", "left", "verdict"];
/// What begins with the day fits without it.
const DAY: usize = "2026-11-21T".len();
/// Narrower than this, runs are named without the day.
const WIDTH_OF_DAYS: usize = 110;
const INDENT: &str = "  ";
const FOLDERS_CHARACTERS_MAX: usize = 200;

/// As text for a pipe or a script.
pub fn text(seen: &Seen, width: Option<usize>) -> String {
    lines(seen, width).join("\n")
}

/// A title, then a table with what each run holds below its row. No line is wider than `width`.
pub fn lines(seen: &Seen, width: Option<usize>) -> Vec<String> {
    let folders: Vec<String> = seen.folders.iter().map(|folder| folder.display().to_string()).collect();
    let shown_live = seen.rows.len().min(seen.going_on);
    let ended = seen.rows.len() - shown_live;
    let title = format!(
        "{} running, {ended} ended in {}",
        seen.going_on,
        printable::line(&folders.join(", "), FOLDERS_CHARACTERS_MAX)
    );
    let mut lines = vec![title];
    if seen.rows.is_empty() {
        lines.push("no runs here".into());
        return cut(lines, width);
    }
    let narrow = width.is_some_and(|width| width < WIDTH_OF_DAYS);
    let cells: Vec<Vec<String>> = seen.rows.iter().map(|row| cells(row, narrow)).collect();
    let header = ["run", "experiment", "state", ">step", ">loss", ">memory", "verdict", ">left"];
    let table = columns_within(&header, &cells, width, &FIRST_TO_GO);
    let mut table = table.lines();
    let head = table.next().unwrap_or_default();
    let has = |column: &str| head.split_whitespace().any(|word| word == column);
    let gone = |column: &str| !has(column);
    lines.push(String::new());
    lines.push(head.to_owned());
    for (row, line) in seen.rows.iter().zip(table) {
        lines.push(line.to_owned());
        let missing = [
            gone("experiment").then(|| row.experiment.clone()),
            (gone("loss") && row.loss != "-").then(|| format!("loss {}", row.loss)),
            gone("verdict").then(|| row.verdict.clone()),
            (gone("left") && row.left != "-" && !row.left.is_empty()).then(|| format!("left {}", row.left)),
        ];
        let missing = missing.into_iter().flatten().chain([row.owners.join(", "), row.seen.clone()]);
        let more = missing.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ");
        for part in [more, row.words.clone()].into_iter().filter(|part| !part.is_empty()) {
            lines.extend(fold(&format!("{INDENT}{part}"), width, INDENT.len()).lines().map(str::to_owned));
        }
    }
    if seen.going_on > shown_live {
        lines.push(format!("and {} more that go on", seen.going_on - shown_live));
    }
    if seen.left_out > 0 {
        lines.push(format!("and {} more that have ended; -n shows more", seen.left_out));
    }
    cut(lines, width)
}

fn cells(row: &Row, narrow: bool) -> Vec<String> {
    let or_none = |text: &String| if text.is_empty() { "-".to_owned() } else { text.clone() };
    let run = match row.run.get(DAY..) {
        Some(rest) if narrow && row.run.as_bytes()[DAY - 1] == b'T' => rest.to_owned(),
        _ => row.run.clone(),
    };
    let experiment = printable::line(&row.experiment, 20);
    let columns = [&row.state, &row.progress, &row.loss, &row.memory, &row.verdict, &row.left];
    [run, experiment].into_iter().chain(columns.map(or_none)).collect()
}

/// Lines that are too wide lose their end: a screen that wraps them would show fewer runs than there are.
fn cut(lines: Vec<String>, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return lines };
    lines.into_iter().map(|line| cut_one(&line, width)).collect()
}

fn cut_one(line: &str, width: usize) -> String {
    let wide = |character: char| character.width().unwrap_or(0);
    if line.chars().map(wide).sum::<usize>() <= width {
        return line.to_owned();
    }
    let mut shown = String::new();
    let mut used = 0;
    for character in line.chars() {
        if used + wide(character) + 1 > width {
            break;
        }
        used += wide(character);
        shown.push(character);
    }
    if width > 0 {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr;

    fn row(run: &str, words: &str) -> Row {
        Row {
            run: run.into(),
            experiment: "stage2".into(),
            state: "training".into(),
            progress: "310/1000  31 %".into(),
            loss: "0.4312".into(),
            memory: "82.5 MiB".into(),
            verdict: "growing".into(),
            left: "2 min 10 s".into(),
            owners: vec!["frame_cache 35.0 MiB".into(), "feed_ready 2.0 MiB".into()],
            seen: "on node7, seen 12 s ago".into(),
            words: words.into(),
            ..Row::default()
        }
    }

    fn seen() -> Seen {
        let words = "memory is growing: heap in use by 470.5 KiB a step since step 0; `leak` holds 96 % of the growth";
        let rows = vec![row("2026-11-21T07-56-17_57d022", words), row("0003-1", "猫".repeat(80).as_str())];
        Seen { rows, going_on: 1, left_out: 3, folders: vec!["results".into()] }
    }

    #[test]
    fn every_width_keeps_run_state_step_and_memory_and_no_line_is_wider() {
        for width in [40, 60, 80, 110, 200] {
            let text = lines(&seen(), Some(width));
            assert!(text.iter().all(|line| line.width() <= width), "{width}: {text:#?}");
            if width >= 60 {
                // What is folded is whole all the same.
                let words = text.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
                for part in
                    ["07-56-17_57d022", "training", "310/1000 31 %", "82.5 MiB", "growing", "frame_cache 35.0 MiB"]
                {
                    assert!(words.contains(part), "{width}: {part}: {text:#?}");
                }
            }
        }
        let wide = lines(&seen(), None).join("\n");
        assert!(wide.contains("2026-11-21T07-56-17_57d022  stage2") && wide.contains("96 % of the growth"), "{wide}");
        assert!(wide.starts_with("1 running, 1 ended in results\n"), "{wide}");
        assert!(wide.ends_with("and 3 more that have ended; -n shows more"), "{wide}");
    }
}
