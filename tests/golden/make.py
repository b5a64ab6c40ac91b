"""Write the golden files of version 0.1.0: `python tests/golden/make.py FOLDER`, run with the code of that version.

They were made once, at commit 041aa42, before the package was divided into subpackages, and are kept as they are:
tests/golden/test_golden.py reads them. In float64 throughout, but for what the files of models hold.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from metaclust.candidates import find_candidates
from metaclust.recipe import Recipe, learn

from metaclust import (
    ClusteringModel,
    InfiniteGaussianMixture,
    MetaClusterer,
    ModelConfig,
    TaskSampler,
    TrainingConfig,
    expectation_maximization,
    fit_preparation,
    rows_from_array,
    soft_ari,
    variational_bayes,
)
from metaclust.mixture.posterior import one_task
from metaclust.training import ari_loss, new_optimizer, proto_loss

TOPICS = ["river boat fish water", "piano song violin opera", "bread oven flour cake", "goal team match referee"]


def blobs(seed: int, categories: int, rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    centres = 4 * generator.normal(size=(categories, width))
    y = np.repeat(np.arange(categories), rows)
    return centres[y] + generator.normal(size=(len(y), width)), y


def mixtures() -> dict[str, np.ndarray]:
    """Posteriors of the bare mixture from given logits, and the continuous ARI with its gradient."""
    z, y = blobs(0, 4, 15, 3)
    logits = np.random.default_rng(1).normal(size=(len(z), 6))
    found = {"z": z, "y": y, "logits": logits}
    rows, start = torch.from_numpy(z), torch.from_numpy(logits)
    for components in ("spherical", "full"):
        for mean_covariance in ("unit", "optimal"):
            end = variational_bayes(rows, start, 12, 1.3, mean_covariance, components)
            name = f"vb-{components}-{mean_covariance}"
            found |= {
                f"{name}-r": end.r.numpy(),
                f"{name}-bound": end.bound.numpy(),
                f"{name}-theta": end.theta.numpy(),
            }
        end = expectation_maximization(rows, start, 12, components)
        found |= {f"em-{components}-r": end.r.numpy(), f"em-{components}-bound": end.bound.numpy()}
        mixture = InfiniteGaussianMixture(8, covariance=components, precision="float64", n_init=2).fit(z)
        name = f"mixture-{components}"
        found |= {f"{name}-labels": mixture.predict(z), f"{name}-bounds": np.array(mixture.lower_bounds_)}
        found |= {f"{name}-means": mixture.means_, f"{name}-precisions": mixture.precisions_}
        found |= {f"{name}-weights": mixture.weights_, f"{name}-log": mixture.score_samples(z)}
    soft = start.clone().requires_grad_()
    index = soft_ari(soft.softmax(-1), torch.from_numpy(y))
    index.backward()
    return found | {"ari": index.detach().numpy(), "ari-gradient": soft.grad.numpy()}


def steps() -> dict[str, np.ndarray]:
    """The loss and the weights after one step of each phase, by encoder."""
    found = {}
    x, y = blobs(2, 12, 20, 6)
    pixels = np.random.default_rng(3).random((len(y), 1, 9, 9))
    found |= {"x": x, "y": y, "pixels": pixels}
    configs = {
        "network": (x, ModelConfig((6,), 4, 5, hidden=8, task_hidden=8, learn_prior=True)),
        "residual": (x, ModelConfig((6,), 4, 5, hidden=8, task_hidden=8, learn_prior=True, encoder="residual")),
        "full": (x, ModelConfig((6,), 4, 5, hidden=8, task_hidden=8, components="full")),
        "images": (pixels, ModelConfig((1, 9, 9), 4, 5, hidden=8, task_hidden=8, filters=3)),
        "paper": (x, ModelConfig.preset("paper", (6,), hidden=8, task_hidden=8, dropout=0.0)),
    }
    for name, (rows, config) in configs.items():
        torch.manual_seed(0)
        model = ClusteringModel(config).double()
        found |= {f"{name}-start-{key}": value.numpy().copy() for key, value in model.state_dict().items()}
        sampler = TaskSampler(torch.from_numpy(rows), y, np.arange(12), (2, 5), rows=(4, 9), imbalanced=True)
        training = TrainingConfig.preset("paper" if name == "paper" else "default")
        optimizer = new_optimizer(model, training)
        for phase, loss_of in enumerate((proto_loss, ari_loss)):
            torch.manual_seed(phase)
            loss, _ = loss_of(model, sampler.batch(phase), training)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found[f"{name}-loss-{phase}"] = loss.detach().numpy()
        found |= {f"{name}-end-{key}": value.numpy().copy() for key, value in model.state_dict().items()}
    return found


def candidates() -> dict[str, np.ndarray]:
    """Where inference leads from Ward's and from k-means++ starts, in float64, by a model with a learned prior."""
    z, _ = blobs(4, 5, 25, 4)
    z = z - z.mean(0)
    torch.manual_seed(0)
    model = ClusteringModel(ModelConfig((6,), 4, 8, hidden=8, task_hidden=8, learn_prior=True)).double().eval()
    model.set_prior(alpha=1.2, mean_precision=0.06, shape=40.0, rate=35.0)
    found = find_candidates(model, z, [1, 2, 3, 4, 5, 6, 7], effective_rows=12.0, seed=3, restarts=2)
    labels = np.stack([candidate.labels for candidate in found])
    means = np.stack([one_task(found[i].ends, found[i].place).theta.numpy().sum(0) for i in range(len(found))])
    bounds = np.array([candidate.bound for candidate in found])
    return {"z": z, "labels": labels, "bounds": bounds, "means": means, "weight": np.array(found[0].weight)}


def models(folder: Path) -> None:
    """A model of each kind as 0.1.0 saves it, with a clustering by it."""
    generator = np.random.default_rng(5)
    x, y = blobs(6, 16, 20, 6)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    noise = 60 * generator.random((len(y), 1, 10, 10))
    pictures = generator.integers(0, 256, (16, 1, 10, 10))[y]
    images = (0.7 * pictures + noise).clip(0, 255).astype(np.uint8)
    words = [f"{TOPICS[i % 4]} w{i}a w{i}b w{i}c".split() for i in range(16)]
    texts = [" ".join(generator.choice(words[i], 5)) for i in y]
    kinds = {
        "vectors": (x.astype(np.float32), {"encoder": "network"}),
        "unit": (unit.astype(np.float32), {"encoder": "residual"}),
        "images": (images, {"encoder": "network"}),
        "text": (texts, {"encoder": "network"}),
        "paper": (x.astype(np.float32), {"encoder": "network", "preset": "paper", "choose": "bound"}),
        "full": (x.astype(np.float32), {"encoder": "network", "components": "full", "choose": "bound"}),
    }
    for name, (rows, settings) in kinds.items():
        known, new = np.flatnonzero(y < 12), np.flatnonzero(y >= 12)

        def take(index: np.ndarray) -> object:
            return [rows[i] for i in index] if isinstance(rows, list) else rows[index]

        estimator = MetaClusterer(6, progress=False, device="cpu", **settings)
        labelled = rows_from_array(take(known), [f"c{i:02}" for i in y[known]])
        preparation, labelled = fit_preparation(labelled)
        numbers, names = labelled.numbered()
        prepared = preparation(labelled)
        sampler = TaskSampler(prepared, numbers, np.arange(9), (2, 6), rows=(5, 15), imbalanced=True)
        validation = replace(sampler, categories=np.arange(9, 12), n_categories=(2, 3)).fixed(4)
        paper = settings.get("preset") == "paper"
        changes = {"representation": 4, "hidden": 8, "task_hidden": 8, "filters": 4}
        changes |= {"components": settings.get("components", "spherical")}
        preset = "paper" if paper else "default"
        config = ModelConfig.preset(preset, preparation.input_shape, max_clusters=6, learn_prior=not paper, **changes)
        training = TrainingConfig.preset(preset, pretrain_steps=60, steps=20, validate_every=10)
        choose = settings.get("choose", "auto")
        device = torch.device("cpu")
        recipe = Recipe(
            sampler,
            validation,
            config,
            training,
            device,
            settings["encoder"],
            4,
            choose,
            choice_tasks=20,
            progress=False,
        )
        learned = learn(recipe)
        estimator.model_, estimator.categories_ = learned.model, names
        estimator.preparation_, estimator.decisions_ = preparation, learned.decisions
        if name not in ("images", "text"):
            estimator.n_features_in_ = 6
        estimator.save(folder / f"{name}.model.safetensors")
        estimator = MetaClusterer.load(folder / f"{name}.model.safetensors", "cpu")
        found = estimator.cluster(take(new))
        found.about.pop("seconds")
        found.save(folder / f"{name}.clustering.safetensors")
        arrays = {"rows": np.array(take(new)), "z": estimator.transform(take(new)), "labels": found.labels}
        arrays |= {"confidence": found.confidence, "bound": np.array(found.bound), "y": y[new]}
        np.savez_compressed(folder / f"{name}.npz", **arrays)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for name, make in {"mixtures": mixtures, "steps": steps, "candidates": candidates}.items():
        np.savez_compressed(folder / f"{name}.npz", **make())
    models(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
