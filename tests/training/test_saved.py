"""Settings that a MetaClusterer accepts can be saved and loaded again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaclust import MetaClusterer


@pytest.fixture(scope="module")
def fitted() -> MetaClusterer:
    y = np.repeat(np.arange(8), 10)
    x = 6 * np.random.default_rng(1).normal(size=(8, 4))[y] + np.random.default_rng(2).normal(size=(80, 4))
    settings: dict[str, Any] = {"encoder": "network", "choose": "bound", "validation": 0.0, "device": "cpu"}
    return MetaClusterer(**settings, pretrain_steps=2, steps=1, progress=False).fit(x, y)


@pytest.mark.parametrize(
    ("name", "value", "loaded"),
    [
        ("progress", 0, False),
        ("augment", 1, True),
        ("augment", "auto", "auto"),
        ("task_rows", (0, 5), (0, 5)),
        ("task_rows", [5, 30], (5, 30)),
        ("seed", 2**63 - 1, 2**63 - 1),
        ("seed", np.int64(3), 3),
        ("confidence", np.float32(0.5), 0.5),
        ("restarts", 1000, 1000),
    ],
)
def test_accepted_settings_load_again(
    fitted: MetaClusterer, name: str, value: Any, loaded: Any, tmp_path: Path
) -> None:
    before = fitted.get_params()
    try:
        fitted.set_params(**{name: value})
        fitted.check_settings()
        fitted.save(tmp_path / "model.safetensors")
    finally:
        fitted.set_params(**before)
    found = MetaClusterer.load(tmp_path / "model.safetensors").get_params()[name]
    assert found == loaded
    assert type(found) is type(loaded)


def test_a_seed_that_no_file_can_hold_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"seed=18446744073709551616: it must be below 2\*\*63"):
        MetaClusterer(seed=2**64).check_settings()
