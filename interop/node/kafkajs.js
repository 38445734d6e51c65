// kafkajs against a node: node kafkajs.js HOST:PORT
//
// Creates a topic, produces with the codecs that kafkajs has, reads all of it back in a group, commits, and looks at the
// committed offsets. The exit status says whether all of it held.
const assert = require('node:assert')
const { CompressionTypes, Kafka, logLevel } = require('kafkajs')

const RECORDS = 1000
const PARTITIONS = 4
const LIMIT_MS = 60_000

async function main(address) {
  const kafka = new Kafka({ brokers: [address], clientId: 'interop', logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  for (const [name, compression] of [['none', CompressionTypes.None], ['gzip', CompressionTypes.GZIP]]) {
    await topic(kafka, admin, `kafkajs-${name}`, compression)
  }
  const { brokers, clusterId } = await admin.describeCluster()
  assert.strictEqual(brokers.length, 1)
  assert.ok(clusterId)
  await admin.disconnect()
}

async function topic(kafka, admin, name, compression) {
  await admin.createTopics({ topics: [{ topic: name, numPartitions: PARTITIONS, replicationFactor: 1 }] })
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const messages = Array.from({ length: RECORDS }, (_, number) => ({
    key: `key-${number}`,
    value: `value-${number}`,
    headers: { number: String(number) },
  }))
  await producer.send({ topic: name, messages, compression })
  await producer.disconnect()
  const groupId = `${name}-readers`
  const seen = await read(kafka, name, groupId)
  for (const { key, value } of messages) assert.strictEqual(seen.get(key), value)
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [name] })
  assert.strictEqual(partitions.reduce((sum, { offset }) => sum + Number(offset), 0), RECORDS)
  await admin.deleteGroups([groupId])
}

async function read(kafka, name, groupId) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 10_000 })
  await consumer.connect()
  await consumer.subscribe({ topic: name, fromBeginning: true })
  const seen = new Map()
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`${seen.size} records in ${LIMIT_MS} ms`)), LIMIT_MS)
    const eachMessage = async ({ message }) => {
      seen.set(message.key.toString(), message.value.toString())
      assert.strictEqual(`key-${message.headers.number}`, message.key.toString())
      if (seen.size === RECORDS) {
        clearTimeout(late)
        resolve()
      }
    }
    consumer.run({ eachMessage }).catch(reject)
  })
  await consumer.stop() // commits what was read
  await consumer.disconnect()
  return seen
}

main(process.argv[2]).then(() => console.log('kafkajs: all well'), (error) => {
  console.error(error)
  process.exit(1)
})
