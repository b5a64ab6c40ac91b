"""Encoder, initial assignments and mixture as one network."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from metaclust import ClusteringModel, ModelConfig, TaskSampler, TrainingConfig, evaluate, train, variational_bayes
from metaclust.mixture import expectation_maximization
from metaclust.mixture.seeding import seed_numbers, seeded_logits
from metaclust.model.encoders.image import shifted


def small_model(seed=0, encoder=None, **changes):
    torch.manual_seed(seed)
    settings = {"representation": 3, "max_clusters": 5, "steps": 4, "hidden": 16, **changes}
    return ClusteringModel(ModelConfig((6,), **settings), encoder).eval()


def trajectory(model, z, mask=None):
    return model.trajectory(z, model.initial_logits(z, mask), mask)


def padded_tasks(sizes=(4, 9, 1), width=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    z = 2 * torch.randn((*mask.shape, width), generator=generator)
    return z.masked_fill(~mask[..., None], 0), mask


def test_the_papers_preset_has_the_papers_values():
    config = ModelConfig.preset("paper", (1, 28, 28))
    assert (config.representation, config.max_clusters, config.steps) == (10, 10, 10)
    assert (config.hidden, config.task_hidden, config.filters, config.dropout) == (256, 256, 32, 0.1)
    assert (config.mean_covariance, config.alpha) == ("unit", 1.0)
    assert (config.components, config.inference, config.initial) == ("spherical", "vb", "network")


def test_a_preset_can_be_changed():
    config = ModelConfig.preset("paper", (5,), steps=3, filters=7)
    assert (config.steps, config.filters, config.mean_covariance) == (3, 7, "unit")


WRONG_SETTINGS = [
    ({"input_shape": (2, 3)}, "input_shape="),
    ({"input_shape": ()}, "input_shape="),
    ({"input_shape": (0,)}, "input_shape="),
    ({"input_shape": (1, -2, 3)}, "input_shape="),
    ({"input_shape": (1.5,)}, "input_shape="),
    ({"representation": 0}, "representation=0"),
    ({"max_clusters": -1}, "max_clusters=-1"),
    ({"steps": 2.0}, "steps=2.0"),
    ({"hidden": True}, "hidden=True"),
    ({"filters": 0}, "filters=0"),
    ({"dropout": 1.0}, "dropout=1.0"),
    ({"dropout": -0.1}, "dropout=-0.1"),
    ({"alpha": 0.0}, "alpha=0.0"),
    ({"alpha": float("inf")}, "alpha=inf"),
    ({"alpha": float("nan")}, "alpha=nan"),
    ({"inference": "gibbs"}, "inference='gibbs'"),
    ({"initial": "zeros"}, "initial='zeros'"),
    ({"components": "tied"}, "components='tied'"),
    ({"mean_covariance": "paper"}, "mean_covariance='paper'"),
]


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(("settings", "message"), WRONG_SETTINGS, ids=str)
def test_a_wrong_setting_is_named_with_its_value(settings, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**{"input_shape": (4,), **settings})


@pytest.mark.usefixtures("_without_type_checks")
def test_an_unknown_preset_is_named():
    with pytest.raises(ValueError, match=r"preset='fast'.*'default' or 'paper'"):
        ModelConfig.preset("fast", (4,))


@pytest.mark.parametrize("config", [ModelConfig((4,)), ModelConfig.preset("paper", (1, 28, 28), alpha=0.1)])
def test_a_configuration_survives_json(config):
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_a_setting_this_version_does_not_know_is_named():
    with pytest.raises(ValueError, match=r"unknown model settings \['colour'\].*newer"):
        ModelConfig.from_dict({**ModelConfig((4,)).to_dict(), "colour": 1})


@pytest.mark.parametrize(
    "changes",
    [{}, {"inference": "em"}, {"components": "full"}, {"initial": "random"}, {"mean_covariance": "unit"}],
    ids=str,
)
def test_a_trajectory_holds_the_distributions_of_the_start_and_of_every_step(changes):
    z, mask = padded_tasks()
    r = trajectory(small_model(**changes), z, mask)
    assert r.shape == (5, 3, 9, 5)
    torch.testing.assert_close(r.sum(-1), mask.to(r.dtype).expand(5, -1, -1))
    assert (r >= 0).all()
    assert (r[:, ~mask] == 0).all()


def test_a_trajectory_starts_at_the_task_network():
    z, _ = padded_tasks((8, 8))
    model = small_model()
    torch.testing.assert_close(trajectory(model, z)[0], model.task_network(z).softmax(-1))


@pytest.mark.parametrize("mean_covariance", ["unit", "optimal"])
@pytest.mark.parametrize("components", ["spherical", "full"])
@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_a_trajectory_ends_where_variational_bayes_does(mean_covariance, components, alpha):
    z, mask = padded_tasks()
    model = small_model(mean_covariance=mean_covariance, components=components, alpha=alpha)
    logits = model.initial_logits(z, mask)
    expected = variational_bayes(z, logits, 4, alpha, mean_covariance, components, mask)
    torch.testing.assert_close(model.trajectory(z, logits, mask)[-1], expected.r)
    torch.testing.assert_close(model.infer(z, mask).r, expected.r)


def test_inference_by_em_is_expectation_maximization():
    z, mask = padded_tasks((6, 9))
    model = small_model(inference="em")
    expected = expectation_maximization(z, model.initial_logits(z, mask), 4, mask=mask)
    torch.testing.assert_close(trajectory(model, z, mask)[-1], expected.r)
    torch.testing.assert_close(model.infer(z, mask).bound, expected.bound)


@pytest.mark.parametrize("inference", ["vb", "em"])
def test_padded_tasks_are_clustered_as_each_task_alone(inference):
    sizes = (4, 9, 1)
    z, mask = padded_tasks(sizes)
    model = small_model(inference=inference)
    r = trajectory(model, z, mask)
    posterior = model.infer(z, mask, tol=1e-5, steps=200)
    for task, size in enumerate(sizes):
        alone = z[task, :size]
        torch.testing.assert_close(r[:, task, :size], trajectory(model, alone))
        torch.testing.assert_close(posterior.bound[task], model.infer(alone, tol=1e-5, steps=200).bound)


def test_a_random_start_has_no_task_network_and_follows_torchs_seed():
    z, _ = padded_tasks((8,))
    model = small_model(initial="random")
    assert model.task_network is None
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(trajectory(model, z))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_with_a_tolerance_inference_goes_on_until_the_bound_rests():
    z, mask = padded_tasks((30, 25))
    model = small_model()
    rested = model.infer(z, mask, tol=1e-9, steps=200)
    further = model.infer(z, mask, steps=300)
    torch.testing.assert_close(rested.bound, further.bound, rtol=1e-5, atol=1e-3)
    assert (rested.steps > model.config.steps).any()
    assert (rested.steps <= 200).all()


@pytest.mark.parametrize("steps", [1, 7])
def test_infer_takes_the_steps_it_is_told(steps):
    z, _ = padded_tasks((8,))
    assert small_model().infer(z, steps=steps).steps.tolist() == [steps]


def test_infer_names_a_wrong_argument():
    with pytest.raises(ValueError, match="steps=0"):
        small_model().infer(torch.randn(4, 3), steps=0)


@pytest.mark.parametrize("training", [True, False])
def test_infer_and_transform_are_without_dropout_and_leave_the_mode_as_it_was(training):
    model = small_model(dropout=0.5).train(training)
    x = torch.randn(6, 6)
    z = model.transform(x)
    r = model.infer(z).r
    assert model.training is training
    assert {module.training for module in model.modules()} == {training}
    assert torch.equal(z, model.transform(x))
    assert torch.equal(r, model.infer(z).r)
    assert not z.requires_grad


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_transform_in_blocks_is_transform_at_once(block):
    model = small_model()
    x = torch.randn(7, 6)
    torch.testing.assert_close(model.transform(x, block=block), model.eval().encode(x))


def test_shifts_move_an_image_and_repeat_its_border():
    x = torch.arange(9).reshape(1, 1, 3, 3).to(torch.uint8)
    same, down, up, right, left = (copy[0, 0].tolist() for copy in shifted(x, 0.1))
    assert same == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert down == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]
    assert up == [[3, 4, 5], [6, 7, 8], [6, 7, 8]]
    assert right == [[0, 0, 1], [3, 3, 4], [6, 6, 7]]
    assert left == [[1, 2, 2], [4, 5, 5], [7, 8, 8]]


def test_images_are_represented_by_the_mean_over_their_shifts():
    torch.manual_seed(0)
    settings = {"filters": 2, "hidden": 4, "representation": 2}
    model = ClusteringModel(ModelConfig((1, 20, 12), shift=0.1, **settings)).eval()
    x = torch.rand(5, 1, 20, 12)
    moved = [x, torch.cat((x[:, :, :1], x[:, :, :1], x[:, :, :-2]), 2), torch.cat((x[..., :1], x[..., :-1]), 3)]
    moved += [torch.cat((x[:, :, 2:], x[:, :, -1:], x[:, :, -1:]), 2), torch.cat((x[..., 1:], x[..., -1:]), 3)]
    expected = torch.stack([model.encoder(copy) for copy in moved]).mean(0)
    torch.testing.assert_close(model.transform(x), expected)
    # Training is on the images as they are.
    torch.testing.assert_close(model.encode(x), model.encoder(x))


def test_the_input_shape_chooses_the_encoder():
    image = ClusteringModel(ModelConfig((3, 8, 8), filters=2, hidden=4, representation=2))
    assert image.transform(torch.zeros(3, 3, 8, 8, dtype=torch.uint8)).shape == (3, 2)
    assert small_model().transform(torch.zeros(3, 6)).shape == (3, 3)


WRONG_ROWS = [
    ((6,), torch.zeros(2, 5), ValueError, r"rows of shape \(5,\), but .* input_shape=\(6,\)"),
    ((6,), torch.zeros(6), ValueError, r"rows of shape \(\), but"),
    ((3, 8, 8), torch.zeros(2, 8, 8), ValueError, r"rows of shape \(8, 8\), but"),
    ((6,), torch.zeros(2, 6, dtype=torch.int64), TypeError, r"x is torch.int64: pass floating-point rows"),
    ((6,), torch.zeros(2, 6, dtype=torch.uint8), TypeError, r"x is torch.uint8"),
]


@pytest.mark.parametrize(("shape", "x", "error", "message"), WRONG_ROWS)
def test_rows_the_model_was_not_built_for_are_named(shape, x, error, message):
    with pytest.raises(error, match=message):
        ClusteringModel(ModelConfig(shape, hidden=4, filters=2)).transform(x)


class Sequence(nn.Module):
    """A user's encoder, of rows of an unusual shape."""

    def __init__(self, width=3):
        super().__init__()
        self.lstm = nn.LSTM(2, width, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0][:, -1]


def test_a_users_own_encoder_is_trained_and_used():
    x = torch.randn(48, 5, 2)
    sampler = TaskSampler(x, np.repeat(np.arange(8), 6), np.arange(8), n_categories=(2, 4))
    model = small_model(encoder=Sequence())
    before = [parameter.clone() for parameter in model.encoder.parameters()]
    train(model, sampler, config=TrainingConfig(pretrain_steps=0, steps=1), progress=False)
    assert all(not torch.equal(old, new) for old, new in zip(before, model.encoder.parameters(), strict=True))
    z = model.transform(x[:10])
    assert trajectory(model, z).shape == (5, 10, 5)
    torch.testing.assert_close(model.infer(z).r.sum(-1), torch.ones(10))


@pytest.mark.parametrize("encoder", [Sequence(width=4), nn.Flatten(0), nn.Identity()], ids=str)
def test_an_encoder_with_the_wrong_output_is_told_what_it_must_give(encoder):
    model = small_model(encoder=encoder)
    with pytest.raises(ValueError, match=r"the encoder returned shape .* it must return \(7, 3\)"):
        model.transform(torch.randn(7, 5, 2))


def test_a_model_without_weights_clusters_vectors_as_they_are():
    x = torch.cat((torch.randn(10, 3), torch.randn(10, 3) + 50))
    model = small_model(encoder=nn.Identity(), initial="random")
    tasks = TaskSampler(x, np.repeat([0, 1], 10), np.arange(2), n_categories=(2, 2)).fixed(1)
    assert evaluate(model, x, tasks).ari[0] == pytest.approx(1.0)


def seeds_are_rows_of(z, logits):
    """Whether each column differs from the first as the half squared distances to two rows of ``z`` do."""
    half = 0.5 * (z[:, None] - z).square().sum(-1)
    pairs = half[:, None, :] - half[:, :, None]
    differences = logits[:, 1:] - logits[:, :1]
    return all(torch.isclose(pairs, column[:, None, None], atol=1e-4).all(0).any() for column in differences.unbind(-1))


def test_seeded_logits_are_those_of_unit_components_at_rows():
    z = torch.randn(20, 3)
    logits = seeded_logits(z, 5, generator=torch.Generator().manual_seed(0))
    assert seeds_are_rows_of(z, logits)
    assert torch.equal(logits.amax(-1), torch.zeros(20))
    assert len(logits.softmax(-1).argmax(-1).unique()) == 5
    assert not seeds_are_rows_of(z[1:].repeat(2, 1)[:20], logits)


@pytest.mark.parametrize("seed", range(20))
def test_padding_is_never_a_seed(seed):
    z, mask = padded_tasks((4, 9, 1), seed=seed)
    mask = mask.flip(-1) if seed % 2 else mask
    z = torch.where(mask[..., None], torch.randn_like(z), 20 + 5 * torch.randn_like(z))
    logits = seeded_logits(z, 6, mask, torch.Generator().manual_seed(seed))
    for task in range(3):
        assert seeds_are_rows_of(z[task, mask[task]], logits[task, mask[task]])


def test_seeds_are_far_from_each_other():
    z = torch.cat((torch.zeros(99, 2), torch.full((1, 2), 100.0)))
    for seed in range(10):
        r = seeded_logits(z, 2, generator=torch.Generator().manual_seed(seed)).softmax(-1)
        torch.testing.assert_close(r[0], 1 - r[-1])
        assert r[0].max() == 1


def test_with_fewer_seeds_the_other_clusters_start_empty():
    r = seeded_logits(torch.randn(2, 20, 3), 6, seeds=4).softmax(-1)
    assert (r[..., 4:] == 0).all()
    assert (r[..., :4].sum(-2) > 0).all()


def test_each_task_may_have_its_own_number_of_seeds():
    r = seeded_logits(torch.randn(3, 20, 3), 6, seeds=torch.tensor([2, 6, 1])).softmax(-1)
    assert ((r.amax(1) > 0).sum(-1) == torch.tensor([2, 6, 1])).all()
    assert torch.allclose(r.sum(-1), torch.ones(3, 20))


@pytest.mark.parametrize("z", [torch.ones(6, 3), torch.ones(1, 3)], ids=["equal rows", "one row"])
def test_seeds_may_coincide_where_there_are_not_enough_rows(z):
    assert torch.equal(seeded_logits(z, 4), torch.zeros(len(z), 4))


def test_seeds_follow_the_generator():
    z = torch.randn(2, 30, 3)
    one, same, other = (seeded_logits(z, 4, generator=torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("settings", [{}, {"components": "full"}, {"inference": "em"}])
def test_each_task_starts_at_the_networks_or_the_seeded_start_with_the_best_bound(settings):
    _, mask = padded_tasks((30, 25, 1, 12, 8, 20, 3, 17))
    blob = torch.arange(30) % torch.tensor([5, 1, 1, 2, 4, 3, 2, 4])[:, None]
    z = 0.2 * torch.randn(8, 30, 3) + 3 * torch.randn(5, 3)[blob]
    model = small_model(**settings)
    own = model.initial_logits(z, mask)
    torch.manual_seed(7)
    numbers = torch.randint(2, 6, (4,))[:, None]
    starts = [own, *seeded_logits(z.expand(4, 8, 30, 3), 5, mask.expand(4, 8, 30), seeds=numbers)]
    if model.config.inference == "em":
        ends = [expectation_maximization(z, logits, 4, mask=mask) for logits in starts]
    else:
        components = model.config.components
        ends = [variational_bayes(z, logits, 4, 1.0, "optimal", components, mask) for logits in starts]
    best = torch.stack([end.exact_bound for end in ends]).argmax(0).tolist()
    torch.manual_seed(7)
    r = model.trajectory(z, own, mask, 4)
    for task in range(8):
        torch.testing.assert_close(r[0, task], starts[best[task]][task].softmax(-1) * mask[task, :, None])
        torch.testing.assert_close(r[-1, task], ends[best[task]].r[task], atol=1e-4, rtol=1e-3)
    assert len(set(best)) > 1


@pytest.mark.parametrize("settings", [{}, {"components": "diagonal"}, {"inference": "em"}])
def test_candidates_are_where_inference_from_seeds_ends(settings):
    z, mask = padded_tasks((30, 25, 12), seed=1)
    z = z.double().requires_grad_()
    model = small_model(**settings).double()
    numbers = torch.tensor([[2, 3, 4], [5, 2, 3]])
    torch.manual_seed(3)
    ends, bound = model.candidates(z, numbers, 5, mask)
    torch.manual_seed(3)
    logits = seeded_logits(z.detach().expand(2, *z.shape), 5, mask.expand(2, *mask.shape), seeds=numbers)
    rows = z.detach().clone().requires_grad_()
    weight = torch.randn(ends.shape, dtype=torch.float64)
    total, bounds = 0.0, []
    for start in range(2):
        if model.config.inference == "em":
            end = expectation_maximization(rows, logits[start], 4, mask=mask)
        else:
            components = model.config.components
            end = variational_bayes(rows, logits[start], 4, 1.0, "optimal", components, mask)
        torch.testing.assert_close(ends[start], end.r, atol=1e-8, rtol=1e-6)
        total = total + (end.r * weight[start]).sum()
        bounds.append(end.exact_bound)
    assert ends.shape == (2, 3, 30, 5)
    assert not bound.requires_grad
    difference = (bounds[0] - bounds[1]).detach()
    torch.testing.assert_close((bound[0] - bound[1]).double(), difference, atol=1e-5, rtol=1e-5)
    expected = torch.autograd.grad(total, rows)[0]
    torch.testing.assert_close(torch.autograd.grad((ends * weight).sum(), z)[0], expected, atol=1e-6, rtol=1e-5)


def test_only_tasks_that_start_at_the_network_pass_it_a_gradient():
    blob = torch.arange(30) % 3
    z = 0.3 * torch.randn(6, 30, 3) + 3 * torch.eye(3)[blob]
    model = small_model()
    # The network is right in the first three tasks and puts all rows together in the others; the seeds, the other way.
    right = torch.full((30, 5), -3.0)
    right[torch.arange(30), blob] = 3
    together = torch.tensor([3.0, -3, -3, -3, -3]).expand(30, 5)
    own = torch.stack([right] * 3 + [together] * 3).requires_grad_()
    model._seeded = lambda *_: torch.stack([together] * 3 + [right] * 3)[None]
    r = model.trajectory(z, own, None, 1)
    (r[-1] * torch.randn_like(r[-1])).sum().backward()
    networks = torch.isclose(r[0], own.softmax(-1)).flatten(1).all(1)
    assert networks.tolist() == [True] * 3 + [False] * 3
    assert ((own.grad != 0).flatten(1).any(1) == networks).all()


@pytest.mark.parametrize(("clusters", "starts"), [(10, 9), (10, 1), (10, 0), (2, 3), (1, 3)])
def test_starts_have_from_as_many_seeds_as_clusters_down_to_two(clusters, starts):
    numbers = seed_numbers(clusters, starts)
    assert len(numbers) == starts
    assert numbers[:1] == [clusters][:starts]
    assert numbers == sorted(numbers, reverse=True)
    assert all(min(2, clusters) <= number <= clusters for number in numbers)
    assert starts < 2 or numbers[-1] == min(2, clusters)


def test_settings_of_a_file_from_before_the_task_networks_had_a_width_of_their_own():
    settings = ModelConfig((6,), hidden=32).to_dict()
    assert ModelConfig.from_dict(settings).task_hidden == 64
    del settings["task_hidden"]
    assert ModelConfig.from_dict(settings).task_hidden == 32
