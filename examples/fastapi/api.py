"""FastAPI and Celery on ferryman: an order that waits or runs is not enqueued again, however often the client sends it.

Each reply has the id of the task that charges the order, because the id is made of the order.

pip install fastapi uvicorn 'ferryman[celery]'
uvicorn api:web
celery -A api worker
curl -X POST localhost:8000/orders/17
"""

import os

from celery import Celery
from fastapi import FastAPI, HTTPException
from kombu.exceptions import OperationalError

app = Celery("api", broker=os.environ.get("BROKER_URL", "ferryman://localhost:6379/0"))
web = FastAPI()
charged: list[int] = []


@app.task(name="api.charge", acks_late=True)
def charge(order: int) -> None:
    charged.append(order)


@web.post("/orders/{order}", status_code=202)
def orders(order: int) -> dict[str, str]:  # no "async": FastAPI runs it in a thread, so waiting for Redis blocks no other request
    name = f"charge-{order}"
    try:
        # Celery's random id would name a message that is not stored if the order is enqueued already.
        result = charge.apply_async([order], task_id=name, headers={"x-unique-key": name})
    except OperationalError as error:
        raise HTTPException(503, "the order could not be taken; try again") from error
    return {"task": result.id}
