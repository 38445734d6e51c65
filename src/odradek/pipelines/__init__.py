"""Pipelines: topics in, plain PySpark or SQL between, topics out, exactly once.

    from odradek.pipelines import Pipeline

    shouts = Pipeline("shouts")
    words = shouts.topic("words", value="string")

    @shouts.to_topic("loud-words")
    def loud():
        return words.selectExpr("upper(value) AS value")

`odradek pipeline run FILE` runs it; docs/pipelines.md tells the rest.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from odradek.pipelines.pipeline import Pipeline
    from odradek.pipelines.testing import PipelineTest

__all__ = ["Pipeline", "PipelineTest"]


def __getattr__(name: str) -> object:
    """Imported when it is asked for: the commands that only look do not need Spark."""
    from importlib import import_module

    if name in __all__:
        return getattr(import_module(f"odradek.pipelines.{'testing' if name == 'PipelineTest' else 'pipeline'}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
