// Creates an email job in kue, and says what becomes of it: node producer.js
//
// Needs: npm install kue
'use strict'

const kue = require('kue')
const queue = kue.createQueue({ redis: process.env.REDIS_URL || 'redis://127.0.0.1:6379/0' })

const job = queue.create('email', { to: 'ann@example.com', subject: 'Welcome' }).attempts(3).backoff(true)
job.on('progress', (percent) => console.log(`job ${job.id} is ${percent} % done`))
job.on('complete', (result) => { console.log(`job ${job.id} is complete:`, JSON.stringify(result)); process.exit() })
job.on('failed', (message) => { console.log(`job ${job.id} has failed: ${message}`); process.exit(1) })
job.save((error) => { if (error) throw error })
