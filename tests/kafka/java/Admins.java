import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.config.ConfigResource;

/** What an administrator sees of a running cluster. */
public class Admins {
    /** Topics with their ids, partitions with leaders, the topics' own configs, and the finalized features. */
    public static JsonNode cluster(JsonNode request) throws Exception {
        ObjectNode seen = Oracle.JSON.createObjectNode();
        try (Admin admin = Admin.create(Clients.properties(request))) {
            Set<String> names = admin.listTopics().names().get();
            ObjectNode topics = seen.putObject("topics");
            for (TopicDescription topic : new TreeMap<>(admin.describeTopics(names).allTopicNames().get()).values()) {
                ObjectNode node = topics.putObject(topic.name());
                node.put("id", topic.topicId().toString());
                ArrayNode leaders = node.putArray("leaders");
                topic.partitions().forEach(partition -> leaders.add(partition.leader() == null ? -1 : partition.leader().id()));
                ObjectNode configs = node.putObject("configs");
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic.name());
                for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries())
                    if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                        configs.put(entry.name(), entry.value());
            }
            ObjectNode features = seen.putObject("features");
            new TreeMap<>(admin.describeFeatures().featureMetadata().get().finalizedFeatures())
                .forEach((name, range) -> features.put(name, range.maxVersionLevel()));
            seen.put("leader_epoch", admin.describeMetadataQuorum().quorumInfo().get().leaderEpoch());
        }
        return seen;
    }
}
