import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/** Record batches as Apache Kafka reads and writes them: bytes as hex, records as
 * {"offset", "timestamp", "key", "value", "headers": [[name, value], ...]}. */
public class Batches {
    /** All batches of {"hex"}, each checked as a broker does, with its records. */
    public static JsonNode read(JsonNode request) {
        ArrayNode batches = Oracle.JSON.createArrayNode();
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(Oracle.unhex(request.get("hex")))).batches()) {
            batch.ensureValid();
            ObjectNode node = batches.addObject();
            node.put("base_offset", batch.baseOffset()).put("last_offset", batch.lastOffset()).put("next_offset", batch.nextOffset());
            node.put("leader_epoch", batch.partitionLeaderEpoch()).put("size", batch.sizeInBytes()).put("crc", batch.checksum());
            node.put("codec", batch.compressionType().id).put("max_timestamp", batch.maxTimestamp());
            node.put("log_append_time", batch.timestampType() == TimestampType.LOG_APPEND_TIME);
            node.put("transactional", batch.isTransactional()).put("control", batch.isControlBatch());
            node.put("producer_id", batch.producerId()).put("producer_epoch", batch.producerEpoch());
            node.put("base_sequence", batch.baseSequence()).put("last_sequence", batch.lastSequence());
            node.put("record_count", batch.countOrNull());
            batch.deleteHorizonMs().ifPresentOrElse(time -> node.put("delete_horizon_ms", time), () -> node.putNull("delete_horizon_ms"));
            ArrayNode records = node.putArray("records");
            for (Record record : batch)
                write(record, records.addObject());
        }
        return batches;
    }

    private static void write(Record record, ObjectNode node) {
        record.ensureValid();
        node.put("offset", record.offset()).put("timestamp", record.timestamp());
        node.put("key", record.hasKey() ? Oracle.hex(record.key()) : null);
        node.put("value", record.hasValue() ? Oracle.hex(record.value()) : null);
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers())
            headers.addArray().add(header.key()).add(header.value() == null ? null : HexFormat.of().formatHex(header.value()));
    }

    /** The batch that Kafka's builder makes of {"records", "codec", "level", ...}; null where a setting is not given. */
    public static JsonNode build(JsonNode request) {
        ByteBufferOutputStream bytes = new ByteBufferOutputStream(1024);
        boolean control = request.get("control").asBoolean();
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(bytes, RecordBatch.MAGIC_VALUE_V2, compression(request),
            request.get("log_append_time").isNull() ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME,
            request.get("base_offset").asLong(), request.get("log_append_time").asLong(RecordBatch.NO_TIMESTAMP),
            request.get("producer_id").asLong(), (short) request.get("producer_epoch").asInt(), request.get("base_sequence").asInt(),
            request.get("transactional").asBoolean(), control, request.get("leader_epoch").asInt(), Integer.MAX_VALUE,
            request.get("delete_horizon_ms").asLong(RecordBatch.NO_TIMESTAMP));
        for (JsonNode record : request.get("records")) {
            SimpleRecord simple = new SimpleRecord(record.get("timestamp").asLong(), bytes(record.get("key")),
                bytes(record.get("value")), headers(record.get("headers")));
            if (control)
                builder.appendControlRecordWithOffset(record.get("offset").asLong(), simple);
            else
                builder.appendWithOffset(record.get("offset").asLong(), simple);
        }
        if (!request.get("last_offset").isNull())
            builder.overrideLastOffset(request.get("last_offset").asLong());
        return hex(builder.build());
    }

    private static Compression compression(JsonNode request) {
        int level = request.get("level").asInt();
        CompressionType codec = CompressionType.forId(request.get("codec").asInt());
        if (request.get("level").isNull())
            return Compression.of(codec).build();
        switch (codec) {
            case GZIP: return Compression.gzip().level(level).build();
            case LZ4: return Compression.lz4().level(level).build();
            case ZSTD: return Compression.zstd().level(level).build();
            default: throw new IllegalArgumentException(codec + " has no levels");
        }
    }

    private static Header[] headers(JsonNode node) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : node)
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        return headers.toArray(new Header[0]);
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Oracle.unhex(node);
    }

    private static JsonNode hex(MemoryRecords records) {
        return TextNode.valueOf(Oracle.hex(records.buffer()));
    }

    /** The batch that ends a transaction. */
    public static JsonNode endMarker(JsonNode request) {
        ControlRecordType type = request.get("commit").asBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return hex(MemoryRecords.withEndTransactionMarker(request.get("base_offset").asLong(), request.get("timestamp").asLong(),
            request.get("leader_epoch").asInt(), request.get("producer_id").asLong(), (short) request.get("producer_epoch").asInt(),
            new EndTransactionMarker(type, request.get("coordinator_epoch").asInt())));
    }

    /** What Kafka reads in the end marker {"hex"}. */
    public static JsonNode readEndMarker(JsonNode request) {
        Record record = MemoryRecords.readableRecords(ByteBuffer.wrap(Oracle.unhex(request.get("hex")))).records().iterator().next();
        EndTransactionMarker marker = EndTransactionMarker.deserialize(record);
        return Oracle.JSON.createArrayNode().add(marker.controlType().type()).add(marker.coordinatorEpoch());
    }

    /** The header that compaction leaves of the batch {"hex"} when it takes all its records. */
    public static JsonNode empty(JsonNode request) {
        MutableRecordBatch batch =
            MemoryRecords.readableRecords(ByteBuffer.wrap(Oracle.unhex(request.get("hex")))).batches().iterator().next();
        ByteBuffer bytes = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(bytes, batch.magic(), batch.producerId(), batch.producerEpoch(), batch.baseSequence(),
            batch.baseOffset(), batch.lastOffset(), batch.partitionLeaderEpoch(), batch.timestampType(), batch.maxTimestamp(),
            batch.isTransactional(), batch.isControlBatch());
        bytes.flip();
        return TextNode.valueOf(Oracle.hex(bytes));
    }

    /** The batch {"hex"} after a leader has set offset, epoch, and max timestamp. */
    public static JsonNode stamp(JsonNode request) {
        ByteBuffer bytes = ByteBuffer.wrap(Oracle.unhex(request.get("hex")));
        MutableRecordBatch batch = MemoryRecords.readableRecords(bytes).batches().iterator().next();
        batch.setLastOffset(request.get("last_offset").asLong());
        batch.setPartitionLeaderEpoch(request.get("leader_epoch").asInt());
        batch.setMaxTimestamp(request.get("log_append_time").asBoolean() ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            request.get("max_timestamp").asLong());
        return TextNode.valueOf(Oracle.hex(bytes));
    }

    /** The sequence {"count"} after {"sequence"}. */
    public static JsonNode sequenceAfter(JsonNode request) {
        int next = DefaultRecordBatch.incrementSequence(request.get("sequence").asInt(), request.get("count").asInt());
        return Oracle.JSON.getNodeFactory().numberNode(next);
    }

    /** A codec's bytes {"hex"} decompressed by Kafka's own stream. */
    public static JsonNode decompress(JsonNode request) throws Exception {
        Compression compression = Compression.of(CompressionType.forId(request.get("codec").asInt())).build();
        ByteBuffer bytes = ByteBuffer.wrap(Oracle.unhex(request.get("hex")));
        try (java.io.InputStream stream = compression.wrapForInput(bytes, RecordBatch.MAGIC_VALUE_V2,
                org.apache.kafka.common.utils.BufferSupplier.create())) {
            return TextNode.valueOf(HexFormat.of().formatHex(stream.readAllBytes()));
        }
    }

    /** {"hex"} compressed by Kafka's own stream. */
    public static JsonNode compress(JsonNode request) throws Exception {
        ByteBufferOutputStream bytes = new ByteBufferOutputStream(1024);
        try (java.io.OutputStream stream = compression(request).wrapForOutput(bytes, RecordBatch.MAGIC_VALUE_V2)) {
            stream.write(Oracle.unhex(request.get("hex")));
        }
        bytes.buffer().flip();
        return TextNode.valueOf(Oracle.hex(bytes.buffer()));
    }
}
