//! Decoder of FLAC files.

use std::io::Cursor;

use claxon::{Error, FlacReader, FlacReaderOptions};

use super::sound::{Mono, SECONDS_MAX, Sound, check_format, check_length, unusable};
use crate::reading::invalid::Fault;

/// Samples that are allocated for before any is read: what the head declares is not believed.
const CAPACITY_MAX: u64 = 1 << 20;

/// Reads a FLAC file of 4 to 32 bits a sample.
///
/// # Errors
/// It is damaged or too long.
pub(super) fn read(bytes: &[u8], check: impl Fn(u64) -> Result<(), Fault>) -> Result<Sound, Fault> {
    let options = FlacReaderOptions { read_vorbis_comment: false, ..FlacReaderOptions::default() };
    let reader = FlacReader::new_ext(Cursor::new(bytes), options);
    let mut reader = reader.map_err(|error| match error {
        Error::IoError(_) => unusable("cut_off", "is cut off: it ends before its samples begin"),
        error => unusable("damaged_head", format!("is no FLAC file that can be read: {error}")),
    })?;
    let about = reader.streaminfo();
    check_format(about.channels, about.sample_rate)?;
    // A stream does not say how many samples will come.
    let declared = about.samples.filter(|samples| *samples > 0);
    if let Some(declared) = declared {
        check_length(declared, about.sample_rate)?;
    }
    let scale = 1.0 / (1_u64 << (about.bits_per_sample.clamp(1, 32) - 1)) as f64;
    let most = (about.sample_rate * SECONDS_MAX) as usize;
    let capacity = declared.unwrap_or_default().min(CAPACITY_MAX) as usize;
    check(declared.unwrap_or_default())?;
    let mut mono = Mono::new(about.channels as u16, capacity);
    for sample in reader.samples() {
        let sample = sample.map_err(|error| match (error, declared) {
            (Error::IoError(_), Some(declared)) => {
                let there = mono.samples.len();
                unusable("cut_off", format!("is cut off: it declares {declared} samples and has {there}"))
            }
            (Error::IoError(_), None) => unusable("cut_off", "is cut off within a frame"),
            (error, _) => unusable("damaged", format!("is damaged after {} samples: {error}", mono.samples.len())),
        })?;
        // The list is about to grow.
        if mono.samples.len() == mono.samples.capacity() {
            check(mono.samples.len() as u64 + 1)?;
        }
        mono.add((f64::from(sample) * scale) as f32);
        if mono.samples.len() > most {
            check_length(mono.samples.len() as u64, about.sample_rate)?;
        }
    }
    let there = mono.samples.len() as u64;
    if let Some(declared) = declared.filter(|declared| *declared > there) {
        return Err(unusable("cut_off", format!("is cut off: it declares {declared} samples and has {there}")));
    }
    check_length(there, about.sample_rate)?;
    Ok(Sound { rate: about.sample_rate, samples: mono.samples })
}
