"""Eight processes of a job on two mounts of one bucket do at once what jobs do: none sees an error that it must not.

What two hosts are promised is the model: of those that make one name exclusively exactly one succeeds; what was closed
is seen by the other host within a moment; who overwrites one file and is not told that it failed has written all of it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.mount.ranks import Answer, Calls, Ranks
from tests.support.mounts import SOON_S, mounted
from tests.support.processes import wait_until
from tests.support.servers import Server

pytestmark = [pytest.mark.mount, pytest.mark.server]


class Job:
    """The ranks, and numbers for new names."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._made = 0

    def name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._made}"

    def all_do(self, call: str, *arguments: object) -> list[object]:
        """No rank gets an exception."""
        answers = self.ranks.together(call, *arguments)
        assert [answer.error for answer in answers if answer.error] == [], (call, *arguments)
        return [answer.value for answer in answers]

    def one_does(self, call: str, *arguments: object) -> int:
        """Exactly one rank succeeds, the others find the name taken; returns which."""
        answers = self.ranks.together(call, *arguments)
        winners = [rank for rank, answer in enumerate(answers) if not answer.error]
        others = [answer.error for answer in answers if answer.error]
        assert len(winners) == 1, (call, answers)
        assert all(error.startswith("FileExistsError") for error in others), (call, others)
        return winners[0]

    def all_see(self, expected: object, call: str, *arguments: object) -> None:
        """Every rank gets this, after a moment."""
        answers: list[Answer] = []

        def do_all_see() -> bool:
            answers[:] = self.ranks.together(call, *arguments)
            return all(answer.value == expected and not answer.error for answer in answers)

        try:
            wait_until(do_all_see, SOON_S, "what all should see")
        except TimeoutError:
            raise AssertionError(f"{call}{arguments}: {str(answers)[:2000]} instead of {str(expected)[:200]}") from None


def _content(seed: str, rank: int) -> str:
    return Calls(0, "").content(seed, rank).decode()


def checkpoint(job: Job) -> str:
    """All make the same directories, each its file; all see all."""
    name = job.name("step")
    job.all_do("checkpoint", name)
    job.all_see([f"rank{rank}.pt" for rank in range(Ranks.N)], "names", f"{name}/states")
    for rank in (0, 1):
        job.all_see(_content(name, rank), "read", f"{name}/states/rank{rank}.pt")
    return name


def latest(job: Job) -> None:
    """All replace one file: each by all of its own, so that it is whole whoever was last."""
    job.all_do("checkpoint", "runs")
    job.all_do("replace", name := job.name("l"), "runs/latest")
    contents = {_content(name, rank) for rank in range(Ranks.N)}
    found: set[object] = set()

    def is_one_of_them() -> bool:
        found.clear()
        found.update(job.all_do("read", "runs/latest"))
        return len(found) == 1 and found <= contents

    wait_until(is_one_of_them, SOON_S, "one content")


def lock(job: Job) -> None:
    """All make a lock file: one gets it."""
    name = job.name("lock")
    winner = job.one_does("exclusive", name, name)
    job.all_see(_content(name, winner), "read", name)


def link(job: Job) -> None:
    """All commit by a link: one does, and its content is there."""
    name = job.name("commit")
    winner = job.one_does("commit_by_link", name, name)
    job.all_see(_content(name, winner), "read", name)


def rename_new(job: Job) -> None:
    """All commit by a rename that must not replace: one does."""
    name = job.name("manifest")
    winner = job.one_does("commit_by_rename", name, name)
    job.all_see(_content(name, winner), "read", name)


def overwrite(job: Job) -> None:
    """One of each host writes one file: who was not told that the other was first has written all of it."""
    name = job.name("shared")
    answers = job.ranks.together("overwrite", name, name)
    assert all(not answer.error or "Errno 116" in answer.error for answer in answers), answers
    done = {_content(name, rank) for rank in (0, 1) if not answers[rank].error}
    assert done, answers
    wait_until(lambda: {each.value for each in job.ranks.together("read", name)} <= done, SOON_S, "one content")


def logs(job: Job) -> None:
    """Each appends to its own log; the others read all of it a moment later."""
    name = job.name("log")
    job.all_do("log_lines", name, 20)
    for rank in (0, 1):
        job.all_see("".join(f"{rank} {line}\n" for line in range(20)), "read", f"{name}.{rank}.log")


def remove(job: Job) -> None:
    """One removes a checkpoint while the others look at it."""
    name = checkpoint(job)
    job.all_do("remove", name, 3)
    job.all_see([], "files", name)


def remove_all(job: Job) -> None:
    """All remove the same checkpoint."""
    name = checkpoint(job)
    job.all_do("remove_all", name)
    job.all_see([], "files", name)


def rename_folder(job: Job) -> None:
    """One renames a checkpoint to its final name; all see it there, and not where it was."""
    name = checkpoint(job)
    job.all_do("rename", name, f"{name}.done", 5)
    job.all_see(_content(name, 2), "read", f"{name}.done/states/rank2.pt")
    job.all_see([], "files", name)


ROUNDS: tuple[Callable[[Job], object], ...] = (
    checkpoint, latest, lock, link, rename_new, overwrite, logs, remove, remove_all, rename_folder,
)  # fmt: skip


@contextlib.contextmanager
def job_on_two_mounts(server: Server, work: Path) -> Iterator[Job]:
    bucket = server.make_bucket()
    with contextlib.ExitStack() as stack:
        mounts = [stack.enter_context(mounted(bucket, work / host, "--rw", url=server.url)) for host in ("one", "two")]
        ranks = Ranks([mount.path for mount in mounts])
        stack.callback(ranks.close)
        yield Job(ranks)


@pytest.fixture(scope="module")
def job(weed: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    with job_on_two_mounts(weed, tmp_path_factory.mktemp("hosts").resolve()) as both:
        yield both


@pytest.mark.parametrize("one", ROUNDS, ids=lambda each: each.__name__)
def test_each(job: Job, one: Callable[[Job], object]) -> None:
    """Whatever all ranks do at once, none gets an error that a job does not expect."""
    one(job)


def test_in_any_order(job: Job) -> None:
    """Rounds follow each other in any order without waiting for what caches still hold."""

    @settings(max_examples=5, derandomize=True, phases=[Phase.generate])
    @given(st.lists(st.sampled_from(ROUNDS), min_size=4, max_size=8))
    def run(rounds: list[Callable[[Job], object]]) -> None:
        for each in rounds:
            each(job)

    run()


@pytest.mark.parametrize("flags", [os.O_EXCL, 0], ids=["exclusive", "plain"])
def test_a_refused_file_is_not_opened_again(weed: Server, work: Path, flags: int) -> None:
    """Where another host was first, the close says so, and at once the other's file is what is there."""
    bucket = weed.make_bucket()
    with mounted(bucket, work, "--rw", url=weed.url) as mount:
        for number in range(5):
            path = mount.path / f"f{number}"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags)
            os.write(descriptor, b"mine" * 2000)
            weed.client.put_object(Bucket=bucket, Key=path.name, Body=b"theirs" * 100)
            path.stat()
            with pytest.raises(OSError, match="File exists" if flags else "Stale file handle"):
                os.close(descriptor)
            path.stat()
            assert path.read_bytes() == b"theirs" * 100
