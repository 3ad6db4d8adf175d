//! Generator of images with texts: JSON lines of messages and PNG files, written once.
//!
//! Equal settings give the same bytes on any machine and with any number of threads.

use std::io;
use std::path::{Path, PathBuf};

use rand::{Rng, RngExt};

use super::paint::Scene;
use super::settings::Generated;
use crate::reading::decoding::{Largest, decoding_bytes};
use xrun_core::dataset::digest::digest;
use xrun_core::dataset::digest_cache;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::generated::{self, GeneratedSet};
use xrun_core::files::write;
use xrun_core::seed::generator;

/// Version of what is written.
const VERSION: u32 = 1;
/// The files of the splits. The first is written last: its presence says that the directory is whole.
pub const FILES: [&str; 3] = ["train.jsonl", "held-out.jsonl", "unseen.jsonl"];
/// Index of the split with combinations of attributes that training never shows.
const UNSEEN: usize = 2;
/// Fields of an answer, in their order.
pub const FIELDS: [&str; 5] = ["shape", "colour", "place", "size", "mark"];
/// Images in a directory.
const IMAGES_PER_DIRECTORY_MAX: usize = 1000;

/// The set of these settings.
pub fn set(settings: &Generated) -> GeneratedSet {
    GeneratedSet::new("images", VERSION, settings, FILES[0])
}

/// Number of its PNG files.
pub fn images(settings: &Generated) -> usize {
    counts(settings).iter().sum()
}

/// The directory of the set below the cache directory `cache`, written now if it is not there yet.
///
/// # Errors
/// It cannot be written.
pub fn generate_in(settings: &Generated, cache: &Path) -> Result<PathBuf, DataError> {
    set(settings).generate(cache, |directory| write_all(settings, directory))
}

/// The image that takes most memory to decode: no file of noise has more bytes than its pixels and a little.
pub fn largest(settings: &Generated, path: &Path) -> Largest {
    let side = settings.image_size as u64;
    let bytes = decoding_bytes(side, side, side * side * 4 + 64 * 1024);
    Largest { path: path.to_owned(), width: side, height: side, bytes }
}

/// Examples of each split.
fn counts(settings: &Generated) -> [usize; 3] {
    [settings.examples, settings.held_out_examples, settings.unseen_examples]
}

/// Line of an example, and the line of its image in the list of digests.
struct WrittenExample {
    line: String,
    digest_line: String,
}

fn write_all(settings: &Generated, directory: &Path) -> io::Result<()> {
    let mut sums = String::new();
    let mut texts = Vec::new();
    for (split, count) in counts(settings).into_iter().enumerate() {
        for first in (0..count).step_by(IMAGES_PER_DIRECTORY_MAX) {
            std::fs::create_dir_all(directory.join(subdirectory(split, first)))?;
        }
        let mut text = String::new();
        // An example is a pure function of its number, so who makes it does not matter.
        let numbers: Vec<usize> = (0..count).collect();
        for WrittenExample { line, digest_line } in
            generated::parallel_map(&numbers, |number| write_example(settings, split, *number, directory))?
        {
            text += &line;
            sums += &digest_line;
        }
        sums += &format!("{}  {}\n", digest(text.as_bytes()), FILES[split]);
        texts.push(text);
    }
    write::replace(&directory.join(digest_cache::SUMS), sums.as_bytes()).map_err(|error| error.source)?;
    for (name, text) in FILES.iter().zip(&texts).rev() {
        write::replace(&directory.join(name), text.as_bytes()).map_err(|error| error.source)?;
    }
    Ok(())
}

/// Subdirectory of an image, with at most [`IMAGES_PER_DIRECTORY_MAX`] of them.
fn subdirectory(split: usize, number: usize) -> String {
    format!("images/{}-{:03}", FILES[split].trim_end_matches(".jsonl"), number / IMAGES_PER_DIRECTORY_MAX)
}

fn write_example(settings: &Generated, split: usize, number: usize, directory: &Path) -> io::Result<WrittenExample> {
    let random = &mut generator(settings.seed, FILES[split], number as u64);
    let scene = Scene::draw(random, split == UNSEEN);
    let (question, answer) = question_and_answer(random, &scene);
    let image = format!("{}/{number:06}.png", subdirectory(split, number));
    let bytes = scene.paint(random, settings.image_size).to_png()?;
    generated::write_new(&directory.join(&image), &bytes)?;
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let line = format!(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": [{{\"type\": \"image\", \"image\": {}}}, {{\"type\": \
         \"text\", \"text\": {}}}]}}, {{\"role\": \"assistant\", \"content\": {}}}]}}\n",
        quoted(&image),
        quoted(&question),
        quoted(&answer)
    );
    Ok(WrittenExample { line, digest_line: format!("{}  {image}\n", digest(&bytes)) })
}

/// Question about a scene and its answer: seven in ten ask for all fields, the others for two.
fn question_and_answer(random: &mut impl Rng, scene: &Scene) -> (String, String) {
    let (question, wanted) = match random.random_range(0..10_u32) {
        0..7 => ("describe the picture".to_owned(), FIELDS.to_vec()),
        _ => {
            let first = random.random_range(0..FIELDS.len());
            let second = (first + random.random_range(1..FIELDS.len())) % FIELDS.len();
            let pair = [FIELDS[first.min(second)], FIELDS[first.max(second)]];
            (format!("give {} and {}", pair[0], pair[1]), pair.to_vec())
        }
    };
    let fields: Vec<String> = wanted.iter().map(|name| format!("\"{name}\": {}", scene.field(name))).collect();
    (question, format!("{{{}}}", fields.join(", ")))
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
