"""Apache Kafka's configuration keys: what a node, a topic, a group is set to, and why a value is refused.

keys.txt   every key with its type, default, validity and documentation; table reads it
key        one key: text to value and back; validity: which values are valid
layers     the values of a broker's keys, from file and dynamic settings; broker: these as a whole, checked by checks
listeners  a node's addresses; bounds: what groups may set; advice: what is odd in a file
topic, group, client_metrics   the settings of these resources, typed, on top of the broker's
describe   all of it as DescribeConfigs shows it
properties   Java's file format; single_node: the file that a first start writes
"""
