//! Numbers and lengths of the texts of a data set of questions, for `xrun check`.

use super::QuestionCounts;
use crate::describe::splits;
use xrun_core::dataset::description::Description;
use xrun_core::units::pluralize;

/// Lengths of the shortest and the longest text in characters; `None` without a text.
pub type Lengths = Option<(usize, usize)>;

/// Adds a text to the lengths of others.
pub(super) fn add_length(lengths: &mut Lengths, length: usize) {
    let (least, most) = lengths.unwrap_or((length, length));
    *lengths = Some((least.min(length), most.max(length)));
}

/// Texts of one or two files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    /// Number of articles.
    pub articles: u64,
    /// Contexts that questions are about.
    pub contexts: Lengths,
    /// First answers of the questions that are used.
    pub answers: Lengths,
}

impl Texts {
    /// Adds the texts of another file.
    pub fn add(&mut self, other: &Self) {
        self.articles += other.articles;
        for (own, more) in [(&mut self.contexts, &other.contexts), (&mut self.answers, &other.answers)] {
            more.iter().flat_map(|(least, most)| [*least, *most]).for_each(|length| add_length(own, length));
        }
    }

    /// Describes the data.
    pub(super) fn description(&self, questions: &QuestionCounts) -> Description {
        let QuestionCounts { train, held_out } = *questions;
        let (all, articles) = (pluralize(train + held_out, "question"), pluralize(self.articles, "article"));
        let mut lines = vec![format!("{all} about {articles}: {}", splits(train, held_out))];
        if let (Some(contexts), Some(answers)) = (self.contexts, self.answers) {
            let span = |(least, most): (usize, usize)| format!("{least} to {most} characters");
            lines.push(format!("contexts of {}, answers of {}", span(contexts), span(answers)));
        }
        Description { lines, warnings: Vec::new() }
    }
}
