//! Answered claims as Markdown.

use std::fmt::Write;

use super::{Answer, AnsweredClaim};

const ANSWERS: [Answer; 4] = [Answer::Confirmed, Answer::Refuted, Answer::Depends, Answer::CannotBeShown];

const INTRODUCTION: &str = "\
# Claims of the reports

This page answers each claim, remedy, table and command of the five reports in [origins.md](origins.md) with a measurement. `xrun claims`
prints it from `results/claims.toml` and the tables in `results/reference`; `results/take-claims` measures all of them anew, on two cores of
a CPU in about 25 minutes.

A change is that of the geometric mean of the runs, with its 95 % confidence interval, as in the table of the sweep
([sweeps.md](sweeps.md)). Another figure is the median of the runs, with their range. A claim is *confirmed* or *refuted* if its last figure, with its whole interval, is
inside or outside the range that `results/claims.toml` states for it, and *depends* if the interval is partly inside. The experiments are
scaled down: shares and signs are compared, not gigabytes.
";

/// Page with a table for each report.
pub fn markdown(reports: &[(&str, Vec<AnsweredClaim>)]) -> String {
    let mut text = format!("{INTRODUCTION}\n{}\n", summary_table(reports));
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
fn summary_table(reports: &[(&str, Vec<AnsweredClaim>)]) -> String {
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
