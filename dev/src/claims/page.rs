//! Answered claims as Markdown.

use std::fmt::Write;

use super::{Answer, AnsweredClaim, Measured, worst};

const ANSWERS: [Answer; 4] = [Answer::Confirmed, Answer::Refuted, Answer::Depends, Answer::NotShown];

const INTRODUCTION: &str = "\
# Claims of the reports

This page answers each claim, remedy, table and command of the five reports in [origins.md](origins.md) with measurements. `cargo dev claims`
prints it from `results/claims.toml` and the files in `results/reference`; `results/take-claims` measures all of them anew.

A claim has two answers. *Found by xrun*: the leak or effect, reproduced by a switch or setting, is found, with its owner. *Cause as the
report states it*: that the code of the report does what the report says, or its remedy what it promises. A switch keeps things by
construction and answers no cause. Each figure has its own expectation, written before it was measured, and an answer is that of its worst
figure: *confirmed* or *refuted* if the interval over three measurements is inside or outside the expectation, *depends* if partly inside;
between *depends* and *refuted* comes *not shown here*. A change is that of the geometric mean in pairs of one seed, with its 95 %
confidence interval ([sweeps.md](sweeps.md)); another figure is the median, with the range. Speeds are of one measurement on a machine
without other work, the only one made there. The experiments are scaled down: shares and signs are compared, not gigabytes.
";

/// Page with a table for each report.
pub fn markdown(reports: &[(&str, Vec<AnsweredClaim>)]) -> String {
    let mut text = format!("{INTRODUCTION}\n{}\n", summary_table(reports));
    for (title, claims) in reports {
        let _ = write!(text, "\n## {}\n\n", cell(title));
        text += "| claim | report's figure | shown by | found by xrun | cause as the report states it | remark |\n";
        text += "|---|---|---|---|---|---|\n";
        for AnsweredClaim { claim, found, cause } in claims {
            let command = if claim.command.is_empty() { String::new() } else { format!("`{}`", cell(&claim.command)) };
            let (says, reported, because) = (cell(&claim.says), cell(&claim.reported), cell(&claim.because));
            let (found, cause) = (answer_cell(found), answer_cell(cause));
            let _ = writeln!(text, "| {says} | {reported} | {command} | {found} | {cause} | {because} |");
        }
    }
    text
}

/// Answer with its figures; each has its own answer where they differ.
fn answer_cell(measured: &Measured) -> String {
    let all = worst(measured);
    let mut text = format!("**{}**", all.label());
    for (figure, answer) in measured {
        let own = if *answer == all { String::new() } else { format!(": *{}*", answer.label()) };
        let _ = write!(text, "<br>{}{own}", cell(figure));
    }
    text
}

/// Table with the number of each answer by report.
fn summary_table(reports: &[(&str, Vec<AnsweredClaim>)]) -> String {
    let mut text = String::from("| report | claims |");
    for column in ["found", "cause"] {
        for answer in ANSWERS {
            let _ = write!(text, " {column}: {} |", answer.label());
        }
    }
    text += "\n|---|---|---|---|---|---|---|---|---|---|\n";
    let mut row = |title: &str, claims: &[&AnsweredClaim]| {
        let _ = write!(text, "| {} | {} |", cell(title), claims.len());
        for column in [|claim: &AnsweredClaim| worst(&claim.found), |claim: &AnsweredClaim| worst(&claim.cause)] {
            for answer in ANSWERS {
                let _ = write!(text, " {} |", claims.iter().filter(|claim| column(claim) == answer).count());
            }
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
