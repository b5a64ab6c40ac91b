"""The training loop: what it minimises, what it keeps, what it writes and what it refuses."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from metaclust import (
    CheckpointError,
    ClusteringModel,
    ModelConfig,
    TaskSampler,
    TrainingConfig,
    load_model,
    prototypical_loss,
    soft_ari,
    train,
)
from metaclust.objectives.ari import LimitedGradient
from metaclust.training import loop as training
from metaclust.training import losses
from metaclust.training import optimizer as optimizers

SHORT = TrainingConfig(pretrain_steps=4, steps=6, validate_every=2)


def blobs(categories=30, rows=12, seed=0):
    """Categories that differ in two of eight columns; the others are noise."""
    generator = torch.Generator().manual_seed(seed)
    y = np.repeat(np.arange(categories), rows)
    centre = 3 * torch.randn((categories, 2), generator=generator)
    signal = centre[y] + 0.3 * torch.randn((len(y), 2), generator=generator)
    return torch.cat((signal, 2 * torch.randn((len(y), 6), generator=generator)), 1), y


X, Y = blobs()
SAMPLER = TaskSampler(X, Y, np.arange(20), n_categories=(2, 4))
VALIDATION = replace(SAMPLER, categories=np.arange(20, 30)).fixed(4)
MORE_VALIDATION = replace(SAMPLER, categories=np.arange(20, 30)).fixed(20)


def new_model(seed=0, encoder=None, **changes):
    torch.manual_seed(seed)
    settings = {"representation": 3, "max_clusters": 6, "steps": 5, "hidden": 32, **changes}
    return ClusteringModel(ModelConfig((8,), **settings), encoder)


def quiet(model, validation=VALIDATION, config=SHORT, sampler=SAMPLER, **options):
    return train(model, sampler, validation, config, progress=False, **options)


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def same_weights(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def mean_loss(loss, model, *settings):
    """Over batches that were not trained on."""
    torch.manual_seed(0)
    with torch.no_grad():
        return np.mean([loss(model.eval(), SAMPLER.batch(step), *settings)[0] for step in range(1000, 1010)])


def test_pretraining_lowers_the_prototypical_loss():
    config = replace(SHORT, pretrain_steps=60, steps=0, learning_rate=0.01)
    model = new_model()
    before = mean_loss(losses.proto_loss, model)
    quiet(model, None, config)
    assert mean_loss(losses.proto_loss, model) < 0.5 * before


def test_pretraining_tells_the_categories_of_all_tasks_of_a_batch_apart():
    model = new_model().eval()
    batch = SAMPLER.batch(0)
    loss, parts = losses.proto_loss(model, batch)
    category = torch.from_numpy(Y)[(batch.x[:, None] == X).all(-1).int().argmax(-1)]
    assert len(category.unique()) > batch.y.max() + 1
    torch.testing.assert_close(loss, prototypical_loss(model.encode(batch.x), category))
    assert parts == {"loss": loss.item()}


def test_the_pretraining_may_have_batches_of_its_own(tmp_path):
    wide = replace(SAMPLER, n_categories=(20, 20), rows=5, tasks=1)
    model = new_model()
    quiet(model, None, replace(SHORT, steps=0), pretraining=wide)
    other = new_model()
    quiet(other, None, replace(SHORT, steps=0), sampler=wide)
    assert same_weights(model, other)
    quiet(new_model(), folder=tmp_path, pretraining=wide)
    with pytest.raises(CheckpointError, match="pretraining"):
        quiet(new_model(), folder=tmp_path, resume=True)


def test_the_pretrained_model_is_kept_beside_the_run(tmp_path):
    quiet(new_model(), folder=tmp_path)
    pretrained = new_model()
    quiet(pretrained, None, replace(SHORT, steps=0))
    assert same_weights(load_model(tmp_path / "pretrained.safetensors", device="cpu")[0], pretrained)


def test_training_lowers_its_loss_and_clusters_new_categories_better_than_the_pretrained_start():
    config = replace(SHORT, pretrain_steps=20, steps=60, learning_rate=0.01, validate_every=20)
    model = new_model()
    before = mean_loss(losses.ari_loss, model, config)
    state = quiet(model, MORE_VALIDATION, config)
    assert mean_loss(losses.ari_loss, model, config) < 0.7 * before
    assert state.best > state.proto_start + 0.15
    assert state.best == max(ari for _, ari in state.validations)
    assert training.validate(model, X, MORE_VALIDATION, config) == state.best


def test_the_seed_decides_the_weights():
    models = [new_model() for _ in range(3)]
    for model, seed in zip(models, (5, 5, 6), strict=True):
        quiet(model, None, replace(SHORT, seed=seed))
    assert same_weights(models[0], models[1])
    assert not same_weights(models[0], models[2])


def test_the_callers_random_numbers_change_nothing_and_are_left_alone():
    models = [new_model(initial="random"), new_model(initial="random")]
    torch.manual_seed(1)
    quiet(models[0])
    torch.manual_seed(2)
    state = torch.get_rng_state()
    quiet(models[1])
    assert torch.equal(torch.get_rng_state(), state)
    assert same_weights(*models)


def test_progress_is_shown_or_not_and_changes_nothing(capsys):
    shown, hidden = new_model(), new_model()
    train(hidden, SAMPLER, VALIDATION, SHORT, progress=False)
    assert capsys.readouterr().out == ""
    train(shown, SAMPLER, VALIDATION, SHORT, progress=True)
    output = capsys.readouterr().err
    assert "10/10" in output
    assert "loss" in output
    assert same_weights(shown, hidden)


def test_metrics_are_one_record_a_line(tmp_path):
    state = quiet(new_model(), folder=tmp_path)
    lines = records(tmp_path)
    assert [(line["step"], line["phase"]) for line in lines] == [
        (2, "proto"),
        (4, "proto"),
        (4, "proto-start"),
        (6, "ari"),
        (8, "ari"),
        (10, "ari"),
    ]
    assert all(math.isfinite(line["loss"]) for line in lines if line["phase"] != "proto-start")
    assert [(line["step"], line["validation_ari"]) for line in lines if "validation_ari" in line] == state.validations
    assert lines[2]["validation_ari"] == state.proto_start


def test_the_weights_that_validated_best_are_kept(monkeypatch):
    scores, seen = iter([0.1, 0.5, 0.3, 0.5]), []

    def scripted(model, *_):
        seen.append(training.snapshot(model))
        return next(scores)

    monkeypatch.setattr(training, "validate", scripted)
    model = new_model()
    state = quiet(model)
    assert state.validations == [(4, 0.1), (6, 0.5), (8, 0.3), (10, 0.5)]
    assert (state.best, state.best_step, state.last, state.stale) == (0.5, 6, 0.5, 2)
    assert all(torch.equal(value, seen[1][name]) for name, value in model.state_dict().items())
    assert not all(torch.equal(value, seen[3][name]) for name, value in model.state_dict().items())


def test_without_validation_the_last_weights_are_kept():
    model, same = new_model(), new_model()
    state = quiet(model, None)
    assert (state.step, state.best_step, state.validations) == (10, -1, [])
    assert state.finished
    optimizer = None
    for step in range(10):
        if step in (0, 4):
            optimizer = torch.optim.Adam(same.parameters(), fused=True)
        torch.manual_seed(optimizers.step_seed(0, step))
        optimizer.param_groups[0]["lr"] = optimizers.learning_rate(SHORT, step)
        batch = SAMPLER.batch(step)
        loss, _ = losses.proto_loss(same, batch) if step < 4 else losses.ari_loss(same, batch, SHORT)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(same.parameters(), SHORT.clip)
        optimizer.step()
    assert same_weights(model, same)


def test_patience_stops_after_so_many_validations_without_a_better_one():
    config = replace(SHORT, steps=100, learning_rate=1e-12, patience=3)
    state = quiet(new_model(), config=config)
    assert state.finished
    assert state.stale == 3
    assert state.step == 4 + 3 * 2


def test_the_papers_objective_is_the_index_after_the_last_step():
    config = TrainingConfig.preset("paper")
    assert (config.objective, config.schedule, config.distance) == ("last-step", "constant", "tv")
    assert (config.proto_weight, config.seeded, config.task_clip, config.clip) == (0, 0, None, None)
    model = new_model().eval()
    batch = SAMPLER.batch(0)
    z = batch.pad(model.encode(batch.x))
    r = model.trajectory(z, model.initial_logits(z, batch.mask), batch.mask)[-1]
    loss, parts = losses.ari_loss(model, batch, config)
    torch.testing.assert_close(loss, 1 - soft_ari(r, batch.y, batch.mask).mean())
    assert parts["loss"] == pytest.approx(1 - parts["ari"])


@pytest.mark.parametrize("distance", ["tv", "prob"])
def test_the_default_objective_is_the_mean_over_all_steps_and_some_proto(distance):
    config = TrainingConfig(seeded=0, distance=distance)
    model = new_model().eval()
    batch = SAMPLER.batch(0)
    z = batch.pad(model.encode(batch.x))
    r = model.trajectory(z, model.initial_logits(z, batch.mask), batch.mask)
    index = torch.stack([soft_ari(step, batch.y, batch.mask, distance).mean() for step in r])
    proto, _ = losses.proto_loss(model, batch)
    loss, parts = losses.ari_loss(model, batch, config)
    torch.testing.assert_close(loss, 1 - index.mean() + config.proto_weight * proto)
    assert parts["ari"] == pytest.approx(index[-1].item())
    assert parts["proto"] == pytest.approx(proto.item())


def test_the_default_objective_goes_through_the_best_of_the_networks_and_of_several_seeded_starts():
    config = TrainingConfig(proto_weight=0.0)
    model = new_model().eval()
    batch = SAMPLER.batch(0)
    z = batch.pad(model.encode(batch.x))
    logits = model.initial_logits(z, batch.mask)
    torch.manual_seed(1)
    r = model.trajectory(z, logits, batch.mask, config.seeded)
    r = torch.cat((logits.softmax(-1)[None], r[1:]))
    torch.manual_seed(1)
    loss, _ = losses.ari_loss(model, batch, config)
    torch.testing.assert_close(loss, 1 - soft_ari(r, batch.y, batch.mask).mean())


def test_the_gradient_of_one_task_is_limited_and_that_of_the_others_is_not_changed():
    z = torch.randn(3, 4, 2, requires_grad=True)
    weight = torch.tensor([1e-3, 1.0, 50.0])[:, None, None] * torch.randn(3, 4, 2)
    (LimitedGradient.apply(z, 0.5) * weight).sum().backward()
    norm = weight.flatten(1).norm(dim=1)
    assert norm[0] < 0.5 < norm[1]
    torch.testing.assert_close(z.grad[0], weight[0])
    torch.testing.assert_close(z.grad[1:], weight[1:] * 0.5 / norm[1:, None, None])


def test_the_learning_rate_rises_and_then_falls_along_half_a_cosine_in_each_phase():
    config = TrainingConfig(pretrain_steps=1000, steps=2000, learning_rate=0.1)
    rates = [optimizers.learning_rate(config, step) for step in range(3000)]
    for phase in (rates[:1000], rates[1000:]):
        assert phase[0] == pytest.approx(0.1 / 100)
        assert phase[len(phase) // 2] == pytest.approx(0.1 * 0.505)
        assert 0.095 < max(phase) < 0.1
        assert phase[-1] == pytest.approx(0.1 * 0.01, rel=0.01)
        assert phase[:90] == sorted(phase[:90])
        assert phase[100:] == sorted(phase[100:], reverse=True)


def test_the_learning_rate_of_a_short_phase_is_positive_and_at_most_that_asked_for():
    config = TrainingConfig(pretrain_steps=1, steps=3, learning_rate=0.1)
    assert all(0 < optimizers.learning_rate(config, step) <= 0.1 for step in range(4))


def test_a_constant_learning_rate_is_constant():
    config = TrainingConfig(pretrain_steps=10, steps=20, learning_rate=0.1, schedule="constant")
    assert {optimizers.learning_rate(config, step) for step in range(30)} == {0.1}


def encoder_gradient(model, config):
    """The norm of the gradient that a step of training would follow, in the encoder."""
    model.zero_grad()
    losses.ari_loss(model, SAMPLER.batch(0), config)[0].backward()
    return float(model.encoder.weight.grad.norm())


def nearly_collapsed(scale):
    """A model without dropout whose encoder maps all rows to one point, but for ``scale``."""
    model = new_model(encoder=nn.Linear(8, 3, bias=False), steps=10).eval()
    with torch.no_grad():
        model.encoder.weight.mul_(scale)
    return model


def test_a_collapsed_encoder_is_a_dead_end_of_the_last_step_and_near_it_the_default_objective_leads_away():
    papers, default = TrainingConfig.preset("paper"), TrainingConfig()
    assert encoder_gradient(nearly_collapsed(0.0), papers) == 0
    near = nearly_collapsed(1e-3)
    z = near.transform(X[:30])
    assert len(near.infer(z).r.argmax(-1).unique()) == 1
    assert encoder_gradient(near, papers) < 1e-5
    assert encoder_gradient(near, default) > 1e-4


@pytest.mark.parametrize("pretrain_steps", [0, 4])
def test_a_loss_that_is_not_finite_stops_the_training(pretrain_steps):
    model = new_model()
    with torch.no_grad():
        model.encoder.network[0].weight[0, 0] = float("nan")
    with pytest.raises(FloatingPointError, match=r"at step 0 the loss became nan .*lower learning_rate=0.001"):
        quiet(model, None, replace(SHORT, pretrain_steps=pretrain_steps))


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    quiet(new_model(), folder=tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(FileExistsError, match="holds a training run already: pass resume=True"):
        quiet(new_model(), folder=tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


CHANGED = {
    "learning_rate": lambda: quiet(new_model(), config=replace(SHORT, learning_rate=0.5), **RESUMED),
    "max_clusters": lambda: quiet(new_model(max_clusters=7), **RESUMED),
    "n_categories": lambda: quiet(new_model(), sampler=replace(SAMPLER, n_categories=(2, 5)), **RESUMED),
}
RESUMED = {"resume": True}


@pytest.mark.parametrize("setting", CHANGED)
def test_a_run_is_not_resumed_with_other_settings(tmp_path, monkeypatch, setting):
    quiet(new_model(), folder=tmp_path)
    monkeypatch.setitem(RESUMED, "folder", tmp_path)
    with pytest.raises(CheckpointError, match=rf"other settings.*{setting}"):
        CHANGED[setting]()


def test_no_steps_at_all_leave_the_model_as_it_was():
    model = new_model()
    state = quiet(model, config=replace(SHORT, pretrain_steps=0, steps=0))
    assert same_weights(model, new_model())
    assert state.finished
    assert state.validations == [(0, state.proto_start)]


WRONG = [
    ({"pretrain_steps": -1}, "pretrain_steps=-1"),
    ({"steps": 1.5}, "steps=1.5"),
    ({"steps": True}, "steps=True"),
    ({"validate_every": 0}, "validate_every=0"),
    ({"learning_rate": 0.0}, "learning_rate=0.0"),
    ({"learning_rate": float("nan")}, "learning_rate=nan"),
    ({"proto_weight": -0.1}, "proto_weight=-0.1"),
    ({"schedule": "linear"}, "schedule='linear'"),
    ({"objective": "first-step"}, "objective='first-step'"),
    ({"distance": "l2"}, "distance='l2'"),
    ({"patience": 0}, "patience=0"),
    ({"seeded": -1}, "seeded=-1"),
    ({"clip": 0.0}, "clip=0.0"),
    ({"task_clip": 0.0}, "task_clip=0.0"),
    ({"seed": -1}, "seed=-1"),
]


@pytest.mark.usefixtures("_without_type_checks")
@pytest.mark.parametrize(("settings", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_setting_is_named_with_its_value(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**settings)


@pytest.mark.usefixtures("_without_type_checks")
def test_an_unknown_preset_is_named():
    with pytest.raises(ValueError, match=r"preset='fast'.*'default' or 'paper'"):
        TrainingConfig.preset("fast")


@pytest.mark.parametrize("effective_rows", [3.0, None])
def test_the_loss_of_candidates_is_the_expected_ari_of_each_task(effective_rows):
    model = new_model(learn_prior=True, effective_rows=effective_rows).eval()
    batch = replace(SAMPLER, n_categories=(2, 6), rows=(3, 12), imbalanced=True).batch(0)
    config = replace(SHORT, objective="candidates", proto_weight=0.0, task_clip=None)
    torch.manual_seed(5)
    loss, parts = losses.ari_loss(model, batch, config)
    z, true = batch.pad(model.encode(batch.x)), batch.y.amax(1) + 1
    numbers = torch.stack([(true * factor).round().long().clamp(2) for factor in losses.NUMBERS])
    torch.manual_seed(5)
    ends, bound = model.candidates(z, numbers, 12, batch.mask)
    reached = []
    for task, count in enumerate(batch.mask.sum(1).tolist()):
        weight = 1.0 if effective_rows is None else min(1.0, effective_rows * int(true[task]) / count)
        probability = np.exp(weight * bound[:, task].double().numpy())
        probability /= probability.sum()
        aris = [soft_ari(end[task, :count], batch.y[task, :count]).item() for end in ends]
        reached.append(probability @ aris)
    assert 1 - loss.item() == pytest.approx(np.mean(reached), abs=1e-5)
    assert parts["ari"] == pytest.approx(np.mean(reached), abs=1e-5)
    assert len({round(ari, 4) for ari in reached}) > 1


def test_trained_on_candidates_the_task_network_is_left_alone(tmp_path):
    config = replace(SHORT, objective="candidates")
    model = ClusteringModel(replace(new_model().config, learn_prior=True))
    train(model, SAMPLER, None, config, folder=tmp_path, progress=False)
    pretrained = load_file(tmp_path / "pretrained.safetensors")
    changed = {
        name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, pretrained[name])
    }
    assert changed == {"encoder", "prior_logs"}
    assert not model.config.learned_start


def test_a_run_on_candidates_is_resumed_to_the_same_weights(tmp_path):
    config = replace(SHORT, objective="candidates", validate_every=3)
    whole, stopped = (ClusteringModel(new_model().config) for _ in range(2))
    stopped.load_state_dict(whole.state_dict())
    train(whole, SAMPLER, None, config, progress=False)
    with pytest.MonkeyPatch.context() as patch:
        step = training.Training.step

        def crashing(self, batch):
            if self.state.step == 8:
                raise KeyboardInterrupt
            return step(self, batch)

        patch.setattr(training.Training, "step", crashing)
        with pytest.raises(KeyboardInterrupt):
            train(stopped, SAMPLER, None, config, folder=tmp_path, progress=False)
    train(stopped, SAMPLER, None, config, folder=tmp_path, resume=True, progress=False)
    assert same_weights(whole, stopped)


@pytest.mark.parametrize("objective", ["every-step", "candidates"])
def test_weights_that_a_user_froze_stay_frozen(objective):
    model = new_model()
    held = next(model.encoder.parameters()).requires_grad_(False)
    before = held.clone()
    train(model, SAMPLER, None, replace(SHORT, objective=objective), progress=False)
    assert torch.equal(held, before)
    assert [weight for weight in model.parameters() if not weight.requires_grad] == [held]
