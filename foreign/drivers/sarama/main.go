// The sarama client as a driver: one JSON request per line on stdin, one JSON answer per line on stdout.
// The operations and their fields are described in tests/compat/driver.py.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/IBM/sarama"
)

type object = map[string]any

type header struct {
	Key   string
	Value []byte
}

// A header travels as a pair [key, value].
func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Key, &h.Value})
}

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.Key, h.Value})
}

type record struct {
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type request struct {
	Op           string             `json:"op"`
	Topic        string             `json:"topic"`
	Partition    int32              `json:"partition"`
	Partitions   *int32             `json:"partitions"`
	Replication  *int16             `json:"replication"`
	Configs      map[string]*string `json:"configs"`
	ValidateOnly bool               `json:"validate_only"`
	Acks         string             `json:"acks"`
	Codec        string             `json:"codec"`
	Idempotent   bool               `json:"idempotent"`
	Records      []record           `json:"records"`
	Offset       json.RawMessage    `json:"offset"`
	At           json.RawMessage    `json:"at"`
	Count        int                `json:"count"`
	Size         int                `json:"size"`
	TimeoutMs    int64              `json:"timeout_ms"`
	Total        int32              `json:"total"`
	Resource     string             `json:"resource"`
	Name         string             `json:"name"`
	Set          map[string]string  `json:"set"`
	Append       map[string]string  `json:"append"`
	Subtract     map[string]string  `json:"subtract"`
	Delete       []string           `json:"delete"`
	Before       int64              `json:"before"`
	Broker       int32              `json:"broker"`
}

type driver struct {
	address []string
	client  sarama.Client
	admin   sarama.ClusterAdmin
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.ClientID = "sarama-driver"
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.MaxMessageBytes = 8 << 20
	c.Consumer.Return.Errors = true
	return c
}

func main() {
	if os.Args[1] == "member" {
		member(os.Args[2])
		return
	}
	address := []string{os.Args[1]}
	client, err := sarama.NewClient(address, config())
	exitOn(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	exitOn(err)
	d := &driver{address, client, admin}
	requests := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return
		}
		exitOn(answers.Encode(d.answer(line)))
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (d *driver) answer(line []byte) object {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return failure(err)
	}
	result, err := d.perform(&r)
	if err != nil {
		return failure(err)
	}
	return object{"ok": result}
}

// sarama names errors ErrTopicAlreadyExists; only the number is Kafka's own.
func failure(err error) object {
	code := sarama.ErrUnknown
	errors.As(err, &code)
	return object{"error": object{"code": int16(code), "message": err.Error()}}
}

func (d *driver) perform(r *request) (any, error) {
	switch r.Op {
	case "version":
		return object{"version": moduleVersion("github.com/IBM/sarama")}, nil
	case "produce":
		return d.produce(r)
	case "consume":
		return d.consume(r)
	case "stream":
		return d.stream(r)
	default:
		return d.administer(r)
	}
}

func moduleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return "unknown"
}

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

var acks = map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}

func (d *driver) producer(r *request) (sarama.SyncProducer, error) {
	c := config()
	c.Producer.RequiredAcks = acks[r.Acks]
	c.Producer.Compression = codecs[r.Codec]
	c.Producer.Flush.Frequency = 20 * time.Millisecond
	c.Producer.Retry.Max = 0
	if r.Idempotent {
		c.Producer.Idempotent = true
		c.Producer.Retry.Max = 5
		c.Net.MaxOpenRequests = 1
	}
	return sarama.NewSyncProducer(d.address, c)
}

func encoded(value []byte) sarama.Encoder {
	if value == nil {
		return nil
	}
	return sarama.ByteEncoder(value)
}

func (d *driver) produce(r *request) (any, error) {
	producer, err := d.producer(r)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, given := range r.Records {
		out := &sarama.ProducerMessage{
			Topic: r.Topic, Partition: r.Partition, Key: encoded(given.Key), Value: encoded(given.Value),
		}
		if given.Timestamp != nil {
			out.Timestamp = time.UnixMilli(*given.Timestamp)
		}
		for _, h := range given.Headers {
			out.Headers = append(out.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		messages = append(messages, out)
	}
	if err := firstError(producer.SendMessages(messages)); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(messages))
	for i, message := range messages {
		offsets[i] = message.Offset
		if r.Acks == "0" {
			offsets[i] = -1
		}
	}
	return offsets, nil
}

func firstError(err error) error {
	var several sarama.ProducerErrors
	if errors.As(err, &several) {
		return several[0].Err
	}
	return err
}

func (d *driver) consume(r *request) (any, error) {
	var start int64
	if json.Unmarshal(r.Offset, &start) != nil {
		start = map[string]int64{`"earliest"`: sarama.OffsetOldest, `"latest"`: sarama.OffsetNewest}[string(r.Offset)]
	}
	consumer, err := sarama.NewConsumer(d.address, config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(r.Topic, r.Partition, start)
	if err != nil {
		return nil, err
	}
	defer partition.AsyncClose()
	if r.TimeoutMs == 0 {
		r.TimeoutMs = 15000
	}
	deadline := time.After(time.Duration(r.TimeoutMs) * time.Millisecond)
	records := []record{}
	for len(records) < r.Count {
		select {
		case message := <-partition.Messages():
			records = append(records, describe(message))
		case failed := <-partition.Errors():
			return nil, failed.Err
		case <-deadline:
			return records, nil
		}
	}
	return records, nil
}

func describe(message *sarama.ConsumerMessage) record {
	timestamp := message.Timestamp.UnixMilli()
	headers := []header{}
	for _, h := range message.Headers {
		headers = append(headers, header{string(h.Key), h.Value})
	}
	return record{message.Offset, &timestamp, message.Key, message.Value, headers}
}

// Many records through all partitions of a topic and back: order and content are checked here.
func (d *driver) stream(r *request) (any, error) {
	producer, err := d.producer(r)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	partitions := int(*r.Partitions)
	filler := make([]byte, r.Size)
	var messages []*sarama.ProducerMessage
	for i := range r.Count {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: r.Topic, Partition: int32(i % partitions),
			Key: sarama.StringEncoder(fmt.Sprint(i)), Value: sarama.ByteEncoder(filler),
		})
	}
	if err := firstError(producer.SendMessages(messages)); err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumer(d.address, config())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	received, ordered := 0, true
	for p := range partitions {
		partition, err := consumer.ConsumePartition(r.Topic, int32(p), sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		deadline := time.After(30 * time.Second)
		for next := p; next < r.Count; next += partitions {
			select {
			case message := <-partition.Messages():
				ordered = ordered && string(message.Key) == fmt.Sprint(next) && len(message.Value) == r.Size
				received++
			case <-deadline:
				return object{"received": received, "ordered": ordered}, nil
			}
		}
		partition.AsyncClose()
	}
	return object{"received": received, "ordered": ordered}, nil
}

// Kafka's own name for where a config value comes from.
func sourceName(source sarama.ConfigSource) string {
	return map[sarama.ConfigSource]string{
		sarama.SourceTopic: "DYNAMIC_TOPIC_CONFIG", sarama.SourceDynamicBroker: "DYNAMIC_BROKER_CONFIG",
		sarama.SourceDynamicDefaultBroker: "DYNAMIC_DEFAULT_BROKER_CONFIG",
		sarama.SourceStaticBroker:         "STATIC_BROKER_CONFIG", sarama.SourceDefault: "DEFAULT_CONFIG",
	}[source]
}
