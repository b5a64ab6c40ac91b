"""Text for a terminal: names and cells of files may hold escape sequences, which a terminal would obey."""

from __future__ import annotations

import unicodedata

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of what is escaped: control and formatting characters, lone surrogates, line separators."""


def printable(text: object) -> str:
    r"""Return text as one line without control characters: line ends become spaces, others backslash escapes.

    >>> printable("column '\x1b[2Jred' of\nrows.csv")
    "column '\\x1b[2Jred' of rows.csv"
    """
    words = str(text)
    if words.isprintable():
        return words
    return "".join(map(_shown, words.replace("\r\n", " ").replace("\n", " ")))


def _shown(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii") if unicodedata.category(letter) in HIDDEN else letter
