// The Java client as a driver: one JSON request per line on stdin, one JSON answer per line on stdout.
// The operations and their fields are described in tests/compat/driver.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Driver {
    static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, Object> connection = new HashMap<>();
    private final AdminOperations admin;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    private Driver(String address, JsonNode properties) {
        connection.put("bootstrap.servers", address);
        properties.fields().forEachRemaining(each -> connection.put(each.getKey(), each.getValue().asText()));
        this.admin = new AdminOperations(connection);
    }

    private void close() {
        producers.values().forEach(producer -> producer.close(Duration.ofSeconds(5)));
        admin.close();
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever the libraries print must not get between the answers
        if (args[0].equals("member")) {
            new GroupMember(JSON.readTree(args[1]), answers).run();
            return;
        }
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        if (args[0].equals("each")) {
            answerEach(requests, answers);
            return;
        }
        Driver driver = new Driver(args[0], JSON.createObjectNode());
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
            answers.flush();
        }
        driver.close();
    }

    /** Each request says which broker it is for, and how one connects to it. */
    private static void answerEach(BufferedReader requests, PrintStream answers) throws Exception {
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            Driver driver = new Driver(request.get("address").asText(), request.get("security"));
            answers.println(JSON.writeValueAsString(driver.answer(request)));
            answers.flush();
            driver.close();
        }
    }

    private ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            answer.set("ok", perform(request.get("op").asText(), request));
        } catch (Exception failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            ObjectNode error = answer.putObject("error");
            error.put("name", Errors.forException(cause).name());
            error.put("message", cause.toString());
        }
        return answer;
    }

    private JsonNode perform(String operation, JsonNode request) throws Exception {
        switch (operation) {
            case "produce": return produce(request);
            case "consume": return consume(request);
            case "position": return position(request);
            case "restore": return restore(request);
            case "stream": return stream(request);
            default: return admin.perform(operation, request);
        }
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode request) {
        Properties config = new Properties();
        config.putAll(connection);
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        config.put("acks", request.path("acks").asText("all"));
        config.put("compression.type", request.path("codec").asText("none"));
        config.put("enable.idempotence", request.path("idempotent").asBoolean(false));
        config.put("linger.ms", "20");
        config.put("max.request.size", "8388608");
        config.put("delivery.timeout.ms", "20000");
        config.put("request.timeout.ms", "10000");
        config.put("retries", request.path("idempotent").asBoolean(false) ? "5" : "0");
        return producers.computeIfAbsent(config.toString(), unused -> new KafkaProducer<>(config));
    }

    private JsonNode produce(JsonNode request) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(request);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : request.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : record.path("headers")) {
                headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            Long timestamp = record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null;
            sent.add(producer.send(new ProducerRecord<>(
                request.get("topic").asText(), request.get("partition").asInt(), timestamp,
                bytes(record.get("key")), bytes(record.get("value")), headers)));
        }
        producer.flush();
        ArrayNode answer = JSON.createArrayNode();
        for (Future<RecordMetadata> future : sent) {
            answer.add(future.get().hasOffset() ? future.get().offset() : -1);
        }
        return answer;
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode request) {
        Properties config = new Properties();
        config.putAll(connection);
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("auto.offset.reset", "none");
        config.put("isolation.level", request.path("isolation").asText("read_uncommitted"));
        return new KafkaConsumer<>(config);
    }

    private JsonNode consume(JsonNode request) {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        int count = request.get("count").asInt();
        long deadline = System.currentTimeMillis() + request.path("timeout_ms").asLong(15000);
        ArrayNode answer = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            consumer.assign(List.of(partition));
            seek(consumer, partition, request.get("offset"));
            while (answer.size() < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (answer.size() < count) {
                        answer.add(describe(record));
                    }
                }
            }
        }
        return answer;
    }

    private static void seek(KafkaConsumer<?, ?> consumer, TopicPartition partition, JsonNode offset) {
        if (offset.isNumber()) {
            consumer.seek(partition, offset.asLong());
        } else if (offset.asText().equals("earliest")) {
            consumer.seekToBeginning(List.of(partition));
        } else {
            consumer.seekToEnd(List.of(partition));
        }
    }

    private static ObjectNode describe(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = JSON.createObjectNode();
        node.put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("timestamp_type", record.timestampType().toString());
        node.put("key", text(record.key()));
        node.put("value", text(record.value()));
        ArrayNode headers = node.putArray("headers");
        record.headers().forEach(header -> headers.addArray().add(header.key()).add(text(header.value())));
        return node;
    }

    /** The offset at one end of a partition, or the first one at or after a timestamp. */
    private JsonNode position(JsonNode request) throws Exception {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        JsonNode at = request.get("at");
        ObjectNode answer = JSON.createObjectNode();
        if (at.asText().equals("max_timestamp")) {
            return admin.maxTimestamp(partition);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            if (at.isNumber()) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, at.asLong())).get(partition);
                answer.put("offset", found == null ? -1 : found.offset());
                answer.put("timestamp", found == null ? -1 : found.timestamp());
            } else if (at.asText().equals("earliest")) {
                answer.put("offset", consumer.beginningOffsets(Set.of(partition)).get(partition));
            } else {
                answer.put("offset", consumer.endOffsets(Set.of(partition)).get(partition));
            }
        }
        return answer;
    }

    /** Reads from the beginning until the position is the end offset, as Kafka Streams restores a store. */
    private JsonNode restore(JsonNode request) {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        long deadline = System.currentTimeMillis() + request.path("timeout_ms").asLong(15000);
        ObjectNode answer = JSON.createObjectNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(Set.of(partition)).get(partition);
            int count = 0;
            while (consumer.position(partition) < end && System.currentTimeMillis() < deadline) {
                count += consumer.poll(Duration.ofMillis(200)).count();
            }
            answer.put("position", consumer.position(partition)).put("end", end).put("count", count);
        }
        return answer;
    }

    /** Many records through all partitions of a topic and back: order and content are checked here. */
    private JsonNode stream(JsonNode request) throws Exception {
        String topic = request.get("topic").asText();
        int partitions = request.get("partitions").asInt();
        int count = request.get("count").asInt();
        byte[] filler = new byte[request.get("size").asInt()];
        KafkaProducer<byte[], byte[]> producer = producer(request);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            byte[] key = Integer.toString(index).getBytes(StandardCharsets.UTF_8);
            sent.add(producer.send(new ProducerRecord<>(topic, index % partitions, key, filler)));
        }
        producer.flush();
        for (Future<RecordMetadata> future : sent) {
            future.get();
        }
        int[] next = new int[partitions];
        int received = 0;
        boolean ordered = true;
        long deadline = System.currentTimeMillis() + 30000;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request)) {
            List<TopicPartition> all = new ArrayList<>();
            for (int partition = 0; partition < partitions; partition++) {
                all.add(new TopicPartition(topic, partition));
                next[partition] = partition;
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            while (received < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    int index = Integer.parseInt(new String(record.key(), StandardCharsets.UTF_8));
                    ordered &= index == next[record.partition()] && record.value().length == filler.length;
                    next[record.partition()] = index + partitions;
                    received++;
                }
            }
        }
        return JSON.createObjectNode().put("received", received).put("ordered", ordered);
    }

    private static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static String text(byte[] bytes) {
        return Optional.ofNullable(bytes).map(some -> Base64.getEncoder().encodeToString(some)).orElse(null);
    }
}
