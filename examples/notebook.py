"""A keyspace in a notebook: SQL, damaged jobs beside their findings, and a stream of what changes.

    python examples/notebook.py 'ferryman://localhost:6379/0?family=kue'

Each part that begins with ``# %%`` is a cell: Jupyter (with jupytext) and most editors open this file as a notebook. There, leave
out the first cell if there is a session called ``spark`` already, and write your address into ``url``. Only reads.
"""

# %% Spark, with the data source
import sys
import tempfile

from ferryman.spark.session import session
from ferryman.spark.source import Ferryman
from pyspark.sql.functions import col

spark = session()
spark.dataSource.register(Ferryman)  # not needed where ferryman is installed: Spark finds it there by itself
url = sys.argv[1]

# %% A view, and what is in the queues
spark.sql(f"CREATE OR REPLACE TEMP VIEW totals USING ferryman OPTIONS (url '{url}', table 'totals')")
spark.sql("SELECT queue, state, `count` FROM totals WHERE `count` > 0 ORDER BY queue, state").show(truncate=False)

# %% All tables from one reading, on all cores
from ferryman.spark.frames import read  # noqa: E402 - imports stand in the cell that needs them

keyspace = read(spark, url)
jobs, findings = keyspace.jobs().cache(), keyspace.findings().cache()

# %% The jobs that wait longest
jobs.where(col("state") == "waiting").orderBy("created_at").select("queue", "id", "name", "priority").show(5, truncate=False)

# %% What is broken, with the jobs that it is about
findings.groupBy("rule", "severity").count().orderBy("rule").show(100)
broken = findings.join(jobs, findings.job_id == jobs.id).select("rule", "id", "state", "detail")
broken.show(10, truncate=80)

# %% What changes: one look now; leave the trigger out for one every five seconds, until looks.stop()
folder = tempfile.mkdtemp()
stream = spark.readStream.format("ferryman").options(url=url, table="totals").load()
looks = (
    stream.writeStream.format("memory")
    .queryName("looks")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
looks.awaitTermination()
spark.sql("SELECT timestamp_millis(at_ms) AS at, state, sum(`count`) AS jobs FROM looks GROUP BY 1, 2 ORDER BY 1, 2").show()
