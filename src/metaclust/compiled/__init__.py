"""The tasks of a small training step by compiled loops, where numba is installed: the same figures, sooner."""

from metaclust.compiled.objective import compiled_index, suited

__all__ = ["compiled_index", "suited"]
