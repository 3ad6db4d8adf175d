//! Answered claims as Markdown.

use std::fmt::Write;

use super::{Answer, AnsweredClaim};

const ANSWERS: [Answer; 4] = [Answer::Confirmed, Answer::Refuted, Answer::Depends, Answer::CannotBeShown];

/// Page with a table for each report.
pub fn markdown(reports: &[(&str, Vec<AnsweredClaim>)]) -> String {
    let mut text = format!("{}\n", summary_table(reports));
    for (title, claims) in reports {
        let _ = write!(text, "\n## {}\n\n", cell(title));
        text += "| claim | report's figure | shown by | measured here | answer |\n|---|---|---|---|---|\n";
        for answered in claims {
            let claim = &answered.claim;
            let command = if claim.command.is_empty() { String::new() } else { format!("`{}`", cell(&claim.command)) };
            let because = if claim.because.is_empty() { String::new() } else { format!(": {}", cell(&claim.because)) };
            let figures: Vec<String> = answered.figures.iter().map(|figure| cell(figure)).collect();
            let _ = writeln!(
                text,
                "| {} | {} | {command} | {} | **{}**{because} |",
                cell(&claim.says),
                cell(&claim.reported),
                figures.join("<br>"),
                answered.answer.label(),
            );
        }
    }
    text
}

/// Table with the number of each answer by report.
pub fn summary_table(reports: &[(&str, Vec<AnsweredClaim>)]) -> String {
    let mut text = String::from("| report | claims |");
    for answer in ANSWERS {
        let _ = write!(text, " {} |", answer.label());
    }
    text += "\n|---|---|---|---|---|---|\n";
    let mut row = |title: &str, claims: &[&AnsweredClaim]| {
        let _ = write!(text, "| {} | {} |", cell(title), claims.len());
        for answer in ANSWERS {
            let _ = write!(text, " {} |", claims.iter().filter(|claim| claim.answer == answer).count());
        }
        text.push('\n');
    };
    for (title, claims) in reports {
        row(title, &claims.iter().collect::<Vec<_>>());
    }
    row("all", &reports.iter().flat_map(|(_, claims)| claims).collect::<Vec<_>>());
    text.trim_end().to_owned()
}

/// Text of a cell: `|` would begin the next one.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
