"""The compiled loops of small training steps: against steps without them in double precision, and piece by piece."""

import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import special
from sklearn.metrics import adjusted_rand_score

from metaclust import ClusteringModel, ModelConfig, TaskSampler, TrainingConfig, train, training
from metaclust.compiled import objective
from metaclust.compiled.objective import installed
from metaclust.episodes import collate
from metaclust.processes import Processes

pytest.importorskip("numba", reason="numba is not installed (pip install 'metaclust[fast]')")

from metaclust.compiled import loops


class Stopped(Exception):  # noqa: N818
    """What stops a run."""


@pytest.fixture(autouse=True, scope="module")
def switched_on():
    before = os.environ.pop(objective.SWITCH, None)
    installed.cache_clear()
    assert installed()
    yield
    if before is not None:
        os.environ[objective.SWITCH] = before
    installed.cache_clear()


def rows_of(categories=12, rows=6, width=5, seed=0, spread=2.0):
    generator = np.random.default_rng(seed)
    y = np.repeat(np.arange(categories), rows)
    centres = spread * generator.normal(size=(categories, width))
    return torch.from_numpy((centres[y] + generator.normal(size=(len(y), width))).astype(np.float32)), y


def sampler_of(tasks=3, **settings):
    x, y = rows_of(**settings)
    return TaskSampler(x, y, np.unique(y), n_categories=(2, 4), tasks=tasks)


def model_of(width=5, seed=0, **settings):
    torch.manual_seed(seed)
    settings = {"representation": 4, "max_clusters": 5, "steps": 3, "hidden": 12, "task_hidden": 9, **settings}
    model = ClusteringModel(ModelConfig((width,), **settings))
    with torch.no_grad():
        # Representations that fall into clusters, as after some training.
        model.encoder.network[-1].weight.mul_(10)
        if model.task_network is not None:
            model.task_network.f_r[-1].weight.mul_(10)
    return model


def both(model, batch, config, monkeypatch, seed=0, limit=0.05):
    """The indices and the gradients in all weights, by the loops, and without them in double precision."""
    found = []
    for compiled in (True, False):
        network, given = model, batch
        if not compiled:
            network = ClusteringModel(model.config).double()
            network.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
            given = replace(batch, x=batch.x.double())
            monkeypatch.setattr(training, "compiled_index", lambda *_: None)
        else:
            monkeypatch.setattr(training, "compiled_index", objective.compiled_index)
        network.train()
        network.zero_grad()
        torch.manual_seed(seed)
        index = training.task_indices(network, network.encode(given.x), given, config, limit)
        weight = torch.linspace(0.5, 1.5, index.numel(), dtype=index.dtype).reshape(index.shape)
        (weight * index).sum().backward()
        gradients = {name: value.grad for name, value in network.named_parameters() if value.grad is not None}
        found.append((index.detach().double(), {name: value.double() for name, value in gradients.items()}))
    return found


def assert_equal(found, expected, tolerance=5e-3):
    """Each gradient by its own size; where it is below what float32 leaves of all of them, it is rounding."""
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-4)
    assert found[1].keys() == expected[1].keys()
    size = float(torch.stack([value.norm() for value in expected[1].values()]).norm())
    for name, value in expected[1].items():
        apart = float((found[1][name] - value).norm())
        assert apart <= tolerance * float(value.norm()) + 2e-6 * size + 1e-9, (name, apart, float(value.norm()), size)


SETTINGS = {
    "default": ({}, {}),
    "the paper's covariance, last step": ({"mean_covariance": "unit"}, {"objective": "last-step"}),
    "the paper's covariance, last step, no seeds": (
        {"mean_covariance": "unit"},
        {"objective": "last-step", "seeded": 0},
    ),
    "learned prior": ({"learn_prior": True, "alpha": 2.0}, {}),
    "learned prior, the paper's covariance": ({"learn_prior": True, "mean_covariance": "unit"}, {"seeded": 0}),
    "no seeds": ({}, {"seeded": 0}),
    "one step": ({"steps": 1}, {}),
    "odd sizes": ({"max_clusters": 7, "task_hidden": 33, "representation": 3}, {"seeded": 2}),
    "even sizes": ({"max_clusters": 8, "task_hidden": 16, "representation": 6}, {}),
    "one cluster at most": ({"max_clusters": 1}, {"seeded": 1}),
    "one column": ({"representation": 1}, {"seeded": 0}),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("limit", [None, 0.02], ids=["free", "limited"])
def test_indices_and_gradients_are_those_without_the_loops(name, limit, monkeypatch):
    model_settings, training_settings = SETTINGS[name]
    model = model_of(**model_settings)
    config = TrainingConfig(**training_settings)
    sampler = sampler_of()
    for step in range(3):
        found, expected = both(model, sampler.batch(step), config, monkeypatch, seed=step, limit=limit)
        assert_equal(found, expected)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("seeded", [0, 1, 3])
def test_a_process_that_has_a_part_of_the_tasks(rank, seeded, monkeypatch):
    batch = sampler_of(tasks=5).batch(0, Processes(rank, 2), "tasks")
    found, expected = both(model_of(), batch, TrainingConfig(seeded=seeded), monkeypatch)
    assert found[0].shape[1] == len(batch.y) == 2 + rank
    assert_equal(found, expected)


def test_a_task_without_rows_changes_nothing(monkeypatch):
    batch = sampler_of().batch(0)
    batch.mask[1] = False
    found, expected = both(model_of(), batch, TrainingConfig(seeded=0), monkeypatch)
    assert_equal(found, expected)
    assert (found[0][:, 1] == 1).all()


@settings(max_examples=20)
@given(
    st.integers(1, 4), st.integers(1, 23), st.integers(1, 7), st.integers(1, 6), st.integers(1, 20), st.integers(0, 99)
)
def test_tasks_of_any_shape(tasks, rows, representation, clusters, hidden, seed):
    with pytest.MonkeyPatch.context() as patch:
        model = model_of(representation=representation, max_clusters=clusters, task_hidden=hidden, seed=seed)
        sampler = sampler_of(tasks, rows=rows, seed=seed)
        found, expected = both(model, sampler.batch(seed), TrainingConfig(seeded=0), patch, limit=None)
        # Where rows part at a small change, float32 may part elsewhere.
        size = torch.stack([value.norm() for value in expected[1].values()]).norm()
        assume(float(size) < 50)
        assert_equal(found, expected, 5e-3)


def test_trained_models_have_the_same_step(monkeypatch):
    model, sampler = model_of(representation=8), sampler_of()
    config = TrainingConfig(pretrain_steps=30, steps=20, seeded=2)
    train(model, sampler, None, config, progress=False)
    found, expected = both(model, sampler.batch(1000), config, monkeypatch)
    assert found[0].max() > 0.9
    assert_equal(found, expected)


def test_rows_of_a_category_may_lie_apart(monkeypatch):
    """Tasks whose rows are not in the order of their categories, and of which some rows are left out."""
    batch = sampler_of().batch(0)
    order = torch.randperm(batch.y.shape[1], generator=torch.Generator().manual_seed(0))
    mixed = replace(batch, y=batch.y[:, order], mask=batch.mask[:, order], index=batch.index[:, order])
    config = TrainingConfig(seeded=0)
    model = model_of()
    found, expected = both(model, mixed, config, monkeypatch)
    assert_equal(found, expected)
    in_order, _ = both(model, batch, config, monkeypatch)
    torch.testing.assert_close(found[0], in_order[0], rtol=0, atol=1e-5)


def test_threads_change_nothing(monkeypatch):
    model, batch = model_of(), sampler_of(tasks=5).batch(0)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        monkeypatch.setattr(training, "compiled_index", objective.compiled_index)
        model.zero_grad()
        torch.manual_seed(0)
        index = training.task_indices(model, model.encode(batch.x), batch, TrainingConfig(), 0.05)
        index.sum().backward()
        found.append([index.detach(), *(value.grad.clone() for value in model.parameters())])
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def test_the_way_back_may_be_gone_twice():
    model, batch = model_of(), sampler_of().batch(0)
    z = model.encode(batch.x).detach().requires_grad_()
    torch.manual_seed(0)
    index = objective.compiled_index(model, z, batch, 2, False, None).sum()
    (one,) = torch.autograd.grad(index, z, retain_graph=True)
    (two,) = torch.autograd.grad(index, z)
    assert torch.equal(one, two)
    assert one.abs().max() > 0


def negative(batch):
    return replace(batch, y=batch.y - 1)


def large(batch):
    return replace(batch, y=batch.y + 10**9)


def beyond(batch):
    return replace(batch, index=batch.index + len(batch.x))


def twice(batch):
    return replace(batch, index=batch.index.clone().index_fill_(1, torch.tensor([0, 1]), 0))


@pytest.mark.parametrize("change", [negative, large, beyond, twice])
def test_tasks_that_the_loops_may_not_read_go_without_them(change, monkeypatch):
    """They check no index: such tasks are found before, and torch does them, or says what is wrong."""
    model, batch = model_of(), change(sampler_of().batch(0))
    config = TrainingConfig(seeded=0)
    assert objective.compiled_index(model, model.encode(batch.x), batch, 0, False, None) is None
    if change is beyond:
        with pytest.raises((IndexError, RuntimeError), match="out of range"):
            training.task_indices(model, model.encode(batch.x), batch, config, None)
    else:
        found, expected = both(model, batch, config, monkeypatch)
        torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-4)


def test_a_layer_that_was_replaced_is_the_one_that_is_trained(monkeypatch):
    model, batch = model_of(), sampler_of().batch(0)
    model.task_network.f_r[-1] = torch.nn.Linear(9, 5)
    found, expected = both(model, batch, TrainingConfig(seeded=0), monkeypatch)
    assert_equal(found, expected)
    assert model.task_network.f_r[-1].weight.grad.abs().max() > 0
    model.task_network.f_u[0] = torch.nn.Linear(4, 9, bias=True)
    model.task_network.f_u[3] = torch.nn.Linear(9, 10)
    model.task_network.f_u[6] = torch.nn.Linear(10, 9)
    assert objective.compiled_index(model, model.encode(batch.x), batch, 0, False, None) is None


NOT_FOR = {
    "dropout": {"dropout": 0.1},
    "no task network": {"initial": "random"},
    "full covariance": {"components": "full"},
    "EM": {"inference": "em"},
    "wide networks": {"task_hidden": objective.MOST_HIDDEN + 1},
}


@pytest.mark.parametrize("name", [*NOT_FOR, "double precision", "many rows", "switched off"])
def test_what_the_loops_are_not_for_goes_without_them(name, monkeypatch):
    model = model_of(**NOT_FOR.get(name, {}))
    batch = sampler_of().batch(0)
    if name == "double precision":
        model, batch = model.double(), replace(batch, x=batch.x.double())
    if name == "many rows":
        x, y = rows_of(categories=2, rows=objective.MOST_ROWS // 2 + 1)
        batch = collate(x, TaskSampler(x, y, np.unique(y), n_categories=(2, 2)).fixed(1))
    if name == "switched off":
        monkeypatch.setenv(objective.SWITCH, "0")
        installed.cache_clear()
    try:
        z = model.encode(batch.x)
        assert objective.compiled_index(model, z, batch, 1, False, None) is None
        assert training.task_indices(model, z, batch, TrainingConfig(seeded=1), None).isfinite().all()
    finally:
        monkeypatch.undo()
        installed.cache_clear()


def test_without_dropout_at_the_moment_the_loops_are_for_a_network_that_has_some():
    model, batch = model_of(dropout=0.1), sampler_of().batch(0)
    z = model.encode(batch.x)
    assert objective.compiled_index(model.train(), z, batch, 1, False, None) is None
    assert objective.compiled_index(model.eval(), z, batch, 1, False, None) is not None


def test_a_run_that_is_stopped_ends_with_the_weights_it_would_have_had(tmp_path):
    config = TrainingConfig(pretrain_steps=4, steps=8, seeded=2, validate_every=1)

    def trained(folder, stop):
        """The weights after a run, of which the tasks of step ``stop`` cannot be drawn."""
        model, sampler = model_of(), sampler_of()
        draw = sampler.batch

        def batch(step):
            if step == stop:
                raise Stopped
            return draw(step)

        object.__setattr__(sampler, "batch", batch)
        train(model, sampler, None, config, folder=tmp_path / folder, resume=True, progress=False)
        return model.state_dict()

    whole = trained("whole", None)
    with pytest.raises(Stopped):
        trained("stopped", 8)
    resumed = trained("stopped", None)
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def test_infinite_representations_stop_the_training():
    model, sampler = model_of(), sampler_of()
    with torch.no_grad():
        model.encoder.network[-1].bias.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="step 0"):
        train(model, sampler, None, TrainingConfig(pretrain_steps=0, steps=1, proto_weight=0.0), progress=False)


def test_a_process_that_was_forked_off_goes_on_without_threads():
    code = """
    import os, sys, torch, numpy as np
    from metaclust import ClusteringModel, ModelConfig, TaskSampler, TrainingConfig, training
    torch.set_num_threads(2)
    y = np.repeat(np.arange(6), 5)
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    sampler = TaskSampler(x, y, np.arange(6), n_categories=(2, 3), tasks=2)
    torch.manual_seed(0)
    model = ClusteringModel(ModelConfig((4,), representation=3, max_clusters=3, hidden=8, task_hidden=8))

    def step():
        torch.manual_seed(0)
        batch = sampler.batch(0)
        z = torch.ones(len(batch.x), 3).cumsum(0)  # None of torch's threads is needed in the child.
        found = training.compiled_index(model, z, batch, 1, False, None)
        return found.detach()

    before = step()
    child = os.fork()
    if child == 0:
        same = torch.equal(step(), before)
        os._exit(0 if same else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print("both ended")
    """
    environment = {
        name: value for name, value in os.environ.items() if name not in (objective.SWITCH, "OMP_NUM_THREADS")
    }
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert "both ended" in done.stdout, done.stderr


@pytest.mark.parametrize("layer", ["workqueue", "none"])
def test_unsafe_threads_are_not_started(layer, monkeypatch):
    import numba

    def threading_layer():
        if layer == "none":
            raise ValueError("no threading layer could be loaded")
        return layer

    objective.safe_threads.cache_clear()
    monkeypatch.setattr(numba, "threading_layer", threading_layer)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    called = []
    try:
        assert not objective.safe_threads()
        objective.over_tasks(lambda task, *_: called.append(task), lambda *_: called.append("threads"), 3)
    finally:
        objective.safe_threads.cache_clear()
    assert called == [0, 1, 2]


def test_a_numba_that_cannot_be_imported_ends_no_training(tmp_path):
    code = """
    import warnings
    import numpy as np, torch
    from metaclust import ClusteringModel, ModelConfig, TaskSampler, TrainingConfig, train
    y = np.repeat(np.arange(6), 5)
    sampler = TaskSampler(torch.randn(30, 4), y, np.arange(6), n_categories=(2, 3), tasks=2)
    model = ClusteringModel(ModelConfig((4,), representation=3, max_clusters=3, hidden=8, task_hidden=8))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state = train(model, sampler, None, TrainingConfig(pretrain_steps=0, steps=2), progress=False)
    print(state.step, [str(warning.message) for warning in caught])
    """
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text('raise ImportError("Numba needs another NumPy")')
    environment = {name: value for name, value in os.environ.items() if name != objective.SWITCH}
    environment["PYTHONPATH"] = str(tmp_path)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 ['training goes without numba")
    assert done.stdout.count("Numba needs another NumPy") == 1


def test_without_a_place_to_keep_it_a_function_is_compiled_all_the_same(monkeypatch):
    original = loops.njit

    def njit(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return original(**options)

    monkeypatch.setattr(loops, "njit", njit)
    assert loops.compiled(loops.digamma.py_func)(1.0) == pytest.approx(special.digamma(1.0))


# Piece by piece.


@given(st.floats(1e-3, 1e6))
def test_digamma_and_trigamma_are_scipys(x):
    assert loops.digamma(x) == pytest.approx(special.digamma(x), rel=1e-12, abs=1e-12)
    assert loops.trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-11)


@given(st.integers(1, 12), st.integers(1, 40), st.sampled_from([0.1, 5.0, 100.0, 1e4]), st.integers(0, 99))
def test_softmax_is_that_of_torch(columns, n, size, seed):
    scores = size * torch.randn((columns, 41), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = scores.float().numpy().copy()
    total, power = np.empty(41, np.float32), np.empty(41, np.int32)
    largest = loops.softmax(found, n, total, power)
    exact = scores.float().double()[:, :n]
    # In float32 e^-87 is the smallest: of such an exponent the last bit is 8e-6.
    np.testing.assert_allclose(found[:, :n], exact.softmax(0).numpy(), rtol=8e-6, atol=1e-36)
    np.testing.assert_allclose(largest[:n] + np.log(total[:n]), exact.logsumexp(0).numpy(), rtol=1e-6, atol=1e-5)
    np.testing.assert_array_equal(found[:, n:], scores.float().numpy()[:, n:])


def test_softmax_keeps_nan():
    scores = np.zeros((3, 4), np.float32)
    scores[1, 2] = np.nan
    loops.softmax(scores, 4, np.empty(4, np.float32), np.empty(4, np.int32))
    assert np.isnan(scores[:, 2]).all()
    assert np.isfinite(scores[:, [0, 1, 3]]).all()


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 30), st.integers(0, 9))
def test_products_are_numpys(many, width, n, seed):
    generator = np.random.default_rng(seed)
    a, b, w = (generator.normal(size=shape).astype(np.float32) for shape in ((many, 32), (width, 32), (many, width)))
    out = np.empty((many, width), np.float32)
    loops.products(a, b, n, out)
    np.testing.assert_allclose(out, a[:, :n] @ b[:, :n].T, rtol=1e-4, atol=1e-4)
    for weight in (w, np.asfortranarray(w)):
        added = np.ones((many, 32), np.float32)
        loops.add_combined(weight, b, n, added)
        np.testing.assert_allclose(added[:, :n], 1 + w @ b[:, :n], rtol=1e-4, atol=1e-4)
        assert (added[:, n:] == 1).all()


def index_by_pairs(r, y):
    """The index and its derivative from all pairs, in double precision."""
    r = torch.from_numpy(r).double().requires_grad_()
    apart = within = torch.zeros((), dtype=torch.float64)
    for i, j in combinations(range(len(y)), 2):
        distance = 0.5 * (r[:, i] - r[:, j]).abs().sum()
        if y[i] == y[j]:
            within = within + distance
        else:
            apart = apart + distance
    same = sum(m * (m - 1) / 2 for m in np.unique(y, return_counts=True)[1])
    other = len(y) * (len(y) - 1) / 2 - same
    n2, n4 = other - apart, same - within
    denominator = other * (n2 + n4) + (apart + within) * same
    if float(denominator.detach()) <= 0:
        return 1.0, np.zeros(r.shape)
    index = 2 * (apart * n4 - n2 * within) / denominator
    if not index.requires_grad:
        return float(index), np.zeros(r.shape)
    return float(index.detach()), torch.autograd.grad(index, r)[0].numpy()


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.integers(1, 5),
    st.sampled_from(["soft", "ties", "hard", "equal"]),
    st.integers(0, 99),
)
def test_the_index_and_its_derivative_are_those_of_all_pairs(sizes, columns, kind, seed):
    generator = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    n = len(y)
    r = generator.dirichlet(np.ones(columns), n).T
    if kind == "ties":
        r = np.round(4 * r) / 4
    if kind == "hard":
        r = np.eye(columns)[generator.integers(0, columns, n)].T
    if kind == "equal":
        r = np.repeat(r[:, :1], n, 1)
    wide = np.full((columns, n + 3), 7, np.float32)
    wide[:, :n] = r
    slope = np.full((columns, n + 3), 9, np.float32)
    index = loops.pair_index(wide, n, np.cumsum(sizes), slope)
    expected, derivative = index_by_pairs(wide[:, :n], y)
    assert index == pytest.approx(expected, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(slope[:, :n], derivative, rtol=1e-5, atol=1e-6)
    assert (slope[:, n:] == 9).all()
    if kind == "hard":
        assert index == pytest.approx(adjusted_rand_score(y, r.argmax(0)), abs=1e-12)


def test_layers_are_parts_of_one_array_in_the_order_of_the_network():
    model = model_of(representation=4, task_hidden=9, max_clusters=5)
    layers = model.task_network.layers()
    assert [id(value) for value in layers] == [id(value) for value in model.task_network.parameters()]
    flat = torch.cat([value.detach().flatten() for value in layers]).numpy()
    weights, biases = loops.layers_of(flat, 4, 9, 5)
    for value, found in zip(layers[::2] + layers[1::2], weights + biases, strict=True):
        np.testing.assert_array_equal(value.detach().numpy(), found)


def test_what_is_kept_fills_its_array_and_grows_by_one_assignment_a_step():
    sizes = [loops.kept_size(20, 4, 9, 5, steps, steps + 1) for steps in (2, 3, 4)]
    # The assignments, the derivative of their index, and what a step reads and finds.
    assert sizes[1] - sizes[0] == sizes[2] - sizes[1] == 2 * 5 * 20 + 2 * 5 * 6
    kept = np.zeros(sizes[1], np.float32)
    parts = loops.kept_parts(kept, 20, 4, 9, 5, 3, 4)
    for part in parts:
        part += 1
    assert (kept == 1).all()


def test_the_larger_tasks_are_divided_first():
    mask = np.arange(10) < np.array([3, 10, 4, 5, 9])[:, None]
    owner = loops.owners(mask, 2)
    loads = [int(mask[owner == i].sum()) for i in (0, 1)]
    assert max(loads) == 17
