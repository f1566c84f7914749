// What the Java clients' own metrics() has after a little work: one JSON line per client, each
// {"client": …, "metrics": [{"group": …, "name": …, "tags": {…}, "value": …}, …]}.
//
//     ClientMetrics <address> <topic> <records> <group protocol>
//
// A transactional producer sends records of 100 bytes in one transaction that takes a group's offsets along, a
// consumer of the group reads and commits them, an admin client lists topics.

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class ClientMetrics {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int VALUE_BYTES = 100;

    private ClientMetrics() {}

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String topic = arguments[1];
        int records = Integer.parseInt(arguments[2]);
        produce(address, topic, records);
        consume(address, topic, records, arguments[3]);
        try (Admin admin = Admin.create(common(address))) {
            admin.listTopics().names().get();
            print("admin", admin.metrics());
        }
    }

    private static void produce(String address, String topic, int records) throws Exception {
        Properties options = common(address);
        options.put("transactional.id", "metrics-of-java");
        options.put("compression.type", "gzip");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int sent = 0; sent < records; sent++) {
                producer.send(new ProducerRecord<>(topic, 0, null, new byte[VALUE_BYTES]));
            }
            producer.flush();
            producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(0)),
                new ConsumerGroupMetadata("metrics-of-nobody"));
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            print("producer", producer.metrics());
        }
    }

    private static void consume(String address, String topic, int records, String protocol) throws Exception {
        Properties options = common(address);
        options.put("group.id", "metrics-of-java-" + protocol);
        options.put("group.protocol", protocol);
        options.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            int received = 0;
            while (received < records) {
                received += consumer.poll(Duration.ofSeconds(1)).count();
            }
            consumer.commitSync();
            consumer.committed(java.util.Set.of(new TopicPartition(topic, 0)));
            consumer.poll(Duration.ZERO);
            print("consumer", consumer.metrics());
        }
    }

    private static Properties common(String address) {
        Properties options = new Properties();
        options.put("bootstrap.servers", address);
        return options;
    }

    private static void print(String client, Map<MetricName, ? extends Metric> metrics) throws Exception {
        ObjectNode line = JSON.createObjectNode().put("client", client);
        ArrayNode list = line.putArray("metrics");
        for (Map.Entry<MetricName, ? extends Metric> each : metrics.entrySet()) {
            MetricName name = each.getKey();
            ObjectNode metric = list.addObject().put("group", name.group()).put("name", name.name());
            name.tags().forEach(metric.putObject("tags")::put);
            metric.put("value", String.valueOf(each.getValue().metricValue()));
        }
        System.out.println(JSON.writeValueAsString(line));
    }
}
