"""The comparing methods, the tables, the devices."""

import json

import numpy as np
import pytest
import torch

from metaclust import Task, choose_device
from metaclust.experiments import summary
from metaclust.experiments.methods import rivals
from metaclust.training.evaluation import compare


@pytest.fixture
def blobs():
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 25)
    centres = np.array([[0, 0], [20, 0], [0, 20], [20, 20]])
    return centres[labels] + generator.normal(size=(100, 2)), Task(np.arange(100), labels, np.arange(4))


@pytest.mark.parametrize("method", [rivals.bayesian_gaussian_mixture, rivals.kmeans_silhouette])
def test_rivals_find_well_separated_clusters_and_their_number(method, blobs):
    rows, task = blobs
    result = compare([task], [method(rows)])
    assert result.ari.tolist() == [1.0]
    assert result.found.tolist() == result.true.tolist() == [4]


def test_score_counts_the_clusters_found(blobs):
    rows, task = blobs
    result = compare([task, task], [np.zeros(100, int), rivals.kmeans_true(rows, 4)])
    assert result.ari.tolist() == [0.0, 1.0]
    assert result.k_error == 1.5


def test_rivals_take_very_small_tasks():
    rows = np.zeros((1, 3))
    assert rivals.kmeans_silhouette(rows).tolist() == [0]


def test_the_summary_averages_over_splits(tmp_path, capsys):
    records = [
        {
            "experiment": "protocol",
            "split": split,
            "test": {"ours": {"ari": ari, "k_error": ari}},
            "proto_validation_ari": 0.5,
            "best_validation_ari": 0.7,
            "training_seconds": 120.0,
        }
        for split, ari in ((1, 0.4), (0, 0.8))
    ]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    summary.main([str(path)])
    assert "| ours | 0.800 (0.80) | 0.400 (0.40) | **0.600** (0.60) |" in capsys.readouterr().out


def test_the_summary_says_which_runs_fell(capsys, tmp_path):
    record = {
        "experiment": "collapse",
        "seed": 3,
        "proto_validation_ari": 0.8,
        "last_validation_ari": 0.1,
        "validations": [[0, 0.8], [1, 0.05], [2, 0.1]],
        "held": False,
    }
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(record) + "\n")
    summary.main([str(path)])
    assert "| 3 | 0.800 | 0.050 | 0.100 | NO |" in capsys.readouterr().out


def test_devices_are_chosen_by_name_or_automatically():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device().type in ("cuda", "mps", "cpu")
    with pytest.raises(ValueError, match=r"'gpu'.*choose 'auto'"):
        choose_device("gpu")
