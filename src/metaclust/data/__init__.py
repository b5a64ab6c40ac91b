"""Data: readers of tables, arrays, image folders and text, preparations for the encoder, and named data sets."""

from typing import TYPE_CHECKING

from metaclust._util.lazy import lazy_names

if TYPE_CHECKING:
    from metaclust.data.datasets.cards import CARDS, Card
    from metaclust.data.datasets.named import Dataset, load_dataset
    from metaclust.data.input_table import InputTable
    from metaclust.data.inputs import rows_from_frame
    from metaclust.data.kinds import KINDS, DataKind, kind_named
    from metaclust.data.labels import labelled_rows, read_labels, without_labels
    from metaclust.data.preparation.prepare import Preparation, describe_preparation, fit_preparation, preparation_from
    from metaclust.data.preparation.vocabulary import PAPER_RULES, WordRules
    from metaclust.data.readers.arrays import rows_from_array
    from metaclust.data.readers.sources import read_data
    from metaclust.data.rows import DataError, DataWarning, Rows
    from metaclust.data.sparse import SparseRows
    from metaclust.data.streams import EncodedStream, encode_to_file, row_stream

WHERE = {
    "metaclust.data.input_table": ("InputTable",),
    "metaclust.data.inputs": ("rows_from_frame",),
    "metaclust.data.kinds": ("KINDS", "DataKind", "kind_named"),
    "metaclust.data.labels": ("labelled_rows", "read_labels", "without_labels"),
    "metaclust.data.readers.arrays": ("rows_from_array",),
    "metaclust.data.datasets.cards": ("CARDS", "Card"),
    "metaclust.data.datasets.named": ("Dataset", "load_dataset"),
    "metaclust.data.preparation.prepare": (
        "Preparation",
        "describe_preparation",
        "fit_preparation",
        "preparation_from",
    ),
    "metaclust.data.rows": ("DataError", "DataWarning", "Rows"),
    "metaclust.data.readers.sources": ("read_data",),
    "metaclust.data.sparse": ("SparseRows",),
    "metaclust.data.streams": ("EncodedStream", "encode_to_file", "row_stream"),
    "metaclust.data.preparation.vocabulary": ("PAPER_RULES", "WordRules"),
}

__all__ = [
    "CARDS",
    "KINDS",
    "PAPER_RULES",
    "Card",
    "DataError",
    "DataKind",
    "DataWarning",
    "Dataset",
    "EncodedStream",
    "InputTable",
    "Preparation",
    "Rows",
    "SparseRows",
    "WordRules",
    "describe_preparation",
    "encode_to_file",
    "fit_preparation",
    "kind_named",
    "labelled_rows",
    "load_dataset",
    "preparation_from",
    "read_data",
    "read_labels",
    "row_stream",
    "rows_from_array",
    "rows_from_frame",
    "without_labels",
]

__getattr__, __dir__ = lazy_names(__name__, WHERE)
