// A member of a consumer group: told by lines of JSON on stdin, telling by lines of JSON on stdout.
// The lines and the settings are described in tests/rigs/group_members/python_member.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

final class GroupMember implements ConsumerRebalanceListener {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final JsonNode settings;
    private final PrintStream line;
    private final BlockingQueue<String> orders = new LinkedBlockingQueue<>();
    private final KafkaConsumer<byte[], byte[]> consumer;
    private boolean owes = false;

    GroupMember(JsonNode settings, PrintStream line) {
        this.settings = settings;
        this.line = line;
        this.consumer = new KafkaConsumer<>(config());
    }

    private Properties config() {
        Properties config = new Properties();
        config.put("bootstrap.servers", settings.get("bootstrap").asText());
        config.put("group.id", settings.get("group").asText());
        config.put("client.id", settings.get("name").asText());
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", settings.get("commit").asText().equals("auto"));
        config.put("auto.commit.interval.ms", "100");
        config.put("max.poll.interval.ms", settings.get("max_poll_ms").asText());
        config.put("max.poll.records", "200");
        config.put("metadata.max.age.ms", "300");
        config.put("fetch.max.wait.ms", "100");
        config.put("reconnect.backoff.max.ms", "200");
        if (settings.hasNonNull("instance")) {
            config.put("group.instance.id", settings.get("instance").asText());
        }
        if (settings.get("protocol").asText().equals("consumer")) {
            config.put("group.protocol", "consumer");
            if (settings.hasNonNull("assignor")) {
                config.put("group.remote.assignor", settings.get("assignor").asText());
            }
        } else {
            config.put("session.timeout.ms", settings.get("session_ms").asText());
            config.put("heartbeat.interval.ms", settings.get("heartbeat_ms").asText());
            config.put("partition.assignment.strategy", ASSIGNORS.get(settings.path("assignor").asText("range")));
        }
        return config;
    }

    void run() throws Exception {
        Thread reader = new Thread(this::readOrders);
        reader.setDaemon(true);
        reader.start();
        tell("started");
        subscribe();
        boolean idle = false;
        while (true) {
            String order = idle ? orders.poll(50, TimeUnit.MILLISECONDS) : orders.poll();
            if (order != null) {
                JsonNode told = Driver.JSON.readTree(order);
                String operation = told.get("op").asText();
                if (operation.equals("close")) {
                    break;
                }
                if (operation.equals("subscribe")) {
                    consumer.subscribe(texts(told.get("topics")), this);
                }
                idle = operation.equals("idle");
                if (idle) {
                    tell("idle");
                }
            }
            if (!idle) {
                work();
            }
        }
        consumer.close(Duration.ofSeconds(10));
        tell("closed");
    }

    /** The end of the line means that the test is gone. */
    private void readOrders() {
        try (BufferedReader reader = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String text = reader.readLine(); text != null; text = reader.readLine()) {
                orders.add(text);
            }
        } catch (Exception failure) {
            failure.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }

    private void subscribe() throws Exception {
        String pattern = settings.path("pattern").asText("");
        if (pattern.isEmpty()) {
            consumer.subscribe(texts(settings.get("topics")), this);
        } else if (settings.get("protocol").asText().equals("consumer")) {
            // Client 3.9 has no such class: there the broker cannot be asked to match.
            Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            KafkaConsumer.class.getMethod("subscribe", kind, ConsumerRebalanceListener.class)
                .invoke(consumer, kind.getConstructor(String.class).newInstance(pattern), this);
        } else {
            consumer.subscribe(Pattern.compile(pattern), this);
        }
    }

    private void work() {
        String doing = "poll";
        try {
            ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofMillis(50));
            if (!batch.isEmpty()) {
                ArrayNode records = Driver.JSON.createArrayNode();
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    records.addArray().add(record.topic()).add(record.partition()).add(record.offset());
                }
                tell("records", "records", records);
                owes = settings.get("commit").asText().equals("each");
            }
            if (owes) {
                doing = "commit";
                consumer.commitSync();
                owes = false;
                tell("committed");
            }
        } catch (KafkaException failure) {
            ObjectNode event = event("failed").put("doing", doing).put("error", failure.getClass().getSimpleName());
            line.println(event);
            line.flush();
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned", "partitions", places(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (owes) { // a commit that failed before, in a cooperative rebalance
            try {
                consumer.commitSync();
                owes = false;
            } catch (KafkaException failure) {
                line.println(event("failed").put("doing", "commit").put("error", failure.getClass().getSimpleName()));
            }
        }
        tell("revoked", "partitions", places(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        tell("lost", "partitions", places(partitions));
    }

    private static ArrayNode places(Collection<TopicPartition> partitions) {
        ArrayNode places = Driver.JSON.createArrayNode();
        for (TopicPartition partition : partitions) {
            places.addArray().add(partition.topic()).add(partition.partition());
        }
        return places;
    }

    private static List<String> texts(JsonNode nodes) {
        List<String> texts = new ArrayList<>();
        nodes.forEach(node -> texts.add(node.asText()));
        return texts;
    }

    private static ObjectNode event(String kind) {
        Instant now = Instant.now();
        return Driver.JSON.createObjectNode().put("event", kind)
            .put("at", now.getEpochSecond() * 1000.0 + now.getNano() / 1e6);
    }

    private void tell(String kind) {
        line.println(event(kind));
        line.flush();
    }

    private void tell(String kind, String field, ArrayNode value) {
        ObjectNode event = event(kind);
        event.set(field, value);
        line.println(event);
        line.flush();
    }
}
