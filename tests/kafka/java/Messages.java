import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.Locale;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.serialization.BytesApiMessageSerde;

/** Kafka's generated classes, found by the name of the message: JSON in, the bytes of a version out, by way of their own converters. */
public class Messages {
    static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    static Class<?> messageClass(String name) {
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"Data", ""}) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException missing) {
                    // in the next package, perhaps
                }
            }
        }
        return null;
    }

    static ApiMessage message(JsonNode request) throws Exception {
        Class<?> found = messageClass(request.get("message").asText());
        Class<?> converter = Class.forName(found.getName() + "JsonConverter");
        short version = (short) request.get("version").asInt();
        return (ApiMessage) converter.getMethod("read", JsonNode.class, short.class).invoke(null, request.get("value"), version);
    }

    /** The versions of each name, first and last; null where Kafka has no such message. */
    public static JsonNode versions(JsonNode request) throws Exception {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        for (JsonNode name : request.get("names")) {
            Class<?> found = messageClass(name.asText());
            if (found == null) {
                answer.putNull(name.asText());
            } else {
                answer.putArray(name.asText())
                    .add(found.getField("LOWEST_SUPPORTED_VERSION").getShort(null))
                    .add(found.getField("HIGHEST_SUPPORTED_VERSION").getShort(null));
            }
        }
        return answer;
    }

    /** The bytes of a message. */
    public static JsonNode encode(JsonNode request) throws Exception {
        short version = (short) request.get("version").asInt();
        return new TextNode(Oracle.hex(MessageUtil.toByteBufferAccessor(message(request), version).buffer()));
    }

    /** The values that the fields of a message and of its structs have when nobody touched them, by struct. */
    public static JsonNode defaults(JsonNode request) throws Exception {
        Class<?> found = messageClass(request.get("message").asText());
        ObjectNode answer = Oracle.JSON.createObjectNode();
        putDefaults(found, answer.putObject(""));
        for (Class<?> nested : found.getDeclaredClasses()) {
            if (Message.class.isAssignableFrom(nested)) {
                putDefaults(nested, answer.putObject(nested.getSimpleName()));
            }
        }
        return answer;
    }

    static void putDefaults(Class<?> found, ObjectNode answer) throws Exception {
        Object untouched = found.getConstructor().newInstance();
        for (Field field : found.getDeclaredFields()) {
            boolean ofTable = !Modifier.isStatic(field.getModifiers()) && !field.getName().startsWith("_");
            if (ofTable && !field.getName().equals("next") && !field.getName().equals("prev")) {
                field.setAccessible(true);
                answer.set(field.getName(), plain(field.get(untouched)));
            }
        }
    }

    static JsonNode plain(Object value) {
        if (value instanceof byte[] || value instanceof Collection) {
            return new TextNode("empty");
        }
        if (value instanceof Message) {
            return new TextNode("struct");
        }
        return value instanceof Uuid ? new TextNode(value.toString()) : Oracle.JSON.valueToTree(value);
    }

    /** A record of the metadata log, in its frame. */
    public static JsonNode metadataRecord(JsonNode request) throws Exception {
        ApiMessageAndVersion record = new ApiMessageAndVersion(message(request), (short) request.get("version").asInt());
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
        buffer.flip();
        return new TextNode(Oracle.hex(buffer));
    }

    /** A record of the remote storage's log, in its frame. */
    public static JsonNode remoteLogRecord(JsonNode request) throws Exception {
        ApiMessageAndVersion record = new ApiMessageAndVersion(message(request), (short) request.get("version").asInt());
        byte[] bytes = new BytesApiMessageSerde() {
            @Override
            public ApiMessage apiMessageFor(short apiKey) {
                throw new UnsupportedOperationException();
            }
        }.serialize(record);
        return new TextNode(Oracle.hex(ByteBuffer.wrap(bytes)));
    }

    /** A message behind the int16 of its version. */
    public static JsonNode versioned(JsonNode request) throws Exception {
        short version = (short) request.get("version").asInt();
        return new TextNode(Oracle.hex(MessageUtil.toVersionPrefixedByteBuffer(version, message(request))));
    }

    /** The key of a coordinator's record, behind the int16 of its type. */
    public static JsonNode coordinatorKey(JsonNode request) throws Exception {
        return new TextNode(Oracle.hex(MessageUtil.toCoordinatorTypePrefixedByteBuffer(message(request))));
    }

    /** The stable versions of every API that brokers or controllers have, and the versions of the headers. */
    public static JsonNode apis(JsonNode request) {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        for (ApiKeys api : ApiKeys.values()) {
            ObjectNode entry = answer.putObject(Short.toString(api.id));
            entry.put("name", api.name).put("oldest", api.oldestVersion()).put("latest", api.latestVersion(false));
            ObjectNode headers = entry.putObject("headers");
            for (short version = api.oldestVersion(); version <= api.latestVersion(true); version++) {
                headers.putArray(Short.toString(version)).add(api.requestHeaderVersion(version)).add(api.responseHeaderVersion(version));
            }
            ArrayNode listeners = entry.putArray("listeners");
            api.messageType.listeners().forEach(listener -> listeners.add(listener.name().toLowerCase(Locale.ROOT)));
        }
        return answer;
    }

    /** The codes of all errors by name, and whether a client may try again. */
    public static JsonNode errors(JsonNode request) {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            answer.putArray(error.name()).add(error.code()).add(retriable);
        }
        return answer;
    }
}
