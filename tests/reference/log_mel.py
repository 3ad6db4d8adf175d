"""Writes log_mel.json: log-mel spectra by torchaudio, of samples that a few lines of integers make.

pip install torch==2.11.0 torchaudio==2.11.0
python tests/reference/log_mel.py

With real clips: a test writes their samples at 16 kHz and xrun's spectra (XRUN_LOG_MEL_OUT=DIRECTORY, see
crates/xrun-data/src/sound_clips/real_tests.rs), and `log_mel.py DIRECTORY CLIPS` prints the largest differences: of the spectra of the same
samples, and, with librosa (pip install librosa soxr soundfile), of the spectra below 7 kHz after its resampling.
"""
import json
import math
import pathlib
import sys

import numpy
import torch
import torchaudio

FLOOR = float(torch.log(torch.tensor(torch.finfo(torch.float32).eps)))


def fbank(samples, bands, dtype=numpy.float64):
    """As ASTFeatureExtractor of transformers calls it, without the padding and the normalisation behind.

    It calls it with floats of 32 bits; what that rounds is printed by `compare`.
    """
    wave = torch.from_numpy(numpy.asarray(samples, dtype=dtype)).unsqueeze(0)
    return torchaudio.compliance.kaldi.fbank(
        wave, sample_frequency=16000, window_type="hanning", num_mel_bins=bands, dither=0.0, frame_shift=10.0,
        htk_compat=True, use_energy=False)


def made(count):
    """A tone whose pitch rises, noise of a linear congruential generator, and nothing at the end; all in integers."""
    samples, state, phase = [], 1, 0
    for at in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        phase = (phase + 900 + at) % 65536
        tone = abs(phase - 32768) - 16384
        noise = (state >> 16) - 16384
        samples.append((tone // 2 + noise // 16) if at < count * 3 // 4 else 0)
    return samples


def record():
    samples = made(2000)
    scaled = numpy.array(samples) / 32768
    of = {str(bands): [float(f"{value:.8g}") for value in fbank(scaled, bands).flatten().tolist()] for bands in (40, 128)}
    text = json.dumps({"torchaudio": torchaudio.__version__, "first": samples[:8], "count": len(samples), "log_mel": of})
    pathlib.Path(__file__).with_suffix(".json").write_text(text + "\n")


def highest(band, bands):
    """Where a band ends, in Hz."""
    low, high = (1127 * math.log(1 + frequency / 700) for frequency in (20, 8000))
    return 700 * (math.exp((low + (band + 2) * (high - low) / (bands + 1)) / 1127) - 1)


def compare(directory, clips):
    import librosa
    import soundfile
    same, single, rounded, near, below, total = 0.0, 0.0, 0.0, 0.0, 0, 0
    for path in sorted(directory.glob("*.samples")):
        samples = numpy.fromfile(path, dtype="<f4")
        ours = numpy.fromfile(path.with_suffix(".logmel"), dtype="<f4").reshape(-1, 128)
        theirs = fbank(samples, 128).numpy()
        assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
        above = theirs > FLOOR + 1e-3
        below, total = below + int((~above).sum()), total + above.size
        difference = numpy.abs(ours - theirs)
        same = max(same, float(difference[above].max(initial=0.0)))
        short = fbank(samples, 128, numpy.float32).numpy()
        single = max(single, float(numpy.abs(ours - short)[above].max(initial=0.0)))
        rounded = max(rounded, float(numpy.abs(theirs - short)[above].max(initial=0.0)))
        assert float(difference[~above].max(initial=0.0)) < 0.01, path
        audio, rate = soundfile.read(clips / (path.stem + ".wav"), dtype="float32", always_2d=True)
        low = [band for band in range(128) if highest(band, 128) <= 7000]
        for kind in ("soxr_hq", "kaiser_best") if "kaiser" in sys.argv else ("soxr_hq",):
            other = librosa.resample(audio.mean(axis=1), orig_sr=rate, target_sr=16000, res_type=kind)
            other = numpy.resize(other, samples.shape) if len(other) < len(samples) else other[:len(samples)]
            spectrum = fbank(other, 128).numpy()
            # Where there is power in both: a filter's rounding is all that is heard below.
            loud = (spectrum[:, low] > FLOOR + 3) & (ours[:, low] > FLOOR + 3)
            apart = numpy.abs(ours[:, low] - spectrum[:, low])[loud]
            near = max(near, float(apart.max(initial=0.0)))
            print(f"{path.stem} {kind}: below 7 kHz at most {apart.max(initial=0.0):.4f}, "
                  f"99.9 % within {numpy.quantile(apart, 0.999) if apart.size else 0:.4f}")
    print(f"same samples: at most {same:.2e} where power is above the floor ({below} of {total} numbers are at it)")
    print(f"torchaudio with 32 bits: at most {single:.2e} from xrun, {rounded:.2e} from itself with 64 bits")
    print(f"librosa's resampling, below 7 kHz: at most {near:.4f}")


if len(sys.argv) > 2:
    compare(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
else:
    record()
