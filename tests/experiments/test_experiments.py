"""The comparing methods, the tables, the devices."""

import json

import pytest
import torch

from metaclust import choose_device
from metaclust.experiments import summary


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
