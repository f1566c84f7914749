// A consume-transform-produce loop with the Java client, as tests/rigs/exactly_once/worker.py has it for librdkafka:
// reads topic "in" in group "loop", writes every value turned around to the same partition of topic "out", and
// commits the offsets with the records. Ends with code 3 when its producer is lost; never ends otherwise.

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class ExactlyOnce {
    private static final int LOST = 3;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<byte[], byte[]> producer;

    private ExactlyOnce(String address, String transactionalId, String groupProtocol) {
        Properties reading = new Properties();
        reading.put("bootstrap.servers", address);
        reading.put("group.id", "loop");
        reading.put("isolation.level", "read_committed");
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("max.poll.records", "25");
        reading.put("fetch.max.wait.ms", "50");
        reading.put("reconnect.backoff.max.ms", "200");
        if (groupProtocol.equals("consumer")) {
            reading.put("group.protocol", "consumer");
        } else {
            reading.put("session.timeout.ms", "2000");
            reading.put("heartbeat.interval.ms", "300");
        }
        consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Properties writing = new Properties();
        writing.put("bootstrap.servers", address);
        writing.put("transactional.id", transactionalId);
        writing.put("transaction.timeout.ms", "10000");
        writing.put("delivery.timeout.ms", "30000");
        writing.put("request.timeout.ms", "5000");
        writing.put("max.block.ms", "60000");
        writing.put("linger.ms", "0");
        writing.put("reconnect.backoff.max.ms", "200");
        producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer());
    }

    public static void main(String[] args) {
        try {
            new ExactlyOnce(args[0], args[1], args[2]).run();
        } catch (Throwable lost) {
            lost.printStackTrace();
            Runtime.getRuntime().halt(LOST);
        }
    }

    private void run() {
        producer.initTransactions();
        consumer.subscribe(List.of("in"));
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            if (!records.isEmpty()) {
                transact(records);
            }
        }
    }

    private void transact(ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        try {
            producer.beginTransaction();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>("out", record.partition(), record.key(), turned(record.value())));
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                offsets.put(place, new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            commit();
        } catch (ProducerFencedException | OutOfOrderSequenceException | InvalidProducerEpochException lost) {
            throw lost;
        } catch (KafkaException failed) {
            producer.abortTransaction();
            rewind();
        }
    }

    private void commit() {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException again) {
                // Whether it was committed is not known yet: the client has to ask again.
            }
        }
    }

    private void rewind() {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition place : consumer.assignment()) {
            OffsetAndMetadata found = committed.get(place);
            consumer.seek(place, found == null ? 0 : found.offset());
        }
    }

    private static byte[] turned(byte[] value) {
        byte[] other = new byte[value.length];
        for (int at = 0; at < value.length; at++) {
            other[at] = value[value.length - 1 - at];
        }
        return other;
    }
}
