"""Parameters of URLs: each family has its own, and what it does not use is an error, never passed over."""

from __future__ import annotations

import pytest
from ferryman.schema.connection.address import OF_CONNECTIONS, OPTIONS, Address
from ferryman.schema.connection.ignored import IGNORED_OPTIONS, SENTINEL_OPTIONS
from ferryman.schema.errors import AddressError
from ferryman.schema.family import family_names, get_family
from ferryman.spark.frames import read
from ferryman.spark.source import Ferryman

FOREIGN = [name for name in family_names() if name != "ferryman"]
VALUES = {"priority_order": "ascending", "queue_order_strategy": "sorted", "durability": "local"}
VALUES |= dict.fromkeys(("remove_revoked", "history", "otel"), "true")
VALUES |= {"ssl_cert_reqs": "none", "ssl_min_version": "1.2", "ssl_include_verify_flags": "VERIFY_X509_STRICT"}
VALUES |= dict.fromkeys(("ssl_check_hostname", "ssl_validate_ocsp", "ssl_validate_ocsp_stapled", "checksum"), "false")
VALUES |= {"ssl_exclude_verify_flags": "VERIFY_X509_STRICT"}
OF_SERVERS = sorted(OF_CONNECTIONS - {"checksum"})
ALL = sorted({*OPTIONS, *IGNORED_OPTIONS, *(name for family in family_names() for name in get_family(family).parameters)})


def url(family: str, name: str) -> str:
    return f"ferryman://localhost/0?family={family}&{name}={VALUES.get(name, '5')}"


@pytest.mark.parametrize("family", [*FOREIGN, "auto"])
def test_what_a_family_does_not_use_is_an_error_that_lists_what_it_does(family: str) -> None:
    own = set() if family == "auto" else set(get_family(family).parameters)
    unused = [name for name in ALL if name not in OF_CONNECTIONS | own]
    assert len(unused) >= 10
    for name in unused:
        with pytest.raises(
            AddressError, match=rf"the parameter '{name}' in the URL means nothing to family={family}; known are: "
        ) as error:
            Address.parse(url(family, name))
        for known in sorted({*OF_CONNECTIONS, *own, "family", "prefix", "db"}):
            assert known in str(error.value)
    with pytest.raises(AddressError, match="unknown parameter 'colour' in the URL; known are: checksum, client_name"):
        Address.parse(url(family, "colour"))


@pytest.mark.parametrize("family", family_names())
def test_what_says_how_to_reach_a_server_goes_with_every_family(family: str) -> None:
    for name in OF_SERVERS:
        assert name in Address.parse(url(family, name)).options


def test_the_brokers_options_go_with_its_own_queues_alone() -> None:
    for name in OPTIONS:
        if name not in ("durability", "checksum"):
            assert name in Address.parse(url("ferryman", name)).options
    for name in IGNORED_OPTIONS:
        with pytest.raises(AddressError, match=f"the parameter '{name}' in the URL means nothing to family=ferryman"):
            Address.parse(url("ferryman", name))
        if name not in SENTINEL_OPTIONS:
            passed = Address.parse(f"ferryman://localhost/0?{name}=1", as_broker=True)
            assert (passed.options, passed.ignored) == ({}, (name,))


@pytest.mark.parametrize("family", FOREIGN)
def test_the_spark_source_refuses_them_too(family: str) -> None:
    wrong = url(family, "lease")
    for open_it in (lambda source: source.reader(None), lambda source: source.streamReader(None)):
        with pytest.raises(AddressError, match="the parameter 'lease' in the URL means nothing"):
            open_it(Ferryman({"url": wrong, "table": "totals"}))
    with pytest.raises(AddressError, match="the parameter 'lease' in the URL means nothing"):
        Ferryman({"url": wrong}).writer(None, False)
    with pytest.raises(AddressError, match="the parameter 'lease' in the URL means nothing"):
        read(None, wrong)
