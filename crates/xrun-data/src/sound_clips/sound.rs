//! Sounds in WAV files: one channel of samples between -1 and 1.

use std::io::Cursor;

use hound::{Error, SampleFormat, WavReader, WavSpec};

use crate::reading::invalid::Fault;
use xrun_core::units::Bytes;

/// Maximum size of a file that is read.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longer sounds are no clips.
pub const SECONDS_MAX: u32 = 60;
/// Maximum number of channels.
const CHANNELS_MAX: u32 = 8;
/// Samples a second.
const RATES: std::ops::RangeInclusive<u32> = 8_000..=192_000;
/// A float sample is about 1 at the most; squares of larger ones than this would leave the range of a float.
const SAMPLE_MAX: f32 = 1e6;

/// A sound, its channels averaged.
#[derive(Clone, Debug, PartialEq)]
pub struct Sound {
    /// Samples a second.
    pub rate: u32,
    /// Samples of the one channel, between -1 and 1.
    pub samples: Vec<f32>,
}

impl Sound {
    /// Returns whether all samples are zero.
    pub fn is_silent(&self) -> bool {
        self.samples.iter().all(|sample| *sample == 0.0)
    }
}

fn unusable(reason: &'static str, message: impl Into<String>) -> Fault {
    (reason, message.into())
}

/// Bytes that decoding a file takes at most: its bytes and a copy of them, its samples in a list that may be twice as long,
/// and those at the rate of the models, which are at most twice as many; and 2 MiB of buffers.
pub fn decoding_bytes(length: u64, samples: u64) -> u64 {
    const BUFFER_BYTES: u64 = 2 * 1024 * 1024;
    2 * length + 4 * samples * size_of::<f32>() as u64 + BUFFER_BYTES
}

/// Reads a RIFF WAV file: PCM of 8, 16, 24 or 32 bits, or floats of 32 bits, with 1 to 8 channels, which are averaged, in at most
/// `most` bytes. All samples are read, whatever the head declares.
///
/// # Errors
/// It is something else, damaged, too long, or has samples that are no numbers.
pub fn read(bytes: &[u8], most: u64) -> Result<Sound, Fault> {
    check_is_wav(bytes)?;
    let mut reader = WavReader::new(Cursor::new(bytes)).map_err(|error| head(&error))?;
    let WavSpec { channels, sample_rate: rate, bits_per_sample: bits, sample_format } = reader.spec();
    check_format(channels.into(), rate)?;
    let declared = reader.duration();
    check_length(declared.into(), rate)?;
    // A sample takes a byte at least: what is declared is not believed.
    let capacity = (declared as usize).min(bytes.len() / usize::from(channels));
    let needed = decoding_bytes(bytes.len() as u64, capacity as u64);
    if needed > most {
        let message = format!("takes up to {} to decode, and there are {}", Bytes(needed), Bytes(most));
        return Err(unusable("too_large", message));
    }
    let samples = match sample_format {
        SampleFormat::Int => {
            let scale = 1.0 / (1_u64 << (bits.clamp(1, 32) - 1)) as f64;
            let scaled = |sample: hound::Result<i32>| sample.map(|sample| (f64::from(sample) * scale) as f32);
            averaged(reader.samples().map(scaled), channels, capacity, declared)
        }
        SampleFormat::Float => averaged(reader.samples(), channels, capacity, declared),
    };
    Ok(Sound { rate, samples: samples? })
}

/// Averages of the channels, whose samples come one after the other.
fn averaged(
    read: impl Iterator<Item = hound::Result<f32>>,
    channels: u16,
    capacity: usize,
    declared: u32,
) -> Result<Vec<f32>, Fault> {
    let (mut samples, mut sum, mut left) = (Vec::with_capacity(capacity), 0.0, channels);
    for sample in read {
        let sample = sample.map_err(|error| body(&error, samples.len(), declared))?;
        if sample.is_nan() || sample.abs() > SAMPLE_MAX {
            return Err(unusable("no_number", format!("sample {} is {sample}, expected -1 to 1", samples.len())));
        }
        sum += sample;
        left -= 1;
        if left == 0 {
            samples.push(sum / f32::from(channels));
            (sum, left) = (0.0, channels);
        }
    }
    Ok(samples)
}

/// Checks the number of channels and the sample rate.
fn check_format(channels: u32, rate: u32) -> Result<(), Fault> {
    if channels == 0 || channels > CHANNELS_MAX {
        return Err(unusable("channels", format!("has {channels} channels, expected 1 to {CHANNELS_MAX}")));
    }
    if !RATES.contains(&rate) {
        let message = format!("has {rate} samples a second, expected {} to {}", RATES.start(), RATES.end());
        return Err(unusable("sample_rate", message));
    }
    Ok(())
}

/// Checks the declared number of samples of each channel.
fn check_length(declared: u64, rate: u32) -> Result<(), Fault> {
    if declared == 0 {
        return Err(unusable("no_samples", "has no samples"));
    }
    if declared > u64::from(rate * SECONDS_MAX) {
        let message = format!(
            "declares {declared} samples at {rate} a second, more than {SECONDS_MAX} seconds; cut it into shorter clips"
        );
        return Err(unusable("too_long", message));
    }
    Ok(())
}

/// Refuses a file that is not WAV by its first bytes.
fn check_is_wav(bytes: &[u8]) -> Result<(), Fault> {
    let length = bytes.len() as u64;
    if length > FILE_BYTES_MAX {
        let message = format!("has {}, at most {} are read of a clip", Bytes(length), Bytes(FILE_BYTES_MAX));
        return Err(unusable("too_large", message));
    }
    if bytes.starts_with(b"RIFF") && bytes[4..].get(4..8) == Some(b"WAVE") {
        return Ok(());
    }
    let message =
        "does not begin as a RIFF WAV file does; convert it, such as with `ffmpeg -i IN -c:a pcm_s16le OUT.wav`";
    Err(unusable("no_wav_file", message))
}

fn head(error: &Error) -> Fault {
    match error {
        Error::IoError(_) => unusable("cut_off", "is cut off: it ends before its samples begin"),
        Error::Unsupported | Error::InvalidSampleFormat => compressed(),
        other => unusable("damaged_head", format!("is no sound WAV file: {other}")),
    }
}

fn body(error: &Error, there: usize, declared: u32) -> Fault {
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

#[cfg(test)]
#[path = "sound_tests.rs"]
mod tests;
