//! Generator of sound clips. A class is a timbre and a modulation; written once, in the layout of ESC-50.
//!
//! Equal settings give the same bytes on any machine and with any number of threads.

use std::io::{self, Cursor};
use std::path::{Path, PathBuf};

use super::library::ClassSplit;
use super::open::AUDIO;
use super::resample::RATE;
use super::settings::Generated;
use super::synthesis::{FOLDS, Modulation, Timbre, clip_of, recording};
use super::table::PLACES;
use xrun_core::dataset::digest::digest;
use xrun_core::dataset::digest_cache;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::generated::{self, GeneratedSet};
use xrun_core::files::write;
use xrun_core::seed::generator;

/// Version of what is written.
const VERSION: u32 = 1;
/// Written last: its presence says that the directory is whole.
pub const TABLE: &str = PLACES[0];
/// Classes of one remainder of timbre + 2 modulation by 5: all timbres and all modulations, each once.
const REMAINDER: usize = 5;

/// The set of these settings.
pub fn set(settings: &Generated) -> GeneratedSet {
    GeneratedSet::new("sounds", VERSION, settings, TABLE)
}

/// Number of its WAV files.
pub fn clips(settings: &Generated) -> usize {
    classes(settings).map(|(_, clips)| clips).sum()
}

/// The directory of the set below the cache directory `cache`, written now if it is not there yet.
///
/// # Errors
/// It cannot be written.
pub fn generate_in(settings: &Generated, cache: &Path) -> Result<PathBuf, DataError> {
    set(settings).generate(cache, |directory| write_all(settings, directory))
}

/// Split of a class, by `target / 5`: 0 and 1 `Federated`, 2 and 3 `Pretraining`, 4 `Unseen`.
pub fn split(target: u32) -> ClassSplit {
    match target as usize / REMAINDER {
        0 | 1 => ClassSplit::Federated,
        2 | 3 => ClassSplit::Pretraining,
        _ => ClassSplit::Unseen,
    }
}

/// Five targets have the same remainder, one of each timbre.
fn kind(target: u32) -> (Timbre, Modulation) {
    let (remainder, timbre) = (target as usize / REMAINDER, target as usize % REMAINDER);
    // Three times two is one more than five.
    let modulation = 3 * (remainder + REMAINDER - timbre) % REMAINDER;
    (Timbre::ALL[timbre], Modulation::ALL[modulation])
}

/// Targets and how many clips each has.
fn classes(settings: &Generated) -> impl Iterator<Item = (u32, usize)> {
    let (learnt, others) = (settings.classes, settings.other_clips_per_class);
    let count = settings.clips_per_class;
    (0..25).filter_map(move |target| match split(target) {
        ClassSplit::Federated => ((target as usize) < learnt).then_some((target, count)),
        ClassSplit::Pretraining | ClassSplit::Unseen => Some((target, others)),
    })
}

/// A recording of a class and the clips that are taken of it.
struct Job {
    target: u32,
    recording: u32,
    takes: u32,
}

/// A line of the table and the digest of its clip.
struct Written {
    line: String,
    sum: String,
}

fn write_all(settings: &Generated, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory.join(AUDIO))?;
    std::fs::create_dir_all(directory.join("meta"))?;
    let jobs: Vec<Job> = classes(settings)
        .flat_map(|(target, clips)| {
            let recordings = (clips / 5).max(5);
            (0..recordings).map(move |recording| {
                // Shared evenly: the first have one more.
                let takes = (clips - recording).div_ceil(recordings) as u32;
                Job { target, recording: recording as u32, takes }
            })
        })
        .collect();
    // Each recording is a pure function of its number, so who makes it does not matter.
    let made = generated::parallel_map(&jobs, |job| write_recording(settings, job, directory))?;
    let (mut table, mut sums) = (String::from("filename,fold,target,category,src_file,take\n"), String::new());
    for Written { line, sum } in made.into_iter().flatten() {
        table.push_str(&line);
        sums.push_str(&sum);
    }
    sums.push_str(&format!("{}  {TABLE}\n", digest(table.as_bytes())));
    write::replace(&directory.join(digest_cache::SUMS), sums.as_bytes()).map_err(|error| error.source)?;
    write::replace(&directory.join(TABLE), table.as_bytes()).map_err(|error| error.source)
}

fn write_recording(settings: &Generated, job: &Job, directory: &Path) -> io::Result<Vec<Written>> {
    let Job { target, recording: number, takes } = *job;
    let (timbre, modulation) = kind(target);
    let source = u64::from(target) * 100_000 + u64::from(number);
    let sound = recording(&mut generator(settings.seed, "sound recording", source), timbre, modulation);
    let fold = number % FOLDS + 1;
    (0..takes)
        .map(|at| {
            let samples = clip_of(&mut generator(settings.seed, "sound take", source << 8 | u64::from(at)), &sound);
            let letter = char::from(b'A' + at as u8);
            let file = format!("{fold}-{source:07}-{letter}-{target}.wav");
            let bytes = wav(&samples)?;
            generated::write_new(&directory.join(AUDIO).join(&file), &bytes)?;
            let category = format!("{timbre:?}-{modulation:?}").to_lowercase();
            let line = format!("{file},{fold},{target},{category},{source},{letter}\n");
            Ok(Written { line, sum: format!("{}  {AUDIO}/{file}\n", digest(&bytes)) })
        })
        .collect()
}

pub(super) fn wav(samples: &[i16]) -> io::Result<Vec<u8>> {
    let spec =
        hound::WavSpec { channels: 1, sample_rate: RATE, bits_per_sample: 16, sample_format: hound::SampleFormat::Int };
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = hound::WavWriter::new(&mut bytes, spec).map_err(io::Error::other)?;
    samples.iter().try_for_each(|sample| writer.write_sample(*sample)).map_err(io::Error::other)?;
    writer.finalize().map_err(io::Error::other)?;
    Ok(bytes.into_inner())
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
