"""How to test it: `pip install 'ferryman[celery,embedded]' pytest`, then `pytest`. The fixture comes with ferryman."""

from datetime import timedelta

import pytest
import shop


@pytest.fixture(autouse=True)
def broker(ferryman_broker):
    ferryman_broker.use(shop.app)
    shop.sent.clear()
    return ferryman_broker


def test_a_customer_is_welcomed_at_once_and_asked_a_week_later(broker):
    shop.sign_up("ann@example.com")
    broker.assert_enqueued(shop.send_mail, ["ann@example.com"], queue="mail", due_in=0)
    broker.assert_enqueued(shop.send_mail, due_in=timedelta(days=7))
    broker.drain()
    assert shop.sent == ["ann@example.com"]

    broker.advance(timedelta(days=7))
    broker.drain()
    assert shop.sent == ["ann@example.com", "ann@example.com"]


def test_a_mail_is_sent_when_the_server_is_up_again(broker):
    shop.send_mail.delay("bob@example.com", is_up=False)
    assert [run.state for run in broker.drain(scheduled=True)] == ["RETRY", "SUCCESS"]
    assert shop.sent == ["bob@example.com"]
