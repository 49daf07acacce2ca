"""``ferryman generate``: writes a realistic keyspace of any family, sound or with injected faults."""

from __future__ import annotations

import click
from attrs import evolve

from ..migrations.generate import GeneratedKeyspace, KeyspaceSpec, generate_keyspace
from ..schema.connection.address import DEFAULT_FAMILY, Address
from ..schema.errors import UsageError
from ..schema.family import family_names, get_family
from ..schema.text import plural
from .options import address_argument, moment, now_option, output_option
from .output import Output
from .status import Status


@click.command()
@address_argument(is_read=False)
@click.option("--family", "family", type=click.Choice(family_names()), help="Instead of family= in the URL.")
@click.option("--jobs", type=click.IntRange(min=1), default=1000, show_default=True, help="How many.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another number gives other jobs.")
@click.option("--damage", "faults", metavar="RULE=K", multiple=True, help="Break this rule of the family at K jobs. Repeatable.")
@click.option("--processes", type=click.IntRange(min=1), help="How many write; without it one for each core, if jobs are many.")
@now_option
@output_option
def command(
    url: Address,
    family: str | None,
    jobs: int,
    seed: int,
    faults: tuple[str, ...],
    processes: int | None,
    now_ms: int | None,
    output: Output,
) -> Status:
    """Write a realistic keyspace, sound or with injected faults.

    For tests, demos and benchmarks: jobs in all states that the system knows, names that trouble careless software, a few
    large payloads among many small ones. The same --jobs, --seed and --now give the same keyspace, whatever --processes is.
    Refuses a keyspace that has jobs.

    With --format json: one object (family, prefix, jobs, seed, now_ms, by_state, by_queue, damage, seconds).

    \b
    Examples:
      ferryman generate 'ferryman://localhost:6379/9?family=kue' --jobs 100000
      ferryman generate ferryman://localhost:6379/9 --family kue --damage KUE-5=3 --damage KUE-8=1
    """
    if family is not None:
        is_default = url.family == DEFAULT_FAMILY == url.prefix
        url = evolve(url, family=family, prefix=get_family(family).default_prefix if is_default else url.prefix)
    spec = KeyspaceSpec(jobs, seed, moment(url, now_ms), _numbers(faults))
    with output.progress() as progress:
        generated = generate_keyspace(url, spec, progress, processes)
    if output.json:
        output.line(
            {
                "family": url.family,
                "prefix": url.prefix,
                "jobs": generated.census.jobs,
                "seed": seed,
                "now_ms": spec.now_ms,
                "by_state": dict(sorted(generated.census.by_state.items())),
                "by_queue": dict(sorted(generated.census.by_queue.items())),
                "damage": dict(generated.faults),
                "seconds": round(generated.seconds, 3),
            }
        )
    else:
        _show(output, url, spec, generated)
    return Status.FINE


def _numbers(faults: tuple[str, ...]) -> dict[str, int]:
    """Rule -> number. Raises UsageError for a text of another form."""
    numbers = {}
    for text in faults:
        rule, _, number = text.partition("=")
        if not rule or not number.isascii() or not number.isdigit():
            raise UsageError(f"--damage wants RULE=K, as in KUE-5=3, not {text!r}")
        numbers[rule] = int(number)
    return numbers


def _show(output: Output, url: Address, spec: KeyspaceSpec, generated: GeneratedKeyspace) -> None:
    """The result for people."""
    states = ", ".join(f"{number:,} {state}" for state, number in sorted(generated.census.by_state.items()))
    rate = generated.census.jobs / max(generated.seconds, 0.001)
    census = generated.census
    jobs, queues = plural(census.jobs, "job"), plural(len(census.by_queue), "queue")
    output.say(f"{url.display()}: {census.jobs:,} {jobs} in {len(census.by_queue)} {queues} ({states})", "bold")
    output.say(f"{generated.seconds:.1f} s, {rate:,.0f} jobs/s; seed {spec.seed}, --now {spec.now_ms}")
    for rule, wanted in spec.faults.items():
        injected = generated.faults[rule]
        short = "" if injected == wanted else f" of {wanted}: no more jobs fit"
        output.say(f"{rule} broken at {injected} {plural(injected, 'job')}{short}", "yellow")
