"""A refusal of what cannot fit into memory, before it is allocated."""

from __future__ import annotations

import os

from metaclust.data.rows import DataError


def memory_size() -> int | None:
    """Return the bytes of memory of this machine; None where the system does not say."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Raise DataError if ``what`` needs more bytes than the machine has."""
    size = memory_size()
    if size is not None and needed > size:
        raise DataError(f"{what} need about {needed / 1e9:,.0f} GB of memory, of {size / 1e9:,.1f} GB: {remedy}")
