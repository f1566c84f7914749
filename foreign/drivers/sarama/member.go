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

	"github.com/IBM/sarama"
)

type settings struct {
	Bootstrap string   `json:"bootstrap"`
	Group     string   `json:"group"`
	Name      string   `json:"name"`
	Topics    []string `json:"topics"`
	Assignor  string   `json:"assignor"`
	Instance  string   `json:"instance"`
	SessionMs int64    `json:"session_ms"`
	BeatMs    int64    `json:"heartbeat_ms"`
	MaxPollMs int64    `json:"max_poll_ms"`
	Commit    string   `json:"commit"`
}

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

// What sarama calls at the beginning and end of a generation, and once for each partition in it.
type handler struct {
	*line
	settings settings
}

func (h *handler) tellClaims(event string, session sarama.ConsumerGroupSession) {
	places := [][2]any{}
	for topic, partitions := range session.Claims() {
		for _, partition := range partitions {
			places = append(places, [2]any{topic, partition})
		}
	}
	h.tell(event, object{"partitions": places})
}

func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	h.tellClaims("assigned", session)
	return nil
}

func (h *handler) Cleanup(session sarama.ConsumerGroupSession) error {
	if h.settings.Commit == "each" {
		session.Commit()
	}
	h.tellClaims("revoked", session)
	return nil
}

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			h.tell("records", object{"records": [][3]any{{message.Topic, message.Partition, message.Offset}}})
			session.MarkMessage(message, "")
			if h.settings.Commit == "each" {
				session.Commit()
				h.tell("committed", nil)
			}
		}
	}
}

var strategies = map[string]sarama.BalanceStrategy{
	"": sarama.NewBalanceStrategyRange(), "range": sarama.NewBalanceStrategyRange(),
	"roundrobin": sarama.NewBalanceStrategyRoundRobin(), "sticky": sarama.NewBalanceStrategySticky(),
}

func (s *settings) config() *sarama.Config {
	c := config()
	c.ClientID = s.Name
	c.Metadata.RefreshFrequency = 300 * time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = s.Commit == "auto"
	c.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Group.InstanceId = s.Instance
	c.Consumer.Group.Session.Timeout = time.Duration(s.SessionMs) * time.Millisecond
	c.Consumer.Group.Heartbeat.Interval = time.Duration(s.BeatMs) * time.Millisecond
	c.Consumer.Group.Rebalance.Timeout = time.Duration(s.MaxPollMs) * time.Millisecond
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[s.Assignor]}
	return c
}

func member(given string) {
	h := &handler{line: &line{encoder: json.NewEncoder(os.Stdout)}}
	exitOn(json.Unmarshal([]byte(given), &h.settings))
	group, err := sarama.NewConsumerGroup([]string{h.settings.Bootstrap}, h.settings.Group, h.settings.config())
	exitOn(err)
	go func() {
		for err := range group.Errors() {
			h.tell("failed", object{"doing": "live", "error": err.Error()})
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	go readOrders(cancel)
	h.tell("started", nil)
	for ctx.Err() == nil {
		if err := group.Consume(ctx, h.settings.Topics, h); err != nil && !errors.Is(err, context.Canceled) {
			h.tell("failed", object{"doing": "consume", "error": err.Error()})
		}
	}
	exitOn(group.Close())
	h.tell("closed", nil)
}

// The end of the line means that the test is gone; `close` is all that sarama can be told.
func readOrders(leave context.CancelFunc) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var told struct{ Op string }
		if json.Unmarshal(lines.Bytes(), &told) == nil && told.Op == "close" {
			leave()
		}
	}
	os.Exit(0)
}
