"""The first pass over rows: their number, mean, covariance and a sample; invalid rows are found here."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from metaclust.data.rows import DataError
from metaclust.data.streams import RowStream, in_blocks

BLOCK = 1 << 11


@dataclass(frozen=True)
class Survey:
    """The moments and a sample of rows, weighted where they have weights."""

    rows: int
    weight: float
    """The sum of the rows' weights."""
    mean: Float[Tensor, "s"]
    """In the precision of the rows, so that rows minus mean lose nothing."""
    covariance: Float[Tensor, "s s"]
    sample: Float[Tensor, "n s"]
    """Rows drawn without replacement, or all of them; equal ones once, in an order that depends on the values alone."""
    sample_weights: Float[Tensor, "n"]
    """The weight of each: a row of weight two counts as two equal rows."""


@dataclass(frozen=True)
class PartialSurvey:
    """The sums and the sample of some of the rows; those of all rows are ``a + b``."""

    rows: int
    weight: float
    dtype: torch.dtype
    shift: Float[Tensor, "s"]
    """Subtracted from the rows before summing, as they may be far from zero."""
    first: Float[Tensor, "s"]
    second: Float[Tensor, "s s"]
    most: int
    keys: NDArray[np.float64]
    """A uniform random key for each row of the sample: the rows with the smallest keys of all."""
    sample: Float[Tensor, "n s"]
    counts: Float[Tensor, "n"]

    def __add__(self, other: PartialSurvey) -> PartialSurvey:
        if not isinstance(other, PartialSurvey):
            return NotImplemented
        moved = other.shift - self.shift
        cross = torch.outer(other.first, moved)
        return PartialSurvey(
            self.rows + other.rows,
            self.weight + other.weight,
            torch.promote_types(self.dtype, other.dtype),
            self.shift,
            self.first + (other.first + other.weight * moved),
            self.second + (other.second + cross + cross.T + other.weight * torch.outer(moved, moved)),
            self.most,
            np.concatenate((self.keys, other.keys)),
            torch.cat((self.sample, other.sample)),
            torch.cat((self.counts, other.counts)),
        ).cut()

    def cut(self) -> PartialSurvey:
        """Return the same with at most ``most`` rows in the sample."""
        if len(self.keys) <= self.most:
            return self
        chosen = np.argpartition(self.keys, self.most - 1)[: self.most]
        return replace(self, keys=self.keys[chosen], sample=self.sample[chosen], counts=self.counts[chosen])

    def survey(self, name: str) -> Survey:
        """Return the survey, if these are the sums of all rows; ``name`` is what messages call them."""
        if self.rows == 1:
            raise DataError(f"{name} has 1 sample (one row): a mixture needs at least two")
        if not self.weight > 0:
            raise DataError("sample_weight is zero for all rows: give some a positive weight")
        offset = self.first / self.weight
        covariance = self.second / self.weight - torch.outer(offset, offset)
        different, index = np.unique(self.sample.double().numpy(), axis=0, return_inverse=True)
        return Survey(
            self.rows,
            self.weight,
            (self.shift + offset).to(self.dtype),
            (covariance + covariance.T) / 2,
            torch.from_numpy(different),
            torch.from_numpy(np.bincount(index.reshape(-1), self.counts.numpy())),
        )


def survey(
    stream: RowStream, row_weights: NDArray[np.float64] | None, most: int, seed: int, width: int | None = None
) -> Survey:
    """PartialSurvey at all rows; ``most`` is the size of the sample, ``width`` what the rows must have."""
    return survey_part(stream, row_weights, most, seed, width).survey(stream.name)


def survey_part(
    stream: RowStream,
    row_weights: NDArray[np.float64] | None,
    most: int,
    seed: int,
    width: int | None = None,
    before: int = 0,
) -> PartialSurvey:
    """Return the sums and the sample of the rows of a stream, which follow ``before`` others."""
    generator = np.random.Generator(np.random.PCG64([seed, 0x5A4]).advance(before))
    rows, weight, dtype, expected = 0, 0.0, torch.float32, 0
    shift: Tensor | None = None
    keys, kept, counts = np.empty(0), torch.empty(0), torch.empty(0, dtype=torch.float64)
    for x in in_blocks(stream.arrays(), BLOCK):
        if shift is None:
            expected = x.shape[1] if width is None else width
            # The mean of the first rows: all may be far from zero.
            shift = x[: 1 << 10].double().mean(0).nan_to_num(0, 0, 0)
            first = torch.zeros(expected, dtype=torch.float64)
            second = torch.zeros(expected, expected, dtype=torch.float64)
            kept = x[:0]
        check_block(x, rows, expected, stream.name)
        dtype = torch.promote_types(dtype, x.dtype)
        count = torch.ones(len(x), dtype=torch.float64)
        if row_weights is not None:
            count = torch.from_numpy(row_weights[rows : rows + len(x)])
            if len(count) < len(x):
                rows += len(x)
                continue
        difference = x.double() - shift
        weighted = count[:, None] * difference
        first += weighted.sum(0)
        second += weighted.T @ difference
        # The rows with the smallest keys are the sample: the same rows in blocks of any size.
        drawn = generator.random(len(x))
        small = (drawn < (keys.max() if len(keys) == most else np.inf)) & (count.numpy() > 0)
        keys = np.concatenate((keys, drawn[small]))
        kept, counts = torch.cat((kept, x[small])), torch.cat((counts, count[small]))
        if len(keys) > most:
            chosen = np.argpartition(keys, most - 1)[:most]
            keys, kept, counts = keys[chosen], kept[chosen], counts[chosen]
        rows, weight = rows + len(x), weight + float(count.sum())
    if row_weights is not None and rows != len(row_weights):
        raise DataError(f"sample_weight has {len(row_weights)} values for {rows} rows: give one for each")
    if shift is None or rows == 0:
        raise DataError(f"{stream.name} has no rows: give at least two")
    return PartialSurvey(rows, weight, dtype, shift, first, second, most, keys, kept, counts)


def check_spread(survey: Survey, name: str) -> None:
    """Raise DataError unless the rows differ, and their variances are finite and not all zero."""
    variances = survey.covariance.diagonal()
    if bool(variances.isfinite().all()) and bool((variances > 0).any()):
        return
    if len(survey.sample) == 1:
        raise DataError(f"all {survey.rows} rows of {name} are equal: there is nothing to cluster")
    largest = float((survey.sample - survey.sample[0]).abs().max())
    raise DataError(
        f"the rows of {name} differ by up to {largest:.3g}: their variances are no positive float64 numbers; rescale "
        "the columns"
    )


def check_block(x: Tensor, first: int, width: int, name: str) -> None:
    """Raise DataError unless the rows of a block have ``width`` columns and are finite."""
    check_width(x, first, width, name)
    finite = x.isfinite().all(1)
    if not bool(finite.all()):
        raise DataError(
            f"{name} holds NaN or infinity in row {first + int((~finite).int().argmax())} (counting from 0): remove or "
            "impute such rows"
        )


def check_width(x: Tensor, first: int, width: int, name: str) -> None:
    if x.shape[1] != width:
        raise DataError(f"{name} has rows of {x.shape[1]} columns, from row {first} on, where {width} are expected")
