"""Checks of the weights in a file: names, shapes, dtypes and ranges, before a model takes memory for them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from metaclust._util.schema import DTYPES, LARGEST_COUNT, check_dtype, check_names, check_shape, tensor

LARGEST_WEIGHT = 1e8
"""The largest weight of a layer; with larger ones, hardly any row has a finite representation."""
LARGEST_STATISTIC = 1e30
"""The largest mean or variance that a layer subtracts or divides by."""
LARGEST_LOGARITHM = 40.0
"""Of the parameters of the prior, and of the scale of representations."""
LARGEST_NUMBER = 5.0
"""Of the parameters of the distribution over numbers of clusters, which are logarithms."""
LARGEST_FEATURE = 1e12
"""Of the features that the learned selector sees; the smallest of their standard deviations is its inverse."""


OF_KNOWN = {
    "known.category": (0, LARGEST_COUNT),
    "known.counts": (1, LARGEST_STATISTIC),
    "known.squares": (0, LARGEST_STATISTIC),
    "known.means": (-LARGEST_STATISTIC, LARGEST_STATISTIC),
    "known.threshold": (0, 1),
}


def check_weights(
    tensors: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    custom_encoder: bool = False,
    same_dtypes: bool = False,
) -> None:
    """Raise ValueError unless the tensors of a file are weights for a model with this state.

    Parameters
    ----------
    tensors : mapping of str to Tensor
        Read from a file.
    expected : mapping of str to Tensor
        The ``state_dict`` of the model, which may be on the meta device.
    custom_encoder : bool
        Whether the encoder is a user's own module: its values are only checked for NaN.
    same_dtypes : bool
        Whether each must have the dtype that it has in the model: what is loaded into a model with other ones would be
        rounded, or become infinite.
    """
    check_names(tensors, expected)
    for name, one in expected.items():
        if same_dtypes:
            check_dtype(name, tensors[name], (one.dtype,))
        if custom_encoder and name.startswith("encoder."):
            value = tensors[name]
            check_shape(name, value, tuple(one.shape))
            if value.is_floating_point() and bool(value.isnan().any()):
                raise ValueError(f"{name} holds NaN: the file is damaged, or its training diverged")
            continue
        dtypes = DTYPES if one.is_floating_point() else (one.dtype,)
        tensor(tensors, name, tuple(one.shape), *limits(name), dtypes)


def limits(name: str) -> tuple[float, float]:
    """Return the least and the largest value that a weight of this name may have."""
    layer, _, last = name.rpartition(".")
    if layer == "prior_logs" or name == "encoder.log_scale":
        return -LARGEST_LOGARITHM, LARGEST_LOGARITHM
    if name == "choice.number":
        return -LARGEST_NUMBER, LARGEST_NUMBER
    if name in OF_KNOWN:
        return OF_KNOWN[name]
    if name.startswith(("choice.", "known.")) and last in ("mean", "spread"):
        return (1 / LARGEST_FEATURE if last == "spread" else -LARGEST_FEATURE), LARGEST_FEATURE
    if last == "num_batches_tracked":
        return 0, float("inf")
    if last == "running_var":
        return 0, LARGEST_STATISTIC
    if last == "running_mean" or name == "encoder.mean":
        return -LARGEST_STATISTIC, LARGEST_STATISTIC
    return -LARGEST_WEIGHT, LARGEST_WEIGHT
