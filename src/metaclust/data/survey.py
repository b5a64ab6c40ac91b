"""The first pass over rows: their number, mean, variances and a sample; invalid rows are found here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from metaclust._util.moments import Covariance, variances_of
from metaclust._util.threads import one_torch_thread
from metaclust.data.extremes import LARGEST_FLOAT64, Extremes, Place, check_columns, row_number
from metaclust.data.memory import check_memory
from metaclust.data.rows import DataError
from metaclust.data.streams import RowStream

BLOCK = 1 << 11
"""The most rows of a block."""
BLOCK_CELLS = 1 << 22
"""The most cells of a block, unless a row has more."""

Moments = Literal["mean", "variances", "covariance"]
"""What is computed of all rows: the mean alone, also the variances, or the covariance matrix, of width squared."""


@dataclass(frozen=True)
class Survey:
    """The moments and a sample of rows, weighted where they have weights."""

    rows: int
    weight: float
    """The sum of the rows' weights."""
    mean: Float[Tensor, "s"]
    """In the precision of the rows, so that rows minus mean lose nothing."""
    covariance: Covariance
    """Zero where only the mean was asked for."""
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
    second: Covariance
    """The sums of squares, or of products of two columns; zero where only the mean was asked for."""
    extremes: Extremes | None
    most: int
    keys: NDArray[np.float64]
    """A uniform random key for each row of the sample: the rows with the smallest keys of all."""
    sample: Float[Tensor, "n s"]
    counts: Float[Tensor, "n"]

    def __add__(self, other: PartialSurvey) -> PartialSurvey:
        if not isinstance(other, PartialSurvey):
            return NotImplemented
        moved = other.shift - self.shift
        second = torch.zeros_like(other.second)
        if self.extremes is not None and self.second.ndim == 1:
            second = other.second + 2 * other.first * moved + other.weight * moved.square()
        elif self.second.ndim == 2:
            cross = torch.outer(other.first, moved)
            second = other.second + cross + cross.T + other.weight * torch.outer(moved, moved)
        return PartialSurvey(
            self.rows + other.rows,
            self.weight + other.weight,
            torch.promote_types(self.dtype, other.dtype),
            self.shift,
            self.first + (other.first + other.weight * moved),
            self.second + second,
            None if self.extremes is None or other.extremes is None else self.extremes + other.extremes,
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

    def survey(self, name: str, place: Place = row_number) -> Survey:
        """Return the survey, if these are the sums of all rows; ``name`` is what messages call them.

        A cell that is too far from all others is announced or refused: see :mod:`metaclust.data.extremes`.
        """
        if self.rows == 1:
            raise DataError(f"{name} has 1 sample (one row): a mixture needs at least two")
        if not self.weight > 0:
            raise DataError("sample_weight is zero for all rows: give some a positive weight")
        offset = self.first / self.weight
        mean, covariance = self.shift + offset, self.second
        if self.extremes is not None:
            product = offset.square() if self.second.ndim == 1 else torch.outer(offset, offset)
            covariance = without_rounding(self.second / self.weight, product)
            deviations = variances_of(covariance).clamp_min(0).sqrt().numpy()
            check_columns(self.sample.numpy(), self.extremes, mean.numpy(), deviations, name, place=place)
        if covariance.ndim == 2:
            covariance = (covariance + covariance.T) / 2
        different, index = np.unique(self.sample.double().numpy(), axis=0, return_inverse=True)
        return Survey(
            self.rows,
            self.weight,
            mean.to(self.dtype),
            covariance,
            torch.from_numpy(different),
            torch.from_numpy(np.bincount(index.reshape(-1), self.counts.numpy())),
        )


def survey(
    stream: RowStream,
    row_weights: NDArray[np.float64] | None,
    most: int,
    seed: int,
    width: int | None = None,
    moments: Moments = "mean",
) -> Survey:
    """Return the survey of all rows; ``most`` is the size of the sample, ``width`` what the rows must have."""
    return survey_part(stream, row_weights, most, seed, width, moments=moments).survey(stream.name)


def survey_part(
    stream: RowStream,
    row_weights: NDArray[np.float64] | None,
    most: int,
    seed: int,
    width: int | None = None,
    before: int = 0,
    moments: Moments = "mean",
) -> PartialSurvey:
    """Return the sums and the sample of the rows of a stream, which follow ``before`` others."""
    generator = np.random.Generator(np.random.PCG64([seed, 0x5A4]).advance(before))
    rows, weight, dtype, expected = 0, 0.0, torch.float32, 0
    shift: Tensor | None = None
    extremes: Extremes | None = None
    keys, kept, counts = np.empty(0), torch.empty(0), torch.empty(0, dtype=torch.float64)
    for x in (block for array in stream.arrays() for block in array.split(rows_of_block(array.shape[1]))):
        # Not while the stream reads or encodes the next rows, for which threads are useful.
        with one_torch_thread():
            if shift is None:
                expected = x.shape[1] if width is None else width
                # The mean of the first rows: all may be far from zero.
                shift = x[: 1 << 10].double().mean(0).nan_to_num(0, 0, 0)
                shape = (expected, expected) if moments == "covariance" else (expected,)
                if moments == "covariance":
                    check_matrix(expected, stream.name)
                first, second = torch.zeros(expected, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
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
            counted = count > 0
            if moments != "mean":
                second += weighted.T @ difference if second.ndim == 2 else weighted.mul_(difference).sum(0)
                extremes = further(extremes, x, counted, before + rows)
            # The rows with the smallest keys are the sample: the same rows in blocks of any size.
            drawn = generator.random(len(x))
            small = (drawn < (keys.max() if len(keys) == most else np.inf)) & counted.numpy()
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
    return PartialSurvey(rows, weight, dtype, shift, first, second, extremes, most, keys, kept, counts)


def further(extremes: Extremes | None, x: Tensor, counted: Tensor, before: int) -> Extremes | None:
    """The extremes with those of further rows: of the ones that are counted, which follow ``before`` others."""
    rows = counted.nonzero()[:, 0]
    if len(rows) < len(x):
        x = x[rows]
    if not len(x):
        return extremes
    if extremes is not None and not bool(((x.amin(0) < extremes.lowest) | (x.amax(0) > extremes.highest)).any()):
        return extremes
    own = Extremes.of(x, before + rows)
    return own if extremes is None else extremes + own


def without_rounding(square: Covariance, product: Covariance) -> Covariance:
    """E[x y] - E[x] E[y], and zero for columns in which nothing but rounding is left of it: they are constant."""
    covariance = square - product
    rounding = (4 * torch.finfo(square.dtype).eps) * variances_of(square)
    varies = variances_of(covariance) > rounding.clamp_min(LARGEST_FLOAT64**-2)
    return covariance.where(varies if covariance.ndim == 1 else torch.outer(varies, varies), 0)


def rows_of_block(width: int) -> int:
    """The number of rows of which a block has not too many cells."""
    return max(1, min(BLOCK, BLOCK_CELLS // max(1, width)))


def check_matrix(width: int, name: str) -> None:
    """Raise DataError if the covariance matrix of the rows cannot fit into memory."""
    check_memory(
        4 * 8 * width**2,
        f"{name} has {width:,} columns, of which covariance matrices",
        "use covariance='diagonal' or 'spherical', or reduce the number of columns",
    )


def check_spread(survey: Survey, name: str) -> None:
    """Raise DataError unless the rows differ, and their variances are finite and not all zero."""
    variances = variances_of(survey.covariance)
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
    """Raise DataError unless the rows of a block have ``width`` columns and are finite, squares included."""
    check_width(x, first, width, name)
    limit = min(LARGEST_FLOAT64, torch.finfo(x.dtype).max)
    valid = (x.abs() <= limit).all(1)
    if bool(valid.all()):
        return
    row = int((~valid).int().argmax())
    column = int((~(x[row].abs() <= limit)).int().argmax())
    value = float(x[row, column])
    if np.isfinite(value):
        raise DataError(
            f"{name}: {row_number(first + row)}, column {column}: {value:.6g} is too large for its square to be a "
            "number: correct it, or divide the column by a power of ten"
        )
    raise DataError(
        f"{name} holds NaN or infinity in {row_number(first + row)}: remove or impute such rows (here, column {column})"
    )


def check_width(x: Tensor, first: int, width: int, name: str) -> None:
    if x.shape[1] != width:
        raise DataError(f"{name} has rows of {x.shape[1]} columns, from row {first} on, where {width} are expected")
