"""What `test_processes.py` has two processes do: each thing in turn, what came of it into a folder, then one fails."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from metaclust import ClusteringModel, ImageAugmentation, ModelConfig, TaskSampler, TrainingConfig, train
from metaclust._util.distributed import Processes, dividing, process_group
from metaclust.model.encoders.image import ImageEncoder
from metaclust.objectives.metric import contrastive_loss
from metaclust.training import runs as run_files
from metaclust.training.loop import Objective, validate

STOP = 20
"""The step at which a run is stopped."""
CASES = {
    # Steps of pretraining, steps, tasks a step, precision, settings of the model.
    # In single precision few: a difference in the last bit may let another start have the best bound, or Adam make a
    # full step of a gradient that is rounding alone, and then two runs part, of one process too.
    "vectors": (0, 20, 4, torch.float32, {}),
    "vectors, three tasks": (0, 50, 3, torch.float64, {"dropout": 0.2}),
    "vectors, both phases": (25, 25, 4, torch.float64, {"dropout": 0.2, "learn_prior": True}),
    "vectors, candidates": (10, 20, 3, torch.float64, {"dropout": 0.2, "learn_prior": True}),
    "vectors, random start": (0, 20, 3, torch.float64, {"initial": "random"}),
    "vectors, EM": (0, 10, 3, torch.float64, {"inference": "em"}),
    "images": (15, 35, 3, torch.float64, {"dropout": 0.1}),
}
CANDIDATES = "vectors, candidates"
"""Trained on the expected ARI of candidates."""
RESUMED = "vectors, both phases"
VALIDATION = 9
"""Tasks, which two processes divide unevenly."""


class StoppedError(Exception):
    pass


class Stopping(TaskSampler):
    """A sampler that stops the run."""

    def batch(self, step, *rest):
        if step == STOP:
            raise StoppedError
        return super().batch(step, *rest)


def problem(case):
    """A new model, the sampler, that of the pretraining, the tasks to validate on and the settings."""
    pretrain_steps, steps, tasks, kind, settings = CASES[case]
    generator = torch.Generator().manual_seed(0)
    y = np.repeat(np.arange(30), 12)
    if case == "images":
        shape = (1, 12, 12)
        x = torch.rand((30, *shape), generator=generator)[y] + 0.1 * torch.rand((len(y), *shape), generator=generator)
    else:
        # Categories differ in two of eight columns; the others are noise.
        shape = (8,)
        signal = 3 * torch.randn((30, 2), generator=generator)[y] + 0.3 * torch.randn((len(y), 2), generator=generator)
        x = torch.cat((signal, 2 * torch.randn((len(y), 6), generator=generator)), 1)
    torch.manual_seed(1)
    small = {"representation": 3, "max_clusters": 6, "steps": 5, "hidden": 32, "filters": 8, "dropout": 0.0}
    model = ClusteringModel(ModelConfig(shape, **{**small, **settings})).to(kind)
    augment = ImageAugmentation(turn_categories=True) if case == "images" else None
    sampler = TaskSampler(
        x.to(kind), y, np.arange(20), (2, 4), rows=(3, 8), imbalanced=True, tasks=tasks, augment=augment
    )
    # One task alone: the pretraining is divided by rows.
    wide = replace(sampler, n_categories=(20, 20), rows=5, imbalanced=False, tasks=1)
    validation = replace(sampler, categories=np.arange(20, 30), augment=None).fixed(VALIDATION)
    objective = "candidates" if case == CANDIDATES else "every-step"
    config = TrainingConfig(
        pretrain_steps=pretrain_steps, steps=steps, learning_rate=0.01, validate_every=10, objective=objective
    )
    return model, sampler, wide, validation, config


def run(case, folder, *, resume=False, stop=False):
    """Train as ``case`` says; the run is kept in ``folder``."""
    model, sampler, wide, validation, config = problem(case)
    if stop:
        sampler, wide = (Stopping(**vars_of(one)) for one in (sampler, wide))
    return train(
        model, sampler, validation, config, folder=folder, resume=resume, progress=False, pretraining=wide
    ), model


def vars_of(sampler):
    return {name: value for name, value in vars(sampler).items() if not name.startswith("_")}


def normalisation(among):
    """A step of an image encoder over 5 rows in all, divided unevenly, in double precision."""
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(2)
    encoder = ImageEncoder((2, 9, 7), 4, filters=3, hidden=8, dropout=0.4).double()
    x = 50 + torch.randn((5, 2, 9, 7), generator=generator, dtype=torch.float64)
    weight = torch.randn((5, 4), generator=generator, dtype=torch.float64)
    part = among.part(len(x))
    own = x[part.slice].clone().requires_grad_()
    with dividing(among, part):
        z = encoder(own)
    (z * weight[part.slice]).sum().backward()
    among.sum_gradients(encoder, {})
    gradients = {f"gradient.{name}": value.grad for name, value in encoder.named_parameters()}
    rows = {"z": among.gather(z.detach(), part), "x": among.gather(own.grad, part)}
    return {**rows, **gradients, **encoder.state_dict()}


def refusals():
    """What several processes refuse, and in which words."""
    model, sampler, _, _, config = problem("vectors")

    def siamese(model, batch, _):
        loss = contrastive_loss(model.encode(batch.x), batch.category)
        return loss, {"loss": float(loss)}

    attempts = {
        "tasks": lambda: train(model, replace(sampler, tasks=1), None, config, progress=False),
        "objective": lambda: train(
            model, sampler, None, config, progress=False, objective=Objective("siamese", siamese, validate)
        ),
        "norm": lambda: train(
            ClusteringModel(model.config, nn.Sequential(nn.Linear(8, 3), nn.BatchNorm1d(3))).double(),
            sampler,
            None,
            config,
            progress=False,
        ),
        "rows": lambda: sampler.batch(0, Processes(0, 1000), "rows"),
    }
    words = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except ValueError as error:
            words[name] = str(error)
    return words


def write(tensors, path):
    save_file({name: value.contiguous() for name, value in tensors.items()}, path)


def main(folder):
    with process_group("cpu") as among:
        if not among.main:

            def forbidden(*_):
                raise AssertionError("a process that is not the main one wrote")

            run_files.write_tensors = forbidden
        kept = {}
        for case in CASES:
            state, model = run(case, folder / case)
            kept[case] = state.validations
            write(model.state_dict(), folder / f"{'main' if among.main else 'other'} {case}")
        try:
            run(RESUMED, folder / "begun with two", stop=True)
        except StoppedError:
            kept["stopped"] = STOP
        run(RESUMED, folder / "begun with one", resume=True)
        tensors = normalisation(among)
        kept["refusals"] = refusals()
        if among.main:
            write(tensors, folder / "normalisation")
            (folder / "kept.json").write_text(json.dumps(kept))
        else:
            raise FloatingPointError("this one fails, and the main process waits for it")
        among.wait()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
