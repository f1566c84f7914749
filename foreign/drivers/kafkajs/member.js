// A member of a consumer group: told by lines of JSON on stdin, telling by lines of JSON on stdout.
// The lines and the settings are described in tests/rigs/group_members/python_member.py.
//
// kafkajs says that a rebalance has begun, but may still hand out records of its last fetch then: so what it
// had before is told as lost, whose end may lag, and not as revoked.
const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

function tell(event, fields = {}) {
  process.stdout.write(JSON.stringify({ event, at: performance.timeOrigin + performance.now(), ...fields }) + '\n')
}

async function member(settings) {
  const kafka = new Kafka({
    brokers: [settings.bootstrap],
    clientId: settings.name,
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 20 },
  })
  const consumer = kafka.consumer({
    groupId: settings.group,
    sessionTimeout: settings.session_ms,
    heartbeatInterval: settings.heartbeat_ms,
    rebalanceTimeout: settings.max_poll_ms,
    metadataMaxAge: 300,
    maxWaitTimeInMs: 100,
  })
  let owned = []
  const leave = () => {
    if (owned.length) tell('lost', { partitions: owned })
    owned = []
  }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    leave()
    owned = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) => partitions.map(each => [topic, each]))
    tell('assigned', { partitions: owned })
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => tell('failed', { doing: 'live', error: String(payload.error) }))
  tell('started')
  await consumer.connect()
  await consumer.subscribe({ topics: settings.topics, fromBeginning: true })
  await consumer.run({
    autoCommit: settings.commit === 'auto',
    eachBatch: async ({ batch, resolveOffset, isRunning, isStale, heartbeat }) => {
      if (!isRunning() || isStale() || batch.isEmpty()) return
      const place = { topic: batch.topic, partition: batch.partition }
      tell('records', { records: batch.messages.map(({ offset }) => [batch.topic, batch.partition, Number(offset)]) })
      resolveOffset(batch.lastOffset())
      if (settings.commit === 'each') {
        await consumer.commitOffsets([{ ...place, offset: String(Number(batch.lastOffset()) + 1) }])
        tell('committed')
      }
      await heartbeat()
    },
  })
  // The end of the line means that the test is gone; `close` is all that kafkajs can be told.
  for await (const text of readline.createInterface({ input: process.stdin })) {
    if (JSON.parse(text).op !== 'close') continue
    await consumer.disconnect()
    leave()
    tell('closed')
    process.exit(0)
  }
  process.exit(1)
}

module.exports = { member }
