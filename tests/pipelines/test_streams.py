"""What streams can be made into: joins of both kinds, branches, merges, tables, SQL, keys."""

import io
import json
from collections.abc import Iterator

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from odradek.client.admin.configs import Resource, ResourceKind
from odradek.pipelines import Pipeline, PipelineTest
from odradek.pipelines.pruning import attributes
from odradek.sync import Admin, Producer

ORDER = "id string, customer string, amount double, at timestamp"
MEASURE = {"type": "record", "name": "Measure", "fields": [{"name": "celsius", "type": "double"}]}
PLACES = ("words", "mirrored")
PAYMENT = "order_id string, paid double, at timestamp"


def joins() -> Pipeline:
    pipeline = Pipeline("joins")
    orders = pipeline.topic("orders", value=ORDER)
    payments = pipeline.topic("payments", value=PAYMENT)
    customers = pipeline.latest("customers", value="name string, city string")

    @pipeline.to_topic("paid", key="id")
    def with_payments() -> DataFrame:
        left = orders.select("id", "amount", F.col("at").alias("ordered_at")).withWatermark("ordered_at", "10 minutes")
        right = payments.select("order_id", "paid", F.col("at").alias("paid_at")).withWatermark("paid_at", "10 minutes")
        soon = "id = order_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 5 MINUTES"
        return left.join(right, F.expr(soon)).select("id", "amount", "paid")

    @pipeline.to_topic("with-cities", key="id")
    def with_customers() -> DataFrame:
        return orders.join(customers, orders.customer == customers._key, "left").select("id", "name", "city")

    return pipeline


def shapes() -> Pipeline:
    pipeline = Pipeline("shapes")
    orders = pipeline.topic("orders", value=ORDER)
    others = pipeline.topic("other.orders-2", value=ORDER)
    words = pipeline.topic("words", value="string")
    known = pipeline.latest("known", value="string")

    @pipeline.to_topic()
    def branches() -> DataFrame:
        return orders.select("id", "amount", F.when(orders.amount > 10, "large").otherwise("small").alias("topic"))

    @pipeline.to_topic("all")
    def merged() -> DataFrame:
        return orders.unionByName(others)

    @pipeline.to_topic("all", key=["id", "customer"], name="more-of-all")
    def again() -> DataFrame:
        return others.select("id", "customer", F.lit(0).alias("again"))

    large = pipeline.sql("SELECT id, amount FROM `other.orders-2` WHERE amount > 10")
    pipeline.to_topic("large-others", key=F.concat(F.lit("nr "), F.col("id")))(lambda: large)

    @pipeline.to_topic("counted", key="customer", emit="changes")
    def counted() -> DataFrame:
        query = "SELECT customer, count(*) AS n FROM other_orders_2 JOIN known ON known._key = customer GROUP BY customer"
        return pipeline.sql(query, known=known)

    @pipeline.to_topic("loud-words")
    def loud() -> DataFrame:
        return words.where("value <> ''").withColumn("value", F.upper("value"))

    @pipeline.table("totals", key="customer")
    def totals() -> DataFrame:
        found = orders.groupBy("customer").agg(F.sum("amount").alias("total"))
        return found.withColumn("_deleted", F.col("total") == 0)

    return pipeline


def sensors() -> Pipeline:
    pipeline = Pipeline("sensors")
    found = pipeline.topic(pattern="sensor-.*", value=json.dumps(MEASURE), format="avro", key="binary")

    @pipeline.to_topic("measures")
    def measures() -> DataFrame:
        said = F.col("_headers")[0].value.cast("string").alias("said")
        return found.select("celsius", "_key", F.col("_topic").alias("place"), F.col("_offset").alias("nr"), "_timestamp", said)

    return pipeline


def mirror() -> Pipeline:
    """Each task has the rows of one partition, which go to the partition of the same number."""
    pipeline = Pipeline("mirror", trigger="1 second", properties={"client.id": "mirror", "compression.type": "lz4"})
    words = pipeline.topic("words", value="string")

    @pipeline.to_topic("mirrored", co_partitioned=True)
    def same() -> DataFrame:
        return words.select("value", F.col("_key").alias("key"), F.col("_partition").alias("partition"))

    return pipeline


def at_least_once() -> Pipeline:
    pipeline = Pipeline("loose", delivery="at-least-once", bad_records="loose-letters")
    orders = pipeline.topic("orders", value=ORDER)

    @pipeline.to_topic("loose", key="customer", emit="changes")
    def counted() -> DataFrame:
        return orders.groupBy("customer").count()

    @pipeline.to_topic("loose-ids", key="id")
    def ids() -> DataFrame:
        return orders.select("id")

    return pipeline


def order(number: int, customer: str, amount: float) -> dict[str, object]:
    return {"id": str(number), "customer": customer, "amount": amount, "at": f"2024-05-17T10:{number:02}:00Z"}


@pytest.fixture(scope="module")
def ran(spark: SparkSession) -> Iterator[PipelineTest]:
    with PipelineTest(joins(), shapes(), sensors(), mirror(), at_least_once(), partitions=2) as test:
        with Producer(test.bootstrap) as producer:
            for place in ("sensor-attic", "sensor-cellar", "other"):
                producer.send(place, measured(21.5), key=b"\xff", headers={"by": b"me"})
        test.send("customers", {"name": "Ann", "city": "Nowhere"}, key="ann")
        test.send("customers", {"name": "Ann", "city": "Rome"}, key="ann")
        test.send("customers", {"name": "Bob", "city": "Oslo"}, None, key="bob")
        test.send("orders", order(1, "ann", 5.0), order(2, "bob", 50.0), key="k")
        test.send("payments", {"order_id": "1", "paid": 5.0, "at": "2024-05-17T10:04:00Z"})
        test.send("payments", {"order_id": "2", "paid": 5.0, "at": "2024-05-17T10:40:00Z"})
        test.send("other.orders-2", order(1, "eve", 11.0), order(3, "eve", 1.0), order(5, "mia", 1.0), key="o")
        test.send("known", "a friend", key="eve")
        test.send("words", "a", "", "b", key="w")
        test.run()
        test.send("orders", order(4, "ann", -5.0), key="k")
        test.run()
        yield test


def measured(celsius: float) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, MEASURE, {"celsius": celsius})
    return data.getvalue()


def rows(test: PipelineTest, topic: str) -> list[tuple[object, ...]]:
    return sorted(tuple(each.values()) for each in test.values(topic))


def test_two_streams_are_joined_within_a_time(ran: PipelineTest) -> None:
    assert rows(ran, "paid") == [("1", 5.0, 5.0)]


def test_a_stream_is_joined_with_the_latest_values_of_a_topic_without_deleted_ones(ran: PipelineTest) -> None:
    assert rows(ran, "with-cities") == [("1", "Ann", "Rome"), ("2",), ("4", "Ann", "Rome")]


def test_a_column_topic_says_where_each_row_goes_and_is_no_part_of_its_value(ran: PipelineTest) -> None:
    assert rows(ran, "small") == [("1", 5.0), ("4", -5.0)]
    assert rows(ran, "large") == [("2", 50.0)]


def test_merged_streams_keep_their_keys_and_where_rows_came_from_is_not_in_values(ran: PipelineTest) -> None:
    found = {(record.key, *value.values()) for record, value in zip(ran.records("all"), ran.values("all"))}
    ours = {
        (b"k", "1", "ann"),
        (b"k", "2", "bob"),
        (b"k", "4", "ann"),
        (b"o", "1", "eve"),
        (b"o", "3", "eve"),
        (b"o", "5", "mia"),
    }
    assert {each[:3] for each in found if len(each) == 5} == ours


def test_two_outputs_write_to_one_topic_under_names_of_their_own_and_a_key_may_have_several_columns(ran: PipelineTest) -> None:
    found = {record.key: value for record, value in zip(ran.records("all"), ran.values("all")) if "again" in value}
    assert found[b'{"id":"3","customer":"eve"}'] == {"id": "3", "customer": "eve", "again": 0}


def test_sql_is_over_topics_as_tables_and_a_key_is_any_expression(ran: PipelineTest) -> None:
    assert rows(ran, "large-others") == [("1", 11.0)]
    assert [record.key for record in ran.records("large-others")] == [b"nr 1"]


def test_sql_takes_other_frames_by_name(ran: PipelineTest) -> None:
    assert rows(ran, "counted") == [("eve", 2)]


def test_a_frame_with_a_value_is_written_as_it_is(ran: PipelineTest) -> None:
    assert sorted((record.key, record.value) for record in ran.records("loud-words")) == [(b"w", b"A"), (b"w", b"B")]


def test_rows_that_are_together_already_are_written_where_they_are(ran: PipelineTest) -> None:
    places = [[(record.partition, record.offset, record.key, record.value) for record in ran.records(topic)] for topic in PLACES]
    assert places[0] == places[1]
    assert len(places[0]) == 3


def test_topics_are_found_by_a_pattern_values_are_avro_and_where_they_come_from_is_known(ran: PipelineTest) -> None:
    assert rows(ran, "measures") == [(21.5, "sensor-attic", 0, "me"), (21.5, "sensor-cellar", 0, "me")]
    assert {record.key for record in ran.records("measures")} == {b"\xff"}


def test_a_table_is_a_compacted_topic_with_a_tombstone_for_a_deleted_row(ran: PipelineTest) -> None:
    found = {key: [record.value for record in ran.records("totals") if record.key == key] for key in (b"ann", b"bob")}
    assert found == {b"ann": [b'{"customer":"ann","total":5.0}', None], b"bob": [b'{"customer":"bob","total":50.0}']}
    with Admin(ran.bootstrap) as admin:
        (configs,) = admin.describe_configs([Resource(ResourceKind.TOPIC, "totals")], names=["cleanup.policy"]).values()
    assert configs["cleanup.policy"].value == "compact"


def test_at_least_once_writes_changes_too_and_tells_the_group_how_far_it_is(ran: PipelineTest) -> None:
    assert rows(ran, "loose") == [("ann", 1), ("ann", 2), ("bob", 1)]
    assert rows(ran, "loose-ids") == [("1",), ("2",), ("4",)]
    with Admin(ran.bootstrap) as admin:
        found = admin.list_group_offsets(["loose"])["loose"]
    assert sum(each.offset for each in found.values()) >= 2


def test_exactly_once_commits_how_far_it_is_with_its_results(ran: PipelineTest) -> None:
    with Admin(ran.bootstrap) as admin:
        found = admin.list_group_offsets(["shapes.totals"])["shapes.totals"]
    assert sum(each.offset for each in found.values()) == 3


def test_a_source_reads_only_what_its_query_needs(ran: PipelineTest) -> None:
    pipeline = next(each for each in ran.pipelines if each.name == "shapes")
    read = {}
    for output in pipeline.outputs:
        leaves = output.frame()._jdf.queryExecution().analyzed().collectLeaves()
        read[output.name] = [[*attributes(leaves.apply(index).output()).values()] for index in range(leaves.size())]
    assert read["totals"] == read["branches"] == read["large-others"] == [["value"]]
    assert read["loud-words"] == [["key", "value"]]
    assert read["all"] == [["key", "value"], ["key", "value"]]
