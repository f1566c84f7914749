// franz-go's admin client: topics, configs, cluster, log directories, producers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type object = map[string]any

func moduleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return "unknown"
}

func (d *driver) administer(ctx context.Context, r *request) (any, error) {
	switch r.Op {
	case "cluster":
		return d.cluster(ctx)
	case "features":
		return d.features(ctx)
	case "create_topic":
		return d.createTopic(ctx, r)
	case "list_topics":
		topics, err := d.admin.ListTopics(ctx)
		return topics.Names(), err
	case "describe_topic":
		return d.describeTopic(ctx, r)
	case "delete_topic":
		responses, err := d.admin.DeleteTopics(ctx, r.Topic)
		return object{}, errors.Join(err, responses.Error())
	case "create_partitions":
		responses, err := d.admin.UpdatePartitions(ctx, r.Total, r.Topic)
		return object{}, errors.Join(err, responses.Error())
	case "position":
		return d.position(ctx, r)
	case "describe_configs":
		return d.describeConfigs(ctx, r)
	case "alter_configs":
		return d.alterConfigs(ctx, r)
	case "replace_configs":
		return d.replaceConfigs(ctx, r)
	case "delete_records":
		var offsets kadm.Offsets
		offsets.AddOffset(r.Topic, r.Partition, r.Before, -1)
		responses, err := d.admin.DeleteRecords(ctx, offsets)
		if err = errors.Join(err, responses.Error()); err != nil {
			return nil, err
		}
		deleted, _ := responses.Lookup(r.Topic, r.Partition)
		return object{"low_watermark": deleted.LowWatermark}, nil
	case "describe_log_dirs":
		return d.describeLogDirs(ctx, r)
	case "describe_producers":
		return d.describeProducers(ctx, r)
	case "elect_leaders":
		responses, err := d.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, partitionSet(r))
		if err != nil {
			return nil, err
		}
		return object{}, responses[r.Topic][r.Partition].Err
	case "move_log_dir":
		var move kadm.AlterReplicaLogDirsReq
		move.Add(r.Path, partitionSet(r))
		responses, err := d.admin.AlterBrokerReplicaLogDirs(ctx, r.Broker, move)
		if err != nil {
			return nil, err
		}
		var first error
		responses.Each(func(response kadm.AlterReplicaLogDirsResponse) { first = errors.Join(first, response.Err) })
		return object{}, first
	case "epoch_end":
		return d.epochEnd(ctx, r)
	}
	return nil, fmt.Errorf("unknown operation %s", r.Op)
}

func partitionSet(r *request) kadm.TopicsSet {
	var set kadm.TopicsSet
	set.Add(r.Topic, r.Partition)
	return set
}

// Kafka writes ids without base64's padding.
func topicID(id kadm.TopicID) string {
	return strings.TrimRight(id.String(), "=")
}

func (d *driver) cluster(ctx context.Context) (any, error) {
	request := kmsg.NewPtrDescribeClusterRequest()
	response, err := request.RequestWith(ctx, d.client)
	if err != nil {
		return nil, err
	}
	nodes := []object{}
	for _, broker := range response.Brokers {
		nodes = append(nodes, object{"id": broker.NodeID, "host": broker.Host, "port": broker.Port})
	}
	return object{"cluster_id": response.ClusterID, "controller": response.ControllerID, "nodes": nodes}, nil
}

func (d *driver) features(ctx context.Context) (any, error) {
	response, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, d.client)
	if err != nil {
		return nil, err
	}
	finalized, supported := object{}, object{}
	for _, feature := range response.FinalizedFeatures {
		finalized[feature.Name] = feature.MaxVersionLevel
	}
	for _, feature := range response.SupportedFeatures {
		supported[feature.Name] = feature.MaxVersion
	}
	return object{"finalized": finalized, "supported": supported}, nil
}

func (d *driver) createTopic(ctx context.Context, r *request) (any, error) {
	partitions, replication := int32(-1), int16(-1)
	if r.Partitions != nil {
		partitions = *r.Partitions
	}
	if r.Replication != nil {
		replication = *r.Replication
	}
	create := d.admin.CreateTopics
	if r.ValidateOnly {
		create = d.admin.ValidateCreateTopics
	}
	responses, err := create(ctx, partitions, replication, r.Configs, r.Topic)
	if err != nil {
		return nil, err
	}
	response, err := responses.On(r.Topic, nil)
	if err = errors.Join(err, response.Err); err != nil {
		return nil, fmt.Errorf("%w: %s", err, response.ErrMessage)
	}
	return object{
		"topic_id": topicID(response.ID), "partitions": response.NumPartitions, "replication": response.ReplicationFactor,
	}, nil
}

func (d *driver) describeTopic(ctx context.Context, r *request) (any, error) {
	topics, err := d.admin.ListTopics(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	topic := topics[r.Topic]
	if topic.Err != nil {
		return nil, topic.Err
	}
	partitions := []object{}
	for _, p := range topic.Partitions.Sorted() {
		partitions = append(partitions, object{
			"index": p.Partition, "leader": p.Leader, "replicas": p.Replicas, "isr": p.ISR,
		})
	}
	return object{
		"topic": topic.Topic, "topic_id": topicID(topic.ID), "internal": topic.IsInternal, "partitions": partitions,
	}, nil
}

func (d *driver) position(ctx context.Context, r *request) (any, error) {
	var listed kadm.ListedOffsets
	var err error
	var timestamp int64
	switch {
	case json.Unmarshal(r.At, &timestamp) == nil:
		listed, err = d.admin.ListOffsetsAfterMilli(ctx, timestamp, r.Topic)
	case string(r.At) == `"earliest"`:
		listed, err = d.admin.ListStartOffsets(ctx, r.Topic)
	case string(r.At) == `"latest"`:
		listed, err = d.admin.ListEndOffsets(ctx, r.Topic)
	case string(r.At) == `"max_timestamp"`:
		listed, err = d.admin.ListMaxTimestampOffsets(ctx, r.Topic)
	}
	if err != nil {
		return nil, err
	}
	found, _ := listed.Lookup(r.Topic, r.Partition)
	// Past the last record kadm substitutes the end offset, with timestamp -1; the broker said "none".
	if found.Timestamp == -1 && json.Unmarshal(r.At, &timestamp) == nil {
		found.Offset = -1
	}
	return object{"offset": found.Offset, "timestamp": found.Timestamp}, found.Err
}

func (d *driver) describeConfigs(ctx context.Context, r *request) (any, error) {
	describe := d.admin.DescribeTopicConfigs
	var configs kadm.ResourceConfigs
	var err error
	if r.Resource == "broker" {
		var id int32
		fmt.Sscan(r.Name, &id)
		configs, err = d.admin.DescribeBrokerConfigs(ctx, id)
	} else {
		configs, err = describe(ctx, r.Name)
	}
	if err != nil {
		return nil, err
	}
	config, err := configs.On(r.Name, nil)
	if err = errors.Join(err, config.Err); err != nil {
		return nil, err
	}
	answer := object{}
	for _, entry := range config.Configs {
		synonyms := [][]any{}
		for _, synonym := range entry.Synonyms {
			synonyms = append(synonyms, []any{synonym.Key, synonym.Value, synonym.Source.String()})
		}
		answer[entry.Key] = object{
			"value": entry.Value, "source": entry.Source.String(), "sensitive": entry.Sensitive, "synonyms": synonyms,
		}
	}
	return answer, nil
}

func (d *driver) alterConfigs(ctx context.Context, r *request) (any, error) {
	var changes []kadm.AlterConfig
	add := func(operation kadm.IncrementalOp, values map[string]string) {
		for name, value := range values {
			changes = append(changes, kadm.AlterConfig{Op: operation, Name: name, Value: &value})
		}
	}
	add(kadm.SetConfig, r.Set)
	add(kadm.AppendConfig, r.Append)
	add(kadm.SubtractConfig, r.Subtract)
	for _, name := range r.Delete {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	var responses kadm.AlterConfigsResponses
	var err error
	if r.Resource == "broker" {
		var id int32
		fmt.Sscan(r.Name, &id)
		responses, err = d.admin.AlterBrokerConfigs(ctx, changes, id)
	} else {
		responses, err = d.admin.AlterTopicConfigs(ctx, changes, r.Name)
	}
	if err != nil {
		return nil, err
	}
	return object{}, responses[0].Err
}

// The old AlterConfigs, which replaces all of a topic's configs.
func (d *driver) replaceConfigs(ctx context.Context, r *request) (any, error) {
	var all []kadm.AlterConfig
	for name, value := range r.Set {
		all = append(all, kadm.AlterConfig{Name: name, Value: &value})
	}
	responses, err := d.admin.AlterTopicConfigsState(ctx, all, r.Name)
	if err != nil {
		return nil, err
	}
	return object{}, responses[0].Err
}

func (d *driver) describeLogDirs(ctx context.Context, r *request) (any, error) {
	all, err := d.admin.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return nil, err
	}
	answer := object{}
	for _, dir := range all[r.Broker] {
		replicas := object{}
		dir.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			replicas[fmt.Sprintf("%s-%d", p.Topic, p.Partition)] = object{
				"size": p.Size, "lag": p.OffsetLag, "future": p.IsFuture,
			}
		})
		answer[dir.Dir] = object{"error": dir.Err, "replicas": replicas}
	}
	return answer, nil
}

func (d *driver) describeProducers(ctx context.Context, r *request) (any, error) {
	topics, err := d.admin.DescribeProducers(ctx, partitionSet(r))
	if err != nil {
		return nil, err
	}
	states := []object{}
	var first error
	for _, topic := range topics {
		for _, partition := range topic.Partitions {
			first = errors.Join(first, partition.Err)
			for _, producer := range partition.ActiveProducers {
				states = append(states, object{
					"producer_id": producer.ProducerID, "epoch": producer.ProducerEpoch,
					"last_sequence": producer.LastSequence, "last_timestamp": producer.LastTimestamp,
					"transaction_start": producer.CurrentTxnStartOffset,
				})
			}
		}
	}
	return states, first
}

func (d *driver) epochEnd(ctx context.Context, r *request) (any, error) {
	var request kadm.OffsetForLeaderEpochRequest
	request.Add(r.Topic, r.Partition, r.Epoch)
	topics, err := d.admin.OffsetForLeaderEpoch(ctx, request)
	if err != nil {
		return nil, err
	}
	found := topics[r.Topic][r.Partition]
	return object{"epoch": found.LeaderEpoch, "offset": found.EndOffset}, found.Err
}
