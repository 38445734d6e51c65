"""Lines of files and pipes, as they come."""

import asyncio
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.lines import lines_of


async def all_of(descriptor: int) -> list[bytes]:
    return [line async for lines in lines_of(descriptor) for line in lines]


def test_a_line_is_given_before_the_next_one_is_written() -> None:
    async def run() -> None:
        source, sink = os.pipe()
        lines = lines_of(source)
        for line in (b"one", b"two"):
            os.write(sink, line + b"\n")
            assert await anext(lines) == [line]
        waiting = asyncio.ensure_future(anext(lines))
        for _ in range(10):
            await asyncio.sleep(0)  # the loop goes on while nobody writes
        assert not waiting.done()
        os.write(sink, b"rest")
        os.close(sink)
        assert await waiting == [b"rest"]
        assert [each async for each in lines] == []
        os.close(source)

    asyncio.run(run())


@given(st.lists(st.binary(max_size=5).filter(lambda line: b"\n" not in line and not line.endswith(b"\r"))))
def test_lines_are_what_stands_between_their_ends(lines: list[bytes]) -> None:
    for end in (b"\n", b"\r\n"):
        source, sink = os.pipe()
        os.write(sink, b"".join(line + end for line in lines))
        os.close(sink)
        assert asyncio.run(all_of(source)) == lines
        os.close(source)


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    lines = [b"%d" % number for number in range(100_000)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    descriptor = os.open(tmp_path / "lines", os.O_RDONLY)
    assert asyncio.run(all_of(descriptor)) == lines
    os.close(descriptor)
