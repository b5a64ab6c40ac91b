"""Variational deep embedding (Jiang et al. 2017): a variational autoencoder whose prior is a Gaussian mixture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

from metaclust.data.sparse import dense
from metaclust.experiments.methods.autoencoder import new_decoder, reconstruction_loss
from metaclust.experiments.methods.base import FitArguments, Inputs, Method
from metaclust.model.config import ModelConfig
from metaclust.model.encoders import new_encoder
from metaclust.model.weights import check_weights
from metaclust.training.batches import Task
from metaclust.training.config import TrainingConfig
from metaclust.training.optimizer import learning_rate

FLOOR = 1e-3
"""The smallest variance of a component when the mixture is first fitted."""


class VaDENetwork(nn.Module):
    """Encoder to the mean and log variance of q(z|x), decoder, and the mixture that is the prior of z."""

    def __init__(self, config: ModelConfig, clusters: int) -> None:
        super().__init__()
        width = config.representation
        self.encoder = new_encoder(replace(config, representation=2 * width))
        self.decoder = new_decoder(config)
        self.log_weights = nn.Parameter(torch.zeros(clusters))
        self.means = nn.Parameter(torch.zeros(clusters, width))
        self.log_variances = nn.Parameter(torch.zeros(clusters, width))

    def encode(self, x: Tensor) -> tuple[Float[Tensor, "n s"], Float[Tensor, "n s"]]:
        mean, log_variance = self.encoder(x).chunk(2, -1)
        return mean, log_variance.clamp(-10, 10)

    def log_joint(self, z: Float[Tensor, "n s"]) -> Float[Tensor, "n k"]:
        """Return log p(c) + log p(z|c)."""
        squared = (z[:, None] - self.means).square() / self.log_variances.exp()
        density = -0.5 * (squared + self.log_variances + math.log(2 * math.pi)).sum(-1)
        return self.log_weights.log_softmax(-1) + density

    def bound(self, x: Tensor) -> Float[Tensor, " n"]:
        """Return the evidence lower bound of each row, at one draw of z (Eq. 12 of Jiang et al.)."""
        mean, log_variance = self.encode(x)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        log_r = self.log_joint(z).log_softmax(-1)
        r = log_r.exp()
        spread = (log_variance.exp()[:, None] + (mean[:, None] - self.means).square()) / self.log_variances.exp()
        prior = -0.5 * (r * (spread + self.log_variances + math.log(2 * math.pi)).sum(-1)).sum(-1)
        choice = (r * (self.log_weights.log_softmax(-1) - log_r)).sum(-1)
        entropy = 0.5 * (1 + log_variance + math.log(2 * math.pi)).sum(-1)
        return prior + choice + entropy - reconstruction_loss(self.decoder(z), x)

    @torch.no_grad()
    def set_mixture(self, mixture: GaussianMixture) -> None:
        """Start from a mixture that scikit-learn fitted to the means of q(z|x); further clusters have no weight."""
        found = len(mixture.weights_)
        self.log_weights.fill_(-10)
        self.log_weights[:found] = torch.from_numpy(np.log(mixture.weights_.clip(1e-6)))
        self.means[:found] = torch.from_numpy(mixture.means_)
        self.log_variances[:found] = torch.from_numpy(np.log(mixture.covariances_))


class VaDE(Method):
    """Trained from scratch on the unlabelled rows of each task, as in the paper; it learns nothing from labels.

    ``training.pretrain_steps`` steps as an autoencoder, then ``training.steps`` on the bound, each over all rows of
    the task. :meth:`transform` uses the networks of the last task.
    """

    name = "vade"
    title = "VaDE"

    def __init__(self, config: ModelConfig, training: TrainingConfig | None = None) -> None:
        super().__init__(config, training)
        self.network = VaDENetwork(self.config, self.config.max_clusters)

    def _fit(self, arguments: FitArguments) -> None:
        self.network = VaDENetwork(self.config, self.config.max_clusters).eval()

    @torch.no_grad()
    def transform(self, x: Inputs) -> Tensor:
        self.network.eval()
        parts = [x[start : start + 1024] for start in range(0, max(1, len(x)), 1024)]
        return torch.cat([self.network.encode(dense(part))[0] for part in parts])

    def cluster_tasks(self, x: Inputs, tasks: Sequence[Task], *, seed: int = 0) -> list[NDArray[np.int64]]:
        found = []
        with torch.random.fork_rng([]):
            for task in tasks:
                torch.manual_seed(seed)
                rows = dense(x[torch.from_numpy(task.rows)])
                self._train(rows, seed)
                with torch.no_grad():
                    found.append(self.network.log_joint(self.transform(rows)).argmax(-1).numpy())
        return found

    def _train(self, x: Tensor, seed: int) -> None:
        network = self.network = VaDENetwork(self.config, self.config.max_clusters)
        training = self.training
        optimizer = torch.optim.Adam(network.parameters(), lr=training.learning_rate)
        for step in range(training.pretrain_steps + training.steps):
            network.train()
            if step == training.pretrain_steps:
                clusters = min(self.config.max_clusters, len(x))
                start = GaussianMixture(clusters, covariance_type="diag", reg_covar=FLOOR, random_state=seed)
                network.set_mixture(start.fit(self.transform(x).double().numpy()))
                network.train()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(training, step)
            if step < training.pretrain_steps:
                loss = reconstruction_loss(network.decoder(network.encode(x)[0]), x).mean()
            else:
                loss = -network.bound(x).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 10.0)
            optimizer.step()
        network.eval()

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.network.state_dict())

    def check(self, tensors: dict[str, Tensor]) -> None:
        check_weights(tensors, self.network.state_dict(), same_dtypes=True)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.network.load_state_dict(tensors)
        self.network.eval()
