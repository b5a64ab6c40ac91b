"""The upper layers of a sentence encoder, trained on texts whose states below them are computed once and kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metaclust._util.devices import fast_bfloat16, mixed_precision
from metaclust._util.progress import Waiting
from metaclust.training.tuning import CannotTuneError, check_tunable, token_rows

TRAINED = 3
"""Layers that are trained, at most; a model of fewer than four keeps its lowest as it is."""
LONGEST = 64
"""Tokens of a text beyond which it is cut, in training only."""
TOKEN_DROPOUT = 0.1
"""The share of a text's tokens that a training step does not see."""
CHUNK = 48
"""Texts of similar length that go through the layers together."""
TOLERANCE = 0.02
"""Lengths of unit vectors' differences beyond which the layers are not those of the whole model; bfloat16 rounds."""
CHECKED = 8
"""Texts by which that is checked."""


class UpperLayers(nn.Module):
    """The upper layers of a transformer as an encoder of texts by their numbers, which returns unit vectors.

    What the layers below make of each text is kept in memory, so that a step costs only what it trains.
    """

    def __init__(self, transformer: Any, texts: Sequence[str], device: torch.device, progress: bool = False) -> None:
        super().__init__()
        check_tunable(transformer)
        network = transformer[0].auto_model
        layers = getattr(getattr(network, "encoder", None), "layer", None)
        if layers is None or not hasattr(network, "embeddings"):
            raise CannotTuneError(
                f"the embedding model is a {type(network).__name__}, whose layers cannot be trained by themselves: "
                "a model like BERT has embeddings and encoder.layer"
            )
        self.held = (transformer,)
        trained = min(TRAINED, max(1, len(layers) - 1))
        self.names = [f"encoder.layer.{number}." for number in range(len(layers) - trained, len(layers))]
        self.layers = nn.ModuleList(layers[len(layers) - trained :])
        self.device = device
        self.dtype = torch.bfloat16 if fast_bfloat16(device.type) else torch.float32
        transformer.eval()
        self._keep_states(token_rows(transformer, texts)[:, :LONGEST], layers[: len(layers) - trained], progress)
        self._check(texts)

    def __len__(self) -> int:
        return len(self.lengths)

    def forward(self, index: Tensor) -> Tensor:
        lengths = self.lengths[index]
        order = lengths.argsort(stable=True)
        parts = [self._embedded(index[rows]) for rows in order.split(CHUNK)]
        unit: Tensor = nn.functional.normalize(torch.cat(parts)[order.argsort()], dim=-1)
        return unit

    def changed(self) -> dict[str, Tensor]:
        """Return the weights that training may change, by their names in the transformer."""
        state = self.held[0].state_dict()
        return {
            name: value.detach().cpu().float().clone()
            for name, value in sorted(state.items())
            if any(f".{layer}" in f".{name}" for layer in self.names)
        }

    def _keep_states(self, tokens: Tensor, below: nn.ModuleList, progress: bool) -> None:
        network = self.held[0][0].auto_model
        padding = int(self.held[0].tokenizer.pad_token_id or 0)
        self.lengths = (tokens >= 0).sum(1)
        self.starts = torch.cat([torch.zeros(1, dtype=torch.int64), self.lengths.cumsum(0)])
        width = int(network.config.hidden_size)
        self.states = torch.empty(int(self.starts[-1]), width, dtype=self.dtype)
        order = self.lengths.argsort(stable=True)
        with Waiting("reading texts", len(tokens), enabled=progress) as bar, torch.no_grad():
            for rows in order.split(2 * CHUNK):
                x = tokens[rows][:, : max(1, int(self.lengths[rows].max()))].to(self.device)
                present = x >= 0
                with mixed_precision(self.device):
                    hidden = network.embeddings(input_ids=x.where(present, padding).long())
                    for layer in below:
                        hidden = through(layer, hidden, present)
                for row, states in zip(rows.tolist(), hidden.to("cpu", self.dtype), strict=True):
                    start, end = int(self.starts[row]), int(self.starts[row + 1])
                    self.states[start:end] = states[: end - start]
                bar.advance(len(rows))

    def _embedded(self, index: Tensor) -> Tensor:
        longest = max(1, int(self.lengths[index].max()))
        place = torch.arange(longest)
        present = place < self.lengths[index][:, None]
        flat = (self.starts[index][:, None] + place).where(present, 0)
        hidden = self.states[flat].to(self.device).float()
        present = present.to(self.device)
        if self.training:
            seen = torch.rand(present.shape, device=self.device) >= TOKEN_DROPOUT
            # Its first token stands for the whole text in some models, and at least one must be left.
            seen[:, 0] = True
            present = present & seen
        with mixed_precision(self.device):
            for layer in self.layers:
                hidden = through(layer, hidden, present)
        features = {"token_embeddings": hidden.float(), "attention_mask": present.long()}
        for module in list(self.held[0])[1:]:
            features = module(features)
        return features["sentence_embedding"].float()

    @torch.no_grad()
    def _check(self, texts: Sequence[str]) -> None:
        """Raise an error unless a few short texts have the vectors that the whole model gives them."""
        few = self.lengths.argsort(stable=True)[:CHECKED]
        expected = np.asarray(self.held[0].encode([texts[row] for row in few.tolist()], show_progress_bar=False))
        expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)
        self.eval()
        apart = np.linalg.norm(self(few).cpu().numpy() - expected, axis=1).max()
        if not apart <= TOLERANCE:
            raise CannotTuneError(
                "the layers of the embedding model take more than the states of the tokens and which there are, and "
                "cannot be trained by themselves"
            )


def through(layer: nn.Module, hidden: Tensor, present: Tensor) -> Tensor:
    """Return what a layer makes of states (texts, tokens, width) of the tokens that are there."""
    bias = torch.zeros(present.shape, dtype=hidden.dtype, device=hidden.device)
    bias = bias.masked_fill(~present, -1e4)[:, None, None, :]
    try:
        found: Any = layer(hidden, bias)
    except TypeError as error:
        raise CannotTuneError(f"a layer of the embedding model takes other arguments ({error})") from error
    states: Tensor = found[0] if isinstance(found, tuple) else found
    return states


def embedded(encoder: nn.Module, rows: int) -> NDArray[np.float32]:
    """Return the unit vectors of all rows by an encoder of their numbers, without dropout."""
    encoder.eval()
    with torch.no_grad():
        parts = [encoder(index).cpu() for index in torch.arange(rows).split(1024)]
    found: NDArray[np.float32] = torch.cat(parts).float().numpy()
    return found
