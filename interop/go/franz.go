package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franz produces idempotently with each codec and reads in a cooperative group.
func franz(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		if err := franzTopic(ctx, address, "franz-"+name, codec); err != nil {
			return fmt.Errorf("franz-go, %s: %w", name, err)
		}
	}
	return nil
}

func franzTopic(ctx context.Context, address, topic string, codec kgo.CompressionCodec) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return err
	}
	for number := 0; number < records; number++ {
		client.Produce(ctx, kgo.KeyStringRecord(key(number), value(number)), nil)
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return franzRead(ctx, address, topic, admin)
}

func franzRead(ctx context.Context, address, topic string, admin *kadm.Client) error {
	group := topic + "-readers"
	reader, err := kgo.NewClient(
		kgo.SeedBrokers(address), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer reader.Close()
	seen := map[string]string{}
	for len(seen) < records {
		fetches := reader.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return errs[0].Err
		}
		fetches.EachRecord(func(record *kgo.Record) { seen[string(record.Key)] = string(record.Value) })
	}
	for number := 0; number < records; number++ {
		if seen[key(number)] != value(number) {
			return fmt.Errorf("%s has %q", key(number), seen[key(number)])
		}
	}
	if err := reader.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	offsets, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	var committed int64
	offsets.Each(func(offset kadm.OffsetResponse) { committed += offset.At })
	if committed != records {
		return fmt.Errorf("%d records are committed", committed)
	}
	return nil
}
