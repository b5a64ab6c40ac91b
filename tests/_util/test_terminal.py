"""Text for a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from metaclust._util.terminal import printable


def test_ordinary_text_is_unchanged() -> None:
    assert printable("été 日本 – 'x' \\ 1,000") == "été 日本 – 'x' \\ 1,000"  # noqa: RUF001


def test_escapes_are_shown_and_lines_joined() -> None:
    assert printable("a\x1b]0;title\x07\r\nb\nc\x9b2J\u202e") == "a\\x1b]0;title\\x07 b c\\x9b2J\\u202e"


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    cleaned = printable(text)
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in cleaned)
    assert printable(cleaned) == cleaned
