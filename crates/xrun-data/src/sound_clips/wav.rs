//! Decoder of WAV files, with those that were written to a pipe.

use std::borrow::Cow;
use std::io::Cursor;

use hound::{Error, SampleFormat, WavReader};

use super::sound::{CHANNELS_MAX, Mono, SAMPLE_MAX, Sound, check_format, check_length, unusable};
use crate::reading::invalid::Fault;

/// Reads a RIFF WAV file: PCM of 8, 16, 24 or 32 bits, or floats of 32 bits, with 1 to 8 channels, which are averaged. All
/// samples are read, whatever the head declares.
///
/// # Errors
/// It is something else, damaged, too long, or has samples that are no numbers.
pub(super) fn read(bytes: &[u8], check: impl Fn(u64) -> Result<(), Fault>) -> Result<Sound, Fault> {
    let bytes = with_lengths(bytes);
    let mut reader = WavReader::new(Cursor::new(bytes.as_ref())).map_err(|error| head(&error))?;
    let spec = reader.spec();
    let hound::WavSpec { channels, sample_rate: rate, bits_per_sample: bits, sample_format } = spec;
    check_format(channels.into(), rate)?;
    let declared = reader.duration();
    check_length(declared.into(), rate)?;
    // A sample takes a byte at least: what is declared is not believed.
    let capacity = (declared as usize).min(bytes.len() / usize::from(channels));
    check(capacity as u64)?;
    let mut mono = Mono::new(channels, capacity);
    match sample_format {
        SampleFormat::Int => {
            let scale = 1.0 / (1_u64 << (bits.clamp(1, 32) - 1)) as f64;
            for sample in reader.samples::<i32>() {
                let sample = sample.map_err(|error| body(&error, &mono, declared))?;
                mono.add((f64::from(sample) * scale) as f32);
            }
        }
        SampleFormat::Float => {
            for sample in reader.samples::<f32>() {
                let sample = sample.map_err(|error| body(&error, &mono, declared))?;
                if sample.is_nan() || sample.abs() > SAMPLE_MAX {
                    let at = mono.samples.len();
                    return Err(unusable("no_number", format!("sample {at} is {sample}, expected -1 to 1")));
                }
                mono.add(sample);
            }
        }
    }
    Ok(Sound { rate, samples: mono.samples })
}

/// Lengths from this one on are those of a program that wrote to a pipe and did not know how much would come.
const STREAMED_MIN: u32 = 0x7fff_0000;

/// The file with the length of its samples that are there, where its head declares that of a stream.
fn with_lengths(bytes: &[u8]) -> Cow<'_, [u8]> {
    const CHUNK: usize = 8;
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let (mut at, mut block) = (12, 1);
    while let (Some(name), Some(length)) = (bytes.get(at..at + 4), word(at + 4)) {
        if name == b"fmt " {
            block = bytes.get(at + 20..at + 22).map_or(1, |block| u16::from_le_bytes([block[0], block[1]]));
        }
        if name == b"data" {
            let there = bytes.len() - at - CHUNK;
            if length < STREAMED_MIN || there >= length as usize {
                return Cow::Borrowed(bytes);
            }
            let whole = there - there % usize::from(block.max(1));
            let mut bytes = bytes.to_vec();
            // Files are below 4 GiB.
            bytes[at + 4..at + CHUNK].copy_from_slice(&(whole as u32).to_le_bytes());
            return Cow::Owned(bytes);
        }
        at = at.saturating_add(CHUNK).saturating_add(length as usize).saturating_add(length as usize % 2);
    }
    Cow::Borrowed(bytes)
}

fn head(error: &Error) -> Fault {
    match error {
        Error::IoError(_) => unusable("cut_off", "is cut off: it ends before its samples begin"),
        Error::Unsupported | Error::InvalidSampleFormat => compressed(),
        // hound counts channels itself.
        Error::FormatError("file contains zero channels") => {
            unusable("channels", format!("has 0 channels, expected 1 to {CHANNELS_MAX}"))
        }
        other => unusable("damaged_head", format!("is no sound WAV file: {other}")),
    }
}

fn body(error: &Error, mono: &Mono, declared: u32) -> Fault {
    let there = mono.samples.len();
    match error {
        Error::IoError(_) => unusable("cut_off", format!("is cut off: it declares {declared} samples and has {there}")),
        _ => compressed(),
    }
}

fn compressed() -> Fault {
    let message = "is compressed, or of a form that is not read; expected PCM of 8, 16, 24 or 32 bits or floats of 32 \
                   bits: convert it, such as with `ffmpeg -i IN -c:a pcm_s16le OUT.wav`";
    unusable("compressed", message)
}
