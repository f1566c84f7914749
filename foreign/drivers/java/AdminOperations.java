// The Java admin client's part of the driver: topics, configs, cluster, log directories, producers.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ElectLeadersResult;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;

final class AdminOperations {
    private final Admin admin;

    AdminOperations(Map<String, Object> connection) {
        Map<String, Object> config = new HashMap<>(connection);
        config.put("request.timeout.ms", "10000");
        config.put("default.api.timeout.ms", "15000");
        this.admin = Admin.create(config);
    }

    void close() {
        admin.close();
    }

    JsonNode perform(String operation, JsonNode request) throws Exception {
        switch (operation) {
            case "version": return version();
            case "cluster": return cluster();
            case "features": return features();
            case "create_topic": return createTopic(request);
            case "list_topics": return listTopics();
            case "describe_topic": return describeTopic(request);
            case "delete_topic": return deleteTopic(request);
            case "create_partitions": return createPartitions(request);
            case "describe_configs": return describeConfigs(request);
            case "alter_configs": return alterConfigs(request);
            case "delete_records": return deleteRecords(request);
            case "describe_log_dirs": return describeLogDirs(request);
            case "describe_producers": return describeProducers(request);
            case "elect_leaders": return electLeaders(request);
            case "move_log_dir": return moveLogDir(request);
            default: throw new IllegalArgumentException("unknown operation " + operation);
        }
    }

    private static <T> T await(KafkaFuture<T> future) throws Exception {
        return future.get(20, TimeUnit.SECONDS);
    }

    private static TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private static ConfigResource resource(JsonNode request) {
        return new ConfigResource(
            ConfigResource.Type.valueOf(request.get("resource").asText().toUpperCase()), request.get("name").asText());
    }

    private static JsonNode version() throws Exception {
        Properties properties = new Properties();
        try (InputStream stream = Admin.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(stream);
        }
        return Driver.JSON.createObjectNode().put("version", properties.getProperty("version"));
    }

    private JsonNode cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        ObjectNode answer = Driver.JSON.createObjectNode();
        answer.put("cluster_id", await(cluster.clusterId()));
        answer.put("controller", await(cluster.controller()).id());
        ArrayNode nodes = answer.putArray("nodes");
        for (Node node : await(cluster.nodes())) {
            nodes.addObject().put("id", node.id()).put("host", node.host()).put("port", node.port());
        }
        return answer;
    }

    private JsonNode features() throws Exception {
        FeatureMetadata metadata = await(admin.describeFeatures().featureMetadata());
        ObjectNode answer = Driver.JSON.createObjectNode();
        ObjectNode finalized = answer.putObject("finalized");
        metadata.finalizedFeatures().forEach((name, range) -> finalized.put(name, range.maxVersionLevel()));
        ObjectNode supported = answer.putObject("supported");
        metadata.supportedFeatures().forEach((name, range) -> supported.put(name, range.maxVersion()));
        return answer;
    }

    private JsonNode createTopic(JsonNode request) throws Exception {
        Map<String, String> configs = new TreeMap<>();
        JsonNode given = request.path("configs");
        given.fieldNames().forEachRemaining(name -> configs.put(name, given.get(name).asText()));
        NewTopic topic;
        if (request.has("assignment")) {
            Map<Integer, List<Integer>> assignment = new TreeMap<>();
            for (JsonNode replicas : request.get("assignment")) {
                List<Integer> ids = new ArrayList<>();
                replicas.forEach(id -> ids.add(id.asInt()));
                assignment.put(assignment.size(), ids);
            }
            topic = new NewTopic(request.get("topic").asText(), assignment);
        } else {
            topic = new NewTopic(
                request.get("topic").asText(),
                request.hasNonNull("partitions") ? Optional.of(request.get("partitions").asInt()) : Optional.empty(),
                request.hasNonNull("replication") ? Optional.of((short) request.get("replication").asInt()) : Optional.empty());
        }
        var result = admin.createTopics(
            List.of(topic.configs(configs)),
            new CreateTopicsOptions().validateOnly(request.path("validate_only").asBoolean(false)));
        await(result.all());
        ObjectNode answer = Driver.JSON.createObjectNode();
        if (!request.path("validate_only").asBoolean(false)) {
            answer.put("topic_id", await(result.topicId(topic.name())).toString());
            answer.put("partitions", await(result.numPartitions(topic.name())));
            answer.put("replication", await(result.replicationFactor(topic.name())));
        }
        return answer;
    }

    private JsonNode listTopics() throws Exception {
        ArrayNode answer = Driver.JSON.createArrayNode();
        await(admin.listTopics().names()).forEach(answer::add);
        return answer;
    }

    private JsonNode describeTopic(JsonNode request) throws Exception {
        TopicDescription topic;
        if (request.has("topic_id")) {
            Uuid id = Uuid.fromString(request.get("topic_id").asText());
            topic = await(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds()).get(id);
        } else {
            String name = request.get("topic").asText();
            topic = await(admin.describeTopics(List.of(name)).allTopicNames()).get(name);
        }
        ObjectNode answer = Driver.JSON.createObjectNode();
        answer.put("topic", topic.name()).put("topic_id", topic.topicId().toString()).put("internal", topic.isInternal());
        ArrayNode partitions = answer.putArray("partitions");
        topic.partitions().forEach(info -> {
            ObjectNode node = partitions.addObject();
            node.put("index", info.partition()).put("leader", info.leader().id());
            ArrayNode replicas = node.putArray("replicas");
            info.replicas().forEach(replica -> replicas.add(replica.id()));
            ArrayNode isr = node.putArray("isr");
            info.isr().forEach(replica -> isr.add(replica.id()));
        });
        return answer;
    }

    private JsonNode deleteTopic(JsonNode request) throws Exception {
        if (request.has("topic_id")) {
            Uuid id = Uuid.fromString(request.get("topic_id").asText());
            await(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all());
        } else {
            await(admin.deleteTopics(List.of(request.get("topic").asText())).all());
        }
        return Driver.JSON.createObjectNode();
    }

    private JsonNode createPartitions(JsonNode request) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(request.get("total").asInt());
        await(admin.createPartitions(Map.of(request.get("topic").asText(), total)).all());
        return Driver.JSON.createObjectNode();
    }

    private JsonNode describeConfigs(JsonNode request) throws Exception {
        ConfigResource resource = resource(request);
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Config config = await(admin.describeConfigs(List.of(resource), options).all()).get(resource);
        ObjectNode answer = Driver.JSON.createObjectNode();
        for (ConfigEntry entry : config.entries()) {
            ObjectNode node = answer.putObject(entry.name());
            node.put("value", entry.value()).put("source", entry.source().name());
            node.put("read_only", entry.isReadOnly()).put("sensitive", entry.isSensitive());
            node.put("type", entry.type().name()).put("documented", entry.documentation() != null);
            ArrayNode synonyms = node.putArray("synonyms");
            entry.synonyms().forEach(synonym -> synonyms.addArray()
                .add(synonym.name()).add(synonym.value()).add(synonym.source().name()));
        }
        return answer;
    }

    private JsonNode alterConfigs(JsonNode request) throws Exception {
        Collection<AlterConfigOp> operations = new ArrayList<>();
        for (String kind : List.of("set", "append", "subtract")) {
            JsonNode values = request.path(kind);
            values.fieldNames().forEachRemaining(name -> operations.add(new AlterConfigOp(
                new ConfigEntry(name, values.get(name).asText()), AlterConfigOp.OpType.valueOf(kind.toUpperCase()))));
        }
        request.path("delete").forEach(name -> operations.add(
            new AlterConfigOp(new ConfigEntry(name.asText(), null), AlterConfigOp.OpType.DELETE)));
        AlterConfigsOptions options = new AlterConfigsOptions().validateOnly(request.path("validate_only").asBoolean(false));
        await(admin.incrementalAlterConfigs(Map.of(resource(request), operations), options).all());
        return Driver.JSON.createObjectNode();
    }

    private JsonNode deleteRecords(JsonNode request) throws Exception {
        RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("before").asLong());
        var result = admin.deleteRecords(Map.of(partition(request), before)).lowWatermarks().get(partition(request));
        return Driver.JSON.createObjectNode().put("low_watermark", await(result).lowWatermark());
    }

    private JsonNode describeLogDirs(JsonNode request) throws Exception {
        int broker = request.get("broker").asInt();
        Map<String, LogDirDescription> dirs = await(admin.describeLogDirs(List.of(broker)).allDescriptions()).get(broker);
        ObjectNode answer = Driver.JSON.createObjectNode();
        dirs.forEach((path, dir) -> {
            ObjectNode node = answer.putObject(path);
            node.put("error", dir.error() == null ? null : dir.error().toString());
            node.put("total_bytes", dir.totalBytes().orElse(-1)).put("usable_bytes", dir.usableBytes().orElse(-1));
            ObjectNode replicas = node.putObject("replicas");
            dir.replicaInfos().forEach((partition, info) -> replicas.putObject(partition.toString())
                .put("size", info.size()).put("lag", info.offsetLag()).put("future", info.isFuture()));
        });
        return answer;
    }

    private JsonNode describeProducers(JsonNode request) throws Exception {
        var states = await(admin.describeProducers(List.of(partition(request))).partitionResult(partition(request)));
        ArrayNode answer = Driver.JSON.createArrayNode();
        for (ProducerState state : states.activeProducers()) {
            answer.addObject().put("producer_id", state.producerId()).put("epoch", state.producerEpoch())
                .put("last_sequence", state.lastSequence()).put("last_timestamp", state.lastTimestamp())
                .put("transaction_start", state.currentTransactionStartOffset().orElse(-1));
        }
        return answer;
    }

    private JsonNode electLeaders(JsonNode request) throws Exception {
        ElectLeadersResult result = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition(request)));
        var outcome = await(result.partitions()).get(partition(request));
        if (outcome.isPresent()) {
            throw (Exception) outcome.get();
        }
        return Driver.JSON.createObjectNode();
    }

    private JsonNode moveLogDir(JsonNode request) throws Exception {
        TopicPartitionReplica replica = new TopicPartitionReplica(
            request.get("topic").asText(), request.get("partition").asInt(), request.get("broker").asInt());
        await(admin.alterReplicaLogDirs(Map.of(replica, request.get("path").asText())).all());
        return Driver.JSON.createObjectNode();
    }

    JsonNode maxTimestamp(TopicPartition partition) throws Exception {
        ListOffsetsResultInfo found = await(
            admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition));
        return Driver.JSON.createObjectNode().put("offset", found.offset()).put("timestamp", found.timestamp());
    }
}
