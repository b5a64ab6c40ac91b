"""Folders of sounds: what is read of each file, what its spectrogram is, and what is refused."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image
from scipy import signal
from sound_files import tone, tone_families, write_wave

from metaclust import DataError, DataWarning, fit_preparation, read_data
from metaclust.data.readers import waves
from metaclust.data.readers.spectrogram import BANDS, HOP, RANGE, RATE, WINDOW, log_mel, mel_triangles
from metaclust.data.readers.waves import Sound, read_sound


def read(path, **options):
    return read_data(path, progress=False, **options)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_waves_are_read_as_they_were_written(tmp_path, width, channels):
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, (200, channels))
    found = read_sound(write_wave(tmp_path / "a.wav", samples, 22_050, width))
    assert found.rate == 22_050
    np.testing.assert_allclose(found.samples, samples.mean(1), atol=2.0 ** (2 - 8 * width) + 1e-6)


@pytest.mark.parametrize(("name", "subtype"), [("a.flac", "PCM_16"), ("a.wav", "FLOAT"), ("a.wav", "ULAW")])
def test_other_encodings_are_read_by_soundfile(tmp_path, name, subtype):
    soundfile = pytest.importorskip("soundfile", reason="without the sound extra")
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, (300, 2))
    soundfile.write(tmp_path / name, samples, 8_000, subtype=subtype)
    found = read_sound(tmp_path / name)
    assert found.rate == 8_000
    np.testing.assert_allclose(found.samples, samples.mean(1), atol=0.04 if subtype == "ULAW" else 1e-4)


def test_without_soundfile_the_error_names_the_extra_and_plain_waves_are_read(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    assert len(read_sound(write_wave(tmp_path / "a.wav", tone(440, 0.1))).samples) == 1600
    (tmp_path / "a.flac").write_bytes(b"fLaC....")
    with pytest.raises(ImportError, match=r"a\.flac: .flac, and .*pip install 'metaclust\[sound\]'") as caught:
        read_sound(tmp_path / "a.flac")
    assert "\n" not in str(caught.value)


def test_the_spectrogram_is_that_of_scipy_in_triangles_on_the_mel_scale():
    samples = np.random.default_rng(0).normal(size=5_000).astype(np.float32) * np.linspace(0.01, 1, 5_000, dtype="f4")
    window = signal.get_window("hann", WINDOW)
    _, _, power = signal.spectrogram(
        samples.astype(np.float64),
        RATE,
        window,
        WINDOW,
        WINDOW - HOP,
        512,
        detrend=False,
        mode="psd",
        scaling="spectrum",
    )
    # It returns one side: all but the ends are doubled.
    power[1:-1] /= 2
    frequencies = np.fft.rfftfreq(512, 1 / RATE)
    low, high = (2595 * np.log10(1 + frequency / 700) for frequency in (30, 8000))
    edges = 700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1)
    bands = np.zeros((BANDS, power.shape[1]))
    for band in range(BANDS):
        low, middle, high = edges[band : band + 3]
        weights = np.interp(frequencies, [low, middle, high], [0, 1, 0])
        if not weights.any():
            weights[np.abs(frequencies - middle).argmin()] = 1
        bands[band] = weights @ power
    expected = np.clip(10 * np.log10(bands / bands.max()) + RANGE, 0, RANGE) * 255 / RANGE
    found = log_mel(Sound(samples, RATE))
    assert found.shape == expected.shape == (64, 29)
    assert np.abs(found.astype(float) - expected).max() < 0.51


@pytest.mark.parametrize("rate", [8_000, 11_025, 44_100, 48_000])
def test_a_tone_is_in_its_band_at_any_rate_and_loudness(rate):
    spectrogram = log_mel(Sound((0.01 * tone(1_000, 0.5, rate)).astype(np.float32), rate))
    loudest = spectrogram[:, 5:-5].astype(float).mean(1).argmax()
    assert loudest == mel_triangles()[:, round(1_000 * 512 / RATE)].argmax()
    assert spectrogram.max() == 255
    assert spectrogram.shape[1] == pytest.approx(48, abs=1)


def test_silence_and_sounds_shorter_than_a_window_have_spectrograms():
    assert log_mel(Sound(np.zeros(1000, np.float32), RATE)).tolist() == np.zeros((BANDS, 4)).tolist()
    assert log_mel(Sound(np.ones(7, np.float32), RATE)).shape == (BANDS, 1)


def test_an_uncommon_rate_is_taken_as_a_ratio_of_small_numbers():
    ratio = Fraction(RATE, 11_027).limit_denominator(1000)
    assert abs(float(ratio) * 11_027 / RATE - 1) < 1e-5
    assert log_mel(Sound(tone(500, 1, 11_027).astype(np.float32), 11_027)).shape[1] == pytest.approx(98, abs=1)


def test_a_folder_of_sounds_is_found_out_and_its_folders_are_the_categories(tmp_path):
    folder = tone_families(tmp_path / "tones", range(2), 3)
    (folder / "notes.txt").write_text("about them")
    rows = read(folder)
    assert rows.kind == "sounds"
    assert rows.ids[:4] == ["family 00/0.wav", "family 00/1.wav", "family 00/2.wav", "family 01/0.wav"]
    assert rows.labels == 3 * ["family 00"] + 3 * ["family 01"]
    assert {spectrogram.shape[0] for spectrogram in rows.values} == {BANDS}
    assert "6 sounds, 2 categories" in str(rows)
    assert "left out 1 files that are not sounds: 1 .txt" in rows.notes
    flat = read(folder / "family 00")
    assert flat.labels is None
    assert "no categories: the sounds lie directly in the folder" in flat.notes
    taken = rows.take([4, 1]).followed_by(rows.take([0]))
    np.testing.assert_array_equal(taken.values[0], rows.values[4])
    assert taken.ids == ["family 01/1.wav", "family 00/1.wav", "family 00/0.wav"]


def test_a_folder_of_images_and_sounds_needs_a_choice(tmp_path):
    folder = tone_families(tmp_path / "both", range(1), 2)
    Image.new("L", (8, 8)).save(folder / "family 00" / "cover.png")
    with pytest.raises(
        DataError, match=r"both holds 1 images and 2 sounds: choose with kind='images' or kind='sounds'"
    ):
        read(folder)
    assert len(read(folder, kind="sounds")) == 2
    assert len(read(folder, kind="images")) == 1


def test_options_of_images_have_no_meaning_for_sounds(tmp_path):
    folder = tone_families(tmp_path / "tones", range(1), 1)
    for option in ({"size": 32}, {"channels": 1}, {"fit": "crop"}, {"columns": ["a"]}):
        with pytest.raises(DataError, match=f"'{next(iter(option))}': tones is a folder of sounds"):
            read(folder, **option)
    with pytest.raises(DataError, match=r"tones holds no images, only '.wav'"):
        read(folder, kind="images")
    with pytest.raises(DataError, match="tones is a folder, which is read as images or sounds, not as text"):
        read(folder, kind="text")


def header(rate=16_000, channels=1, frames=4, claimed=None, bits=16):
    content = bytes(frames * channels * (bits // 8))
    size = len(content) if claimed is None else claimed
    form = struct.pack("<HHIIHH", 1, channels, rate, rate, channels * bits // 8, bits)
    body = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", size) + content
    return b"RIFF" + struct.pack("<I", len(body)) + body


BROKEN = {
    "empty": (b"", "it is empty"),
    "no sound": (b"RIFFnothing of the kind", "it is no .wav or .flac, cut short or damaged"),
    "no samples": (header(frames=0), "it holds no sound"),
    "too low a rate": (header(rate=10), "it has 10 samples a second, not 1,000 to 768,000"),
    "too high a rate": (header(rate=2_000_000_000), "samples a second, not 1,000 to 768,000"),
    "too long": (header(rate=1000, frames=900_001, bits=8), "more than the limit of 30,000,000 samples and 900 s"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_errors_that_name_the_file_or_are_left_out(tmp_path, name):
    pytest.importorskip("soundfile", reason="without the sound extra")
    content, message = BROKEN[name]
    write_wave(tmp_path / "s" / "a.wav", tone(440, 0.1))
    (tmp_path / "s" / "broken.wav").write_bytes(content)
    with pytest.raises(DataError, match=f"broken.wav: .*{message}.*leaves out sounds that cannot be read"):
        read(tmp_path / "s")
    with pytest.warns(DataWarning, match=r"left out 1 of 2 sounds, which cannot be read: .*broken.wav"):
        rows = read(tmp_path / "s", on_error="skip")
    assert rows.ids == ["a.wav"]
    assert "left out 1 files that cannot be read" in rows.notes


def test_a_file_that_is_cut_short_gives_what_is_there(tmp_path):
    (tmp_path / "a.wav").write_bytes(header(frames=800, claimed=2_000_000))
    assert len(read_sound(tmp_path / "a.wav").samples) == 800


def test_a_flac_that_unpacks_to_more_than_the_limit_is_refused(tmp_path, monkeypatch):
    soundfile = pytest.importorskip("soundfile", reason="without the sound extra")
    soundfile.write(tmp_path / "a.flac", np.zeros(200_000), 16_000)
    assert (tmp_path / "a.flac").stat().st_size < 2_000
    monkeypatch.setattr(waves, "MOST_SAMPLES", 199_999)
    with pytest.raises(DataError, match=r"it has 200,000 samples in 1 channels .12 s., more than the limit of 199,999"):
        read_sound(tmp_path / "a.flac")


def test_all_broken_is_an_error_and_the_limit_of_bytes_holds(tmp_path):
    pytest.importorskip("soundfile", reason="without the sound extra")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.wav").write_bytes(b"no")
    with pytest.raises(DataError, match=r"none of the 1 sounds can be read; the first: .*a.wav: it is no"):
        read(tmp_path / "s", on_error="skip")
    folder = tone_families(tmp_path / "tones", range(1), 3)
    with pytest.raises(DataError, match=r"tones holds 4,[0-9]* bytes of data or more, above the limit .4,000"):
        read(folder, max_bytes=4_000)


def test_preparations_cut_and_pad_to_a_typical_length(tmp_path):
    for i, seconds in enumerate([0.3] * 9 + [2.0]):
        write_wave(tmp_path / "s" / f"{i}.wav", tone(440 + 10 * i, seconds))
    rows = read(tmp_path / "s")
    preparation, rows = fit_preparation(rows, sounds="spectrograms")
    assert preparation.frames == 28
    assert rows.notes[-1] == "Sounds are cut or padded to 0.28 s, the length of 90% of them at most."
    prepared = preparation(rows).numpy()
    assert prepared.shape == (10, *preparation.input_shape) == (10, 1, BANDS, 28)
    # Upside down, so that high sounds are above; the middle of the long one.
    np.testing.assert_array_equal(prepared[0, 0], rows.values[0][::-1])
    np.testing.assert_array_equal(prepared[9, 0], rows.values[9][::-1, 85:113])
    short = preparation(rows.take([0])).numpy()
    longer = type(preparation)(frames=40)(rows.take([0])).numpy()
    np.testing.assert_array_equal(longer[..., 6:34], short)
    assert not longer[..., :6].any()
    assert not longer[..., 34:].any()
    # Long sounds are averaged to 64 columns.
    wide = type(preparation)(frames=128)(rows.take([9])).numpy()
    cut = rows.values[9][::-1, 35:163].astype(float).reshape(BANDS, 64, 2).mean(2)
    assert wide.shape == (1, 1, BANDS, 64)
    assert np.abs(wide[0, 0] - cut).max() <= 1
