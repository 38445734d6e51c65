import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** One partition of a running broker as Kafka's own clients see it, what an administrator does to it, and producers that outlive a call.
 * Records are rows [offset, timestamp, key, value, [[name, value], ...]]. */
public class Partitions {
    static final long WAIT_MS_MAX = 60_000;
    static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();
    static volatile Stream stream;

    static TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    /** All records from the beginning to the end that the isolation level allows. */
    public static JsonNode read(JsonNode request) throws Exception {
        ArrayNode rows = Oracle.JSON.createArrayNode();
        TopicPartition partition = partition(request);
        Properties properties = Clients.properties(request);
        properties.put("check.crcs", "true");
        properties.put("fetch.max.wait.ms", "10"); // a consumer that closes waits for its last fetch
        properties.put("isolation.level", request.get("isolation").asText());
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long deadline = System.currentTimeMillis() + WAIT_MS_MAX;
            while (consumer.position(partition) < end) {
                if (System.currentTimeMillis() > deadline)
                    throw new IllegalStateException("the consumer stays at " + consumer.position(partition) + ", the end is " + end);
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200)))
                    write(record, rows.addArray());
            }
        }
        return rows;
    }

    static void write(ConsumerRecord<byte[], byte[]> record, ArrayNode row) {
        row.add(record.offset()).add(record.timestamp()).add(Clients.hex(record.key())).add(Clients.hex(record.value()));
        ArrayNode headers = row.addArray();
        for (Header header : record.headers())
            headers.addArray().add(header.key()).add(Clients.hex(header.value()));
    }

    /** What ListOffsets answers: `start`, `end`, `stable`, `latest` (of the greatest timestamp) and one answer for each of `timestamps`,
     * each as [offset, timestamp, leader epoch]. */
    public static JsonNode offsets(JsonNode request) throws Exception {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        try (Admin admin = Admin.create(Clients.properties(request))) {
            TopicPartition partition = partition(request);
            IsolationLevel uncommitted = IsolationLevel.READ_UNCOMMITTED;
            answer.set("start", offset(admin, partition, OffsetSpec.earliest(), uncommitted));
            answer.set("end", offset(admin, partition, OffsetSpec.latest(), uncommitted));
            answer.set("stable", offset(admin, partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
            answer.set("latest", offset(admin, partition, OffsetSpec.maxTimestamp(), uncommitted));
            ArrayNode found = answer.putArray("found");
            for (JsonNode timestamp : request.get("timestamps"))
                found.add(offset(admin, partition, OffsetSpec.forTimestamp(timestamp.asLong()), uncommitted));
        }
        return answer;
    }

    static ArrayNode offset(Admin admin, TopicPartition partition, OffsetSpec spec, IsolationLevel isolation) throws Exception {
        var info = admin.listOffsets(Map.of(partition, spec), new ListOffsetsOptions(isolation)).partitionResult(partition).get();
        return Oracle.JSON.createArrayNode().add(info.offset()).add(info.timestamp()).add(info.leaderEpoch().orElse(-1));
    }

    /** Deletes the records below an offset; gives where the partition begins then. */
    public static JsonNode deleteBefore(JsonNode request) throws Exception {
        TopicPartition partition = partition(request);
        RecordsToDelete below = RecordsToDelete.beforeOffset(request.get("offset").asLong());
        try (Admin admin = Admin.create(Clients.properties(request))) {
            return new LongNode(admin.deleteRecords(Map.of(partition, below)).lowWatermarks().get(partition).get().lowWatermark());
        }
    }

    /** Changes settings of a topic, and waits until the broker has them. */
    public static JsonNode configure(JsonNode request) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, request.get("topic").asText());
        List<AlterConfigOp> changes = new ArrayList<>();
        for (Map.Entry<String, JsonNode> config : request.get("configs").properties())
            changes.add(new AlterConfigOp(new ConfigEntry(config.getKey(), config.getValue().asText()), AlterConfigOp.OpType.SET));
        try (Admin admin = Admin.create(Clients.properties(request))) {
            admin.incrementalAlterConfigs(Map.of(topic, changes)).all().get();
            long deadline = System.currentTimeMillis() + WAIT_MS_MAX;
            while (!has(admin.describeConfigs(List.of(topic)).all().get().get(topic), changes))
                if (System.currentTimeMillis() > deadline)
                    throw new IllegalStateException("the broker does not take " + changes);
        }
        return Oracle.JSON.nullNode();
    }

    static boolean has(Config config, List<AlterConfigOp> changes) {
        return changes.stream().allMatch(change -> config.get(change.configEntry().name()).value().equals(change.configEntry().value()));
    }

    public static JsonNode topicId(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        try (Admin admin = Admin.create(Clients.properties(request))) {
            return new TextNode(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId().toString());
        }
    }

    /** Sends rows [timestamp, key, value] with a producer that stays as it is until `forget`; gives their offsets. */
    public static JsonNode send(JsonNode request) throws Exception {
        boolean isNew = !PRODUCERS.containsKey(request.get("producer").asText());
        KafkaProducer<byte[], byte[]> producer = PRODUCERS.computeIfAbsent(request.get("producer").asText(),
            name -> new KafkaProducer<>(Clients.properties(request), new ByteArraySerializer(), new ByteArraySerializer()));
        if (isNew && request.path("settings").has("transactional.id")) {
            producer.initTransactions();
            producer.beginTransaction();
        }
        ArrayNode offsets = Oracle.JSON.createArrayNode();
        for (JsonNode row : request.get("rows"))
            offsets.add(producer.send(record(request, row)).get().offset());
        return offsets;
    }

    static ProducerRecord<byte[], byte[]> record(JsonNode request, JsonNode row) {
        return new ProducerRecord<>(request.get("topic").asText(), request.get("partition").asInt(), row.get(0).asLong(),
            Clients.bytes(row.get(1)), Clients.bytes(row.get(2)));
    }

    /** Drops a producer where it stands: an open transaction is neither committed nor aborted. */
    public static JsonNode forget(JsonNode request) {
        PRODUCERS.remove(request.get("producer").asText()).close(Duration.ZERO);
        return Oracle.JSON.nullNode();
    }

    /** Begins to send records to a partition without an end; `sent` tells how many were acknowledged until now. */
    public static JsonNode startStream(JsonNode request) {
        stream = new Stream(request);
        stream.start();
        return Oracle.JSON.nullNode();
    }

    public static JsonNode sent(JsonNode request) {
        return new LongNode(stream.acknowledged());
    }

    /** Ends it at once; gives the records that were acknowledged. */
    public static JsonNode stopStream(JsonNode request) throws Exception {
        stream.stopped = true;
        stream.producer.close(Duration.ZERO);
        stream.join();
        synchronized (stream.rows) {
            return stream.rows;
        }
    }

    static class Stream extends Thread {
        static final int UNANSWERED_MAX = 50;
        final JsonNode request;
        final KafkaProducer<byte[], byte[]> producer;
        final ArrayNode rows = Oracle.JSON.createArrayNode();
        final java.util.concurrent.Semaphore unanswered = new java.util.concurrent.Semaphore(UNANSWERED_MAX);
        volatile boolean stopped;

        Stream(JsonNode request) {
            this.request = request;
            producer = new KafkaProducer<>(Clients.properties(request), new ByteArraySerializer(), new ByteArraySerializer());
            setDaemon(true);
        }

        int acknowledged() {
            synchronized (rows) {
                return rows.size();
            }
        }

        @Override
        public void run() {
            long timestamp = request.get("timestamp").asLong();
            try {
                for (int number = 0; !stopped; number++) {
                    unanswered.acquire();
                    send(timestamp + number, ("value-" + number).repeat(10).getBytes());
                }
            } catch (InterruptedException | RuntimeException error) {
                if (!stopped)
                    throw new IllegalStateException(error);
            }
        }

        void send(long timestamp, byte[] value) {
            TopicPartition to = partition(request);
            producer.send(new ProducerRecord<>(to.topic(), to.partition(), timestamp, null, value), (metadata, error) -> {
                if (error == null)
                    synchronized (rows) {
                        ArrayNode row = rows.addArray().add(metadata.offset()).add(timestamp).addNull().add(Clients.hex(value));
                        row.addArray();
                    }
                unanswered.release();
            });
        }
    }
}
