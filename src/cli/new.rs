//! `xrun new PIPELINE`: a commented file to start from.

use super::NewArguments;
use super::terminal::{Failure, Terminal};
use crate::experiment::template;
use crate::pipelines::Pipeline;
use crate::problem::nearest;

pub fn run(arguments: &NewArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let text = template::template(&arguments.pipeline).ok_or_else(|| {
        let kinds = Pipeline::KINDS;
        let meant = nearest(&arguments.pipeline, kinds.iter().copied());
        let hint = meant.map_or_else(String::new, |kind| format!("; did you mean `{kind}`?"));
        Failure::Usage(format!("there is no pipeline `{}`{hint} (known: {})", arguments.pipeline, kinds.join(", ")))
    })?;
    terminal.answer(&text);
    Ok(0)
}
