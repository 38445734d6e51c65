"""Totals of orders, for each customer and minute: in a topic as they become final, and as Parquet."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipelines import Pipeline

totals = Pipeline("order-totals", bad_records="bad-orders")
orders = totals.topic("orders", value="order_id string, customer string, amount double, at timestamp")


def per_minute() -> DataFrame:
    windows = orders.withWatermark("at", "10 seconds").groupBy(F.window("at", "1 minute"), "customer")
    return windows.agg(F.sum("amount").alias("total"), F.count("*").alias("orders"))


@totals.to_topic("order-totals", key="customer")
def to_topic() -> DataFrame:
    return per_minute()


@totals.to_files("order-totals.parquet")
def to_files() -> DataFrame:
    return per_minute().select("window.start", "customer", "total", "orders")
