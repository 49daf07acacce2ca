// A process of kue that is measured. Started by kue.py.
//
// node kue_process.js <folder of kue> <port> consume <type> <at once>      runs empty jobs until it is killed
// node kue_process.js <folder of kue> <port> stamp <type>                  tells when each job began, s since it was sent
// node kue_process.js <folder of kue> <port> publish <type> <n> <at once>  publishes n jobs and says how many seconds that took
// node kue_process.js <folder of kue> <port> send <type>                   publishes a job, with the moment, for each line it reads
'use strict'

const { createRequire } = require('module')
const readline = require('readline')
const [, , folder, port, role, type, ...numbers] = process.argv
const kue = require(folder)
const redis = createRequire(folder + '/')('redis')

const queue = kue.createQueue({ prefix: 'q', redis: { host: '127.0.0.1', port: Number(port) } })
queue.on('error', (error) => console.error(String(error)))

// Seconds since 1970, finer than Date.now.
const now = () => (performance.timeOrigin + performance.now()) / 1000

function consume (atOnce) {
  queue.process(type, Number(atOnce), (job, done) => done())
  console.log('ready')
}

function stamp () {
  const ledger = redis.createClient(Number(port), '127.0.0.1')
  ledger.select(1)
  queue.process(type, (job, done) => {
    ledger.rpush('ledger', now() - job.data.at)
    done()
  })
  console.log('ready')
}

function publish (n, atOnce) {
  let begun = 0
  let saved = 0
  const start = now()
  const next = () => {
    if (begun === Number(n)) return
    begun++
    queue.create(type, { n: begun }).save(() => {
      saved++
      if (saved === Number(n)) {
        console.log(now() - start)
        process.exit()
      }
      next()
    })
  }
  for (let i = 0; i < Number(atOnce); i++) next()
}

function send () {
  readline.createInterface({ input: process.stdin }).on('line', () => queue.create(type, { at: now() }).save())
  console.log('ready')
}

({ consume, stamp, publish, send })[role](...numbers)
