"""Data in: the named data sets."""

from metaclust.data.named import Dataset, load_dataset

__all__ = ["Dataset", "load_dataset"]
