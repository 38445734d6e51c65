package main

import (
	"context"
	"fmt"
	"sync"

	kafka "github.com/IBM/sarama"
)

// sarama does the same in versions of the protocol from 2.0 to 4.1, where its own range allows.
func sarama(address string) error {
	for _, version := range []kafka.KafkaVersion{kafka.V2_1_0_0, kafka.V2_8_0_0, kafka.MaxVersion} {
		for _, codec := range []kafka.CompressionCodec{
			kafka.CompressionNone, kafka.CompressionGZIP, kafka.CompressionSnappy, kafka.CompressionLZ4, kafka.CompressionZSTD,
		} {
			topic := fmt.Sprintf("sarama-%s-%s", version, codec)
			if err := saramaTopic(address, topic, version, codec); err != nil {
				return fmt.Errorf("sarama %s, %s: %w", version, codec, err)
			}
		}
	}
	return nil
}

func saramaTopic(address, topic string, version kafka.KafkaVersion, codec kafka.CompressionCodec) error {
	config := kafka.NewConfig()
	config.Version = version
	config.Producer.Compression = codec
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = kafka.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = kafka.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	addresses := []string{address}
	admin, err := kafka.NewClusterAdmin(addresses, config)
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreateTopic(topic, &kafka.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
		return err
	}
	producer, err := kafka.NewSyncProducer(addresses, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := make([]*kafka.ProducerMessage, records)
	for number := range messages {
		messages[number] = &kafka.ProducerMessage{
			Topic: topic, Key: kafka.StringEncoder(key(number)), Value: kafka.StringEncoder(value(number)),
		}
	}
	if err := producer.SendMessages(messages); err != nil {
		return err
	}
	return saramaRead(addresses, topic, config, admin)
}

func saramaRead(addresses []string, topic string, config *kafka.Config, admin kafka.ClusterAdmin) error {
	name := topic + "-readers"
	group, err := kafka.NewConsumerGroup(addresses, name, config)
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	reader := &reader{seen: map[string]string{}, done: cancel}
	if err := group.Consume(ctx, []string{topic}, reader); err != nil && ctx.Err() == nil {
		return err
	}
	for number := 0; number < records; number++ {
		if reader.seen[key(number)] != value(number) {
			return fmt.Errorf("%s has %q, of %d that were read", key(number), reader.seen[key(number)], len(reader.seen))
		}
	}
	offsets, err := admin.ListConsumerGroupOffsets(name, map[string][]int32{topic: {0, 1, 2, 3}})
	if err != nil {
		return err
	}
	var committed int64
	for _, block := range offsets.Blocks[topic] {
		committed += block.Offset
	}
	if committed != records {
		return fmt.Errorf("%d records are committed", committed)
	}
	return nil
}

// reader reads until it has all records, and commits what it has read.
type reader struct {
	mutex sync.Mutex
	seen  map[string]string
	done  context.CancelFunc
}

func (r *reader) Setup(kafka.ConsumerGroupSession) error { return nil }

func (r *reader) Cleanup(session kafka.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (r *reader) ConsumeClaim(session kafka.ConsumerGroupSession, claim kafka.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			r.mutex.Lock()
			r.seen[string(message.Key)] = string(message.Value)
			if len(r.seen) == records {
				r.done()
			}
			r.mutex.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}
