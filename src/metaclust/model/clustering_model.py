"""Encoder, initial assignments and mixture as one network (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from metaclust._util.distributed import Part, model_device
from metaclust.data.sparse import SparseRows, dense
from metaclust.mixture import PAPER, Posterior, Prior, component_family, em_steps, vb_steps
from metaclust.mixture.families.base import Family
from metaclust.mixture.families.spherical import Spherical
from metaclust.mixture.inference import Sums, run
from metaclust.mixture.posterior import softmax_of
from metaclust.mixture.seeding import seed_draws, seeded_logits
from metaclust.mixture.statistics import accumulation_dtype
from metaclust.mixture.unrolled import assignments, follow
from metaclust.model.config import ModelConfig
from metaclust.model.encoders import check_rows, new_encoder
from metaclust.model.encoders.image import shifted
from metaclust.model.held import HeldWeights
from metaclust.model.known import KnownCategories
from metaclust.model.selector import SelectorNetwork
from metaclust.model.task_network import TaskNetwork


class ClusteringModel(nn.Module):
    """The encoder f_Z, the task network and the mixture.

    Parameters
    ----------
    config : ModelConfig
    encoder : nn.Module, optional
        Any module that maps rows to representations of shape (rows, S). By default the encoder that ``config`` names.
    """

    def __init__(self, config: ModelConfig, encoder: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.custom_encoder = encoder is not None
        self.encoder = encoder if encoder is not None else new_encoder(config)
        self.task_network = (
            TaskNetwork(config.representation, config.max_clusters, config.task_hidden, config.dropout)
            if config.initial == "network"
            else None
        )
        if config.learn_prior:
            # Logarithms, starting at the paper's values.
            self.prior_logs = nn.ParameterDict(
                {
                    "alpha": nn.Parameter(torch.tensor(config.alpha).log()),
                    **{name: nn.Parameter(torch.zeros(())) for name in ("mean_precision", "shape", "rate")},
                }
            )
        self.choice = SelectorNetwork() if config.choice else None
        self.known = KnownCategories(config.known, config.representation) if config.known else None
        self.embedder: HeldWeights | None = None

    @property
    def prior(self) -> Prior:
        """The prior of the mixture components."""
        if not self.config.learn_prior:
            return PAPER
        logs = self.prior_logs
        return Prior(*(logs[name].to(self._sums).exp() for name in ("mean_precision", "shape", "rate")))

    @property
    @torch.no_grad()
    def expected_variance(self) -> float:
        """The variance of a cluster under the prior, summed over the columns of z."""
        return float(self.prior.rate / self.prior.shape) * self.config.representation

    @property
    def alpha(self) -> Float[Tensor, ""]:
        """The concentration of the Dirichlet process."""
        if self.config.learn_prior:
            return torch.exp(self.prior_logs["alpha"].to(self._sums))
        return torch.tensor(self.config.alpha, dtype=self._sums, device=self.device)

    @property
    def family(self) -> Family:
        """The component family under the model's prior."""
        return component_family(self.config.components, self.config.mean_covariance, self.prior)

    def family_of(self, variance_factor: float | Tensor) -> Family:
        """Return the component family with the expected variance of clusters multiplied by ``variance_factor``."""
        if not self.config.learn_prior:
            return self.family
        prior = replace(self.prior, rate=self.prior.rate * variance_factor)
        return component_family(self.config.components, self.config.mean_covariance, prior)

    @property
    def _sums(self) -> torch.dtype:
        return accumulation_dtype(self.device, torch.float32)

    def set_choice(self, choice: SelectorNetwork | None) -> None:
        """Select among candidate clusterings with a learned selector, or by the bound if None."""
        self.choice = None if choice is None else choice.to(self.device)
        self.config = replace(self.config, choice=choice is not None)

    def set_known(self, known: KnownCategories | None) -> None:
        """Recognise the categories of the training in further rows, or not if None."""
        self.known = None if known is None else known.to(self.device)
        self.config = replace(self.config, known=0 if known is None else len(known.means))

    def hold_embedder(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep weights of the model that embedded the texts, to save them with the model; none if there are none."""
        self.embedder = HeldWeights(tensors) if tensors else None

    @torch.no_grad()
    def set_prior(self, **values: float) -> None:
        """Set some of ``alpha``, ``mean_precision``, ``shape`` and ``rate``."""
        if not self.config.learn_prior:
            raise ValueError("the model has the paper's prior: build it with learn_prior=True")
        for name, value in values.items():
            self.prior_logs[name].copy_(torch.tensor(value, dtype=torch.float64).log())

    @property
    def weight_dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return next((weight.dtype for weight in self.parameters()), torch.float32)

    @property
    def device(self) -> torch.device:
        """The device of the weights; the CPU for a model without any."""
        return model_device(self)

    def encode(self, x: Tensor) -> Float[Tensor, "rows s"]:
        """Return the representations z of rows (Eq. 1), with a gradient."""
        if not self.custom_encoder and not getattr(self.encoder, "given_starts", False):
            check_rows(x, self.config.input_shape)
        z = self.encoder(x)
        if z.ndim != 2 or z.shape != (len(x), self.config.representation):
            raise ValueError(
                f"the encoder returned shape {tuple(z.shape)} for {len(x)} rows: it must return "
                f"({len(x)}, {self.config.representation}), rows by `representation`"
            )
        return z  # type: ignore[no-any-return]

    @torch.no_grad()
    def transform(self, x: Tensor | SparseRows, block: int = 1024) -> Float[Tensor, "rows s"]:
        """Return the representations of any number of rows, in blocks, without dropout and gradient."""
        training = self.training
        self.eval()
        try:
            parts = [x[start : start + block] for start in range(0, max(1, len(x)), block)]
            return torch.cat([self._encode_averaged(dense(part).to(self.device)) for part in parts])
        finally:
            self.train(training)

    def _encode_averaged(self, x: Tensor) -> Float[Tensor, "rows s"]:
        """Return representations averaged over shifted copies of images, if the configuration asks for it."""
        if not self.config.shift or len(self.config.input_shape) != 3:
            return self.encode(x)
        copies = shifted(x, self.config.shift)
        return torch.stack([self.encode(copy) for copy in copies]).mean(0)

    def initial_logits(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None = None, part: Part | None = None
    ) -> Float[Tensor, "*task n k"]:
        """Return the task network's logits (Eq. 3), or standard normal noise from torch's generator ("w/o f_R").

        If the tasks are a ``part`` of a batch, the noise is that part of the noise of the whole batch.
        """
        if self.task_network is None:
            shape = z.shape[:-1] if part is None else (part.total, z.shape[-2])
            noise = torch.randn((*shape, self.config.max_clusters), dtype=z.dtype, device=z.device)
            return noise if part is None else noise[part.slice]
        logits: Tensor = self.task_network(z, mask)
        return logits

    def trajectory(
        self,
        z: Float[Tensor, "*task n s"],
        logits: Float[Tensor, "*task n k"],
        mask: Bool[Tensor, "*task n"] | None = None,
        seeded: int = 0,
        part: Part | None = None,
    ) -> Float[Tensor, "steps *task n k"]:
        """Return the initial assignments and those after each of the T steps, differentiable, for training.

        With ``seeded``, each task starts from ``logits`` or from one of ``seeded`` k-means++ initialisations, whichever
        reaches the highest bound after the steps. Seeds and their number are drawn with torch's generator and pass no
        gradient. Spherical components, whose derivative is written out, are computed in the precision of the rows.
        """
        family = self.family
        if self.config.inference == "em" or not isinstance(family, Spherical):
            if seeded:
                logits = self._best_start(z, logits, mask, seeded, part)
            posteriors = islice(self._posteriors(z, logits, mask), self.config.steps)
            start = logits.softmax(-1).to(accumulation_dtype(z.device, z.dtype))
            r = torch.stack([start, *(p.assignments for p in posteriors)])
            return (r if mask is None else r * mask[..., None]).to(z.dtype)
        tasks = z.shape[:-2]
        z, logits = (value.reshape(-1, *value.shape[-2:]) for value in (z, logits))
        if mask is not None:
            mask = mask.reshape(z.shape[:-1])
            z = z.masked_fill(~mask[..., None], 0)
        features = family.features(z, mask)
        r = softmax_of(logits).mT
        starts = r[:, None]
        if seeded:
            drawn = softmax_of(self._seeded(z.detach(), mask, seeded, part)).mT.transpose(0, 1)
            starts = torch.cat((starts, drawn), 1)
        path = follow(features, starts, family, self.alpha, self.config.steps)
        best = torch.zeros(len(z), dtype=torch.int64, device=z.device)
        if seeded:
            best = path.bound.argmax(1)
            chosen = starts.detach()[torch.arange(len(z), device=z.device), best]
            r = torch.where((best == 0)[:, None, None], r, chosen)
        r = torch.cat((r[None], assignments(features, r, family, self.alpha, *path.of(best))))
        r = r if mask is None else r * mask[:, None]
        return r.reshape(len(r), *tasks, *r.shape[-2:]).mT

    def candidates(
        self,
        z: Float[Tensor, "b n s"],
        numbers: Int[Tensor, "starts b"],
        clusters: int,
        mask: Bool[Tensor, "b n"] | None = None,
        part: Part | None = None,
    ) -> tuple[Float[Tensor, "starts b n k"], Float[Tensor, "starts b"]]:
        """Return the assignments after T steps from k-means++ seeds, differentiable, and their bounds, which are not.

        Seeds are drawn with torch's generator, for each start as many as ``numbers`` says, at most ``clusters``, and
        pass no gradient. The bounds of a task lack constants that are the same for all of its starts.
        """
        tasks = (len(numbers), len(z))
        draws = seed_draws(tasks, clusters, part=part)
        with torch.no_grad():
            masks = None if mask is None else mask.expand(*tasks, -1)
            logits = seeded_logits(z.detach().expand(*tasks, *z.shape[1:]), clusters, masks, seeds=numbers, draws=draws)
        family = self.family
        if self.config.inference == "em" or not isinstance(family, Spherical):
            rows = z.expand(*tasks, *z.shape[1:])
            end = run(self._posteriors(rows, logits, masks), self.config.steps, None)
            r = end.assignments if masks is None else end.assignments * masks[..., None]
            return r.to(z.dtype), end.exact_bound.detach()
        rows = z if mask is None else z.masked_fill(~mask[..., None], 0)
        features = family.features(rows, mask)
        starts = softmax_of(logits).mT
        path = follow(features, starts.transpose(0, 1), family, self.alpha, self.config.steps)
        ends = []
        for number, start in enumerate(starts):
            chosen = torch.full((len(z),), number, device=z.device)
            ends.append(assignments(features, start, family, self.alpha, *path.of(chosen))[-1].mT)
        r = torch.stack(ends)
        return (r if mask is None else r * mask[..., None]), path.bound.T

    @torch.no_grad()
    def infer(
        self,
        z: Float[Tensor, "*task n s"],
        mask: Bool[Tensor, "*task n"] | None = None,
        *,
        steps: int | None = None,
        tol: float | None = None,
    ) -> Posterior:
        """Cluster each task from the model's own initial assignments (Algorithm 1).

        :mod:`metaclust.inference` compares several initialisations instead.

        Parameters
        ----------
        z : tensor of shape (..., n_rows, S)
            Representations.
        mask : bool tensor of shape (..., n_rows), optional
            False for padding.
        steps : int, optional
            Number of inference steps; by default the model's T.
        tol : float, optional
            Stop at convergence, see :func:`metaclust.variational_bayes`.
        """
        if steps is not None and steps < 1:
            raise ValueError(f"steps={steps!r}: it must be 1 or more, or None for the T of the model")
        return run(self._posteriors(z, self.proposed_logits(z, mask), mask), steps or self.config.steps, tol)

    @torch.no_grad()
    def from_starts(
        self,
        z: Float[Tensor, "*#task n s"],
        start: Float[Tensor, "*task n k"] | Sums,
        steps: int,
        tol: float | None = None,
        weight: float | Tensor = 1.0,
        variance_factor: float | Tensor = 1.0,
    ) -> Posterior:
        """Run inference from initial logits, or from what assignments add up to, but for EM.

        Each row of a task counts as ``weight`` rows; all tasks may have the same rows, where the sums are given.
        In each task, the expected variance of clusters is ``variance_factor`` times that of the model's prior.
        """
        if self.config.inference == "em":
            if isinstance(start, Sums):
                raise TypeError("start holds sums: EM starts from logits")
            return run(em_steps(z, start, self.family), steps, tol)
        return run(vb_steps(z, start, self.family_of(variance_factor), self.alpha, None, weight), steps, tol)

    @torch.no_grad()
    def proposed_logits(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None = None
    ) -> Float[Tensor, "*task n k"]:
        """Return the initial logits without dropout and gradient."""
        training = self.training
        self.eval()
        try:
            return self.initial_logits(z, mask)
        finally:
            self.train(training)

    @torch.no_grad()
    def _seeded(
        self, z: Float[Tensor, "*task n s"], mask: Bool[Tensor, "*task n"] | None, seeded: int, part: Part | None = None
    ) -> Float[Tensor, "starts *task n k"]:
        """Return logits from k-means++ seeds, whose number is random as well."""
        clusters = self.config.max_clusters
        numbers, draws = self.draw_seeds(z.shape[:-2], seeded, part)
        numbers = numbers.reshape(-1, *[1] * (z.ndim - 2))
        masks = None if mask is None else mask.expand(seeded, *mask.shape)
        return seeded_logits(z.expand(seeded, *z.shape), clusters, masks, seeds=numbers, draws=draws)

    def draw_seeds(
        self, tasks: tuple[int, ...], seeded: int, part: Part | None
    ) -> tuple[Int[Tensor, " seeded"], Float[Tensor, "most seeds"]]:
        """Return the number of seeds of each start, and the uniform numbers that draw them in each task."""
        clusters = self.config.max_clusters
        numbers = torch.randint(min(2, clusters), clusters + 1, (seeded,))
        return numbers, seed_draws((seeded, *tasks), int(numbers.max()) if seeded else 0, part=part)

    def _best_start(
        self, z: Tensor, logits: Tensor, mask: Tensor | None, seeded: int, part: Part | None = None
    ) -> Float[Tensor, "*task n k"]:
        """Return the best of ``logits`` and ``seeded`` k-means++ starts of each task, by the bound after the steps."""
        with torch.no_grad():
            candidates = torch.cat((logits[None], self._seeded(z, mask, seeded, part)))
            rows = z.expand(seeded + 1, *z.shape)
            masks = None if mask is None else mask.expand(seeded + 1, *mask.shape)
            posteriors = self._posteriors(rows, candidates, masks)
            best = run(posteriors, self.config.steps, None).exact_bound.argmax(0)[..., None, None]
            chosen = candidates.gather(0, best[None].expand(1, *logits.shape))[0]
        return torch.where(best == 0, logits, chosen)

    def _posteriors(self, z: Tensor, logits: Tensor, mask: Tensor | None, weight: float | Tensor = 1.0) -> Any:
        if self.config.inference == "em":
            return em_steps(z, logits, self.family, mask)
        return vb_steps(z, logits, self.family, self.alpha, mask, weight)
