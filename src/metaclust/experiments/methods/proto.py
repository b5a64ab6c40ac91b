"""Prototypical networks (Snell et al. 2017)."""

from __future__ import annotations

from metaclust.experiments.methods.base import EncoderMethod, validate_in_frame
from metaclust.training.loop import Objective
from metaclust.training.losses import proto_loss


class Proto(EncoderMethod):
    """Classifies rows by the nearest centroid of a category."""

    name = "proto"
    title = "Proto"
    objective = Objective("proto", proto_loss, validate_in_frame)


class LongProto(Proto):
    """Trained for as many steps as ours in both its phases, to see whether only the longer training helps."""

    name = "proto-long"
    title = "Proto, as many steps as ours"
