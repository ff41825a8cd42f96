"""Many random programs that write, on a mount and on a local directory, and in memory: WRITES_STEPS steps (1,000,000).

New programs each time; WRITES_SEED repeats a run.
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, seed, settings

from s3mount.units import MIB
from tests.fs import test_programs as in_memory
from tests.mount.test_two_hosts import ROUNDS, job_on_two_mounts
from tests.mount.twins import MountedTwins, Program
from tests.mount.writing_programs import programs, programs_with_kills
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server, pytest.mark.soak, pytest.mark.timeout(0)]

_STEPS = int(os.environ.get("WRITES_STEPS", "1000000"))
_SEED = int(os.environ.get("WRITES_SEED", "0")) or random.randrange(1 << 30)
_AT_ONCE = 100
_KILLED_AT_ONCE = 5
#: Steps for one round of two hosts: both halves take about as long.
_STEPS_PER_ROUND = 100


def test_a_mount_does_not_differ(weed: Server, work: Path) -> None:
    """Whatever a program does, a mount and a local directory give it the same, and S3 has each closed file."""
    print(f"\nWRITES_SEED={_SEED}", flush=True)
    number = _SEED
    with MountedTwins(weed, work, "--write-part-size", str(5 * MIB), "--spool-dir", str(work / "spool")) as twins:
        while twins.steps < _STEPS:
            number += 1

            @seed(number)
            @settings(max_examples=_AT_ONCE, report_multiple_bugs=False, database=None)
            @given(programs(120))
            def run(program: Program) -> None:
                twins.run(program)

            @seed(number)
            @settings(max_examples=_KILLED_AT_ONCE, report_multiple_bugs=False, database=None)
            @given(programs_with_kills(30))
            def run_with_kills(program: Program) -> None:
                twins.run(program)

            run()
            run_with_kills()
            print(f"{twins.steps} steps", flush=True)


def test_programs_in_memory() -> None:
    """Whatever programs do to names, results and tree are those of a local file system, here and in the next mount."""
    number, n_steps = _SEED, 0
    while n_steps < _STEPS:
        number += 1

        @seed(number)
        @settings(max_examples=_AT_ONCE, report_multiple_bugs=False, database=None)
        @given(in_memory.programs(120), in_memory.servers)
        def run(program: list[in_memory.Step], server: dict[str, Any]) -> None:
            nonlocal n_steps
            n_steps += in_memory.run_program(program, **server)

        run()
        print(f"{n_steps} steps in memory", flush=True)


def test_two_hosts(weed: Server, work: Path) -> None:
    """Eight processes on two mounts, in any order of rounds: no error that a job does not expect."""
    order = random.Random(_SEED)
    with job_on_two_mounts(weed, work) as job:
        for number in range(_STEPS // _STEPS_PER_ROUND):
            order.choice(ROUNDS)(job)
            if number % 100 == 99:
                print(f"{number + 1} rounds", flush=True)
