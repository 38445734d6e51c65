// Go clients against a node: what franz-go and sarama do with Kafka, they do here.
//
//	interop franz|sarama HOST:PORT
//
// Each creates a topic, produces with every codec, reads all of it back in a group, commits, and looks at the committed
// offsets. The exit status says whether all of it held.
package main

import (
	"fmt"
	"os"
	"time"
)

const (
	records    = 1000
	partitions = 4
	limit      = 60 * time.Second
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: interop franz|sarama HOST:PORT"))
	}
	clients := map[string]func(string) error{"franz": franz, "sarama": sarama}
	run, known := clients[os.Args[1]]
	if !known {
		fail(fmt.Errorf("there is no client %q", os.Args[1]))
	}
	if err := run(os.Args[2]); err != nil {
		fail(err)
	}
	fmt.Printf("%s: all well\n", os.Args[1])
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func key(number int) string   { return fmt.Sprintf("key-%d", number) }
func value(number int) string { return fmt.Sprintf("value-%d", number) }
