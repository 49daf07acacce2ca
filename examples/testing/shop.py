"""An app as any: tasks that enqueue others, wait, and are tried again."""

from celery import Celery

app = Celery("shop", broker="ferryman://localhost:6379/0")
app.conf.task_routes = {"shop.send_mail": {"queue": "mail"}}

sent: list[str] = []


@app.task(name="shop.send_mail", bind=True, max_retries=3, default_retry_delay=60)
def send_mail(self, to: str, is_up: bool = True) -> str:
    """Sends a mail, or tries again in a minute."""
    if not is_up:
        raise self.retry(kwargs={"is_up": True})
    sent.append(to)
    return to


def sign_up(to: str) -> None:
    """Welcomes a customer, and asks a week later how it went."""
    send_mail.delay(to)
    send_mail.apply_async([to], countdown=7 * 24 * 3600)
