import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Kafka's configuration keys: what they are, and what it makes of a text. */
public class Configs {
    static final Map<String, ConfigDef> TABLES = Map.of(
        "broker", AbstractKafkaConfig.CONFIG_DEF,
        "topic", LogConfig.configDefCopy(),
        "group", GroupConfig.CONFIG_DEF,
        "client-metrics", ClientMetricsConfigs.configDef());

    /** Every key of every table: type, default, what its validator says of itself, whether it is hidden. */
    public static JsonNode tables(JsonNode request) {
        ObjectNode tables = Oracle.JSON.createObjectNode();
        TABLES.forEach((table, definition) -> {
            ObjectNode keys = tables.putObject(table);
            for (ConfigDef.ConfigKey key : definition.configKeys().values())
                describe(key, keys.putObject(key.name));
        });
        ObjectNode dynamic = tables.putObject("dynamic");
        DynamicConfig.Broker.configKeys().forEach((name, key) -> {
            if (!AbstractKafkaConfig.CONFIG_DEF.configKeys().containsKey(name))
                describe(key, dynamic.putObject(name));
        });
        return tables;
    }

    static void describe(ConfigDef.ConfigKey key, ObjectNode node) {
        node.put("type", key.type.toString().toLowerCase());
        node.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : "required");
        node.put("valid", key.validator == null ? null : key.validator.toString());
        node.put("internal", key.internalConfig);
    }

    /** How each broker key may change while running, and which broker keys stand behind topic and group keys. */
    public static JsonNode relations(JsonNode request) {
        ObjectNode relations = Oracle.JSON.createObjectNode();
        ObjectNode modes = relations.putObject("modes");
        DynamicBrokerConfig.dynamicConfigUpdateModes().forEach(modes::put);
        ObjectNode topics = relations.putObject("topic");
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) -> {
            ArrayNode names = topics.putArray(name);
            for (ConfigSynonym synonym : synonyms)
                names.add(synonym.name());
        });
        ObjectNode groups = relations.putObject("group");
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach((name, synonym) -> groups.put(name, synonym.orElse(null)));
        return relations;
    }

    /** For each [key, text] what Kafka reads, written as Kafka writes it, or an object with the error. */
    public static JsonNode parse(JsonNode request) throws Exception {
        ConfigDef definition = TABLES.get(request.get("table").asText());
        Method parseValue = ConfigDef.class.getDeclaredMethod("parseValue", ConfigDef.ConfigKey.class, Object.class, boolean.class);
        parseValue.setAccessible(true);
        ArrayNode answers = Oracle.JSON.createArrayNode();
        for (JsonNode probe : request.get("probes")) {
            ConfigDef.ConfigKey key = definition.configKeys().get(probe.get(0).asText());
            try {
                Object value = parseValue.invoke(definition, key, probe.get(1).asText(), true);
                answers.addObject().put("value", ConfigDef.convertToString(value, key.type));
            } catch (InvocationTargetException error) {
                answers.addObject().put("error", error.getCause().getMessage());
            }
        }
        return answers;
    }

    /** Whether Kafka takes a whole server.properties: null, or what it throws. */
    public static JsonNode broker(JsonNode request) {
        return refusal(() -> KafkaConfig.fromProps(properties(request.get("properties")), false));
    }

    /** Whether Kafka takes the overrides of a topic, on a broker of these properties, in place of the overrides before. */
    public static JsonNode topic(JsonNode request) {
        KafkaConfig broker = KafkaConfig.fromProps(properties(request.get("properties")), false);
        boolean remote = broker.remoteLogManagerConfig().isRemoteStorageSystemEnabled();
        return refusal(() -> LogConfig.validate(
            texts(request.get("before")), texts(request.get("overrides")), broker.extractLogConfigMap(), remote));
    }

    /** The values that a topic's log has: every topic key, written as Kafka writes it. */
    public static JsonNode topicValues(JsonNode request) {
        KafkaConfig broker = KafkaConfig.fromProps(properties(request.get("properties")), false);
        LogConfig config = LogConfig.fromProps(broker.extractLogConfigMap(), properties(request.get("overrides")));
        return values(LogConfig.configKeys(), config.values());
    }

    /** Whether Kafka takes the overrides of a group on a broker of these properties. */
    public static JsonNode group(JsonNode request) {
        KafkaConfig broker = KafkaConfig.fromProps(properties(request.get("properties")), false);
        Map<String, Object> all = new LinkedHashMap<>(broker.extractGroupConfigMap());
        all.putAll(texts(request.get("overrides")));
        return refusal(() -> GroupConfig.validate(all, broker.groupCoordinatorConfig(), broker.shareGroupConfig()));
    }

    /** The values that a group has, after those out of bounds were moved to the bound. */
    public static JsonNode groupValues(JsonNode request) {
        KafkaConfig broker = KafkaConfig.fromProps(properties(request.get("properties")), false);
        Properties overrides = GroupConfig.evaluate(
            properties(request.get("overrides")), "g", broker.groupCoordinatorConfig(), broker.shareGroupConfig());
        GroupConfig config = GroupConfig.fromProps(broker.extractGroupConfigMap(), overrides);
        return values(GroupConfig.CONFIG_DEF.configKeys(), config.values());
    }

    public static JsonNode clientMetrics(JsonNode request) {
        return refusal(() -> ClientMetricsConfigs.validate(request.get("subscription").asText(), properties(request.get("overrides"))));
    }

    /** What java.util.Properties reads. */
    public static JsonNode load(JsonNode request) throws Exception {
        Properties properties = new Properties();
        properties.load(new java.io.StringReader(request.get("text").asText()));
        ObjectNode read = Oracle.JSON.createObjectNode();
        properties.forEach((name, value) -> read.put((String) name, (String) value));
        return read;
    }

    static JsonNode refusal(Runnable check) {
        try {
            check.run();
            return Oracle.JSON.nullNode();
        } catch (RuntimeException error) {
            return Oracle.JSON.getNodeFactory().textNode(error.getMessage());
        }
    }

    static JsonNode values(Map<String, ConfigDef.ConfigKey> keys, Map<String, ?> values) {
        ObjectNode shown = Oracle.JSON.createObjectNode();
        keys.forEach((name, key) -> shown.put(name, ConfigDef.convertToString(values.get(name), key.type)));
        return shown;
    }

    static Map<String, String> texts(JsonNode object) {
        Map<String, String> texts = new LinkedHashMap<>();
        object.properties().forEach(entry -> texts.put(entry.getKey(), entry.getValue().asText()));
        return texts;
    }

    static Properties properties(JsonNode object) {
        Properties properties = new Properties();
        properties.putAll(texts(object));
        return properties;
    }
}
