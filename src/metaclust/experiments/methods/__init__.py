"""The methods of the paper's tables, by name. A new one is one file and one line here.

>>> sorted(METHODS)[:4]
['ae', 'flda', 'full-covariance', 'nn']
"""

from __future__ import annotations

import os
import reprlib
from pathlib import Path

from metaclust._util.tensors import CheckpointError, read_tensors
from metaclust.experiments.methods.ablations import ABLATIONS
from metaclust.experiments.methods.autoencoder import Autoencoder
from metaclust.experiments.methods.base import EncoderMethod, Method
from metaclust.experiments.methods.classifier import Classifier
from metaclust.experiments.methods.linear import FisherDiscriminant, PrincipalComponents
from metaclust.experiments.methods.metric import Siamese, Triplet
from metaclust.experiments.methods.ours import Ours
from metaclust.experiments.methods.proto import LongProto, Proto
from metaclust.experiments.methods.vade import VaDE

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Ours,
        Proto,
        LongProto,
        Autoencoder,
        Siamese,
        Triplet,
        Classifier,
        VaDE,
        PrincipalComponents,
        FisherDiscriminant,
        *ABLATIONS,
    )
}


def load_method(path: str | os.PathLike[str]) -> Method:
    """Read a file that the ``save`` of any method wrote."""
    tensors, header = read_tensors(path, "method")
    name = header.get("method")
    if not isinstance(name, str) or name not in METHODS:
        raise CheckpointError(
            f"{Path(path)} holds the method {reprlib.repr(name)}: this version knows {', '.join(METHODS)}"
        )
    return METHODS[name].of(path, tensors, header)


__all__ = ["METHODS", "EncoderMethod", "Method", "load_method"]
