"""Prototypical networks (Snell et al. 2017)."""

from __future__ import annotations

from metaclust.experiments.methods.base import EncoderMethod, validate_in_frame
from metaclust.training.loop import Objective
from metaclust.training.losses import proto_loss


class Proto(EncoderMethod):
    """Rows are told apart by the nearest centroid of a category."""

    name = "proto"
    title = "Proto"
    objective = Objective("proto", proto_loss, validate_in_frame)


class LongProto(Proto):
    """For as many steps as ours has in both its phases: whether it is only the longer training that helps."""

    name = "proto-long"
    title = "Proto, as many steps as ours"
