// sarama's admin client: topics, configs, cluster, log directories.
package main

import (
	"encoding/json"
	"fmt"

	"github.com/IBM/sarama"
)

func (d *driver) administer(r *request) (any, error) {
	switch r.Op {
	case "cluster":
		return d.cluster()
	case "create_topic":
		detail := &sarama.TopicDetail{NumPartitions: -1, ReplicationFactor: -1, ConfigEntries: r.Configs}
		if r.Partitions != nil {
			detail.NumPartitions = *r.Partitions
		}
		if r.Replication != nil {
			detail.ReplicationFactor = *r.Replication
		}
		return object{}, d.admin.CreateTopic(r.Topic, detail, r.ValidateOnly)
	case "list_topics":
		topics, err := d.admin.ListTopics()
		names := []string{}
		for name := range topics {
			names = append(names, name)
		}
		return names, err
	case "describe_topic":
		return d.describeTopic(r)
	case "delete_topic":
		return object{}, d.admin.DeleteTopic(r.Topic)
	case "create_partitions":
		return object{}, d.admin.CreatePartitions(r.Topic, r.Total, nil, false)
	case "position":
		return d.position(r)
	case "describe_configs":
		return d.describeConfigs(r)
	case "alter_configs":
		return d.alterConfigs(r)
	case "replace_configs":
		all := map[string]*string{}
		for name, value := range r.Set {
			all[name] = &value
		}
		return object{}, d.admin.AlterConfig(configResource(r), r.Name, all, r.ValidateOnly)
	case "elect_leaders":
		results, err := d.admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{r.Topic: {r.Partition}})
		if err != nil {
			return nil, err
		}
		if result := results[r.Topic][r.Partition]; result.ErrorCode != sarama.ErrNoError {
			return nil, result.ErrorCode
		}
		return object{}, nil
	case "delete_records":
		return object{}, d.admin.DeleteRecords(r.Topic, map[int32]int64{r.Partition: r.Before})
	case "describe_log_dirs":
		return d.describeLogDirs(r)
	}
	return nil, fmt.Errorf("unknown operation %s", r.Op)
}

func (d *driver) cluster() (any, error) {
	brokers, controller, err := d.admin.DescribeCluster()
	nodes := []object{}
	for _, broker := range brokers {
		nodes = append(nodes, object{"id": broker.ID(), "address": broker.Addr()})
	}
	return object{"controller": controller, "nodes": nodes}, err
}

func (d *driver) describeTopic(r *request) (any, error) {
	topics, err := d.admin.DescribeTopics([]string{r.Topic})
	if err != nil {
		return nil, err
	}
	if topics[0].Err != sarama.ErrNoError {
		return nil, topics[0].Err
	}
	partitions := make([]object, len(topics[0].Partitions))
	for _, p := range topics[0].Partitions {
		partitions[p.ID] = object{"index": p.ID, "leader": p.Leader, "replicas": p.Replicas, "isr": p.Isr}
	}
	return object{"topic": topics[0].Name, "internal": topics[0].IsInternal, "partitions": partitions}, nil
}

func (d *driver) position(r *request) (any, error) {
	var at int64
	if json.Unmarshal(r.At, &at) != nil {
		at = map[string]int64{`"earliest"`: sarama.OffsetOldest, `"latest"`: sarama.OffsetNewest, `"max_timestamp"`: -3}[string(r.At)]
	}
	// The leader may be newer than what the client has cached of a topic made a moment ago.
	if err := d.client.RefreshMetadata(r.Topic); err != nil {
		return nil, err
	}
	offset, err := d.client.GetOffset(r.Topic, r.Partition, at)
	return object{"offset": offset}, err
}

func configResource(r *request) sarama.ConfigResourceType {
	if r.Resource == "broker" {
		return sarama.BrokerResource
	}
	return sarama.TopicResource
}

func (d *driver) describeConfigs(r *request) (any, error) {
	entries, err := d.admin.DescribeConfig(sarama.ConfigResource{Type: configResource(r), Name: r.Name})
	if err != nil {
		return nil, err
	}
	answer := object{}
	for _, entry := range entries {
		synonyms := [][]any{}
		for _, synonym := range entry.Synonyms {
			synonyms = append(synonyms, []any{synonym.ConfigName, synonym.ConfigValue, sourceName(synonym.Source)})
		}
		answer[entry.Name] = object{
			"value": entry.Value, "source": sourceName(entry.Source), "read_only": entry.ReadOnly,
			"sensitive": entry.Sensitive, "synonyms": synonyms,
		}
	}
	return answer, nil
}

func (d *driver) alterConfigs(r *request) (any, error) {
	changes := map[string]sarama.IncrementalAlterConfigsEntry{}
	add := func(operation sarama.IncrementalAlterConfigsOperation, values map[string]string) {
		for name, value := range values {
			changes[name] = sarama.IncrementalAlterConfigsEntry{Operation: operation, Value: &value}
		}
	}
	add(sarama.IncrementalAlterConfigsOperationSet, r.Set)
	add(sarama.IncrementalAlterConfigsOperationAppend, r.Append)
	add(sarama.IncrementalAlterConfigsOperationSubtract, r.Subtract)
	for _, name := range r.Delete {
		changes[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationDelete}
	}
	return object{}, d.admin.IncrementalAlterConfig(configResource(r), r.Name, changes, r.ValidateOnly)
}

func (d *driver) describeLogDirs(r *request) (any, error) {
	brokers, err := d.admin.DescribeLogDirs([]int32{r.Broker})
	if err != nil {
		return nil, err
	}
	answer := object{}
	for _, dir := range brokers[r.Broker] {
		replicas := object{}
		for _, topic := range dir.Topics {
			for _, p := range topic.Partitions {
				replicas[fmt.Sprintf("%s-%d", topic.Topic, p.PartitionID)] = object{
					"size": p.Size, "lag": p.OffsetLag, "future": p.IsTemporary,
				}
			}
		}
		answer[dir.Path] = object{
			"error": nil, "total_bytes": dir.TotalBytes, "usable_bytes": dir.UsableBytes, "replicas": replicas,
		}
	}
	return answer, nil
}
