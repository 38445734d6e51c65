import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.DumpLogSegments;

/** Kafka's command-line tools, run inside this process: what they printed. */
public class Tools {
    static class Exited extends RuntimeException {
    }

    static List<String> texts(JsonNode nodes) {
        List<String> texts = new ArrayList<>();
        nodes.forEach(node -> texts.add(node.asText()));
        return texts;
    }

    public static JsonNode dump(JsonNode request) throws Exception {
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            DumpLogSegments.main(texts(request.get("arguments")).toArray(new String[0]));
        } finally {
            System.setOut(before);
        }
        return Oracle.JSON.getNodeFactory().textNode(printed.toString(StandardCharsets.UTF_8));
    }

    /** Runs the main of the class `tool` with `arguments` and `given` as its input: its exit `status`, and what it `printed`. */
    public static JsonNode run(JsonNode request) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream into = new PrintStream(printed, true, StandardCharsets.UTF_8);
        List<Integer> statuses = new ArrayList<>();
        List<Runnable> hooks = new ArrayList<>();
        Exit.Procedure exit = (status, message) -> {
            statuses.add(status);
            throw new Exited();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        System.setOut(into);
        System.setErr(into);
        System.setIn(new ByteArrayInputStream(request.path("given").asText("").getBytes(StandardCharsets.UTF_8)));
        try {
            scala.Console.withOut(into, () -> main(request));
        } finally {
            hooks.forEach(Runnable::run);
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
            Exit.resetShutdownHookAdder();
        }
        ObjectNode answer = Oracle.JSON.createObjectNode();
        answer.put("status", statuses.isEmpty() ? 0 : statuses.get(0));
        answer.put("printed", printed.toString(StandardCharsets.UTF_8));
        return answer;
    }

    static Object main(JsonNode request) {
        String[] arguments = texts(request.get("arguments")).toArray(new String[0]);
        try {
            return Class.forName(request.get("tool").asText()).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exited)
                return null;
            throw new IllegalStateException(error.getCause());
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
