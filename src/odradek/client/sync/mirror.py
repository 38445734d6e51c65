"""Methods for threads, of a class for asyncio: each runs its namesake on the loop of a thread of its own, and waits for it.

What they take and give is in `mirrored.pyi`, which `python -m tools.sync_stubs` writes.
"""

from collections.abc import Callable, Collection
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

Mirror = TypeVar("Mirror", bound=type)


def public_methods(original: type) -> dict[str, Any]:
    """Those that are called on an instance, by their names."""
    found = {name: getattr(original, name) for name in dir(original) if not name.startswith("_")}
    return {name: each for name, each in found.items() if callable(each) and not isinstance(each, type) and name != "of"}


def mirrors(original: type, gives_back: Collection[str] = ()) -> Callable[[Mirror], Mirror]:
    """Gives a class the public methods of another one, an instance of which is `_original`; its loop is `_background`.

    Before those of `gives_back` it calls `_give_back`, on the loop as well."""

    def decorate(cls: Mirror) -> Mirror:
        for name, method in public_methods(original).items():
            setattr(cls, name, mirrored(name, method, gives_back=name in gives_back))
        return cls

    return decorate


def mirrored(name: str, method: Callable[..., Any], *, gives_back: bool = False) -> Callable[..., Any]:
    is_async = iscoroutinefunction(method)

    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        async def work() -> Any:
            if gives_back:
                self._give_back()
            found = getattr(self._original, name)(*args, **options)
            return await found if is_async else found

        return self._background.run(work())

    return call
