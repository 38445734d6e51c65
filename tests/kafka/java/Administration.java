import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The calls of Kafka's administration client, one after the other: what each said, or which exception came. `topic` has two partitions
 * with ten records in the first. */
public class Administration {
    final Admin admin;
    final ObjectNode said = Oracle.JSON.createObjectNode();
    final String topic;
    final TopicPartition first;

    interface Call {
        Object run() throws Exception;
    }

    Administration(Admin admin, String topic) {
        this.admin = admin;
        this.topic = topic;
        this.first = new TopicPartition(topic, 0);
    }

    void ask(String name, Call call) throws Exception {
        try {
            said.put(name, String.valueOf(call.run()));
        } catch (ExecutionException error) {
            said.put(name, error.getCause().getClass().getSimpleName());
        }
    }

    interface Story {
        void tell(Administration administration) throws Exception;
    }

    static JsonNode with(JsonNode request, Story story) throws Exception {
        try (Admin admin = Admin.create(Clients.properties(request))) {
            Administration administration = new Administration(admin, request.get("topic").asText());
            story.tell(administration);
            return administration.said;
        }
    }

    public static JsonNode topics(JsonNode request) throws Exception {
        return with(request, Administration::topics);
    }

    public static JsonNode configs(JsonNode request) throws Exception {
        return with(request, Administration::configs);
    }

    public static JsonNode groups(JsonNode request) throws Exception {
        return with(request, each -> each.groups(Clients.properties(request)));
    }

    public static JsonNode cluster(JsonNode request) throws Exception {
        return with(request, Administration::cluster);
    }

    NewTopic fresh(String name, int partitions) {
        return new NewTopic(name, Optional.of(partitions), Optional.empty());
    }

    void topics() throws Exception {
        String other = topic + "-other";
        NewTopic configured = fresh(other, 2).configs(Map.of("retention.ms", "1000"));
        ask("create", () -> {
            CreateTopicsResult made = admin.createTopics(List.of(configured));
            return made.numPartitions(other).get() + " " + made.replicationFactor(other).get() + " "
                + made.config(other).get().get("retention.ms").value() + " " + !made.topicId(other).get().equals(Uuid.ZERO_UUID);
        });
        ask("create again", () -> admin.createTopics(List.of(configured)).all().get());
        ask("create only in thought", () ->
            admin.createTopics(List.of(fresh(other + "-2", 1)), new CreateTopicsOptions().validateOnly(true)).all().get());
        ask("create by assignment", () -> admin.createTopics(List.of(new NewTopic(other + "-3", Map.of(0, List.of(1))))).all().get());
        ask("create with a bad configuration", () ->
            admin.createTopics(List.of(fresh(other + "-4", 1).configs(Map.of("retention.ms", "x")))).all().get());
        ask("create with a bad name", () -> admin.createTopics(List.of(fresh("a/b", 1))).all().get());
        ask("create with too many replicas", () -> admin.createTopics(List.of(new NewTopic(other + "-5", 1, (short) 9))).all().get());
        ask("list", () -> new TreeSet<>(admin.listTopics().names().get()).stream().filter(name -> name.startsWith(other)).toList());
        Uuid id = admin.describeTopics(List.of(other)).allTopicNames().get().get(other).topicId();
        ask("describe by id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name());
        ask("describe by an unknown id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(new Uuid(1, 2)))).allTopicIds().get());
        ask("describe", () -> admin.describeTopics(List.of(other), new DescribeTopicsOptions().includeAuthorizedOperations(true))
            .allTopicNames().get().get(other).partitions().stream().map(part -> part.partition() + ":" + part.leader().id()).toList());
        ask("describe none", () -> admin.describeTopics(List.of(other + "-none")).allTopicNames().get());
        ask("grow", () -> admin.createPartitions(Map.of(other, NewPartitions.increaseTo(5))).all().get());
        ask("shrink", () -> admin.createPartitions(Map.of(other, NewPartitions.increaseTo(1))).all().get());
        ask("delete by id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get());
        ask("delete by name", () -> admin.deleteTopics(List.of(other + "-3")).all().get());
        ask("delete none", () -> admin.deleteTopics(List.of(other + "-none")).all().get());
        ask("delete by an unknown id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(new Uuid(1, 2)))).all().get());
        ask("earliest", () -> offset(OffsetSpec.earliest()));
        ask("latest", () -> offset(OffsetSpec.latest()));
        ask("earliest local", () -> offset(OffsetSpec.earliestLocal()));
        ask("latest tiered", () -> offset(OffsetSpec.latestTiered()));
        ask("by time", () -> offset(OffsetSpec.forTimestamp(5)));
        ask("latest by time", () -> offset(OffsetSpec.maxTimestamp()));
        ask("delete records", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(4))).all().get());
        ask("delete too many records", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(40))).all().get());
        ask("begins at", () -> offset(OffsetSpec.earliest()));
        ask("producers", () -> admin.describeProducers(List.of(first)).all().get().get(first).activeProducers().size());
        ask("elect", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).partitions().get().get(first)
            .map(error -> error.getClass().getSimpleName()));
        ask("elect all", () -> admin.electLeaders(ElectionType.PREFERRED, null).partitions().get());
        ask("reassignments", () -> admin.listPartitionReassignments().reassignments().get());
    }

    long offset(OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(first, spec)).all().get().get(first).offset();
    }

    void alter(ConfigResource resource, String key, String value, AlterConfigOp.OpType type) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(key, value), type);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    }

    String value(ConfigResource resource, String key) throws Exception {
        return told(entry(resource, key));
    }

    ConfigEntry entry(ConfigResource resource, String key) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource).get(key);
    }

    static String told(ConfigEntry entry) {
        return entry.value() + " " + entry.source() + " " + entry.synonyms().size() + " " + (entry.documentation() != null);
    }

    /** The entry as soon as it has a value: a broker takes over what changed a little later. */
    String when(ConfigResource resource, String key, String value) throws Exception {
        long deadline = System.currentTimeMillis() + Partitions.WAIT_MS_MAX;
        ConfigEntry found;
        do {
            if (System.currentTimeMillis() > deadline)
                throw new IllegalStateException(key + " is not " + value);
            found = entry(resource, key);
        } while (found == null || !value.equals(found.value()));
        return told(found);
    }

    String change(ConfigResource resource, String key, String value, AlterConfigOp.OpType type, String after) throws Exception {
        alter(resource, key, value, type);
        return when(resource, key, after);
    }

    void configs() throws Exception {
        ConfigResource ofTopic = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigResource ofAll = new ConfigResource(ConfigResource.Type.BROKER, "");
        ConfigResource ofBroker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource ofGroup = new ConfigResource(ConfigResource.Type.GROUP, topic);
        AlterConfigOp.OpType set = AlterConfigOp.OpType.SET;
        String timeout = "consumer.session.timeout.ms";
        ask("default", () -> value(ofTopic, "retention.ms"));
        ask("set", () -> change(ofTopic, "retention.ms", "77", set, "77"));
        ask("append", () -> change(ofTopic, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND, "delete,compact"));
        ask("subtract", () -> change(ofTopic, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT, "compact"));
        ask("delete", () -> change(ofTopic, "retention.ms", null, AlterConfigOp.OpType.DELETE, "604800000"));
        ask("bad value", () -> change(ofTopic, "retention.ms", "x", set, ""));
        ask("bad key", () -> change(ofTopic, "no.such", "x", set, ""));
        ask("of no topic", () -> value(new ConfigResource(ConfigResource.Type.TOPIC, topic + "-none"), "retention.ms"));
        ask("of all brokers", () -> change(ofAll, "log.retention.ms", "88", set, "88"));
        ask("of a broker", () -> change(ofBroker, "log.retention.ms", "99", set, "99"));
        ask("inherited", () -> when(ofTopic, "retention.ms", "99"));
        ask("read only", () -> change(ofBroker, "log.dirs", "/", set, ""));
        alter(ofBroker, "log.retention.ms", null, AlterConfigOp.OpType.DELETE);
        alter(ofAll, "log.retention.ms", null, AlterConfigOp.OpType.DELETE);
        ask("of a group", () -> change(ofGroup, timeout, "50000", set, "50000"));
        ask("bad value of a group", () -> change(ofGroup, timeout, "1", set, ""));
        ask("resources", () -> admin.listConfigResources(Set.of(ConfigResource.Type.GROUP), new ListConfigResourcesOptions()).all().get());
    }

    void groups(Properties properties) throws Exception {
        properties.putAll(Map.of("group.id", topic, "client.id", "reader", "group.instance.id", "static", "auto.offset.reset", "earliest"));
        properties.put("enable.auto.commit", "false");
        var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        long deadline = System.currentTimeMillis() + Partitions.WAIT_MS_MAX;
        while (consumer.poll(java.time.Duration.ofMillis(100)).isEmpty())
            if (System.currentTimeMillis() > deadline)
                throw new IllegalStateException("nothing was read");
        consumer.commitSync(Map.of(first, new OffsetAndMetadata(3, "note")));
        ask("describe", () -> {
            ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
            return group.groupState() + " " + group.type() + " " + group.partitionAssignor() + " " + group.coordinator().id() + " "
                + group.members().stream().map(member -> member.clientId() + " " + member.groupInstanceId() + " "
                    + new TreeSet<>(member.assignment().topicPartitions().stream().map(TopicPartition::partition).toList())).toList();
        });
        ask("describe as classic", () ->
            admin.describeClassicGroups(List.of(topic)).all().get().get(topic).protocol());
        ask("list", () -> listed(new ListGroupsOptions()));
        ask("list empty ones", () -> listed(new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))));
        ask("delete a busy one", () -> admin.deleteConsumerGroups(List.of(topic)).all().get());
        ask("alter offsets of a busy one", () ->
            admin.alterConsumerGroupOffsets(topic, Map.of(first, new OffsetAndMetadata(1))).all().get());
        ask("delete offsets of a subscribed topic", () -> admin.deleteConsumerGroupOffsets(topic, Set.of(first)).all().get());
        ask("remove a member", () -> admin.removeMembersFromConsumerGroup(topic,
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("static")))).all().get());
        ask("remove a member again", () -> admin.removeMembersFromConsumerGroup(topic,
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("static")))).all().get());
        consumer.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(java.time.Duration.ZERO));
        ask("list empty ones later", () -> listed(new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))));
        ask("offsets", () -> admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().get(first).offset());
        ask("alter offsets", () -> {
            admin.alterConsumerGroupOffsets(topic, Map.of(first, new OffsetAndMetadata(7, "moved"))).all().get();
            OffsetAndMetadata found = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().get(first);
            return found.offset() + " " + found.metadata();
        });
        ask("delete offsets", () -> {
            admin.deleteConsumerGroupOffsets(topic, Set.of(first)).all().get();
            return admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
        });
        ask("delete", () -> admin.deleteConsumerGroups(List.of(topic)).all().get());
        ask("delete again", () -> admin.deleteConsumerGroups(List.of(topic)).all().get());
        ask("describe none", () -> admin.describeConsumerGroups(List.of(topic)).all().get());
        ask("offsets of none", () -> admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get());
    }

    String listed(ListGroupsOptions options) throws Exception {
        return admin.listGroups(options).all().get().stream().filter(group -> group.groupId().equals(topic))
            .map(group -> group.type().orElse(null) + " " + group.groupState().orElse(null) + " " + group.protocol()).toList().toString();
    }

    void cluster() throws Exception {
        ask("nodes", () -> admin.describeCluster().nodes().get().stream().map(node -> node.id() + " " + node.isFenced()).toList());
        ask("controller", () -> admin.describeCluster().controller().get().id());
        ask("operations", () -> new TreeSet<>(admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true))
            .authorizedOperations().get()).toString());
        ask("log dirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values().stream()
            .map(folder -> folder.error() + " " + folder.totalBytes().isPresent() + " " + (folder.replicaInfos().get(first).size() > 0)).toList());
        TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, 1);
        ask("replica log dir", () -> admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaOffsetLag());
        ask("quorum", () -> {
            QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
            return quorum.leaderId() + " " + quorum.voters().size() + " " + quorum.observers() + " " + quorum.nodes().keySet();
        });
        ask("features", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().entrySet().stream()
            .filter(entry -> Set.of("metadata.version", "group.version", "kraft.version").contains(entry.getKey()))
            .collect(Collectors.toMap(Map.Entry::getKey, entry -> (int) entry.getValue().maxVersionLevel(), (a, b) -> a, TreeMap::new)));
        ask("a feature that is too new", () -> admin.updateFeatures(
            Map.of("metadata.version", new FeatureUpdate((short) 99, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
        ask("a feature as it is", () -> admin.updateFeatures(
            Map.of("group.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all().get());
    }
}
