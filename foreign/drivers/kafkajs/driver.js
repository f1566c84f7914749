// The kafkajs client as a driver: one JSON request per line on stdin, one JSON answer per line on stdout.
// The operations and their fields are described in tests/compat/driver.py.
//
// kafkajs' public consumer always joins a group, so `consume` goes one level down, to the broker object that
// the public consumer itself fetches with.
const fs = require('fs')
const readline = require('readline')
const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = require('kafkajs')
const lz4 = require('lz4js')
const { ZstdCodec } = require('zstd-codec')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
// lz4js leaves the flag for independent blocks unset, and Kafka refuses linked ones. Up to 4 MB there is only
// one block, so the flag may be set afterwards, with the header checksum that belongs to it.
function independentBlocks(frame) {
  frame[4] |= 0x20
  frame[6] = 0x73
  return frame
}
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => independentBlocks(Buffer.from(lz4.compress(encoder.buffer))),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})

const CODECS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }
const ACKS = { 0: 0, 1: 1, all: -1 }
const RESOURCES = { topic: 2, broker: 4 }
const SOURCES = {
  1: 'DYNAMIC_TOPIC_CONFIG',
  2: 'DYNAMIC_BROKER_CONFIG',
  3: 'DYNAMIC_DEFAULT_BROKER_CONFIG',
  4: 'STATIC_BROKER_CONFIG',
  5: 'DEFAULT_CONFIG',
}

let kafka
let admin

function open(address, security = {}) {
  kafka = new Kafka({ brokers: [address], clientId: 'kafkajs-driver', logLevel: logLevel.NOTHING, retry: { retries: 2 }, ...security })
  admin = kafka.admin()
}

// How one connects where TLS is spoken, and where one has to log in.
function secured({ authority, pair, mechanism, username, password }) {
  const pem = pair && fs.readFileSync(pair)
  const ssl = { ca: fs.readFileSync(authority), ...(pair ? { key: pem, cert: pem } : {}) }
  if (!mechanism) return { ssl }
  if (mechanism === 'OAUTHBEARER') {
    return { ssl, sasl: { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: password }) } }
  }
  return { ssl, sasl: { mechanism: mechanism.toLowerCase(), username, password } }
}

const decode = text => (text == null ? null : Buffer.from(text, 'base64'))
const encode = bytes => (bytes == null ? null : bytes.toString('base64'))

async function produce({ topic, partition, acks = 'all', codec = 'none', idempotent = false, records }) {
  const producer = kafka.producer({ idempotent, createPartitioner: Partitioners.DefaultPartitioner, maxInFlightRequests: 1 })
  await producer.connect()
  try {
    const messages = records.map(({ key, value, headers = [], timestamp }) => ({
      partition,
      key: decode(key),
      value: decode(value),
      headers: Object.fromEntries(headers.map(([name, data]) => [name, decode(data)])),
      ...(timestamp == null ? {} : { timestamp: String(timestamp) }),
    }))
    const results = await producer.send({ topic, acks: ACKS[acks], compression: CODECS[codec], messages })
    const base = acks === '0' ? -1 : Number(results[0].baseOffset)
    return records.map((_, index) => (base < 0 ? -1 : base + index))
  } finally {
    await producer.disconnect()
  }
}

// The one object that kafkajs keeps behind a private symbol and the tests need.
function createCluster() {
  const symbol = Object.getOwnPropertySymbols(kafka).find(each => each.description.endsWith('createCluster'))
  return kafka[symbol]({ allowAutoTopicCreation: false })
}

async function startOffset(topic, partition, offset) {
  if (typeof offset === 'number') return offset
  if (!['earliest', 'latest'].includes(offset)) throw new Error(`kafkajs knows no offset ${offset}`)
  const found = (await admin.fetchTopicOffsets(topic)).find(each => each.partition === partition)
  return Number(offset === 'earliest' ? found.low : found.high)
}

async function withLeader(topic, partition, work) {
  const cluster = createCluster()
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    const { leader } = cluster.findTopicPartitionMetadata(topic).find(each => each.partitionId === partition)
    return await work(await cluster.findBroker({ nodeId: leader }))
  } finally {
    await cluster.disconnect()
  }
}

async function consume({ topic, partition, offset, count, isolation, timeout_ms: timeout = 15000 }) {
  let next = await startOffset(topic, partition, offset)
  return withLeader(topic, partition, async broker => {
    const records = []
    const deadline = Date.now() + timeout
    while (records.length < count && Date.now() < deadline) {
      const { responses } = await broker.fetch({
        replicaId: -1,
        isolationLevel: isolation === 'read_committed' ? 1 : 0,
        maxWaitTime: 300,
        topics: [{ topic, partitions: [{ partition, fetchOffset: String(next), maxBytes: 4 << 20, currentLeaderEpoch: -1, logStartOffset: -1 }] }],
      })
      for (const message of responses[0].partitions[0].messages) {
        if (Number(message.offset) < next || message.isControlRecord) continue
        records.push(describe(message))
        next = Number(message.offset) + 1
      }
    }
    return records.slice(0, count)
  })
}

function describe({ offset, timestamp, key, value, headers = {} }) {
  const pairs = Object.entries(headers).map(([name, data]) => [name, encode(data)])
  return { offset: Number(offset), timestamp: Number(timestamp), key: encode(key), value: encode(value), headers: pairs }
}

async function stream({ topic, partitions, count, size, acks, codec, idempotent }) {
  const value = Buffer.alloc(size).toString('base64')
  let received = 0
  let ordered = true
  for (let partition = 0; partition < partitions; partition++) {
    const keys = []
    for (let index = partition; index < count; index += partitions) keys.push(String(index))
    const records = keys.map(key => ({ key: Buffer.from(key).toString('base64'), value }))
    await produce({ topic, partition, acks, codec, idempotent, records })
    const back = await consume({ topic, partition, offset: 'earliest', count: keys.length })
    received += back.length
    ordered = ordered && back.every((record, i) => decode(record.key).toString() === keys[i] && record.value === value)
  }
  return { received, ordered }
}

async function position({ topic, partition, at }) {
  if (typeof at === 'number') {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, at)
    return { offset: Number(found.find(each => each.partition === partition).offset) }
  }
  return { offset: await startOffset(topic, partition, at) }
}

const operations = {
  version: async () => ({ version: require('kafkajs/package.json').version }),
  produce,
  consume,
  stream,
  position,
  async cluster() {
    const { brokers, controller, clusterId } = await admin.describeCluster()
    return { cluster_id: clusterId, controller, nodes: brokers.map(({ nodeId, host, port }) => ({ id: nodeId, host, port })) }
  },
  async create_topic({ topic, partitions = -1, replication = -1, configs = {}, validate_only: validateOnly = false }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const topics = [{ topic, numPartitions: partitions, replicationFactor: replication, configEntries }]
    const created = await admin.createTopics({ topics, validateOnly, waitForLeaders: !validateOnly })
    // kafkajs answers false instead of throwing when the topic is there already
    if (!created) throw Object.assign(new Error(`Topic '${topic}' already exists.`), { type: 'TOPIC_ALREADY_EXISTS' })
    return {}
  },
  list_topics: () => admin.listTopics(),
  async describe_topic({ topic }) {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    const partitions = topics[0].partitions.map(each => ({ index: each.partitionId, leader: each.leader, replicas: each.replicas, isr: each.isr }))
    return { topic: topics[0].name, partitions: partitions.sort((one, other) => one.index - other.index) }
  },
  async delete_topic({ topic }) {
    await admin.deleteTopics({ topics: [topic] })
    return {}
  },
  async create_partitions({ topic, total }) {
    await admin.createPartitions({ topicPartitions: [{ topic, count: total }] })
    return {}
  },
  async describe_configs({ resource, name }) {
    const { resources } = await admin.describeConfigs({ resources: [{ type: RESOURCES[resource], name }], includeSynonyms: true })
    return Object.fromEntries(resources[0].configEntries.map(entry => [entry.configName, {
      value: entry.configValue,
      source: SOURCES[entry.configSource],
      read_only: entry.readOnly,
      sensitive: entry.isSensitive,
      synonyms: entry.configSynonyms.map(synonym => [synonym.configName, synonym.configValue, SOURCES[synonym.configSource]]),
    }]))
  },
  // kafkajs knows only the old AlterConfigs, which replaces all of a resource's configs.
  async replace_configs({ resource, name, set = {}, validate_only: validateOnly = false }) {
    const configEntries = Object.entries(set).map(([key, value]) => ({ name: key, value }))
    await admin.alterConfigs({ validateOnly, resources: [{ type: RESOURCES[resource], name, configEntries }] })
    return {}
  },
  async delete_records({ topic, partition, before }) {
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    return {}
  },
}

// kafkajs wraps errors several times; the innermost one with a `type` is what the broker answered.
function failure(error) {
  for (let each = error; each; each = each.originalError || each.cause || (each.errors && each.errors[0])) {
    if (each.type) return { name: each.type, message: each.message }
  }
  return { name: 'UNKNOWN_SERVER_ERROR', message: String(error.stack) }
}

async function answer(line) {
  const request = JSON.parse(line)
  const operation = operations[request.op]
  try {
    if (!operation) throw new Error(`unknown operation ${request.op}`)
    return { ok: await operation(request) }
  } catch (error) {
    return { error: failure(error) }
  }
}

async function main() {
  const zstd = await new Promise(resolve => ZstdCodec.run(module => resolve(new module.Streaming())))
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async encoder => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
  })
  if (process.argv[2] === 'each') return answerEach()
  open(process.argv[2])
  await admin.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(line)) + '\n')
  }
  await admin.disconnect()
}

// Each request says which broker it is for, and how one connects to it.
async function answerEach() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { address, security } = JSON.parse(line)
    open(address, secured(security))
    const result = await admin.connect().then(() => answer(line), error => ({ error: failure(error) }))
    process.stdout.write(JSON.stringify(result) + '\n')
    await admin.disconnect()
  }
}

const run = process.argv[2] === 'member' ? () => require('./member').member(JSON.parse(process.argv[3])) : main

run().catch(error => {
  console.error(error)
  process.exit(1)
})
