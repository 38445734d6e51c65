import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.IntNode;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Groups whose members share the records of a partition. */
public class ShareGroups {
    static final long WAIT_MS_MAX = 60_000;

    /** Reads and acknowledges at least one record of a topic; gives how many. */
    public static JsonNode read(JsonNode request) throws Exception {
        String group = request.get("group").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
        try (Admin admin = Admin.create(Clients.properties(request))) {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
        }
        Properties properties = Clients.properties(request);
        properties.put("group.id", group);
        int count = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                 new KafkaShareConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(request.get("topic").asText()));
            long deadline = System.currentTimeMillis() + WAIT_MS_MAX;
            while (count == 0) {
                if (System.currentTimeMillis() > deadline)
                    throw new IllegalStateException("nothing was read");
                count += consumer.poll(Duration.ofMillis(200)).count();
            }
            consumer.commitSync();
        }
        return new IntNode(count);
    }
}
