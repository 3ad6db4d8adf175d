//! Reader of WAV files: one channel of samples between -1 and 1.

use std::io::Cursor;

use hound::{Error, SampleFormat, WavReader};

use xrun_core::units::Bytes;

/// Larger files are not read.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longer sounds are no clips.
pub const SECONDS_MAX: u32 = 60;
/// Maximum number of channels.
const CHANNELS_MAX: u16 = 8;
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

/// Why a file is no sound: the word under which it is counted, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// One of a few fixed words.
    pub reason: &'static str,
    /// Message without the file's name.
    pub message: String,
}

fn unusable(reason: &'static str, message: impl Into<String>) -> Unusable {
    Unusable { reason, message: message.into() }
}

/// Reads a RIFF WAV file: PCM of 8, 16, 24 or 32 bits, or floats of 32 bits, with 1 to 8 channels, which are averaged. All
/// samples are read, whatever the head declares.
///
/// # Errors
/// It is something else, damaged, too long, or has samples that are no numbers.
pub fn read(bytes: &[u8]) -> Result<Sound, Unusable> {
    kind(bytes)?;
    let mut reader = WavReader::new(Cursor::new(bytes)).map_err(|error| head(&error))?;
    let spec = reader.spec();
    let hound::WavSpec { channels, sample_rate: rate, bits_per_sample: bits, sample_format } = spec;
    if channels == 0 || channels > CHANNELS_MAX {
        return Err(unusable("channels", format!("has {channels} channels, expected 1 to {CHANNELS_MAX}")));
    }
    if !RATES.contains(&rate) {
        let message = format!("has {rate} samples a second, expected {} to {}", RATES.start(), RATES.end());
        return Err(unusable("sample_rate", message));
    }
    let declared = reader.duration();
    if declared == 0 {
        return Err(unusable("no_samples", "has no samples"));
    }
    let most = rate * SECONDS_MAX;
    if declared > most {
        let message = format!(
            "declares {declared} samples at {rate} a second, more than {SECONDS_MAX} seconds; cut it into shorter clips"
        );
        return Err(unusable("too_long", message));
    }
    // A sample takes a byte at least: what is declared is not believed.
    let capacity = (declared as usize).min(bytes.len() / usize::from(channels));
    let mut mono = Mono { channels, left: channels, sum: 0.0, samples: Vec::with_capacity(capacity) };
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

/// Samples as they come, channel after channel.
struct Mono {
    channels: u16,
    left: u16,
    sum: f32,
    samples: Vec<f32>,
}

impl Mono {
    fn add(&mut self, sample: f32) {
        self.sum += sample;
        self.left -= 1;
        if self.left == 0 {
            self.samples.push(self.sum / f32::from(self.channels));
            (self.sum, self.left) = (0.0, self.channels);
        }
    }
}

/// Refuses by its first bytes what people often have instead.
fn kind(bytes: &[u8]) -> Result<(), Unusable> {
    let length = bytes.len() as u64;
    if length > FILE_BYTES_MAX {
        let message = format!("has {}, at most {} are read of a clip", Bytes(length), Bytes(FILE_BYTES_MAX));
        return Err(unusable("too_large", message));
    }
    let found = match bytes {
        [] => "is empty",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => return Ok(()),
        [b'R', b'I', b'F', b'X', ..] => "is a big-endian WAV file (RIFX)",
        [b'R', b'F', b'6', b'4', ..] => "is a WAV file of more than 4 GiB (RF64)",
        [b'O', b'g', b'g', b'S', ..] => "is an Ogg file",
        [b'f', b'L', b'a', b'C', ..] => "is a FLAC file",
        [b'I', b'D', b'3', ..] | [0xff, 0xf2..=0xfb, ..] => "is an MP3 file",
        [b'F', b'O', b'R', b'M', ..] => "is an AIFF file",
        _ => "does not begin as a RIFF WAV file does",
    };
    let advice = "expected a RIFF WAV file; convert it, such as with `ffmpeg -i IN -c:a pcm_s16le OUT.wav`";
    Err(unusable("no_wav_file", format!("{found}, {advice}")))
}

fn head(error: &Error) -> Unusable {
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

fn body(error: &Error, mono: &Mono, declared: u32) -> Unusable {
    let there = mono.samples.len();
    match error {
        Error::IoError(_) => unusable("cut_off", format!("is cut off: it declares {declared} samples and has {there}")),
        _ => compressed(),
    }
}

fn compressed() -> Unusable {
    let message = "is compressed, or of a form that is not read; expected PCM of 8, 16, 24 or 32 bits or floats of 32 \
                   bits: convert it, such as with `ffmpeg -i IN -c:a pcm_s16le OUT.wav`";
    unusable("compressed", message)
}

#[cfg(test)]
#[path = "wav_tests.rs"]
mod tests;
