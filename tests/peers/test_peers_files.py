"""Models and clusterings that neighbouring projects could not load again, or that answered differently afterwards."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from peer_rows import categories

from metaclust import CheckpointError, Clustering, MetaClusterer


class Opens:
    """Unpickling it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path, str]]:
        return Path.write_text, (self.path, "run")


def test_a_loaded_clustering_assigns_as_the_saved_one_did(clustering: Clustering, tmp_path: Path) -> None:
    """BERTopic #1672, #2140, #2198: a saved model gave its own training documents other topics once it was loaded."""
    clustering.save(tmp_path / "clustering.safetensors")
    loaded = Clustering.load(tmp_path / "clustering.safetensors", device="cpu")
    x = categories(4, 20, 5)[0]
    np.testing.assert_array_equal(loaded.assign(x).labels, clustering.labels)
    further = categories(4, 30, 6)[0]
    np.testing.assert_array_equal(loaded.assign(further).probabilities, clustering.assign(further).probabilities)


def test_a_loaded_model_clusters_as_the_saved_one_did(model: MetaClusterer, tmp_path: Path) -> None:
    """BERTopic #482: after a restart the loaded model gave other topics, with probabilities that made no sense."""
    model.save(tmp_path / "model.safetensors")
    x = categories(5, 12, 8)[0]
    found, expected = MetaClusterer.load(tmp_path / "model.safetensors", device="cpu").cluster(x), model.cluster(x)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)


def test_a_model_that_was_trained_on_a_gpu_loads_where_there_is_none(
    model: MetaClusterer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BERTopic #384: "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False"."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model.save(tmp_path / "model.safetensors")
    trained = MetaClusterer.load(tmp_path / "model.safetensors", device="cpu").set_params(device="cuda")
    trained.save(tmp_path / "gpu.safetensors")
    x = categories(4, 20, 5)[0]
    loaded = MetaClusterer.load(tmp_path / "gpu.safetensors")
    assert loaded.device == "auto"
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))


def test_a_file_that_needs_other_versions_of_packages_is_refused_and_not_run(tmp_path: Path) -> None:
    """BERTopic #598, #1450: pickled models failed after an upgrade of this or that package; a pickle also runs code."""
    path, proof = tmp_path / "model.pkl", tmp_path / "proof"
    for write in (lambda: path.write_bytes(pickle.dumps(Opens(proof))), lambda: torch.save(Opens(proof), path)):
        write()
        for load in (MetaClusterer.load, Clustering.load):
            with pytest.raises(CheckpointError, match=r"model\.pkl is not a safetensors file"):
                load(path)
    assert not proof.exists()


def test_a_clustering_without_its_model_says_what_is_missing(clustering: Clustering, tmp_path: Path) -> None:
    """BERTopic #1323: without its embedding model, a loaded model raised "'NoneType' object has no attribute"."""
    replace(clustering, model=None).save(tmp_path / "clustering.safetensors")
    loaded = Clustering.load(tmp_path / "clustering.safetensors")
    np.testing.assert_array_equal(loaded.probabilities, clustering.probabilities)
    with pytest.raises(ValueError, match=r"assign needs the model .*MetaClusterer\.load\(path\)"):
        loaded.assign(categories(4, 20, 5)[0])


def test_each_row_and_its_cluster_survive_the_file(clustering: Clustering, tmp_path: Path) -> None:
    """DeepDPM #1, #10: from a checkpoint users could not find out which row is in which cluster."""
    clustering.save(tmp_path / "clustering.safetensors")
    frame = Clustering.load(tmp_path / "clustering.safetensors").to_frame()
    assert frame["id"].to_list() == clustering.ids
    assert frame["cluster"].to_list() == clustering.labels.tolist()
    assert frame["confidence"].to_list() == clustering.confidence.tolist()
