"""Image embeddings: what image models return, what the cache keeps, and what is refused."""

import json
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
import torch
from onnx_files import BYTES, write_onnx
from PIL import Image
from safetensors.torch import load_file, save_file

from metaclust import MetaClusterer, fit_preparation, read_data
from metaclust.data.inputs import as_rows
from metaclust.data.preparation import image_embedder, vision_onnx
from metaclust.data.preparation.image_embedder import ImageEmbedder
from metaclust.data.preparation.image_embeddings import ImageEmbeddingPreparation
from metaclust.data.preparation.pixels import SCALINGS, originals, picture
from metaclust.data.rows import DataError

SHORT = {"pretrain_steps": 3, "steps": 1, "choice_tasks": 4, "progress": False}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("METACLUST_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def vit(tmp_path_factory) -> Path:
    """A vision transformer of two layers with random weights."""
    transformers = pytest.importorskip("transformers", reason="without the vision extra")
    folder = tmp_path_factory.mktemp("vit")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=24, patch_size=8)).save_pretrained(folder)
    processor = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"height": 24, "width": 24},
        "image_mean": [0.4, 0.5, 0.6],
        "image_std": [0.2, 0.3, 0.4],
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "resample": 2,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


@pytest.fixture
def onnx(tmp_path):
    pytest.importorskip("onnxruntime", reason="without the vision extra")
    return lambda shape, name="net.onnx", **options: write_onnx(tmp_path / name, shape, **options)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def noise(count, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


def means(images, parts):
    """Return the mean of each channel over parts of (height, width) of (images, channels, height, width)."""
    count, channels, height, width = images.shape
    blocks = images.reshape(count, channels, height // parts[0], parts[0], width // parts[1], parts[1])
    return blocks.mean((3, 5)).reshape(count, -1)


def pooled(folder, pixels):
    """Return what the network in a folder returns for pixels, and its last layer, by transformers itself."""
    from transformers import AutoModel

    network = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        found = network(pixel_values=torch.from_numpy(pixels))
    return found.pooler_output.numpy(), found.last_hidden_state.numpy()


def normalised(images):
    mean, deviation = (np.array(v, np.float32)[:, None, None] for v in ([0.4, 0.5, 0.6], [0.2, 0.3, 0.4]))
    return (images / np.float32(255) - mean) / deviation


def test_a_folder_of_transformers_gives_its_pooled_output(vit):
    images = noise(5, 3, 24, 24)
    embedder = ImageEmbedder(vit, device="cpu", batch_size=2)
    assert embedder.width == 16
    found = embedder.embed(list(images), progress=False)
    np.testing.assert_allclose(found, unit(pooled(vit, normalised(images))[0]), atol=1e-5)
    assert "24x24 pixels" in embedder.about


def test_without_weights_of_a_pooled_output_it_is_the_mean_of_the_last_layer_each_time(vit, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in ("config.json", "preprocessor_config.json"):
        (folder / name).write_bytes((vit / name).read_bytes())
    weights = load_file(vit / "model.safetensors")
    save_file({n: v for n, v in weights.items() if not n.startswith("pooler.")}, folder / "model.safetensors")
    images = noise(3, 3, 24, 24)
    first, again = (ImageEmbedder(folder, device="cpu", cache=None) for _ in range(2))
    found = first.embed(list(images), progress=False)
    np.testing.assert_allclose(found, unit(pooled(vit, normalised(images))[1].mean(1)), atol=1e-5)
    np.testing.assert_array_equal(found, again.embed(list(images), progress=False))
    assert "no weights for a pooled output" in first.about
    save_file(
        {n: v for n, v in weights.items() if "layers.1" not in n and "layer.1" not in n}, folder / "model.safetensors"
    )
    with pytest.raises(DataError, match=r"has no weights for .* get a complete copy of the image model"):
        ImageEmbedder(folder, device="cpu", cache=None).embed(list(images), progress=False)


def test_code_that_comes_with_a_folder_is_never_run(vit, tmp_path):
    folder = tmp_path / "own-code"
    folder.mkdir()
    for path in vit.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((vit / "config.json").read_text())
    marker = tmp_path / "was-run"
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w')\nclass Own: pass\n")
    own = {"AutoConfig": "own.Own", "AutoModel": "own.Own"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "own", "auto_map": own}))
    with pytest.raises(DataError, match="cannot be loaded as an image model by transformers"):
        ImageEmbedder(folder, device="cpu", cache=None).embed(list(noise(1, 3, 8, 8)), progress=False)
    assert not marker.exists()


@pytest.mark.parametrize("shape", [["n", 3, 8, 6], ["n", 8, 6, 3], [2, 3, 8, 6], ["n", 1, 8, 6]])
@pytest.mark.parametrize("scaling", ["auto", "imagenet", "symmetric", "unit", "raw"])
def test_an_onnx_file_gets_images_in_its_layout_scaled_as_was_asked(onnx, shape, scaling):
    images = noise(5, 1 if shape[1] == 1 else 3, 8, 6)
    embedder = ImageEmbedder(onnx(shape, parts=[4, 3]), scaling=scaling, cache=None)
    shift, scale = (v[:, None, None] for v in SCALINGS["imagenet" if scaling == "auto" else scaling])
    if shape[1] == 1:
        shift, scale = shift.mean(), scale.mean()
    expected = unit(means((images - shift) / scale, [4, 3]))
    np.testing.assert_allclose(embedder.embed(list(images), progress=False), expected, atol=1e-5)
    assert ("NHWC" if shape[3] == 3 else "NCHW") in embedder.about
    assert ("not said by the file" in embedder.about) == (scaling == "auto")


def test_bytes_are_given_as_they_are_and_other_scalings_refused(onnx):
    file, images = onnx(["n", 8, 6, 3], kind=BYTES, parts=[8, 3]), noise(3, 3, 8, 6)
    found = ImageEmbedder(file, cache=None).embed(list(images), progress=False)
    np.testing.assert_allclose(found, unit(means(images, [8, 3])), atol=1e-5)
    with pytest.raises(DataError, match=r"image_scaling='unit': .*net.onnx takes bytes; give 'raw' or 'auto'"):
        ImageEmbedder(file, scaling="unit", cache=None).embed(list(images), progress=False)


def test_a_size_that_the_file_leaves_open_is_said_and_places_are_averaged(onnx, monkeypatch):
    monkeypatch.setattr(vision_onnx, "USUAL_SIDE", 10)
    embedder = ImageEmbedder(onnx(["n", 3, "h", "w"]), scaling="unit", cache=None)
    image = noise(1, 3, 10, 10)
    found = embedder.embed(list(image), progress=False)
    np.testing.assert_allclose(found, unit(image.mean((2, 3)) / 255), atol=1e-5)
    assert "10x10 pixels, which the file leaves open" in embedder.about


def test_of_several_outputs_the_one_of_vectors_is_taken_by_its_name(onnx):
    image = noise(1, 3, 4, 4)
    first = ImageEmbedder(onnx(["n", 3, 4, 4], parts=[4, 4], outputs=("other", "third")), scaling="unit", cache=None)
    named = ImageEmbedder(
        onnx(["n", 3, 4, 4], "b.onnx", parts=[4, 4], outputs=("other", "pooler_output")), scaling="unit", cache=None
    )
    vectors = [embedder.embed(list(image), progress=False) for embedder in (first, named)]
    np.testing.assert_allclose(vectors[0], -vectors[1], atol=1e-6)
    assert "'other'" in first.about
    assert "'pooler_output'" in named.about


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (["n", "c", 8, 8], "neither .* nor .* export it with a fixed number of channels"),
        (["n", 3, 8, 3], "neither .* nor .* export it with a fixed number of channels"),
        (["n", 3, 8], "neither .* nor .* export it with a fixed number of channels"),
        (["n", 3, 100_000, 100_000], "more than 4,096 pixels a side"),
    ],
)
def test_inputs_that_are_not_clear_are_refused(onnx, shape, message):
    with pytest.raises(DataError, match=message):
        ImageEmbedder(onnx(shape), cache=None).embed(list(noise(1, 3, 8, 8)), progress=False)


@pytest.mark.usefixtures("_without_type_checks")
def test_files_that_are_no_models_are_refused(tmp_path, vit):
    pytest.importorskip("onnxruntime", reason="without the vision extra")
    (tmp_path / "broken.onnx").write_bytes(b"no network")
    with pytest.raises(DataError, match=r"broken.onnx cannot be loaded by onnxruntime"):
        ImageEmbedder(tmp_path / "broken.onnx", cache=None).embed(list(noise(1, 3, 8, 8)), progress=False)
    with pytest.raises(FileNotFoundError, match=r"no folder of an image model and no .onnx file at 'gone.onnx'"):
        ImageEmbedder("gone.onnx")
    (tmp_path / "weights.pt").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="no folder of an image model"):
        ImageEmbedder(tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=r"image_scaling='unit' is for .onnx files"):
        ImageEmbedder(vit, scaling="unit")
    with pytest.raises(ValueError, match="image_scaling='half': choose one of 'auto', 'imagenet'"):
        ImageEmbedder(vit, scaling="half")


def test_without_onnxruntime_the_error_names_the_extra(onnx, monkeypatch):
    file = onnx(["n", 3, 8, 8])
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install 'metaclust\[vision\]'") as caught:
        ImageEmbedder(file, cache=None).embed(list(noise(1, 3, 8, 8)), progress=False)
    assert "\n" not in str(caught.value)


def test_each_image_is_embedded_once_by_its_content(onnx, monkeypatch, tmp_path):
    file, images = onnx(["n", 3, 8, 6], parts=[4, 3]), list(noise(4, 3, 8, 6))
    seen = []
    real = vision_onnx.VisionOnnx.encode
    monkeypatch.setattr(
        image_embedder.VisionOnnx, "encode", lambda self, batch: seen.append(len(batch)) or real(self, batch)
    )
    first = ImageEmbedder(file, scaling="unit").embed([*images, images[0]], progress=False)
    assert sum(seen) == 1 + 4
    np.testing.assert_array_equal(first[0], first[4])
    again = ImageEmbedder(file, scaling="unit")
    np.testing.assert_array_equal(again.embed(images, progress=False), first[:4])
    assert sum(seen) == 1 + 4
    # Other pixels, another scaling and another file are not in it.
    Image.fromarray(images[0].transpose(1, 2, 0)).save(tmp_path / "a.png")
    np.testing.assert_allclose(again.embed([tmp_path / "a.png"], progress=False), first[:1], atol=1e-6)
    raw = ImageEmbedder(file, scaling="symmetric").embed(images, progress=False)
    assert not np.allclose(raw, first[:4])
    other = onnx(["n", 3, 8, 6], "other.onnx", parts=[8, 6])
    assert ImageEmbedder(other, scaling="unit").embed(images, progress=False).shape == (4, 3)


def test_files_are_given_to_the_model_as_they_came_not_as_they_are_shown(onnx, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(2):
            photo = noise(1, 130 + i, 150, 3, seed=ord(name) + i)[0]
            Image.fromarray(photo).save(tmp_path / "photos" / name / f"{i}.png")
    rows = read_data(tmp_path / "photos", progress=False)
    assert rows.values.shape == (4, 3, 64, 64)
    file = onnx(["n", 3, 120, 120], parts=[3, 3])
    preparation, _ = fit_preparation(rows, images="embeddings", image_model=str(file), image_scaling="unit")
    assert preparation.input_shape == (3 * 40 * 40,)
    expected = [
        np.asarray(Image.open(tmp_path / "photos" / name).resize((120, 120), Image.Resampling.BILINEAR))
        for name in rows.ids
    ]
    wanted = unit(means(np.moveaxis(np.stack(expected), -1, 1) / 255, [3, 3]))
    np.testing.assert_allclose(preparation(rows).numpy(), wanted, atol=1e-5)
    np.testing.assert_allclose(preparation(rows.take([2, 0])).numpy(), wanted[[2, 0]], atol=1e-5)
    more = rows.followed_by(rows.take([1]))
    assert [path.name for path in originals(more)] == ["0.png", "1.png", "0.png", "1.png", "1.png"]
    # Of the pixels that are shown, some are gone.
    small = preparation(as_rows(rows.values, like=preparation)).numpy()
    assert np.abs(small - wanted).max() > 0.001
    (tmp_path / "photos" / "a" / "0.png").unlink()
    with pytest.raises(DataError, match=r"0.png"):
        preparation(rows)


def test_lists_of_images_of_several_sizes_keep_their_pixels():
    pictures = [Image.fromarray(noise(1, 90, 70 + i, 3)[0]) for i in range(2)]
    rows = as_rows(pictures)
    assert [original.shape for original in originals(rows)] == [(3, 90, 70), (3, 90, 71)]
    assert as_rows([pictures[0], pictures[0]]).originals is None
    assert originals(as_rows([pictures[0], pictures[0]]))[1].shape == (3, 90, 70)


def test_long_images_are_padded_and_large_ones_made_smaller(tmp_path):
    Image.new("L", (4000, 3000)).save(tmp_path / "large.png")
    assert picture(tmp_path / "large.png").size == (1024, 768)
    thin = picture(np.zeros((1, 2, 1000), np.uint8))
    assert thin.size == (1000, 125)
    assert thin.getpixel((500, 0)) == (255, 255, 255)
    assert thin.getpixel((500, 62)) == (0, 0, 0)


def test_a_model_is_saved_with_the_hash_and_follows_its_image_model_when_it_moves(onnx, tmp_path):
    file = onnx(["n", 3, 8, 6], parts=[4, 3])
    y = np.arange(72) % 9
    X = (noise(72, 3, 8, 6) // 4 + noise(9, 3, 8, 6, seed=1)[y] // 2).astype(np.uint8)
    model = MetaClusterer(images="embeddings", image_model=str(file), image_scaling="unit", **SHORT).fit(X, y)
    assert isinstance(model.preparation_, ImageEmbeddingPreparation)
    assert model.decisions_[0].startswith("Images are given to the image model 'net.onnx' as NCHW, 8x6 pixels")
    assert model.model_.config.input_shape == (12,)
    labels = model.predict(X)
    model.save(tmp_path / "m.safetensors")
    loaded = MetaClusterer.load(tmp_path / "m.safetensors").set_params(progress=False)
    np.testing.assert_array_equal(loaded.predict(X), labels)
    moved = tmp_path / "elsewhere" / "moved.onnx"
    moved.parent.mkdir()
    file.rename(moved)
    with pytest.raises(FileNotFoundError, match=r"no .onnx file at .*net.onnx"):
        loaded.predict(X)
    again = MetaClusterer.load(tmp_path / "m.safetensors", image_model=moved).set_params(progress=False)
    np.testing.assert_array_equal(again.predict(X), labels)
    other = onnx(["n", 3, 8, 6], "other.onnx", parts=[8, 6])
    with pytest.raises(DataError, match=r"other.onnx' is not the one that was used in training"):
        MetaClusterer.load(tmp_path / "m.safetensors", image_model=other)
    with pytest.raises(ValueError, match=r"embedding_model='m': .* has no sentence embeddings; omit it"):
        MetaClusterer.load(tmp_path / "m.safetensors", embedding_model="m")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"images": "embeddings"}, "images='embeddings' needs image_model: the folder of a vision model"),
        ({"image_model": "m"}, "image_model='m' is for images='embeddings', but images='pixels'"),
        ({"image_scaling": "unit"}, "image_scaling='unit' is for images='embeddings', but images='pixels'"),
        ({"images": "embeddings", "image_model": "m", "augment": True}, "augment=True is for images, .* embeddings"),
        ({"images": "vectors"}, "images='vectors': choose 'pixels' or 'embeddings'"),
    ],
)
def test_settings_that_do_not_apply_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        MetaClusterer(**settings, **SHORT).fit(noise(40, 8, 6, 3), np.arange(40) % 4)


def test_images_as_embeddings_are_no_setting_for_vectors():
    with pytest.raises(ValueError, match="images='embeddings' is for images, but X holds vectors"):
        MetaClusterer(images="embeddings", image_model="m", **SHORT).fit(np.eye(40, 3), np.arange(40) % 4)
