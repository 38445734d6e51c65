"""Compiles a message and a version into a function that decodes it.

The function is `decode(data, p, end) -> (value, p)`: `data` is bytes, or a memoryview for messages that hold records, `p` a
position in it. Fixed-size fields that stand side by side, with the length or count after them, are one `unpack_from`.

Invariants
 1. An array's count is checked against the bytes left, divided by the smallest size of an element, before anything is made.
 2. A string, bytes or records field that runs over the end moves `p` beyond `end`: whoever calls must compare the two.
 3. A `records` value is a slice of `data`, never a copy.
"""

from collections.abc import Callable
from struct import calcsize
from typing import Any, Final

from odradek.wire.source import UNPACK, Source
from odradek.wire.table import FIXED, Field, Schema, size_min

NULL_LENGTH: Final = {"B": "== 0", "h": "< 0", "i": "< 0"}


def compile_decoder(message: Any, version: int) -> Callable[..., Any]:
    """The decoder of a message's class in that version."""
    return DecoderSource(message, version).compiled("decode", f"{message.schema.name} v{version} decode")


class DecoderSource(Source):
    def __init__(self, message: Any, version: int) -> None:
        super().__init__(message, version)
        self.is_view: bool = message.is_view
        with self.block("def decode(data, p, end):"):
            value = self.struct(self.schema, self.constant(self.schema.name, message))
            self.flush()
            self.line(f"return {value}, p")

    def take(self, codes: str, name: str) -> str:
        """Adds a fixed-size value to the run; gives its variable, which is set once the run is flushed."""
        variable = self.local(name)
        self.run.append((codes, variable))
        return variable

    def flush(self) -> None:
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        variables = ", ".join(variable for _, variable in self.run)
        if codes == "B":
            self.line(f"{variables} = data[p]")
            self.line("p += 1")
        else:
            unpack, size = self.packer(codes, "unpack_from")
            self.line(f"{variables}{',' if len(self.run) == 1 else ''} = {unpack}(data, p)")
            self.line(f"p += {size}")
        self.run.clear()

    def struct(self, part: Schema, cls: str) -> str:
        """Reads the fields of a struct; gives the expression that makes it, valid once the run is flushed."""
        arguments = []
        tagged = []
        for field in part.fields:
            if self.version not in field.versions:
                arguments.append(self.default(field))
            elif self.version in field.tagged:
                assert self.flexible, field.name
                tagged.append((field, variable := self.local(field.attribute)))
                arguments.append(variable)
            else:
                arguments.append(self.field(field))
        if self.flexible:
            arguments.append(self.tags(tagged))
        return f"{cls}({', '.join(arguments)})"

    def default(self, field: Field) -> str:
        if field.default is ...:
            return f"{self.class_of(field)}()"
        return "[]" if field.default == () else repr(field.default)

    def class_of(self, field: Field) -> str:
        return self.constant(field.type, getattr(self.message, field.type))

    def field(self, field: Field, in_tag: bool = False) -> str:
        compact = self.flexible and field.may_be_compact
        nullable = self.version in field.nullable
        if field.is_array:
            return self.array(field, compact, nullable)
        if field.is_struct:
            return self.nullable_struct(field, in_tag) if nullable else self.plain_struct(field)
        if field.type in FIXED:
            return self.take(FIXED[field.type], field.attribute)
        return self.text(field, compact, nullable)

    def plain_struct(self, field: Field) -> str:
        value = self.local(field.attribute)
        made = self.struct(self.schema.structs[field.type], self.class_of(field))
        self.flush()
        self.line(f"{value} = {made}")
        return value

    def nullable_struct(self, field: Field, in_tag: bool) -> str:
        value = self.local(field.attribute)
        mark = self.take("B", f"{field.attribute}_mark")
        self.flush()
        with self.block(f"if {mark} == {0 if in_tag else 255}:"):
            self.line(f"{value} = None")
        with self.block(f"elif {mark} == 1:"):
            made = self.struct(self.schema.structs[field.type], self.class_of(field))
            self.flush()
            self.line(f"{value} = {made}")
        with self.block("else:"):
            self.line("raise Malformed")
        return value

    def length(self, field: Field, compact: bool) -> tuple[str, str]:
        """Reads a length or count: its variable, which in compact form is one more, and the format it was read with."""
        is_string = field.type == "string" and not field.is_array
        code = "B" if compact else "h" if is_string else "i"
        variable = self.take(code, f"{field.attribute}_length")
        self.flush()
        if compact:
            with self.block(f"if {variable} > 127:"):
                rest = "string_rest" if is_string else "uvarint_rest"
                self.line(f"{variable}, p = {rest}(data, p, {variable})")
        return variable, code

    def text(self, field: Field, compact: bool, nullable: bool) -> str:
        """A string, bytes or records."""
        value, stop = self.local(field.attribute), self.local("stop")
        length, code = self.length(field, compact)
        with self.block(f"if {length} {NULL_LENGTH[code]}:"):
            if nullable:
                if code != "B":
                    with self.block(f"if {length} != -1:"):
                        self.line("raise Malformed")
                self.line(f"{value} = None")
            else:
                self.line("raise Malformed")
        with self.block("else:"):
            self.line(f"{stop} = p + {length}{' - 1' if code == 'B' else ''}")
            self.line(f"{value} = {self.slice(field.type, stop)}")
            self.line(f"p = {stop}")
        return value

    def slice(self, type_: str, stop: str) -> str:
        if type_ == "records":
            return f"data[p:{stop}]"
        if type_ == "string":
            return f"str(data[p:{stop}], 'utf-8')" if self.is_view else f"data[p:{stop}].decode()"
        return f"bytes(data[p:{stop}])" if self.is_view else f"data[p:{stop}]"

    def array(self, field: Field, compact: bool, nullable: bool) -> str:
        value = self.local(field.attribute)
        count, code = self.length(field, compact)
        if compact:
            self.line(f"{count} -= 1")
        with self.block(f"if {count} < 0:"):
            if nullable:
                if code != "B":
                    with self.block(f"if {count} != -1:"):
                        self.line("raise Malformed")
                self.line(f"{value} = None")
            else:
                self.line("raise Malformed")
        least = size_min(self.schema, field, self.version, compact)
        assert least > 0, f"an element of {self.schema.name}.{field.name} has no bytes"
        with self.block(f"elif {f'{count} * {least}' if least > 1 else count} > end - p:"):
            self.line("raise Malformed")
        with self.block("else:"):
            self.elements(field, value, count)
        return value

    def elements(self, field: Field, value: str, count: str) -> None:
        if field.type == "uuid":
            each = "bytes(data[i:i + 16])" if self.is_view else "data[i:i + 16]"
            self.line(f"{value} = [{each} for i in range(p, p + {count} * 16, 16)]")
            self.line(f"p += {count} * 16")
        elif field.type in FIXED:
            code = FIXED[field.type]
            unpackers = self.constant(f"UNPACK_{code}", UNPACK[code])
            self.line(f"{value} = list({unpackers}[{count}](data, p))")
            self.line(f"p += {count} * {calcsize(f'>{code}')}")
        else:
            self.line(f"{value} = []")
            with self.block(f"for _ in range({count}):"):
                if field.is_struct:
                    made = self.struct(self.schema.structs[field.type], self.class_of(field))
                else:
                    made = self.text(field.element(), self.flexible and field.may_be_compact, nullable=False)
                self.flush()
                self.line(f"{value}.append({made})")

    def tags(self, known: list[tuple[Field, str]]) -> str:
        """The tagged fields at the end of a struct; gives the variable of those we do not know."""
        unknown = self.local("unknown")
        count = self.take("B", "tags")
        self.flush()
        for field, variable in known:
            self.line(f"{variable} = {self.default(field)}")
        self.line(f"{unknown} = None")
        if not known:
            with self.block(f"if {count}:"):
                self.line(f"{unknown}, p = unknown_tags(data, p, end, {count})")
            return unknown
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):
                self.line(f"{count}, p = uvarint_rest(data, p, {count})")
            tag, size, stop, last = (self.local(name) for name in ("tag", "size", "stop", "last"))
            self.line(f"{last} = -1")
            with self.block(f"for _ in range({count}):"):
                for number in (tag, size):
                    self.line(f"{number} = data[p]")
                    self.line("p += 1")
                    with self.block(f"if {number} > 127:"):
                        self.line(f"{number}, p = uvarint_rest(data, p, {number})")
                self.line(f"{stop} = p + {size}")
                with self.block(f"if {tag} <= {last} or {stop} > end:"):
                    self.line("raise Malformed")
                self.line(f"{last} = {tag}")
                self.tag_branches(known, unknown, tag, stop)
        return unknown

    def tag_branches(self, known: list[tuple[Field, str]], unknown: str, tag: str, stop: str) -> None:
        for number, (field, variable) in enumerate(known):
            with self.block(f"{'elif' if number else 'if'} {tag} == {field.tag}:"):
                value = self.field(field, in_tag=True)
                self.flush()
                self.line(f"{variable} = {value}")
        with self.block("else:"):
            with self.block(f"if {unknown} is None:"):
                self.line(f"{unknown} = {{}}")
            self.line(f"{unknown}[{tag}] = bytes(data[p:{stop}])")
            self.line(f"p = {stop}")
        with self.block(f"if p != {stop}:"):
            self.line("raise Malformed")
