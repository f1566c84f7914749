// What Kafka's own assignors and its consumer protocol make of the cases on stdin (JSON), as JSON on stdout.
// tests/compat/assignor_vectors.py writes the cases and keeps the answers for the unit tests of ours.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

final class AssignorCases {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode each : JSON.readTree(System.in)) {
            try {
                answers.add(each.has("version") ? bytesOf(each) : assignmentsOf(each));
            } catch (NullPointerException failure) { // see assignor_vectors.py
                answers.addNull();
            }
        }
        System.out.println(JSON.writeValueAsString(answers));
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private static ObjectNode assignmentsOf(JsonNode given) {
        Map<String, Subscription> members = new HashMap<>();
        for (JsonNode member : given.get("members")) {
            Subscription subscription = subscriptionOf(member);
            subscription.setGroupInstanceId(Optional.ofNullable(member.get("instance").textValue()));
            members.put(member.get("id").asText(), subscription);
        }
        ConsumerPartitionAssignor assignor = assignor(given.get("assignor").asText());
        Map<String, Assignment> assigned =
            assignor.assign(clusterOf(given), new GroupSubscription(members)).groupAssignment();
        ObjectNode answer = JSON.createObjectNode();
        assigned.forEach((member, assignment) -> {
            ArrayNode partitions = answer.putArray(member);
            for (TopicPartition each : assignment.partitions()) {
                partitions.addArray().add(each.topic()).add(each.partition());
            }
        });
        return answer;
    }

    private static Subscription subscriptionOf(JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        String data = member.get("user_data").textValue();
        return new Subscription(
            topics,
            data == null ? null : ByteBuffer.wrap(Base64.getDecoder().decode(data)),
            partitionsOf(member.get("owned")),
            member.get("generation").isNull() ? -1 : member.get("generation").asInt(),
            Optional.ofNullable(member.get("rack").textValue()));
    }

    private static List<TopicPartition> partitionsOf(JsonNode pairs) {
        List<TopicPartition> partitions = new ArrayList<>();
        pairs.forEach(pair -> partitions.add(new TopicPartition(pair.get(0).asText(), pair.get(1).asInt())));
        return partitions;
    }

    private static Cluster clusterOf(JsonNode given) {
        Map<Integer, Node> nodes = new HashMap<>();
        for (JsonNode broker : given.get("brokers")) {
            int id = broker.get(0).asInt();
            nodes.put(id, new Node(id, "broker" + id, 9092, broker.get(1).textValue()));
        }
        List<PartitionInfo> partitions = new ArrayList<>();
        given.get("topics").fields().forEachRemaining(topic -> {
            int number = 0;
            for (JsonNode replicas : topic.getValue()) {
                List<Node> at = new ArrayList<>();
                replicas.forEach(id -> at.add(nodes.get(id.asInt())));
                Node[] all = at.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), number++, all[0], all, all));
            }
        });
        return new Cluster("vectors", nodes.values(), partitions, Set.of(), Set.of());
    }

    // The bytes that Java's client sends: a subscription and an assignment in one version, user data.
    private static ObjectNode bytesOf(JsonNode given) {
        short version = (short) given.get("version").asInt();
        ObjectNode answer = JSON.createObjectNode();
        Subscription subscription = subscriptionOf(given);
        answer.put("subscription", text(ConsumerProtocol.serializeSubscription(subscription, version)));
        Assignment assignment = new Assignment(subscription.ownedPartitions(), subscription.userData());
        answer.put("assignment", text(ConsumerProtocol.serializeAssignment(assignment, version)));
        ConsumerGroupMetadata generation =
            new ConsumerGroupMetadata("g", given.get("generation").asInt(), "m", Optional.empty());
        for (String name : List.of("sticky", "cooperative-sticky")) {
            ConsumerPartitionAssignor assignor = assignor(name);
            assignor.onAssignment(new Assignment(subscription.ownedPartitions()), generation);
            answer.put(name, text(assignor.subscriptionUserData(Set.copyOf(subscription.topics()))));
        }
        return answer;
    }

    private static String text(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }
}
