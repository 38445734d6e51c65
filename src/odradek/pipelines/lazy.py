"""Frames that are made when they are first used: a file that declares pipelines can be read without Spark, and what a source
need not read is known before it is made.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from odradek.pipelines.session import session


class LazyFrame(ClassicFrame):
    """A frame like any other, once somebody asks it for anything."""

    def __init__(self, make: Callable[[], DataFrame]) -> None:  # what a frame has, it gets later
        self._make = make
        self._made: DataFrame | None = None
        self.is_cached = False
        self._support_repr_html = False

    @property
    def _frame(self) -> DataFrame:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def _jdf(self) -> Any:
        return self._frame._jdf

    @property
    def _session(self) -> Any:  # type: ignore[override]
        return session()

    @property
    def _sc(self) -> Any:  # type: ignore[override]
        return session()._sc

    def forget(self) -> None:
        """It is made anew when it is used again; so is what a frame remembers of itself, such as its schema."""
        for name in [name for name in self.__dict__ if isinstance(getattr(type(self), name, None), cached_property)]:
            del self.__dict__[name]
        self._made = None
