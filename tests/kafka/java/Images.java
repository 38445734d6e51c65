import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** Apache Kafka's image of metadata. */
public class Images {
    static MetadataImage image(JsonNode records) {
        MetadataImage image = MetadataImage.EMPTY;
        for (JsonNode hex : records) {
            ByteBuffer bytes = ByteBuffer.wrap(Oracle.unhex(hex));
            MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
            delta.replay(new MetadataRecordSerde().read(new ByteBufferAccessor(bytes), bytes.remaining()).message());
            image = delta.apply(MetadataProvenance.EMPTY);
        }
        return image;
    }

    /** Whether two logs, {"one"} and {"other"}, say the same; and keys and versions of the records in Kafka's snapshot of one. */
    public static JsonNode compare(JsonNode request) {
        MetadataImage one = image(request.get("one"));
        MetadataImage other = image(request.get("other"));
        ObjectNode answer = Oracle.JSON.createObjectNode();
        answer.put("equal", one.equals(other));
        if (!one.equals(other))
            answer.put("images", one + "\n" + other);
        RecordListWriter writer = new RecordListWriter();
        one.write(writer, new ImageWriterOptions.Builder(one).build());
        ArrayNode kinds = answer.putArray("kinds");
        for (ApiMessageAndVersion record : writer.records())
            kinds.addArray().add(record.message().apiKey()).add(record.version());
        return answer;
    }
}
