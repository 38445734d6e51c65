import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients against a running broker. */
public class Clients {
    static Properties properties(JsonNode request) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", request.get("bootstrap").asText());
        for (Map.Entry<String, JsonNode> setting : request.path("settings").properties())
            properties.put(setting.getKey(), setting.getValue().asText());
        return properties;
    }

    static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Oracle.unhex(node);
    }

    static String hex(byte[] bytes) {
        return bytes == null ? null : java.util.HexFormat.of().formatHex(bytes);
    }

    /** Makes a topic: name, partitions, configs. */
    public static JsonNode create(JsonNode request) throws Exception {
        Map<String, String> configs = new java.util.HashMap<>();
        for (Map.Entry<String, JsonNode> config : request.path("configs").properties())
            configs.put(config.getKey(), config.getValue().asText());
        try (Admin admin = Admin.create(properties(request))) {
            NewTopic topic = new NewTopic(request.get("topic").asText(), Optional.of(request.get("partitions").asInt()), Optional.empty());
            admin.createTopics(List.of(topic.configs(configs))).all().get();
        }
        return Oracle.JSON.nullNode();
    }

    /** Sends rows [timestamp, key, value], in one transaction that is committed or aborted where `end` says so. */
    public static JsonNode produce(JsonNode request) throws Exception {
        ArrayNode offsets = Oracle.JSON.createArrayNode();
        String end = request.path("end").asText("");
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(properties(request), new ByteArraySerializer(), new ByteArraySerializer())) {
            if (!end.isEmpty()) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            List<Future<org.apache.kafka.clients.producer.RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode row : request.get("rows"))
                sent.add(producer.send(new ProducerRecord<>(request.get("topic").asText(), request.get("partition").asInt(),
                    row.get(0).asLong(), bytes(row.get(1)), bytes(row.get(2)))));
            producer.flush();
            for (var future : sent)
                offsets.add(future.get().offset());
            if (end.equals("commit"))
                producer.commitTransaction();
            else if (end.equals("abort"))
                producer.abortTransaction();
        }
        return offsets;
    }

    /** Reads a partition from its beginning to its end: rows [offset, timestamp, key, value]. */
    public static JsonNode consume(JsonNode request) throws Exception {
        ArrayNode rows = Oracle.JSON.createArrayNode();
        Properties properties = properties(request);
        properties.put("check.crcs", "true");
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end)
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200)))
                    rows.add(Oracle.JSON.createArrayNode().add(record.offset()).add(record.timestamp())
                        .add(hex(record.key())).add(hex(record.value())));
        }
        return rows;
    }
}
