"""Compiles a message and a version into a function that encodes it.

The function is `encode(value) -> buffers`: a list of pieces that make up the message when they are sent one after another.
Fixed-size fields that stand side by side, with the length or count after them, are one `pack`.

Invariants
 1. A `records` value that is not empty is in the list as it is: never copied, and never touched but for its length.
 2. The first piece is bytes that no one else holds.
 3. A field that the version lacks must hold its default, unless it is ignorable; tagged fields are written when they do not.
"""

from collections.abc import Callable
from typing import Any

from odradek.wire.source import PACK, Source
from odradek.wire.table import FIXED, NIL_UUID, Field, Schema


def compile_encoder(message: Any, version: int) -> Callable[..., Any]:
    """The encoder of a message's class in that version."""
    return EncoderSource(message, version).compiled("encode", f"{message.schema.name} v{version} encode")


class EncoderSource(Source):
    def __init__(self, message: Any, version: int) -> None:
        super().__init__(message, version)
        self.constant("NIL_UUID", NIL_UUID)
        with self.block("def encode(message):"):
            self.line("parts = []")
            if self.schema.has_records:
                self.line("buffers = []")
            self.struct(self.schema, "message")
            self.flush()
            if self.schema.has_records:
                with self.block("if parts:"):
                    self.line("buffers.append(b''.join(parts))")
                self.line("return buffers")
            else:
                self.line("return [b''.join(parts)]")

    def put(self, code: str, expression: str) -> None:
        self.run.append((code, expression))

    def packed(self, run: list[tuple[str, str]]) -> str:
        """The expression that packs a run."""
        if len(run) == 1 and run[0][0] == "B":
            return f"BYTES[{run[0][1]}]"
        pack, _ = self.packer("".join(code for code, _ in run), "pack")
        return f"{pack}({', '.join(expression for _, expression in run)})"

    def flush(self) -> None:
        if self.run:
            self.line(f"parts.append({self.packed(self.run)})")
            self.run = []

    def put_length(self, length: str, is_string: bool, compact: bool) -> None:
        """Writes a length or count, with the run before it. In compact form the variable is one more."""
        if not compact:
            self.put("h" if is_string else "i", length)
            self.flush()
            return
        with self.block(f"if {length} < 128:"):
            self.line(f"parts.append({self.packed([*self.run, ('B', length)])})")
        with self.block("else:"):
            self.flush()
            self.line(f"parts.append({'string_prefix' if is_string else 'uvarint'}({length}))")

    def struct(self, part: Schema, value: str) -> None:
        tagged = []
        absent = []
        for field in part.fields:
            if self.version not in field.versions:
                if not field.ignorable:
                    absent.append(f"{self.is_default(field, f'{value}.{field.attribute}')}")
            elif self.version in field.tagged:
                tagged.append(field)
        if not self.flexible:
            absent.append(f"not {value}.unknown_tags")
        if absent:
            with self.block(f"if not ({' and '.join(absent)}):"):
                self.line("raise Malformed")
        for field in part.fields:
            if self.version in field.versions and self.version not in field.tagged:
                self.field(field, f"{value}.{field.attribute}")
        if self.flexible:
            self.tags(tagged, value)

    def is_default(self, field: Field, value: str) -> str:
        default = field.default
        if default is None:
            return f"{value} is None"
        if default == ():
            return f"{value} is not None and len({value}) == 0" if field.nullable else f"len({value}) == 0"
        if default is ...:
            made = getattr(self.message, field.type)()
            name = f"{field.type}_default"
            self.names.setdefault(name, made)
            return f"{value} == {name}"
        return f"{value} == {'NIL_UUID' if field.type == 'uuid' else repr(default)}"

    def field(self, field: Field, value: str, in_tag: bool = False) -> None:
        compact = self.flexible and field.may_be_compact
        nullable = self.version in field.nullable
        if field.is_array:
            self.array(field, value, compact, nullable)
        elif field.is_struct and nullable:
            self.nullable_struct(field, value, in_tag)
        elif field.is_struct:
            variable = self.local(field.attribute)
            self.line(f"{variable} = {value}")
            self.struct(self.schema.structs[field.type], variable)
        elif field.type == "uuid":
            with self.block(f"if len({value}) != 16:"):
                self.line("raise Malformed")
            self.put("16s", value)
        elif field.type in FIXED:
            self.put(FIXED[field.type], value)
        else:
            self.text(field, value, compact, nullable)

    def nullable_struct(self, field: Field, value: str, in_tag: bool) -> None:
        variable = self.local(field.attribute)
        self.flush()
        self.line(f"{variable} = {value}")
        with self.block(f"if {variable} is None:"):
            self.line(f"parts.append(BYTES[{0 if in_tag else 255}])")
        with self.block("else:"):
            self.put("B", "1")
            self.struct(self.schema.structs[field.type], variable)
            self.flush()

    def text(self, field: Field, value: str, compact: bool, nullable: bool) -> None:
        """A string, bytes or records."""
        content, length = self.local(field.attribute), self.local("length")
        measure = f"len({content}) + 1" if compact else f"len({content})"
        read = f"{value}.encode()" if field.type == "string" else value
        if nullable:
            with self.block(f"if {value} is None:"):
                self.line(f"{content} = b''")
                self.line(f"{length} = {0 if compact else -1}")
            with self.block("else:"):
                self.line(f"{content} = {read}")
                self.line(f"{length} = {measure}")
        else:
            self.line(f"{content} = {read}")
            self.line(f"{length} = {measure}")
        self.put_length(length, field.type == "string", compact)
        if field.type == "records":
            with self.block(f"if {length} > {1 if compact else 0}:"):
                self.line("buffers.append(b''.join(parts))")
                self.line(f"buffers.append({content})")
                self.line("parts = []")
        else:
            self.line(f"parts.append({content})")

    def array(self, field: Field, value: str, compact: bool, nullable: bool) -> None:
        elements, count = self.local(field.attribute), self.local("count")
        self.line(f"{elements} = {value}")
        measure = f"len({elements}) + 1" if compact else f"len({elements})"
        if nullable:
            with self.block(f"if {elements} is None:"):
                self.line(f"{elements} = ()")
                self.line(f"{count} = {0 if compact else -1}")
            with self.block("else:"):
                self.line(f"{count} = {measure}")
        else:
            self.line(f"{count} = {measure}")
        self.put_length(count, is_string=False, compact=compact)
        if field.type in FIXED and field.type != "uuid":
            code = FIXED[field.type]
            packers = self.constant(f"PACK_{code}", PACK[code])
            self.line(f"parts.append({packers}[len({elements})](*{elements}))")
            return
        element = self.local("element")
        with self.block(f"for {element} in {elements}:"):
            if field.is_struct:
                self.struct(self.schema.structs[field.type], element)
            else:
                self.field(field.element(), element)
            self.flush()

    def tags(self, known: list[Field], value: str) -> None:
        """The tagged fields at the end of a struct; nearly always none."""
        none = [f"not {value}.unknown_tags"]
        none += [self.is_default(field, f"{value}.{field.attribute}") for field in known]
        before, self.run = self.run, []
        with self.block(f"if {' and '.join(none)}:"):
            self.line(f"parts.append({self.packed([*before, ('B', '0')])})")
        with self.block("else:"):
            if before:
                self.line(f"parts.append({self.packed(before)})")
            tags, outer = self.local("tags"), self.local("outer")
            self.line(f"{tags} = {{}}")
            if known:
                self.line(f"{outer} = parts")
            for field in known:
                with self.block(f"if not ({self.is_default(field, f'{value}.{field.attribute}')}):"):
                    self.line("parts = []")
                    self.field(field, f"{value}.{field.attribute}", in_tag=True)
                    self.flush()
                    self.line(f"{tags}[{field.tag}] = b''.join(parts)")
            if known:
                self.line(f"parts = {outer}")
            self.line(f"put_tags(parts, {tags}, {value}.unknown_tags)")
