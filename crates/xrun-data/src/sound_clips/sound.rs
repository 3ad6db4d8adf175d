//! Sounds in files: one channel of samples between -1 and 1, from WAV.

use super::wav;
use crate::reading::invalid::Fault;
use xrun_core::units::Bytes;

/// Maximum size of a file that is read.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longer sounds are no clips.
pub const SECONDS_MAX: u32 = 60;
/// Maximum number of channels.
pub(super) const CHANNELS_MAX: u32 = 8;
/// Samples a second.
const RATES: std::ops::RangeInclusive<u32> = 8_000..=192_000;
/// A float sample is about 1 at the most; squares of larger ones than this would leave the range of a float.
pub(super) const SAMPLE_MAX: f32 = 1e6;

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

pub(super) fn unusable(reason: &'static str, message: impl Into<String>) -> Fault {
    (reason, message.into())
}

/// Bytes that decoding a file takes at most: its bytes, twice where it was piped, its samples in a list that may be twice as long,
/// and those at the rate of the models, which are at most twice as many; and 2 MiB of buffers.
pub fn decoding_bytes(length: u64, samples: u64) -> u64 {
    const BUFFER_BYTES: u64 = 2 * 1024 * 1024;
    2 * length + 4 * samples * size_of::<f32>() as u64 + BUFFER_BYTES
}

/// Reads a WAV file of 1 to 8 channels, which are averaged, in at most `most` bytes. All samples are read, whatever the
/// head declares.
///
/// # Errors
/// It is something else, damaged, too long, or has samples that are no numbers.
pub fn read(bytes: &[u8], most: u64) -> Result<Sound, Fault> {
    let check = |samples: u64| match decoding_bytes(bytes.len() as u64, samples) {
        needed if needed > most => {
            let message = format!("takes up to {} to decode, and there are {}", Bytes(needed), Bytes(most));
            Err(unusable("too_large", message))
        }
        _ => Ok(()),
    };
    check_is_wav(bytes)?;
    wav::read(bytes, check)
}

/// Checks the number of channels and the sample rate.
pub(super) fn check_format(channels: u32, rate: u32) -> Result<(), Fault> {
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
pub(super) fn check_length(declared: u64, rate: u32) -> Result<(), Fault> {
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

/// Samples as they come, channel after channel.
pub(super) struct Mono {
    channels: u16,
    left: u16,
    sum: f32,
    /// Averages of whole groups of channels.
    pub samples: Vec<f32>,
}

impl Mono {
    /// Makes an empty list, of `channels` above 0.
    pub fn new(channels: u16, capacity: usize) -> Self {
        Self { channels, left: channels, sum: 0.0, samples: Vec::with_capacity(capacity) }
    }

    /// Adds the next sample.
    pub fn add(&mut self, sample: f32) {
        self.sum += sample;
        self.left -= 1;
        if self.left == 0 {
            self.samples.push(self.sum / f32::from(self.channels));
            (self.sum, self.left) = (0.0, self.channels);
        }
    }
}

/// Refuses a file that is not WAV by its first bytes; what people often have instead is named.
fn check_is_wav(bytes: &[u8]) -> Result<(), Fault> {
    let length = bytes.len() as u64;
    if length > FILE_BYTES_MAX {
        let message = format!("has {}, at most {} are read of a clip", Bytes(length), Bytes(FILE_BYTES_MAX));
        return Err(unusable("too_large", message));
    }
    let found = match bytes {
        [] => "is empty",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => return Ok(()),
        [b'f', b'L', b'a', b'C', ..] => "is a FLAC file",
        [b'R', b'I', b'F', b'X', ..] => "is a big-endian WAV file (RIFX)",
        [b'R', b'F', b'6', b'4', ..] => "is a WAV file of more than 4 GiB (RF64)",
        [b'O', b'g', b'g', b'S', ..] => "is an Ogg file",
        [b'I', b'D', b'3', ..] | [0xff, 0xf2..=0xfb, ..] => "is an MP3 file",
        [b'F', b'O', b'R', b'M', ..] => "is an AIFF file",
        _ => "does not begin as a RIFF WAV file does",
    };
    let advice = "expected a WAV file; convert it, such as with `ffmpeg -i IN -c:a pcm_s16le OUT.wav`";
    Err(unusable("no_wav_file", format!("{found}, {advice}")))
}

#[cfg(test)]
#[path = "sound_tests.rs"]
mod tests;
