"""ferryman: a Redis broker for Celery, and a toolkit that migrates and audits Redis job queues.

The subpackages are links to the top-level folders of the repository.
"""
