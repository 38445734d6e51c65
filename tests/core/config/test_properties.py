"""Java's .properties text is read and written as java.util.Properties does it."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.core.config.properties import InvalidProperties, parse, write
from tests.kafka.oracle import Oracle, OracleError

TEXTS = st.text(st.sampled_from('ab=:#! \t\f\\\n\r"u0041é\u2028🙂'), max_size=40)
VALUES = st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=4)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1\nb = 2\nc: 3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# no\n! no\n  # no\n\na=1", {"a": "1"}),
        ("a=1\\\n   2\\\n\t3\nb=4", {"a": "123", "b": "4"}),
        ("a=\\u00e9\\t\\\\\\x", {"a": "é\t\\x"}),
        ("a\\ b\\=c=d=e:f", {"a b=c": "d=e:f"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a", {"a": ""}),
        ("a=1 \na=2 ", {"a": "2 "}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("a=\\ud83d\\ude42", {"a": "🙂"}),
    ],
)
def test_a_line_is_a_key_and_a_value(text: str, values: dict[str, str]) -> None:
    assert parse(text) == values


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(InvalidProperties, match="line 3"):
        parse("a=1\n\nb=\\u12x4\n")


@example("\\\r")
@example("\\\n")
@example("a\\\r")
@example("\\\n\n")
@example("\\\r\n")
@example("\\\n \\\n")
@given(TEXTS)
def test_any_text_is_read_as_by_java(oracle: Oracle, text: str) -> None:
    try:
        ours = parse(text)
    except InvalidProperties:
        with pytest.raises(OracleError):
            oracle.call("Configs.load", text=text)
    else:
        assert ours == oracle.call("Configs.load", text=text)


@given(VALUES)
def test_what_was_written_is_read_again_by_both(oracle: Oracle, values: dict[str, str]) -> None:
    text = write(values)
    assert parse(text) == values
    assert oracle.call("Configs.load", text=text) == values
    assert text.isascii()


def test_a_value_is_written_without_more_escapes_than_it_needs() -> None:
    assert write({"listeners": "PLAINTEXT://[::1]:9092,A://b:1"}) == "listeners=PLAINTEXT://[::1]:9092,A://b:1\n"
