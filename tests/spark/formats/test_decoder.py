"""Every format: how it is asked for, that it travels, and that nothing more is loaded than it needs."""

import base64
import pickle
import subprocess
import sys

import pytest

from odradek.client.errors import InvalidOption
from odradek.spark.formats import Bad, decoder
from tests.spark.formats.columns import column, decoded
from tests.spark.formats.test_protobuf import SET

ALL = [
    ("string", None, None, b"a"),
    ("json", "a int, b string, c timestamp", None, b'{"a": 1}'),
    ("json", "m map<string,int>", None, b'{"m": {"a": 1}}'),
    ("avro", '{"type": "record", "name": "A", "fields": [{"name": "a", "type": ["int", "string"]}]}', None, b"\x00\x02"),
    ("avro-confluent", '{"type": "int", "logicalType": "date"}', None, b"\0\0\0\0\1\x02"),
    ("protobuf", base64.b64encode(SET).decode(), "shop.Order", b""),
]


@pytest.mark.parametrize(("form", "schema", "message", "value"), ALL)
def test_a_decoder_travels_before_and_after_its_first_use(form: str, schema: str, message: str, value: bytes) -> None:
    each = decoder(form, schema, message)
    values = [value, None, b"\xff"] * 40
    for _ in range(2):
        there = pickle.loads(pickle.dumps(each))
        assert there.data_type == each.data_type
        assert decoded(there, values) == decoded(each, values)


@pytest.mark.parametrize(("form", "schema", "message", "value"), ALL)
def test_good_rows_stand_among_null_and_bad_ones(form: str, schema: str, message: str, value: bytes) -> None:
    rows, bad = decoded(decoder(form, schema, message), [value, b"\xff", None, value])
    assert rows == [rows[0], None, None, rows[0]]
    assert rows[0] is not None
    assert list(bad) == [1]


def test_text_is_utf_8() -> None:
    each = decoder("string")
    assert decoded(each, ["é\0😀".encode(), b"", None]) == (["é\0😀", "", None], {})
    array, [(row, error)] = each.decode(column([b"a", b"\xc3", b"b"]))
    assert (array.to_pylist(), row) == (["a", None, "b"], 1)
    assert "utf-8" in error
    assert Bad(row, error).row == 1


@pytest.mark.parametrize(
    ("form", "schema", "message", "said"),
    [
        ("xml", None, None, "json"),
        ("JSON", "a int", None, "json"),
        ("string", "a int", None, "leave it out"),
        ("json", None, None, "schema"),
        ("json", " ", None, "schema"),
        ("json", "a int", "M", "message"),
        ("protobuf", "AAAA", None, "full name"),
    ],
)
def test_what_is_given_wrongly_is_refused(form: str, schema: str | None, message: str | None, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        decoder(form, schema, message)


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import odradek.spark.formats", "pyspark pyarrow numpy numba fastavro google.protobuf msgspec.json"),
        ("decoder('string')", "pyspark numba fastavro google.protobuf"),
        ("decoder('json', 'a int')", "numba fastavro google.protobuf pyarrow.json"),
        ("decoder('avro', 'int')", "numba google.protobuf"),
    ],
)
def test_no_more_is_imported_than_a_format_needs(code: str, absent: str) -> None:
    program = (
        f"import sys\nfrom odradek.spark.formats import decoder\n{code}\nprint([n for n in {absent.split()} if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
