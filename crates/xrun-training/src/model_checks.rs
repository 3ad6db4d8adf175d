//! Checks of sizes that several models have.

use xrun_core::problem::{Problem, Problems};

/// Adds a problem if the groups of a normalisation (`groups`, 0 for none) do not divide one of the `widths` at the key `name` of
/// the table `model`.
pub fn groups(model: &str, name: &str, widths: &[usize], groups: usize, problems: &mut Problems) {
    if let Some(width) = widths.iter().find(|width| groups > 0 && !width.is_multiple_of(groups)) {
        let message = format!("{width} channels cannot be divided into {groups} groups of equal size");
        let problem = Problem::new(format!("{model}.{name}"), message).related(format!("{model}.norm_groups"));
        problems.add(problem.help(format!("for example {}", width.next_multiple_of(groups))));
    }
}

/// Adds a problem if the attention heads do not divide the hidden size. `size` and `heads` are keys of the table `model` with
/// their values.
pub fn heads(model: &str, size: (&str, usize), heads: (&str, usize), problems: &mut Problems) {
    if !size.1.is_multiple_of(heads.1) {
        let message = format!("a hidden size of {} is not divisible by {} heads", size.1, heads.1);
        let problem = Problem::new(format!("{model}.{}", size.0), message).related(format!("{model}.{}", heads.0));
        problems.add(problem.help(format!("for example {}", size.1.next_multiple_of(heads.1))));
    }
}
