// @confluentinc/kafka-javascript (librdkafka) against a node: node confluent.js HOST:PORT
//
// Creates a topic, produces with every codec, reads all of it back in a group of each protocol, and commits. The exit status
// says whether all of it held.
const assert = require('node:assert')
const { KafkaJS: { CompressionTypes, Kafka, logLevel } } = require('@confluentinc/kafka-javascript')

const RECORDS = 1000
const PARTITIONS = 4
const LIMIT_MS = 60_000

async function main(address) {
  const kafka = new Kafka({ kafkaJS: { brokers: [address], clientId: 'interop', logLevel: logLevel.ERROR } })
  const admin = kafka.admin()
  await admin.connect()
  for (const compression of Object.values(CompressionTypes)) {
    const topic = `confluent-${compression}`
    await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }] })
    await write(kafka, topic, compression)
    for (const protocol of ['classic', 'consumer']) {
      const groupId = `${topic}-${protocol}`
      const seen = await read(kafka, topic, groupId, protocol)
      for (let number = 0; number < RECORDS; number++) assert.strictEqual(seen.get(`key-${number}`), `value-${number}`)
      const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
      assert.strictEqual(partitions.reduce((sum, { offset }) => sum + Number(offset), 0), RECORDS)
    }
  }
  await admin.disconnect()
}

async function write(kafka, topic, compression) {
  const producer = kafka.producer({ kafkaJS: { idempotent: true, compression } })
  await producer.connect()
  const messages = Array.from({ length: RECORDS }, (_, number) => ({ key: `key-${number}`, value: `value-${number}` }))
  await producer.send({ topic, messages })
  await producer.disconnect()
}

async function read(kafka, topic, groupId, protocol) {
  const settings = protocol === 'consumer' ? { 'group.protocol': 'consumer', 'auto.offset.reset': 'earliest' } : {}
  const consumer = kafka.consumer(
    protocol === 'consumer'
      ? { ...settings, 'group.id': groupId }
      : { kafkaJS: { groupId, fromBeginning: true } },
  )
  await consumer.connect()
  await consumer.subscribe({ topics: [topic] })
  const seen = new Map()
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`${seen.size} records in ${LIMIT_MS} ms`)), LIMIT_MS)
    const eachMessage = async ({ message }) => {
      seen.set(message.key.toString(), message.value.toString())
      if (seen.size === RECORDS) {
        clearTimeout(late)
        resolve()
      }
    }
    consumer.run({ eachMessage }).catch(reject)
  })
  await consumer.disconnect() // commits what was read
  return seen
}

main(process.argv[2]).then(() => { console.log('confluent: all well'); process.exit(0) }, (error) => {
  console.error(error)
  process.exit(1)
})
