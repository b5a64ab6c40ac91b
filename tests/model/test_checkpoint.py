"""Model files: what comes back, what is refused, and what an interrupted write leaves."""

import ast
import json
import os
import platform
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import metaclust
from metaclust import CheckpointError, ClusteringModel, ModelConfig, load_model, save_model
from metaclust._util import tensors as checkpoint
from metaclust.model.encoders.residual_image import ResidualImageEncoder


def small_model(seed=0, encoder=None, **changes):
    torch.manual_seed(seed)
    settings = {"input_shape": (4,), "representation": 3, "max_clusters": 5, "hidden": 8, "filters": 2, **changes}
    return ClusteringModel(ModelConfig(**settings), encoder).eval()


def header_of(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["metaclust"])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"input_shape": (3, 9, 7)},
        {"input_shape": (1, 8, 8), "strided": False},
        {"initial": "random", "alpha": 0.1},
        {"inference": "em", "components": "full"},
    ],
    ids=str,
)
def test_a_loaded_model_gives_the_same_numbers(tmp_path, changes):
    model = small_model(**changes)
    with torch.no_grad():
        for buffer in model.buffers():
            buffer.add_(1)
    save_model(model, tmp_path / "model")
    loaded, _ = load_model(tmp_path / "model", device="cpu")
    x = torch.rand(9, *model.config.input_shape)
    z = model.transform(x)
    assert loaded.config == model.config
    assert not loaded.training
    assert torch.equal(loaded.transform(x), z)
    r = []
    for each in (model, loaded):
        torch.manual_seed(1)
        r.append(each.infer(z).r)
    assert torch.equal(*r)


def test_the_description_comes_back(tmp_path):
    save_model(small_model(), tmp_path / "model", categories=["a", 7], input={"scaled": True, "mean": [0.5]})
    _, description = load_model(tmp_path / "model")
    assert description.categories == ["a", "7"]
    assert description.input == {"scaled": True, "mean": [0.5]}
    assert description.versions == {
        "metaclust": metaclust.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def test_the_file_opens_with_plain_safetensors(tmp_path):
    model = small_model(input_shape=(1, 8, 8))
    save_model(model, tmp_path / "model")
    tensors = load_file(tmp_path / "model")
    assert tensors.keys() == model.state_dict().keys()
    assert all(torch.equal(tensors[name], value) for name, value in model.state_dict().items())
    assert header_of(tmp_path / "model")["config"] == model.config.to_dict()


def test_a_model_file_is_as_readable_as_any_new_file(tmp_path):
    (tmp_path / "other").touch()
    save_model(small_model(), tmp_path / "model")
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_paths_may_be_strings_and_files_are_replaced(tmp_path):
    path = os.fspath(tmp_path / "model")
    save_model(small_model(0), path)
    save_model(small_model(1), path)
    x = torch.rand(3, 4)
    assert torch.equal(load_model(path, device="cpu")[0].transform(x), small_model(1).transform(x))


def with_header(path, **changes):
    save_model(small_model(), path)
    header = {"metaclust": json.dumps({**header_of(path), **changes})}
    save_file(load_file(path), path, header)


def cut_short(path):
    save_model(small_model(), path)
    path.write_bytes(path.read_bytes()[:-100])


def foreign(path):
    save_file({"weight": torch.zeros(3)}, path)


def foreign_header(path):
    save_file({"weight": torch.zeros(3)}, path, {"metaclust": "yes"})


def run_file(path):
    checkpoint.write_tensors(path, {"weight": torch.zeros(3)}, {"kind": "run"})


BROKEN = {
    "missing": (lambda path: None, "there is no such file"),
    "folder": (Path.mkdir, "it is not a file but a folder"),
    "empty": (Path.touch, "not a safetensors file"),
    "text": (lambda path: path.write_text("weights: 1, 2, 3\n" * 50), "not a safetensors file"),
    "cut short": (cut_short, "cut short"),
    "another program's": (foreign, "not one of metaclust's"),
    "another program's header": (foreign_header, "not one of metaclust's"),
    "run": (run_file, "is a run file, not a model file"),
    "future format": (lambda path: with_header(path, format=99), "has format 99, this version reads 1, 2, 3, 4: up"),
    "future setting": (lambda path: with_header(path, config={"input_shape": [4], "colour": 1}), "colour.*newer"),
    "wrong setting": (lambda path: with_header(path, config={"input_shape": [4], "alpha": -1.0}), "alpha=-1.0"),
    "other sizes": (lambda path: with_header(path, config={"input_shape": [5]}), "can read.*size mismatch"),
    "no configuration": (lambda path: with_header(path, config={}), "does not hold a model this version can read"),
}


@pytest.mark.parametrize(("write", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_is_no_model_is_refused_with_its_name_and_the_reason(tmp_path, write, message):
    path = tmp_path / "the-file"
    write(path)
    with pytest.raises(CheckpointError, match=rf"(?s)the-file.*{message}"):
        load_model(path)


def test_the_folder_of_a_new_file_must_be_there(tmp_path):
    with pytest.raises(CheckpointError, match=r"the folder .*nowhere is not there; create it first"):
        save_model(small_model(), tmp_path / "nowhere" / "model")


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()], ids=repr)
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, error):
    path = tmp_path / "model"
    save_model(small_model(0), path)
    before = path.read_bytes()

    def interrupted(tensors, name, metadata):
        Path(name).write_bytes(b"half")
        raise error

    monkeypatch.setattr(checkpoint, "save_file", interrupted)
    with pytest.raises(type(error)):
        save_model(small_model(1), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_users_own_encoder_is_asked_for_and_gets_its_weights(tmp_path):
    path = tmp_path / "model"
    model = small_model(encoder=nn.Linear(4, 3))
    save_model(model, path)
    with pytest.raises(CheckpointError, match=r"a custom encoder.*`encoder`"):
        load_model(path)
    x = torch.rand(5, 4)
    loaded, _ = load_model(path, encoder=nn.Linear(4, 3), device="cpu")
    assert torch.equal(loaded.transform(x), model.transform(x))
    with pytest.raises(CheckpointError, match="size mismatch"):
        load_model(path, encoder=nn.Linear(2, 3))


class Tied(nn.Module):
    """Two layers with the same weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


def test_an_encoder_that_uses_a_weight_twice_can_be_saved(tmp_path):
    model = small_model(input_shape=(3,), encoder=Tied())
    save_model(model, tmp_path / "model")
    loaded, _ = load_model(tmp_path / "model", encoder=Tied(), device="cpu")
    x = torch.rand(5, 3)
    assert torch.equal(loaded.transform(x), model.transform(x))


def called(node):
    """The name of what a call calls, with the module in front: "torch.load", "eval"."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def test_nothing_in_the_package_can_run_code_from_a_file():
    dangerous = {"eval", "exec", "torch.load", "joblib.load", "dill.load", "__import__"}
    sources = list(Path(metaclust.__file__).parent.rglob("*.py"))
    assert len(sources) > 10
    for source in sources:
        nodes = list(ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
        imported = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module).split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not imported & {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal"}, source
        assert not {called(node) for node in nodes} & dangerous, source
        for node in nodes:
            if called(node) == "np.load":
                assert "allow_pickle=False" in ast.unparse(node), source


def test_a_file_that_claims_huge_images_is_loaded_without_one(tmp_path, monkeypatch):
    """The weights of a residual network fit images of any size: none of the size that is claimed is made."""
    sizes = []
    real = ResidualImageEncoder.forward

    def spied(self, x):
        sizes.append(tuple(x.shape))
        return real(self, x)

    monkeypatch.setattr(ResidualImageEncoder, "forward", spied)
    config = ModelConfig((1, 4096, 4096), 3, 5, encoder="residual", unit=True, hidden=8, filters=2)
    save_model(ClusteringModel(config), tmp_path / "model")
    model, _ = load_model(tmp_path / "model", device="cpu")
    assert model.config.input_shape == (1, 4096, 4096)
    assert sizes == [(1, 1, 64, 64)]
    with pytest.raises(
        ValueError, match=r"input_shape=\(1, 60000, 60000\): an image may have at most 16,777,216 values"
    ):
        ModelConfig((1, 60000, 60000))
