import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Groups of Kafka's own consumers: what they leave in the coordinators' logs. */
public class Groups {
    static Properties properties(JsonNode request) {
        Properties properties = Clients.properties(request);
        properties.put("group.id", request.get("group").asText());
        properties.put("auto.offset.reset", "earliest");
        return properties;
    }

    /** Joins a group, reads at least so many records of a topic, commits and leaves. */
    public static JsonNode consume(JsonNode request) throws Exception {
        int count = 0;
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties(request), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(request.get("topic").asText()));
            while (count < request.get("count").asInt())
                count += consumer.poll(Duration.ofMillis(100)).count();
            consumer.commitSync();
        }
        return Oracle.JSON.getNodeFactory().numberNode(count);
    }

    /** Commits an offset of a group in a transaction. */
    public static JsonNode commitInTransaction(JsonNode request) throws Exception {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), 0);
        Properties properties = properties(request);
        properties.put("enable.auto.commit", "false");
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(Clients.properties(request), new ByteArraySerializer(), new ByteArraySerializer());
             KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(partition, new OffsetAndMetadata(1, "näher")), consumer.groupMetadata());
            producer.commitTransaction();
        }
        return Oracle.JSON.nullNode();
    }

    /** Reads at least so many records of a topic with a share group, which acknowledges them. */
    public static JsonNode share(JsonNode request) throws Exception {
        String group = request.get("group").asText();
        try (Admin admin = Admin.create(Clients.properties(request))) {
            AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), List.of(earliest))).all().get();
        }
        Properties properties = properties(request);
        properties.remove("auto.offset.reset");
        int count = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                 new KafkaShareConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(request.get("topic").asText()));
            while (count < request.get("count").asInt())
                count += consumer.poll(Duration.ofMillis(100)).count();
            consumer.commitSync();
        }
        return Oracle.JSON.getNodeFactory().numberNode(count);
    }
}
