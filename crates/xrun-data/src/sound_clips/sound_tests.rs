//! Samples or a reason for any bytes of a WAV or FLAC file.

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

fn integers(spec: WavSpec, samples: &[i32]) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = WavWriter::new(&mut bytes, spec).unwrap();
    samples.iter().for_each(|sample| writer.write_sample(*sample).unwrap());
    writer.finalize().unwrap();
    bytes.into_inner()
}

fn floats(channels: u16, samples: &[f32]) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = WavWriter::new(&mut bytes, spec(channels, 16_000, 32, SampleFormat::Float)).unwrap();
    samples.iter().for_each(|sample| writer.write_sample(*sample).unwrap());
    writer.finalize().unwrap();
    bytes.into_inner()
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
fn all_sample_formats_are_scaled_to_one() {
    for bits in [8, 16, 24, 32] {
        let half = 1_i32 << (bits - 2);
        let found = read(&integers(spec(1, 16_000, bits, SampleFormat::Int), &[half, -half, 0, -2 * (half - 1) - 2]));
        assert_eq!(found.unwrap(), Sound { rate: 16_000, samples: vec![0.5, -0.5, 0.0, -1.0] }, "{bits} bits");
    }
    assert_eq!(read(&floats(1, &[0.25, -2.0])).unwrap().samples, [0.25, -2.0]);
}

#[test]
fn channels_are_averaged() {
    let stereo = integers(spec(2, 44_100, 16, SampleFormat::Int), &[16_384, 0, -8192, -8192]);
    assert_eq!(read(&stereo).unwrap(), Sound { rate: 44_100, samples: vec![0.25, -0.25] });
    assert_eq!(read(&floats(8, &[1.0; 16])).unwrap().samples, [1.0, 1.0]);
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
        b"fLaC and so on".to_vec(),
        flac(1, 16_000, &[5; 20])[..30].to_vec(),
        flac(1, 16_000, &[5; 20])[..60].to_vec(),
        flac(1, 4_000, &[5; 20]),
        flac(1, 16_000, &[]),
        b"ID3\x04 and so on".to_vec(),
        b"RIFX\0\0\0\0WAVE".to_vec(),
        b"RF64\0\0\0\0WAVE".to_vec(),
        b"RIFF\0\0\0\0AVI ".to_vec(),
        b"RIFF\0\0\0\0WAVE".to_vec(),
        sixteen(1000)[..30].to_vec(),
        cut,
        sixteen(0),
        three(2),
        three(0x55),
        head(1, 0, 16_000, 16, 4, &[0; 4]),
        head(1, 64, 16_000, 16, 128, &[0; 128]),
        head(1, 9, 16_000, 16, 18, &[0; 18]),
        head(1, 1, 1, 16, 4, &[0; 4]),
        head(1, 1, 192_001, 16, 4, &[0; 4]),
        seconds(61),
        // A gigabyte is declared, and four bytes are there.
        head(1, 1, 192_000, 16, 0x4000_0000, &[0; 4]),
        head(1, 1, 16_000, 16, u32::MAX, &[]),
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

/// FLAC with one frame of samples of 16 bits as they are, channel after channel.
fn flac(channels: u8, rate: u32, samples: &[i16]) -> Vec<u8> {
    let size = (samples.len() / usize::from(channels)) as u16;
    let mut bytes = b"fLaC\x80\0\0\x22".to_vec();
    bytes.extend([4096_u16.to_be_bytes(), 4096_u16.to_be_bytes()].concat());
    bytes.extend([0; 6]);
    let about = u64::from(rate) << 44 | u64::from(channels - 1) << 41 | 15 << 36 | u64::from(size);
    bytes.extend(about.to_be_bytes());
    bytes.extend([0; 16]);
    if samples.is_empty() {
        return bytes;
    }
    let mut frame = vec![0xff, 0xf8, 0x70, (channels - 1) << 4 | 0x08, 0];
    frame.extend((size - 1).to_be_bytes());
    frame.push(crc(&frame, 8, 0x07) as u8);
    for channel in samples.chunks(size.into()) {
        frame.push(0x02);
        channel.iter().for_each(|sample| frame.extend(sample.to_be_bytes()));
    }
    frame.extend((crc(&frame, 16, 0x8005) as u16).to_be_bytes());
    bytes.extend(frame);
    bytes
}

/// Cyclic redundancy check without reflection.
fn crc(bytes: &[u8], bits: u32, polynomial: u32) -> u32 {
    let top = 1 << (bits - 1);
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte) << (bits - 8), |crc: u32, _| {
            let next = if crc & top == 0 { crc << 1 } else { crc << 1 ^ polynomial };
            next & (top | (top - 1))
        })
    })
}

#[test]
fn a_flac_file_has_the_samples_of_the_wav_file_that_it_was_made_from() {
    let (left, right) = ([100, -200, 32_767, 5], [-100, 7, -32_768, 5]);
    let found = read(&flac(2, 22_050, &[left, right].concat())).unwrap();
    let between: Vec<i32> = left.iter().zip(right).flat_map(|(left, right)| [i32::from(*left), right.into()]).collect();
    assert_eq!(found, read(&integers(spec(2, 22_050, 16, SampleFormat::Int), &between)).unwrap());
    let mut damaged = flac(1, 16_000, &[1, 2, 3]);
    let end = damaged.len() - 3;
    damaged[end] ^= 1;
    assert_eq!(read(&damaged).unwrap_err().0, "damaged");
}

#[test]
fn a_file_that_was_written_to_a_pipe_has_the_samples_that_are_there() {
    let data: Vec<u8> = (0..14).collect();
    let whole = read(&head(1, 2, 16_000, 16, 12, &data[..12])).unwrap();
    for declared in [u32::MAX, u32::MAX - 36, 0x7fff_ffff, 0x7fff_f000] {
        // Half of the last pair of samples is left out.
        assert_eq!(read(&head(1, 2, 16_000, 16, declared, &data)).unwrap(), whole, "{declared}");
    }
}

#[test]
fn digital_silence_is_valid() {
    assert!(read(&floats(1, &[0.0, -0.0])).unwrap().is_silent());
    assert!(!read(&floats(1, &[0.0, 1e-9])).unwrap().is_silent());
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
        form in 0_usize..6,
        changes in prop::collection::vec((0_usize..120, any::<u8>()), 0..8),
        end in 0_usize..140,
    ) {
        let mut bytes = match form {
            0 => integers(spec(2, 44_100, 16, SampleFormat::Int), &[7; 20]),
            1 => integers(spec(1, 16_000, 24, SampleFormat::Int), &[-7; 20]),
            2 => floats(2, &[0.5; 16]),
            3 => flac(2, 16_000, &[9; 20]),
            4 => head(1, 1, 16_000, 16, u32::MAX, &[3; 40]),
            _ => head(1, 3, 8000, 8, 30, &[9; 30]),
        };
        for (at, byte) in changes {
            let length = bytes.len();
            bytes[at % length] = byte;
        }
        bytes.truncate(bytes.len().min(end.max(1)));
        if let Ok(sound) = read(&bytes) {
            // A frame of FLAC may be one number that is repeated.
            prop_assert!(form == 3 || sound.samples.capacity() <= bytes.len());
            prop_assert!(sound.samples.iter().all(|sample| sample.is_finite()));
            prop_assert!(!sound.samples.is_empty());
        }
    }
}
