import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers by number, each with a member of a group where it transforms. */
public class Transactions {
    static final Duration POLL = Duration.ofMillis(100);
    static final Map<Integer, Transactions> OPEN = new HashMap<>();

    final Properties reading;
    final KafkaProducer<byte[], byte[]> producer;
    KafkaConsumer<byte[], byte[]> consumer;

    Transactions(JsonNode request) {
        reading = new Properties();
        reading.put("bootstrap.servers", request.get("bootstrap").asText());
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("isolation.level", "read_committed");
        producer = new KafkaProducer<>(Clients.properties(request), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static Transactions of(JsonNode request) {
        return OPEN.get(request.get("number").asInt());
    }

    /** A producer that has its transactional id from now on. */
    public static JsonNode open(JsonNode request) {
        Transactions opened = new Transactions(request);
        OPEN.put(request.get("number").asInt(), opened);
        opened.producer.initTransactions();
        return Oracle.JSON.nullNode();
    }

    public static JsonNode begin(JsonNode request) {
        of(request).producer.beginTransaction();
        return Oracle.JSON.nullNode();
    }

    /** Until all values are acknowledged. */
    public static JsonNode send(JsonNode request) throws Throwable {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode value : request.get("values"))
            sent.add(of(request).producer.send(new ProducerRecord<>(request.get("topic").asText(), request.get("partition").asInt(),
                null, value.asText().getBytes(StandardCharsets.UTF_8))));
        try {
            for (Future<RecordMetadata> each : sent)
                each.get();
        } catch (ExecutionException error) {
            throw error.getCause();
        }
        return Oracle.JSON.nullNode();
    }

    /** The next `count` values of a topic, for a group. */
    public static JsonNode consume(JsonNode request) {
        Transactions by = of(request);
        if (by.consumer == null) {
            by.reading.put("group.id", request.get("group").asText());
            by.reading.put("max.poll.records", request.get("count").asText());
            by.consumer = new KafkaConsumer<>(by.reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            by.consumer.subscribe(List.of(request.get("topic").asText()));
        }
        ArrayNode values = Oracle.JSON.createArrayNode();
        while (values.size() < request.get("count").asInt())
            for (ConsumerRecord<byte[], byte[]> record : by.consumer.poll(POLL))
                values.add(new String(record.value(), StandardCharsets.UTF_8));
        return values;
    }

    /** Where it is in what it consumes. */
    public static JsonNode sendOffsets(JsonNode request) {
        Transactions by = of(request);
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        by.consumer.assignment().forEach(each -> positions.put(each, new OffsetAndMetadata(by.consumer.position(each))));
        by.producer.sendOffsetsToTransaction(positions, by.consumer.groupMetadata());
        return Oracle.JSON.nullNode();
    }

    public static JsonNode commit(JsonNode request) {
        of(request).producer.commitTransaction();
        return Oracle.JSON.nullNode();
    }

    public static JsonNode abort(JsonNode request) {
        of(request).producer.abortTransaction();
        return Oracle.JSON.nullNode();
    }

    /** One transaction after the other, each a pause after the one before was due: how long commitTransaction took, and the whole, in nanoseconds. */
    public static JsonNode pace(JsonNode request) throws Exception {
        KafkaProducer<byte[], byte[]> producer = of(request).producer;
        byte[] value = new byte[request.get("bytes").asInt()];
        ArrayNode commits = Oracle.JSON.createArrayNode(), whole = Oracle.JSON.createArrayNode();
        long dueNs = System.nanoTime();
        for (int left = request.get("count").asInt(); left > 0; left--) {
            dueNs += request.get("pause_ns").asLong();
            LockSupport.parkNanos(dueNs - System.nanoTime());
            long beganNs = System.nanoTime();
            producer.beginTransaction();
            for (int record = request.get("records").asInt(); record > 0; record--)
                producer.send(new ProducerRecord<>(request.get("topic").asText(), value));
            long committedNs = System.nanoTime();
            producer.commitTransaction();
            commits.add(System.nanoTime() - committedNs);
            whole.add(System.nanoTime() - beganNs);
        }
        return Oracle.JSON.createArrayNode().add(commits).add(whole);
    }

    public static JsonNode close(JsonNode request) {
        Transactions closed = OPEN.remove(request.get("number").asInt());
        if (closed.consumer != null)
            closed.consumer.close();
        closed.producer.close();
        return Oracle.JSON.nullNode();
    }
}
