// Runs the report jobs of the queue, also those that Celery publishes: node worker.js
//
// Needs: npm install kue
'use strict'

const kue = require('kue')
const queue = kue.createQueue({ redis: process.env.REDIS_URL || 'redis://127.0.0.1:6379/0' })

queue.process('report', (job, done) => {
  console.log(`report about ${job.data.title}`)
  done(null, { pages: 3 })
})
