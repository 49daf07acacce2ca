"""One vocabulary: words that were given up for the field's own stand nowhere in the tree, in code, prose or messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("schema", "compat", "transport", "migrations", "operations", "spark", "cli", "testing")
FOLDERS = (*PRODUCT, "tests", "benchmarks", "docs", "examples")
KINDS = {".py", ".lua", ".md", ".toml"}
HERE = Path(__file__)

RETIRED = """
    ACCEPTED_PART add_attached add_doubt all_stay all_vouched _answers applied_loosely arranged Aside Asides asides
    _asked Attached BEAT Bell _between_places BucketFile BucketJobs can_vouch carry_table chosen_of CLAIMING ClusterWakes
    ClusterWire ColumnVoucher columnvoucher Complaint complaint concatenated Confirmation confirming Crew crew cut_strips
    _damage Deck deck declare_again decline each_sound_capture echoes EVERY_LOT FAREWELL FilePiece Filled FIRST_PLACE_S
    Form Forwarder from_base64 Gathering Glance glance_json has_letters has_sound_runs hash_rules _hash_without_place
    hoard hoarding in_slabs index_rules IndexPart Intake intake _into_place is_asked is_at_work is_calm is_damaged
    is_kept_so is_place is_sound job_rules judge_all Judged Keeper keeper keeps_number kept_own kept_step kept_values
    KeyPart keyparts keyspace_rules kombu_types KombuVoucher KueColumns KueVoucher Lane lane_key lane_of lane_parts Lanes
    lanes_of last_moment LAST_PLACE_S lease_lost leave_behind lenient Letter Letters link_rules list_names load_kept Lots
    luajson mark_of_key mark_of_names members_have_one_form _mending message_of moment_text MOMENTS MOVING must_speak
    name_repairs name_rules names_by_index NativeColumns NativeVoucher next_look_ms NO_TRACE NodeName NodeWire NotNow
    obstacles ODD_BRACKETS ODD_BYTES _odd_keys ODD_NUMBERS odd_numbers _odd_score ODD_STRINGS odd_values ODD_WORDS
    OF_NAMES of_place of_standing _one_form open_lane open_part Outline own_key own_list own_lists own_of own_place
    packed_check part_key PASSING Patient Picked pinned _PLACE_IN_SCRIPT place_key PLACE_OF place_of_id place_rules
    _place_to_run PlacedRecord PLACES _PLACES PLACES_BY_TRUST plain_packs PLANTABLE plantable planted positions_known
    Posted POSTED_PER_MS producing Promised _question read_part read_whole record_rules Recount recounts _restless
    restless running_down _SAYS scans_of _second_place SENSELESS SEQUENCES Shipment short_odd Sieve sieve sift Sifting
    sifting Sketch sketch skim Slab slab SLAB_BYTES slabs _sound_entries sound_records SoundJobs SoundRecords _speaking
    spoken SPOKEN_FOR Spot _STAND stand_of Standby standby Standing StandingColumns stands_of _state_told STATES_IN_PLACE
    stir stored_of stored_record stored_with_aside Strike strike_off Strip strips survey suspects_only Tabled take_note
    take_stock tally_place tally_standing tally_vouched teach TELLING textjson TextPart textparts TokenWakes TOLD_BY_RUNS
    told_of told_of_keyspace TRACE_BYTES Traces _traces Tracing TROUBLE turn_of TurnsFile Turnstile turnstile _two_places
    uncarried Unmendable Victim vouch Vouched vouched VouchedColumns Voucher voucher voucher_of vouches vouching
    wait_until_sound Waiter whereabouts WHOLE_NUMBERS whole_score WholeReader wire_module Wires with_aside with_note
    _without_own word_column _word_kept worker_rules
"""
"""Whole words, upper and lower case apart. Who needs one again for what the field means by it takes it off the list."""

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _files() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "pyproject.toml"))
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in KINDS and path != HERE)


def test_no_retired_word_stands_in_the_tree() -> None:
    files = list(_files())
    assert len(files) > 600
    retired = set(RETIRED.split())
    found = {path.relative_to(ROOT).as_posix(): retired & {path.stem, *WORD.findall(path.read_text("utf-8"))} for path in files}
    assert {path: words for path, words in found.items() if words} == {}
