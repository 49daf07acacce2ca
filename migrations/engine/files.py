"""Files: the facts of a keyspace in RDB files, one task a piece of a file.

Where a piece begins and ends is a guess (migrations/rdbfile.py) that each task proves for its own piece. When all proofs hold,
they hold together, from each file's start to its end, and so do the databases to which the pieces' first keys were taken to
belong. Otherwise what the step has left is thrown away and it is done again with better pieces, which is rare. Called by
snapshot.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from attrs import astuple, evolve, frozen

from ...schema.connection.address import Address
from ...schema.fact import Fact
from ...schema.rule import Finding
from ..columnar.rdbcolumns import unproven
from ..fact_reader import NewFactReader
from ..rdbfile import Decoded, NotAPiece, Piece, RdbFile
from ..source import newer_version, open_file, snapshot_paths, unread_keys
from . import Progress, storage
from .fact_files import WriteFacts
from .key_rows import KeyRowWriter
from .runner import Runner, Task


@frozen
class Proof:
    """What a task says of its piece."""

    whole: bool
    """The piece begins and ends between records."""
    last_db: int
    announced: int = 0
    keys: int = 0
    crc: int = 0
    """Its checksum."""


def read_files(
    runner: Runner, address: Address, now_ms: int, number: int, progress: Progress, new_reader: NewFactReader, write: WriteFacts
) -> tuple[list[str], list[Finding]]:
    """Reads the keyspace in the files of an address: the summaries of the tasks, and remarks on the files.

    Large files are read in at least ``number`` pieces. Raises ServerError for a file that is cut short or damaged, or has another
    checksum than it says.
    """
    plans: dict[str, list[Piece]] = {}
    for name in snapshot_paths(address):
        with RdbFile(name) as file:
            plans[name] = file.pieces(number)
    while True:
        pieces = [(name, piece) for name, those in plans.items() for piece in those]
        task = _read_task(address, now_ms, pieces, new_reader, write)
        summaries = runner.run(task, len(pieces), f"reading {address.family} keys", progress)
        proofs = [Proof(*json.loads(summary)["piece"]) for summary in summaries]
        better = _replan(plans, proofs)
        if better == plans:
            _must_match(address, plans, proofs)
            return summaries, _remarks(pieces, proofs)
        for path in (path for summary in map(json.loads, summaries) for path in (*summary["facts"], *summary["files"])):
            storage.delete(path)
        plans = better


def _replan(plans: dict[str, list[Piece]], proofs: Sequence[Proof]) -> dict[str, list[Piece]]:
    """The same plans if everything is proven, else others. Raises ServerError when there is nothing left to try."""
    all_proofs = iter(proofs)
    better: dict[str, list[Piece]] = {}
    for name, pieces in plans.items():
        of_file = [next(all_proofs) for _ in pieces]
        wrong = {index for index, proof in enumerate(of_file) if not proof.whole}
        if wrong:
            joined = RdbFile.joined(pieces, wrong)
            if joined == pieces:
                with RdbFile(name) as file:
                    raise file.damaged(pieces[min(wrong)], "the decoder does not understand it")
            better[name] = joined
            continue
        before = [pieces[0].db, *(proof.last_db for proof in of_file[:-1])]
        better[name] = [evolve(piece, db=db) for piece, db in zip(pieces, before, strict=True)]
    return better


def _must_match(address: Address, plans: dict[str, list[Piece]], proofs: Sequence[Proof]) -> None:
    """Raises ServerError where the checksums of its pieces are not that of the file."""
    rest = iter(proofs)
    for name, pieces in plans.items():
        with open_file(name, address) as file:
            crc = 0
            for piece in pieces:
                crc = file.crc_after(crc, piece, next(rest).crc)
            file.must_match(crc)


def _remarks(pieces: Sequence[tuple[str, Piece]], proofs: Sequence[Proof]) -> list[Finding]:
    announced, keys = Counter[str](), Counter[str]()
    for (name, _), proof in zip(pieces, proofs, strict=True):
        announced[name] += proof.announced
        keys[name] += proof.keys
    remarks = []
    for name in announced:
        with RdbFile(name) as file:
            remarks += newer_version(file)
        remarks += unread_keys(name, announced[name], keys[name])
    return remarks


def _read_task(
    address: Address, now_ms: int, pieces: Sequence[tuple[str, Piece]], new_reader: NewFactReader, write: WriteFacts
) -> Task:
    """The task that decodes a piece, for a FactReader to make facts of."""

    def read(index: int) -> str:
        reader, (name, piece) = new_reader(), pieces[index]
        proof = Proof(whole=False, last_db=0)

        def facts() -> Iterator[Fact]:
            nonlocal proof
            decoded = Decoded()
            with open_file(name, address) as file:
                try:
                    # Should it be no piece in the end, all that the step has left is thrown away.
                    if isinstance(reader, KeyRowWriter):
                        for found in unproven(file, piece, address.db, now_ms, decoded):
                            yield from reader.found(found)
                    else:
                        for row in file.unproven(piece, address.db, now_ms, decoded):
                            yield from reader.row(*row)
                except NotAPiece:
                    pass
                else:
                    proof = Proof(True, decoded.last_db, decoded.announced, decoded.keys, file.crc(piece))
            yield from reader.rest()

        return json.dumps(write(facts(), reader) | {"piece": astuple(proof)})

    return read
