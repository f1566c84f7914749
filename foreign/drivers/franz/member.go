// A member of a consumer group: told by lines of JSON on stdin, telling by lines of JSON on stdout.
// The lines and the settings are described in tests/rigs/group_members/python_member.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type settings struct {
	Bootstrap string   `json:"bootstrap"`
	Group     string   `json:"group"`
	Name      string   `json:"name"`
	Topics    []string `json:"topics"`
	Pattern   string   `json:"pattern"`
	Protocol  string   `json:"protocol"`
	Assignor  string   `json:"assignor"`
	Instance  string   `json:"instance"`
	SessionMs int64    `json:"session_ms"`
	BeatMs    int64    `json:"heartbeat_ms"`
	MaxPollMs int64    `json:"max_poll_ms"`
	Commit    string   `json:"commit"`
}

type place = [2]any

type line struct {
	sync.Mutex
	encoder *json.Encoder
}

func (l *line) tell(event string, fields object) {
	l.Lock()
	defer l.Unlock()
	told := object{"event": event, "at": float64(time.Now().UnixMicro()) / 1000}
	for name, value := range fields {
		told[name] = value
	}
	if l.encoder.Encode(told) != nil {
		os.Exit(1)
	}
}

func (l *line) tellPlaces(event string, partitions map[string][]int32) {
	places := []place{}
	for topic, indexes := range partitions {
		for _, index := range indexes {
			places = append(places, place{topic, index})
		}
	}
	l.tell(event, object{"partitions": places})
}

var balancers = map[string]kgo.GroupBalancer{
	"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
	"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func (s *settings) options(l *line) []kgo.Opt {
	if s.Assignor == "" {
		s.Assignor = "range"
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(s.Bootstrap), kgo.ClientID(s.Name), kgo.ConsumerGroup(s.Group),
		kgo.Balancers(balancers[s.Assignor]),
		kgo.SessionTimeout(time.Duration(s.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(s.BeatMs) * time.Millisecond),
		kgo.RebalanceTimeout(time.Duration(s.MaxPollMs) * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(300 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, at map[string][]int32) {
			l.tellPlaces("assigned", at)
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, at map[string][]int32) {
			l.tellPlaces("revoked", at)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, at map[string][]int32) {
			l.tellPlaces("lost", at)
		}),
	}
	if s.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if s.Instance != "" {
		options = append(options, kgo.InstanceID(s.Instance))
	}
	if s.Pattern != "" {
		return append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(s.Pattern))
	}
	return append(options, kgo.ConsumeTopics(s.Topics...))
}

func member(given string) {
	var s settings
	l := &line{encoder: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(given), &s); err != nil {
		panic(err)
	}
	client, err := kgo.NewClient(s.options(l)...)
	if err != nil {
		panic(err)
	}
	orders := make(chan string)
	go readOrders(orders)
	l.tell("started", nil)
	for idle := false; ; {
		select {
		case order := <-orders:
			if order == "close" {
				client.Close()
				l.tell("closed", nil)
				return
			}
			if idle = order == "idle"; idle {
				l.tell("idle", nil)
			}
		default:
		}
		if idle {
			time.Sleep(10 * time.Millisecond)
		} else {
			pollOnce(client, &s, l)
		}
	}
}

// The end of the line means that the test is gone.
func readOrders(orders chan<- string) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var told struct{ Op string }
		if json.Unmarshal(lines.Bytes(), &told) == nil {
			orders <- told.Op
		}
	}
	os.Exit(0)
}

func pollOnce(client *kgo.Client, s *settings, l *line) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	fetches := client.PollRecords(ctx, 200)
	defer client.AllowRebalance()
	records := [][3]any{}
	fetches.EachRecord(func(r *kgo.Record) { records = append(records, [3]any{r.Topic, r.Partition, r.Offset}) })
	if len(records) == 0 {
		return
	}
	l.tell("records", object{"records": records})
	if s.Commit == "never" {
		return
	}
	commit, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	if err := client.CommitUncommittedOffsets(commit); err != nil {
		name := err.Error()
		var refused *kerr.Error
		if errors.As(err, &refused) {
			name = refused.Message
		}
		l.tell("failed", object{"doing": "commit", "error": name})
		return
	}
	l.tell("committed", nil)
}
