// A process of kue, told on stdin what to do and answering on stdout, one JSON line each. Started by driver.py.
//
// node driver.js <folder of kue> <port> <prefix>
//
// Lines in:   {"call": n, "do": name, ...}     Lines out:  {"call": n, "ok": value} or {"call": n, "error": text}
//             see COMMANDS                                 {"event": name, ...}, as things happen
//
// What a job's handler does stands in its data: {"do": "ok" | "fail" | "hang" | "wait", "result", "message", "fails", "ms", "progress"}.
'use strict'

const readline = require('readline')
const kue = require(process.argv[2])
const [port, prefix] = [Number(process.argv[3]), process.argv[4]]
const settings = { prefix, redis: { host: '127.0.0.1', port } }

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')

if (!kue.prototype.watchStuckJobs) {
  // Before 0.7 there is no other way to another port.
  const redis = require(require.resolve('redis', { paths: [process.argv[2]] }))
  kue.redis.createClient = () => redis.createClient(port, '127.0.0.1')
}
const queue = kue.createQueue(settings)
queue.on('error', (error) => say({ event: 'queue error', text: String(error) }))
const waiting = {}
let web

function handle (job, done) {
  const data = job.data || {}
  say({ event: 'begin', id: Number(job.id), pid: process.pid })
  for (const step of data.progress || []) job.progress(...step)
  if (data.log) job.log(data.log)
  const finish = () => {
    const made = Number((job.toJSON().attempts || {}).made || 0)
    if (data.do === 'fail' && !(made >= (data.fails === undefined ? Infinity : data.fails))) {
      return done(new Error(data.message || 'it failed'))
    }
    if (data.do === 'throw text') return done(data.message)
    say({ event: 'end', id: Number(job.id) })
    done(null, data.result)
  }
  if (data.do === 'hang') return
  if (data.do === 'wait') { waiting[job.id] = finish; return }
  data.ms ? setTimeout(finish, data.ms) : finish()
}

function create (words) {
  const job = queue.create(words.type, words.data)
  const options = words.options || {}
  for (const name of ['priority', 'delay', 'attempts', 'backoff', 'ttl', 'removeOnComplete']) {
    if (options[name] !== undefined) job[name](options[name])
  }
  return job
}

// Each gets the line and a callback (error, value).
const COMMANDS = {
  create: (words, fn) => {
    const job = create(words)
    if (words.listen) {
      for (const name of ['enqueue', 'start', 'promotion', 'progress', 'failed attempt', 'failed', 'complete', 'remove']) {
        job.on(name, (...args) => say({ event: 'of job', name, id: Number(job.id), args }))
      }
    }
    job.save((error) => fn(error, Number(job.id)))
  },
  createAll: (words, fn) => {
    const ids = []
    words.jobs.forEach((each, i) => {
      const job = create(each)
      job.save((error) => {
        if (error) return fn(error)
        ids[i] = Number(job.id)
        if (Object.keys(ids).length === words.jobs.length) fn(null, ids)
      })
    })
  },
  process: (words, fn) => { queue.process(words.type, words.concurrency || 1, handle); fn(null, process.pid) },
  finish: (words, fn) => { waiting[words.id](); delete waiting[words.id]; fn(null, true) },
  promote: (words, fn) => { queue.promote(200); fn(null, true) },
  timers: (words, fn) => { queue.setupTimers(); fn(null, true) },
  get: (words, fn) => kue.Job.get(words.id, (error, job) => {
    if (error) return fn(error)
    kue.Job.log(words.id, (error, log) => fn(error, Object.assign(job.toJSON(), { log })))
  }),
  state: (words, fn) => kue.Job.get(words.id, (error, job) => error ? fn(error) : job.state(words.state, fn)),
  remove: (words, fn) => kue.Job.get(words.id, (error, job) => error ? fn(error) : job.remove(fn)),
  counts: (words, fn) => {
    const found = {}
    const states = ['inactive', 'delayed', 'active', 'complete', 'failed']
    for (const state of states) {
      queue.card(state, (error, number) => {
        found[state] = error ? String(error) : number
        if (Object.keys(found).length === states.length) {
          queue.workTime((error, ms) => fn(error, Object.assign(found, { workTime: Number(ms) })))
        }
      })
    }
  },
  listen: (words, fn) => { web = kue.app.listen(0, '127.0.0.1', () => fn(null, web.address().port)) },
  shutdown: (words, fn) => queue.shutdown(words.ms, (error) => fn(error, true))
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const words = JSON.parse(line)
  const answer = (error, value) => say(error ? { call: words.call, error: String(error.message || error) } : { call: words.call, ok: value })
  try {
    COMMANDS[words.do](words, answer)
  } catch (error) {
    answer(error)
  }
}).on('close', () => process.exit())
say({ event: 'up', pid: process.pid })
