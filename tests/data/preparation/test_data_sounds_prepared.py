"""Sounds as statistics and embeddings, and a MetaClusterer that clusters families of tones it has not heard."""

import numpy as np
import pytest
from onnx_files import write_onnx
from scipy.fft import dct
from sound_files import tone_families

from metaclust import DataError, MetaClusterer, Rows, fit_preparation, read_data
from metaclust.data.preparation import sound_statistics
from metaclust.data.preparation.sound_statistics import WIDTH, statistics
from metaclust.data.preparation.sounds import SoundEmbeddingPreparation


def sounds(*lengths, seed=0):
    generator = np.random.default_rng(seed)
    values = [generator.integers(0, 256, (64, length), np.uint8) for length in lengths]
    return Rows("sounds", values, [str(i) for i in range(len(values))], source="s")


def test_statistics_are_those_of_cepstra_by_parts():
    spectrogram = sounds(30).values[0]
    spectrogram[:, 13] = 255
    spectrogram[:, [0, 29]] = 255
    found = statistics(spectrogram)
    assert found.shape == (WIDTH,)
    decibels = spectrogram.astype(float) * 80 / 255
    matrix = np.sqrt(2 / 64) * np.cos(np.pi * np.arange(20)[:, None] * (2 * np.arange(64) + 1) / 128)
    matrix[0] /= np.sqrt(2)
    cepstra = matrix @ decibels
    np.testing.assert_allclose(cepstra, dct(decibels, axis=0, norm="ortho")[:20], atol=1e-9)
    for part in range(3):
        np.testing.assert_allclose(found[20 * part :][:20], cepstra[:, 10 * part :][:, :10].mean(1), atol=1e-9)
    np.testing.assert_allclose(found[60:80], cepstra.std(1), atol=1e-9)
    np.testing.assert_allclose(found[80:100], np.abs(np.diff(cepstra, axis=1)).mean(1), atol=1e-9)
    assert found[100] == pytest.approx(np.log(0.3))


def test_silence_around_a_sound_changes_no_statistics():
    spectrogram = sounds(30).values[0]
    spectrogram[0] = 255
    quiet = np.full((64, 12), 40, np.uint8)
    around = np.concatenate([quiet, spectrogram, quiet[:, :5]], 1)
    np.testing.assert_array_equal(statistics(around), statistics(spectrogram))


@pytest.mark.parametrize("length", [1, 2])
def test_very_short_and_silent_sounds_have_statistics(length):
    for spectrogram in (np.zeros((64, length), np.uint8), np.full((64, length), 255, np.uint8)):
        found = statistics(spectrogram)
        assert np.isfinite(found).all()
        assert found[100] == pytest.approx(np.log(length / 100))


def test_prepared_statistics_are_standardised_by_the_training_sounds():
    rows = sounds(*range(5, 45))
    preparation, _ = fit_preparation(rows, sounds="statistics")
    prepared = preparation(rows).numpy()
    np.testing.assert_allclose(prepared.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(prepared.std(0), 1, atol=1e-5)
    same = [sounds(9).values[0]] * 3
    constant, _ = fit_preparation(Rows("sounds", same, ["0", "1", "2"]), sounds="statistics")
    assert not constant(Rows("sounds", same, ["0", "1", "2"])).abs().max() > 1e-5


def test_embeddings_are_of_the_spectrograms_as_pictures(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="without the vision extra")
    monkeypatch.setenv("METACLUST_CACHE", str(tmp_path))
    model = write_onnx(tmp_path / "net.onnx", ["n", 1, 64, 20], parts=[8, 4])
    rows = sounds(*[20] * 9, 30)
    options = {"image_model": str(model), "image_scaling": "unit"}
    preparation, rows = fit_preparation(rows, sounds="embeddings", **options)
    assert isinstance(preparation, SoundEmbeddingPreparation)
    assert preparation.frames == 20
    pictures = np.stack([spectrogram[::-1] for spectrogram in rows.values[:9]])
    means = pictures.reshape(9, 8, 8, 5, 4).mean((2, 4)).reshape(9, -1)
    expected = means / np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(preparation(rows).numpy()[:9], expected, atol=2e-3)
    assert rows.notes[-1].startswith("Sounds are cut or padded to 0.20 s")
    assert "image model 'net.onnx' as NCHW, 64x20 pixels" in rows.notes[-1]
    with pytest.raises(ValueError, match="sounds='embeddings' needs image_model"):
        fit_preparation(rows, sounds="embeddings")


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize("field", ["mean", "scale"])
def test_a_damaged_description_is_refused(field):
    values = {"mean": (0.0,) * WIDTH, "scale": (1.0,) * WIDTH}
    for wrong in ((0.0,) * (WIDTH - 1), ("a",) * WIDTH, (float("nan"),) * WIDTH):
        with pytest.raises(DataError, match=f"{field}="):
            sound_statistics.SoundStatisticsPreparation(**{**values, field: wrong})


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(("form", "steps", "least"), [("statistics", 20, 0.8), ("spectrograms", 2, 0)])
def test_families_of_tones_that_were_not_heard_are_clustered(form, steps, least, tmp_path):
    known = read_data(tone_families(tmp_path / "known", range(15), 8), progress=False)
    new = read_data(tone_families(tmp_path / "new", range(15, 18), 8, seed=1), progress=False)
    settings = {"pretrain_steps": steps, "steps": 1, "choice_tasks": 6, "validation": 0, "progress": False}
    model = MetaClusterer(sounds=form, **settings).fit(known)
    result = model.cluster(new)
    assert result.scores()["ari"] >= least
    model.save(tmp_path / "m.safetensors")
    loaded = MetaClusterer.load(tmp_path / "m.safetensors").set_params(progress=False)
    again = loaded.cluster(read_data(tmp_path / "new", like=loaded.preparation_, progress=False))
    np.testing.assert_array_equal(again.labels, result.labels)
    page = result.report(tmp_path / "report.html").read_text()
    assert "sounds, as spectrograms" in page
    assert "data:image/" in page
    assert len(result.update(new.take([0, 1]), again=True)) == 26


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"images": "embeddings", "image_model": "m"}, "images='embeddings' is for images, but s holds sounds"),
        (
            {"augment": "turn", "sounds": "spectrograms"},
            "augment='turn' is for images, but s holds sounds as spectrograms",
        ),
        ({"augment": True, "sounds": "statistics"}, "augment=True is for images, but s holds sounds as statistics"),
        ({"sounds": "waves"}, "sounds='waves': choose 'statistics', 'spectrograms' or 'embeddings'"),
        ({"image_model": "m"}, "image_model='m' is for images='embeddings'"),
    ],
)
def test_settings_that_do_not_apply_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MetaClusterer(progress=False, **settings).fit(sounds(*[20] * 12), np.arange(12) % 4)
