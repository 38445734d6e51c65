"""CRC-32C, the check sum of Kafka's batches and snapshots.

The package `crc32c` looks up its own version when it is imported, which takes as long as a tenth of a node's start. So its
compiled part is loaded alone.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _load() -> Callable[..., int]:
    package = find_spec("crc32c")
    assert package is not None
    compiled = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    assert compiled is not None
    assert compiled.loader is not None
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module.crc32c  # type: ignore[no-any-return]


crc32c: Callable[..., int] = _load()
"""The check sum of a buffer, or, with the sum of what stands before it, of both."""
