"""Commands on photographs and sounds: options, and what they say of a folder."""

import json

import numpy as np
import pytest
from commands import run
from onnx_files import write_onnx
from PIL import Image
from sound_files import tone_families

SHORT = ["--pretrain-steps", 3, "--steps", 1, "--quiet", "--json"]


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder of nine categories of two colours each, of any sizes."""
    monkeypatch.setenv("METACLUST_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    for category in range(9):
        folder = tmp_path / "photos" / f"c{category}"
        folder.mkdir(parents=True)
        colours = generator.integers(0, 220, (2, 3))
        for i in range(6):
            pixels = np.repeat(colours, [20 + i, 30], 0)[:, None] + generator.integers(0, 30, (50 + i, 40, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "photos"


def test_photographs_are_trained_on_and_clustered_by_an_image_model(photos, tmp_path):
    pytest.importorskip("onnxruntime", reason="without the vision extra")
    net = write_onnx(tmp_path / "net.onnx", ["n", 3, 20, 20], parts=[5, 10])
    model, moved = tmp_path / "m.safetensors", tmp_path / "moved.onnx"
    embedded = ["--images-as", "embeddings", "--image-model", net, "--image-scaling", "symmetric"]
    done = run("train", photos, "--out", model, *embedded, *SHORT)
    assert done.code == 0, done.err
    assert json.loads(done.out)["categories"] == 9
    net.rename(moved)
    failed = run("cluster", model, photos, "--quiet", "--json")
    assert failed.code == 2
    assert "no .onnx file" in failed.err
    found = run("cluster", model, photos, "--image-model", moved, "--quiet", "--json")
    assert json.loads(found.out)["rows"] == 54
    scored = run("evaluate", model, photos, "--image-model", moved, "--quiet", "--json")
    assert json.loads(scored.out)["ari"] > 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--image-model", "m"], "--image-model applies to embeddings of images only: add --images-as embeddings"),
        (["--image-scaling", "raw"], "--image-scaling applies to embeddings of images only"),
        (["--images-as", "embeddings"], "images='embeddings' needs image_model"),
        (["--sounds-as", "statistics"], "--sounds-as applies to sounds only, but"),
        (["--text-as", "tfidf"], "--text-as applies to text only, but"),
        (["--images-as", "embeddings", "--image-model", "gone.onnx"], "no .onnx file at 'gone.onnx': check the path"),
    ],
)
def test_options_that_do_not_apply_are_refused(photos, tmp_path, options, message):
    failed = run("train", photos, "--out", tmp_path / "m.safetensors", *options, *SHORT)
    assert failed.code == 2
    assert message in failed.err
    assert not (tmp_path / "m.safetensors").exists()


def test_a_folder_of_sounds_is_shown_trained_on_and_clustered(tmp_path):
    folder = tone_families(tmp_path / "tones", range(10), 6)
    shown = json.loads(run("data", "show", folder, "--json").out)
    assert (shown["kind"], shown["rows"], shown["categories"]) == ("sounds", 60, 10)
    model = tmp_path / "m.safetensors"
    assert json.loads(run("train", folder, "--out", model, *SHORT).out)["categories"] == 10
    (folder / "family 00" / "broken.wav").write_bytes(b"RIFF")
    failed = run("cluster", model, folder, "--quiet")
    assert failed.code == 2
    assert "broken.wav" in failed.err
    assert "--skip-broken" in failed.err
    found = json.loads(run("cluster", model, folder, "--skip-broken", "--quiet", "--json").out)
    assert found["rows"] == 60
