"""The levels of the process's loggers under Kafka's names."""

import logging
from collections.abc import Iterator

import pytest

from odradek.api.broker_loggers import LEVELS, ROOT
from odradek.node.loggers import NUMBERS, Loggers


@pytest.fixture
def name() -> Iterator[str]:
    """A logger of the test's own, below one that has never been asked for."""
    before = logging.root.level
    yield logging.getLogger("odradek.tests.levels").name
    logging.root.setLevel(before)
    logging.getLogger("odradek.tests.levels").setLevel(logging.NOTSET)


def test_every_level_can_be_set_and_is_shown_as_it_was_set(name: str) -> None:
    assert tuple(NUMBERS) == LEVELS
    for level in LEVELS:
        for one in (name, ROOT):
            Loggers().set_level(one, level)
            assert Loggers().levels()[one] == level


def test_a_logger_without_a_level_shows_that_of_its_parent(name: str) -> None:
    loggers = Loggers()
    loggers.set_level(name, "ERROR")
    loggers.set_level(ROOT, "DEBUG")
    assert loggers.levels()[name] == "ERROR"
    loggers.set_level(name, None)
    assert loggers.levels()[name] == "DEBUG"
    assert "odradek.tests" not in loggers.levels()


def test_a_level_that_kafka_has_no_name_for_is_shown_as_the_next_that_passes(name: str) -> None:
    for level, shown in ((1, "TRACE"), (15, "INFO"), (25, "WARN"), (60, "FATAL")):
        logging.getLogger(name).setLevel(level)
        assert Loggers().levels()[name] == shown


def test_a_level_decides_what_is_written(name: str, caplog: pytest.LogCaptureFixture) -> None:
    Loggers().set_level(name, "WARN")
    logging.getLogger(name).info("unheard")
    Loggers().set_level(name, "DEBUG")
    logging.getLogger(name).debug("heard")
    messages = [record.message for record in caplog.records if record.name == name]
    assert messages == ["heard"]
