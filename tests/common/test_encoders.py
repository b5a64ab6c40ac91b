"""Every registered encoder through the same checks."""

import numpy as np
import pytest
import torch

from metaclust import ClusteringModel, ModelConfig, load_model, save_model
from metaclust.model.encoders import ENCODERS

KINDS = [(name, kind) for name, kinds in ENCODERS.items() for kind in kinds]
SHAPES = {1: (6,), 3: (2, 9, 7)}


@pytest.fixture(
    params=[(*kind, unit) for kind in KINDS for unit in ((False, True) if kind[0] == "residual" else (False,))],
    ids=lambda kind: f"{kind[0]}-{kind[1].__name__}{'-unit' if kind[2] else ''}",
)
def config(request):
    name, kind, unit = request.param
    return ModelConfig(
        SHAPES[kind.AXES], 4, 5, encoder=name, hidden=8, task_hidden=8, filters=3, dropout=0.2, unit=unit
    )


def rows(config, count=7):
    return torch.randn(count, *config.input_shape, generator=torch.Generator().manual_seed(1))


def trained(config):
    """A model none of whose layers is at zero, as a residual network is at the start."""
    torch.manual_seed(0)
    model = ClusteringModel(config)
    with torch.no_grad():
        for weight in model.encoder.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def test_rows_become_representations_of_the_width_asked_for(config):
    z = ClusteringModel(config).transform(rows(config))
    assert z.shape == (7, 4)
    assert torch.isfinite(z).all()


def test_a_batch_is_the_loop_over_its_rows(config):
    model, x = trained(config), rows(config)
    together = model.transform(x)
    alone = torch.cat([model.transform(row[None]) for row in x])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_gradients_reach_all_weights_and_agree_with_finite_differences(config):
    model = trained(config).double().eval()
    x = rows(config).double()
    target = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (model.encode(x) * target).sum().backward()
    for name, weight in model.encoder.named_parameters():
        assert weight.grad is not None, name
        place = np.unravel_index(int(weight.grad.abs().argmax()), weight.shape)
        assert weight.grad[place] != 0, name
        with torch.no_grad():
            values = []
            for step in (1e-6, -2e-6, 1e-6):
                weight[place] += step
                values.append((model.encode(x) * target).sum().item())
        difference = (values[0] - values[1]) / 2e-6
        assert weight.grad[place].item() == pytest.approx(difference, rel=1e-3, abs=1e-6), name


def test_a_file_gives_the_same_representations(config, tmp_path):
    model, x = trained(config), rows(config)
    save_model(model, tmp_path / "model.safetensors")
    loaded, _ = load_model(tmp_path / "model.safetensors", device="cpu")
    assert torch.equal(loaded.transform(x), model.transform(x))


def test_rows_of_another_shape_are_refused(config):
    other = np.zeros((3, *(side + 1 for side in config.input_shape)), np.float32)
    with pytest.raises(ValueError, match=r"input_shape=\("):
        ClusteringModel(config).transform(torch.from_numpy(other))
