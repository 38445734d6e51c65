"""Spark: topics as a source and a sink, `format("odradek")`."""
