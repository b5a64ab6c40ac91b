"""Training of the sentence encoder itself, by the prototypical loss, on texts of known categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metaclust._util.devices import mixed_precision
from metaclust.data.preparation.embeddings import SentenceEmbedder
from metaclust.data.preparation.model_folder import load_sentence_transformer
from metaclust.data.preparation.tuned import TunedWeights
from metaclust.model.clustering_model import ClusteringModel
from metaclust.model.config import ModelConfig
from metaclust.training.config import TrainingConfig
from metaclust.training.episodes import TaskSampler
from metaclust.training.loop import train

CATEGORIES, ROWS = 16, 5
"""Categories of a step, and texts of each."""
RATE, DECAY = 1.5e-4, 0.01
"""The rate is reached in a short training only in part: it rises over 100 steps, and falls along a cosine."""
TEMPERATURE = 0.07
"""Of the cosine similarities by which a text is assigned to a category."""
MOST_TOKENS = 128
"""Longer texts are cut, in training only."""
CHUNK = 16
"""Texts of similar length that go through the encoder together."""
MANY_TOKENS = 16_000
"""Tokens of a step beyond which layers are computed again in the backward pass, to save memory."""
SAVE_EVERY = 20
"""Steps after which a run that is kept in a folder can go on."""


STEPS = {"fast": 0, "balanced": 80, "best": 160}
"""Steps by effort."""


class CannotTuneError(ValueError):
    """The embedding model is not one whose weights can be trained here."""


class SentenceEncoder(nn.Module):
    """A sentence-transformers model as an encoder of rows of tokens, -1 for padding.

    Embeddings have such a length that squared distances are cosine distances over the temperature. Weights that embed
    single tokens are kept as they are: words that are not in the training texts would stay behind.
    """

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        self.transformer = transformer
        self.padding = int(transformer.tokenizer.pad_token_id or 0)
        self.scale = float((2 * TEMPERATURE) ** -0.5)
        network = transformer[0].auto_model
        for weight in network.get_input_embeddings().parameters():
            weight.requires_grad_(False)
        if hasattr(network, "embeddings"):
            for weight in network.embeddings.parameters():
                weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x >= 0).sum(1)
        order = lengths.argsort(stable=True)
        network = self.transformer[0].auto_model
        if self.training and int(lengths.sum()) > MANY_TOKENS and not network.is_gradient_checkpointing:
            network.gradient_checkpointing_enable()
        parts = [self._embedded(x[rows]) for rows in order.split(CHUNK)]
        unit: Tensor = nn.functional.normalize(torch.cat(parts)[order.argsort()], dim=-1)
        return self.scale * unit

    def _embedded(self, x: Tensor) -> Tensor:
        x = x[:, : max(1, int((x >= 0).sum(1).max()))]
        present = x >= 0
        features = {"input_ids": x.where(present, self.padding).long(), "attention_mask": present.long()}
        with mixed_precision(x.device, self.training):
            found: Tensor = self.transformer(features)["sentence_embedding"]
        return found.float()

    def changed(self) -> dict[str, Tensor]:
        """Return the weights that training may change, by their names in the transformer."""
        names = {name for name, weight in self.transformer.named_parameters() if weight.requires_grad}
        state = self.transformer.state_dict()
        return {name: state[name].detach().cpu().float().clone() for name in sorted(names)}


@dataclass(frozen=True, eq=False)
class Tuner:
    """Trains the embedding model of texts on some of their categories, and embeds all of them by what it became."""

    model: str
    """The name or folder of the embedding model."""
    texts: Sequence[str]
    y: NDArray[np.int64]
    steps: int
    seed: int
    device: torch.device
    progress: bool = True

    @cached_property
    def embedder(self) -> SentenceEmbedder:
        """The embedding model as it came."""
        return SentenceEmbedder(self.model, device=self.device)

    def tune(self, categories: NDArray[np.int64], rows: NDArray[np.bool_], keep: dict[str, Any]) -> TunedWeights:
        """Train on those of the rows that are of some categories; ``keep`` says where the run is kept."""
        transformer = load_sentence_transformer(self.embedder.folder, self.device)
        check_tunable(transformer)
        encoder = SentenceEncoder(transformer)
        tokens = token_rows(transformer, self.texts)
        config = ModelConfig(
            (tokens.shape[1],), representation=self.embedder.width, hidden=1, task_hidden=1, initial="random"
        )
        # Two rows of a category or more are needed, of those that may be trained on.
        y = np.where(rows, self.y, -1)
        present, sizes = np.unique(y, return_counts=True)
        chosen = np.intersect1d(categories, present[sizes > 1])
        many = min(CATEGORIES, len(chosen))
        sampler = TaskSampler(tokens, y, chosen, n_categories=(many, many), rows=(ROWS, ROWS), tasks=1, seed=self.seed)
        training = TrainingConfig(
            seed=self.seed,
            pretrain_steps=self.steps,
            steps=0,
            learning_rate=RATE,
            weight_decay=DECAY,
            validate_every=SAVE_EVERY,
        )
        model = ClusteringModel(config, encoder).to(self.device)
        train(model, sampler, None, training, **keep)
        return TunedWeights(encoder.changed())

    def embed(self, weights: TunedWeights, cached: bool = False) -> Tensor:
        """Return unit vectors of all texts by a tuned model; of the one that ships, they are cached."""
        embedder = SentenceEmbedder(
            self.model,
            device=self.device,
            cache="default" if cached else None,
            weights=weights,
        )
        return torch.from_numpy(embedder.embed(self.texts, self.progress))


def check_tunable(transformer: Any) -> None:
    """Raise an error unless the first module is a transformer with a tokenizer of its own."""
    if not hasattr(transformer[0], "auto_model") or not callable(getattr(transformer, "tokenizer", None)):
        raise CannotTuneError(
            f"the embedding model begins with {type(transformer[0]).__name__}, which cannot be trained further: only a "
            "transformer can"
        )


def token_rows(transformer: Any, texts: Sequence[str]) -> Tensor:
    """Return (texts, tokens), int32, with -1 after the end of a text."""
    longest = min(MOST_TOKENS, int(transformer.max_seq_length or MOST_TOKENS))
    found = transformer.tokenizer(list(texts), truncation=True, max_length=longest)["input_ids"]
    rows = torch.full((len(found), max(2, *(len(ids) for ids in found))), -1, dtype=torch.int32)
    for row, ids in enumerate(found):
        rows[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
    return rows
