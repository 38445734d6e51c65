"""Text: values that are UTF-8. Bytes that are not are bad, where Spark's own cast would let them pass as a broken string."""

from typing import TYPE_CHECKING

import pyarrow as pa

from odradek.spark.formats import Bad
from odradek.spark.formats.rows import decode_rows

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


class StringDecoder:
    @property
    def data_type(self) -> "DataType":
        from pyspark.sql.types import StringType

        return StringType()

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[Bad]]:
        try:
            return values.cast(pa.string()), []  # the bytes stay where they are
        except pa.ArrowInvalid:
            return decode_rows(values.to_pylist(), bytes.decode, pa.string())
