//! Samples or a reason for any bytes of a WAV file.

use std::io::Cursor;

use hound::{SampleFormat, WavSpec, WavWriter};
use proptest::prelude::*;

use super::*;

fn read(bytes: &[u8]) -> Result<Sound, Fault> {
    super::read(bytes, u64::MAX)
}

fn spec(channels: u16, rate: u32, bits: u16, sample_format: SampleFormat) -> WavSpec {
    WavSpec { channels, sample_rate: rate, bits_per_sample: bits, sample_format }
}

fn written<S: hound::Sample + Copy>(spec: WavSpec, samples: &[S]) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = WavWriter::new(&mut bytes, spec).unwrap();
    samples.iter().for_each(|sample| writer.write_sample(*sample).unwrap());
    writer.finalize().unwrap();
    bytes.into_inner()
}

fn floats(channels: u16, samples: &[f32]) -> Vec<u8> {
    written(spec(channels, 16_000, 32, SampleFormat::Float), samples)
}

/// A file whose head is written by hand: format, channels, rate, bits, declared bytes of its samples.
fn head(format: u16, channels: u16, rate: u32, bits: u16, declared: u32, data: &[u8]) -> Vec<u8> {
    let block = channels.wrapping_mul(bits / 8);
    let mut bytes = b"RIFF\xff\xff\xff\x7fWAVEfmt \x10\0\0\0".to_vec();
    bytes.extend(format.to_le_bytes());
    bytes.extend(channels.to_le_bytes());
    bytes.extend(rate.to_le_bytes());
    bytes.extend(rate.wrapping_mul(u32::from(block)).to_le_bytes());
    bytes.extend(block.to_le_bytes());
    bytes.extend(bits.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend(declared.to_le_bytes());
    bytes.extend(data);
    bytes
}

fn sixteen(count: usize) -> Vec<u8> {
    head(1, 1, 16_000, 16, 2 * count as u32, &vec![1; 2 * count])
}

#[test]
fn all_sample_formats_are_scaled_to_one_and_channels_averaged() {
    for bits in [8, 16, 24, 32] {
        let half = 1_i32 << (bits - 2);
        let found = read(&written(spec(1, 16_000, bits, SampleFormat::Int), &[half, -half, 0, -2 * (half - 1) - 2]));
        assert_eq!(found.unwrap(), Sound { rate: 16_000, samples: vec![0.5, -0.5, 0.0, -1.0] }, "{bits} bits");
    }
    assert_eq!(read(&floats(1, &[0.25, -2.0])).unwrap().samples, [0.25, -2.0]);
    let stereo = written(spec(2, 44_100, 16, SampleFormat::Int), &[16_384, 0, -8192, -8192]);
    assert_eq!(read(&stereo).unwrap(), Sound { rate: 44_100, samples: vec![0.25, -0.25] });
}

#[test]
fn invalid_files_are_refused_with_a_reason() {
    let seconds = |seconds: usize| sixteen(16_000 * seconds);
    let mut cut = sixteen(1000);
    cut.truncate(44 + 300);
    let mut huge = floats(1, &[0.0; 4]);
    let end = huge.len();
    huge[end - 4..].copy_from_slice(&1e30_f32.to_le_bytes());
    let three = |format| head(format, 1, 16_000, 16, 4, &[0; 4]);
    let files: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"OggS and so on".to_vec(),
        b"RIFF\0\0\0\0AVI ".to_vec(),
        b"RIFF\0\0\0\0WAVE".to_vec(),
        sixteen(1000)[..30].to_vec(),
        cut,
        sixteen(0),
        three(2),
        three(0x55),
        head(1, 0, 16_000, 16, 4, &[0; 4]),
        head(1, 9, 16_000, 16, 18, &[0; 18]),
        head(1, 1, 1, 16, 4, &[0; 4]),
        head(1, 1, 192_001, 16, 4, &[0; 4]),
        seconds(61),
        // A gigabyte is declared, and four bytes are there.
        head(1, 1, 192_000, 16, 0x4000_0000, &[0; 4]),
        head(1, 8, 192_000, 16, 180_000_000, &[0; 4]),
        head(1, 1, 16_000, 12, 4, &[0; 4]),
        floats(1, &[0.0, f32::NAN]),
        floats(1, &[f32::INFINITY]),
        huge,
    ];
    let shown = |bytes: &Vec<u8>| {
        let (reason, message) = read(bytes).unwrap_err();
        format!("{reason}: {message}\n")
    };
    insta::assert_snapshot!(files.iter().map(shown).collect::<String>());
    assert_eq!(read(&seconds(60)).unwrap().samples.len(), 960_000);
}

#[test]
fn other_chunks_are_skipped() {
    let mut bytes = sixteen(10);
    let list = b"LIST\x04\0\0\0INFO";
    bytes.splice(12..12, list.iter().copied());
    bytes.extend(b"junk\x02\0\0\0ab");
    assert_eq!(read(&bytes).unwrap().samples.len(), 10);
}

proptest! {
    #[test]
    fn mutated_files_never_panic_nor_allocate_more_than_the_file(
        form in 0_usize..5,
        changes in prop::collection::vec((0_usize..120, any::<u8>()), 0..8),
        end in 0_usize..140,
    ) {
        let mut bytes = match form {
            0 => written(spec(2, 44_100, 16, SampleFormat::Int), &[7; 20]),
            1 => written(spec(1, 16_000, 24, SampleFormat::Int), &[-7; 20]),
            2 => floats(2, &[0.5; 16]),
            3 => head(1, 1, 16_000, 16, u32::MAX, &[3; 40]),
            _ => head(1, 3, 8000, 8, 30, &[9; 30]),
        };
        for (at, byte) in changes {
            let length = bytes.len();
            bytes[at % length] = byte;
        }
        bytes.truncate(bytes.len().min(end.max(1)));
        if let Ok(sound) = read(&bytes) {
            prop_assert!(sound.samples.capacity() <= bytes.len());
            prop_assert!(sound.samples.iter().all(|sample| sample.is_finite()));
            prop_assert!(!sound.samples.is_empty());
        }
    }
}
