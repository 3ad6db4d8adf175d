//! Problems of an experiment as GitHub annotations.

use crate::printable::escape;
use crate::problem::{Problem, Problems};

/// GitHub workflow commands, one line per problem, which GitHub shows at the line of the file.
pub fn github(file: &str, problems: &Problems) -> String {
    let mut text = String::new();
    for problem in problems.iter() {
        let (file, line, column) = location(file, problem);
        let help = problem.help.as_ref().map_or_else(String::new, |help| format!("\nhelp: {help}"));
        let message = format!("{}{help}", message(problem));
        text.push_str(&format!(
            "::error file={},line={line},col={column},title={}::{}\n",
            property(&file),
            property(if problem.key.is_empty() { "xrun check" } else { &problem.key }),
            escaped(&message)
        ));
    }
    if problems.left_out > 0 {
        text.push_str(&format!("::error file={}::{} more problems\n", property(file), problems.left_out));
    }
    text
}

fn message(problem: &Problem) -> String {
    match problem.key.as_str() {
        "" => escape(&problem.message).into_owned(),
        key => format!("`{}`: {}", escape(key), escape(&problem.message)),
    }
}

/// File, line and column of a problem. For the command line and the environment, the first line of the checked file.
fn location(file: &str, problem: &Problem) -> (String, usize, usize) {
    match problem.location.as_ref().filter(|location| std::path::Path::new(&location.source.name).is_file()) {
        Some(location) => {
            let (line, column) = location.line_and_column();
            (location.source.name.clone(), line, column)
        }
        None => (file.to_owned(), 1, 1),
    }
}

/// Text with the escapes of GitHub's workflow commands.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_cannot_break_out_of_the_command() {
        let mut problems = Problems::default();
        problems.add(Problem::new("a:b,c", "50 % of it\n::error::forged").help("two\nlines"));
        let text = github("exp,1.toml", &problems);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("::error file=exp%2C1.toml,line=1,col=1,title=a%3Ab%2Cc::"), "{text}");
        assert!(text.contains("50 %25 of it") && text.contains("%0Ahelp: two%0Alines"), "{text}");
    }
}
