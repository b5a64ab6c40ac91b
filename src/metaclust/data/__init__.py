"""Data in: tables, arrays, image folders, text, and the named data sets."""

from typing import TYPE_CHECKING

from metaclust.lazy import lazy_names

if TYPE_CHECKING:
    from metaclust.data.arrays import rows_from_array
    from metaclust.data.cards import CARDS, Card
    from metaclust.data.named import Dataset, load_dataset
    from metaclust.data.prepare import Preparation, describe_preparation, fit_preparation, preparation_from
    from metaclust.data.rows import DataError, DataWarning, Rows
    from metaclust.data.sources import read_data
    from metaclust.data.sparse import SparseRows
    from metaclust.data.streams import EncodedStream, encode_to_file, row_stream
    from metaclust.data.text import PAPER_RULES, WordRules

WHERE = {
    "metaclust.data.arrays": ("rows_from_array",),
    "metaclust.data.cards": (
        "CARDS",
        "Card",
    ),
    "metaclust.data.named": (
        "Dataset",
        "load_dataset",
    ),
    "metaclust.data.prepare": (
        "Preparation",
        "describe_preparation",
        "fit_preparation",
        "preparation_from",
    ),
    "metaclust.data.rows": (
        "DataError",
        "DataWarning",
        "Rows",
    ),
    "metaclust.data.sources": ("read_data",),
    "metaclust.data.sparse": ("SparseRows",),
    "metaclust.data.streams": (
        "EncodedStream",
        "encode_to_file",
        "row_stream",
    ),
    "metaclust.data.text": (
        "PAPER_RULES",
        "WordRules",
    ),
}

__all__ = [
    "CARDS",
    "PAPER_RULES",
    "Card",
    "DataError",
    "DataWarning",
    "Dataset",
    "EncodedStream",
    "Preparation",
    "Rows",
    "SparseRows",
    "WordRules",
    "describe_preparation",
    "encode_to_file",
    "fit_preparation",
    "load_dataset",
    "preparation_from",
    "read_data",
    "row_stream",
    "rows_from_array",
]

__getattr__, __dir__ = lazy_names(__name__, WHERE)
