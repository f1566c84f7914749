// The franz-go client as a driver: one JSON request per line on stdin, one JSON answer per line on stdout.
// The operations and their fields are described in tests/compat/driver.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

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
	Offset        int64    `json:"offset"`
	Timestamp     *int64   `json:"timestamp"`
	TimestampType string   `json:"timestamp_type,omitempty"`
	Key           []byte   `json:"key"`
	Value         []byte   `json:"value"`
	Headers       []header `json:"headers"`
}

type request struct {
	Op           string             `json:"op"`
	Topic        string             `json:"topic"`
	TopicID      string             `json:"topic_id"`
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
	Total        int                `json:"total"`
	Resource     string             `json:"resource"`
	Name         string             `json:"name"`
	Set          map[string]string  `json:"set"`
	Append       map[string]string  `json:"append"`
	Subtract     map[string]string  `json:"subtract"`
	Delete       []string           `json:"delete"`
	Before       int64              `json:"before"`
	Broker       int32              `json:"broker"`
	Path         string             `json:"path"`
	Epoch        int32              `json:"epoch"`
}

type driver struct {
	connection []kgo.Opt
	client     *kgo.Client
	admin      *kadm.Client
}

func newDriver(connection []kgo.Opt) (*driver, error) {
	client, err := kgo.NewClient(connection...)
	if err != nil {
		return nil, err
	}
	return &driver{connection, client, kadm.NewClient(client)}, nil
}

func main() {
	address := os.Args[1]
	if address == "member" {
		member(os.Args[2])
		return
	}
	answer := answerEach
	if address != "each" {
		d, err := newDriver([]kgo.Opt{kgo.SeedBrokers(address)})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer d.client.Close()
		answer = d.answer
	}
	requests := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	answers.SetEscapeHTML(false)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return
		}
		if err := answers.Encode(answer(line)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func (d *driver) answer(line []byte) map[string]any {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return failure(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	result, err := d.perform(ctx, &r)
	if err != nil {
		return failure(err)
	}
	return map[string]any{"ok": result}
}

func failure(err error) map[string]any {
	name := "UNKNOWN_SERVER_ERROR"
	var kafkaError *kerr.Error
	if errors.As(err, &kafkaError) {
		name = kafkaError.Message
	}
	return map[string]any{"error": map[string]string{"name": name, "message": err.Error()}}
}

func (d *driver) perform(ctx context.Context, r *request) (any, error) {
	switch r.Op {
	case "version":
		return map[string]string{"version": moduleVersion("github.com/twmb/franz-go")}, nil
	case "produce":
		return d.produce(ctx, r)
	case "consume":
		return d.consume(ctx, r)
	case "stream":
		return d.stream(ctx, r)
	default:
		return d.administer(ctx, r)
	}
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

func (d *driver) producer(r *request) (*kgo.Client, error) {
	options := append(slices.Clone(d.connection),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(acks[r.Acks]),
		kgo.ProducerBatchCompression(codecs[r.Codec]),
		kgo.ProducerBatchMaxBytes(8<<20),
		kgo.ProducerLinger(20*time.Millisecond),
	)
	if !r.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RecordRetries(0))
	}
	return kgo.NewClient(options...)
}

func (d *driver) produce(ctx context.Context, r *request) (any, error) {
	producer, err := d.producer(r)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var records []*kgo.Record
	for _, given := range r.Records {
		out := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: given.Key, Value: given.Value}
		if given.Timestamp != nil {
			out.Timestamp = time.UnixMilli(*given.Timestamp)
		}
		for _, h := range given.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		records = append(records, out)
	}
	results := producer.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for i, result := range results {
		offsets[i] = result.Record.Offset
		if r.Acks == "0" {
			offsets[i] = -1
		}
	}
	return offsets, nil
}

func startOffset(raw json.RawMessage) (kgo.Offset, error) {
	var number int64
	if json.Unmarshal(raw, &number) == nil {
		return kgo.NewOffset().At(number), nil
	}
	switch string(raw) {
	case `"earliest"`:
		return kgo.NewOffset().AtStart(), nil
	case `"latest"`:
		return kgo.NewOffset().AtEnd(), nil
	}
	return kgo.Offset{}, fmt.Errorf("no offset %s", raw)
}

func (d *driver) consume(ctx context.Context, r *request) (any, error) {
	offset, err := startOffset(r.Offset)
	if err != nil {
		return nil, err
	}
	consumer, err := kgo.NewClient(append(slices.Clone(d.connection),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: offset}}),
	)...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	if r.TimeoutMs == 0 {
		r.TimeoutMs = 15000
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.TimeoutMs)*time.Millisecond)
	defer cancel()
	records := []record{}
	for len(records) < r.Count && ctx.Err() == nil {
		fetches := consumer.PollRecords(ctx, r.Count-len(records))
		for _, fetchError := range fetches.Errors() {
			if !errors.Is(fetchError.Err, context.DeadlineExceeded) {
				return nil, fetchError.Err
			}
		}
		fetches.EachRecord(func(in *kgo.Record) { records = append(records, describe(in)) })
	}
	return records, nil
}

func describe(in *kgo.Record) record {
	timestamp := in.Timestamp.UnixMilli()
	kind := "CreateTime"
	if in.Attrs.TimestampType() == 1 {
		kind = "LogAppendTime"
	}
	headers := []header{}
	for _, h := range in.Headers {
		headers = append(headers, header{h.Key, h.Value})
	}
	return record{in.Offset, &timestamp, kind, in.Key, in.Value, headers}
}

// Many records through all partitions of a topic and back: order and content are checked here.
func (d *driver) stream(ctx context.Context, r *request) (any, error) {
	producer, err := d.producer(r)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	partitions := *r.Partitions
	filler := make([]byte, r.Size)
	var records []*kgo.Record
	for i := range r.Count {
		records = append(records, &kgo.Record{
			Topic: r.Topic, Partition: int32(i) % partitions, Key: fmt.Append(nil, i), Value: filler,
		})
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	starts := map[int32]kgo.Offset{}
	next := make([]int, partitions)
	for p := range partitions {
		starts[p] = kgo.NewOffset().AtStart()
		next[p] = int(p)
	}
	consumer, err := kgo.NewClient(append(slices.Clone(d.connection),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: starts}),
	)...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	received, ordered := 0, true
	for received < r.Count && ctx.Err() == nil {
		consumer.PollFetches(ctx).EachRecord(func(in *kgo.Record) {
			var index int
			fmt.Sscan(string(in.Key), &index)
			ordered = ordered && index == next[in.Partition] && len(in.Value) == r.Size
			next[in.Partition] = index + int(partitions)
			received++
		})
	}
	return map[string]any{"received": received, "ordered": ordered}, nil
}
