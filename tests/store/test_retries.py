"""What is asked again, how often and when: a fake store that breaks, on a clock that the test moves."""

import logging
import random
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from s3mount import errors
from s3mount.core.attrs import ObjectId
from s3mount.core.backoff import Patience
from s3mount.core.ranges import ByteRange
from s3mount.core.waits import Arrival
from s3mount.errors import (
    ObjectNotFound,
    StoreError,
    StoreFailure,
    StoreThrottled,
    StoreTimeout,
    StoreUnreachable,
)
from s3mount.store.guarded import GuardConfig, GuardedStore
from s3mount.store.patient import PatientStore
from s3mount.store.retries import Retries
from tests.support.fake_store import FakeStore, FaultyStore

WHOLE = ByteRange(0, 7)
ERROR = Patience(deadline_s=60.0, window_s=0.0, max_attempts=4)
WAIT = Patience(deadline_s=60.0, window_s=90.0, max_attempts=4)
PASSING = (StoreFailure, StoreThrottled, StoreUnreachable, StoreTimeout)
FINAL = (
    errors.AccessDenied, errors.ArchivedObject, errors.BadCredentials, errors.BucketNotFound, errors.ExpiredCredentials,
    errors.NoCredentials, errors.NotS3, errors.ObjectChanged, errors.ObjectNotFound, errors.StoreError,
    errors.UntrustedCertificate, errors.WrongRegion, errors.AlreadyExists, errors.UploadNotFound,
    errors.ObjectTooLarge, errors.KeyTooLong, errors.StorageFull, errors.NotSupported,
)  # fmt: skip

Fault = Callable[[], StoreError | None]


class Away:
    """S3 between `start` and `stop` on the clock: each request fails as told."""

    def __init__(self, start: float, stop: float, kind: type[StoreError] = StoreUnreachable) -> None:
        now = trio.current_time()
        self.start, self.stop, self.kind = now + start, now + stop, kind
        self.asked = 0

    def __call__(self) -> StoreError | None:
        if not self.start <= trio.current_time() < self.stop:
            return None
        self.asked += 1
        return self.kind("gone")


def make(
    patience: Patience, fault: Fault, *, chance: Callable[[], float] = lambda: 1.0, latency_s: float = 0.0
) -> tuple[PatientStore, FaultyStore, ObjectId]:
    fake = FakeStore(latency_s=latency_s)
    wanted = fake.put("object", b"content")
    faulty = FaultyStore(fake, lambda operation, key, number: fault())
    return PatientStore(faulty, Retries(patience, chance)), faulty, wanted


def calls_of(store: PatientStore, wanted: ObjectId) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: store.list_page("object"),
        lambda: store.head("object"),
        lambda: store.confirm(wanted),
        lambda: store.get_range(wanted, WHOLE),
    ]


def lines_of(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


# -- one request ------------------------------------------------------------------------------


async def test_without_trouble_each_request_is_one() -> None:
    """Nothing is asked twice, nothing waits, and the answers are the store's."""
    store, faulty, wanted = make(WAIT, lambda: None)
    for call in calls_of(store, wanted):
        await call()
    assert await store.get_range(wanted, ByteRange(1, 4)) == b"ont"
    assert store.is_ordered
    assert faulty.calls == 5
    assert store.statistics().repeated == 0


@pytest.mark.parametrize("kind", PASSING)
async def test_error_asks_as_often_as_attempts_are_allowed(autojump_clock: MockClock, kind: type[StoreError]) -> None:
    """Four attempts after 0, 0.1, 0.2 and 0.4 s at most; the error is the store's, and says how often it came."""
    for number in range(4):
        store, faulty, wanted = make(ERROR, lambda: kind("broken"))
        began = trio.current_time()
        with pytest.raises(kind, match=r"broken; asked 4 times in \d+ s") as caught:
            await calls_of(store, wanted)[number]()
        assert type(caught.value) is kind
        assert faulty.calls == 4
        if kind is not StoreThrottled:  # which also waits for what S3 takes
            assert trio.current_time() - began == pytest.approx(0.7)
        assert store.statistics().repeated == 3
        store.check_invariants()


@pytest.mark.parametrize("patience", [ERROR, WAIT], ids=["error", "wait"])
@pytest.mark.parametrize("kind", FINAL)
async def test_what_will_not_pass_is_asked_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, kind: type[StoreError], patience: Patience
) -> None:
    """At once, with its own class and message, and without a line in the log."""
    store, faulty, wanted = make(patience, lambda: kind("no"))
    began = trio.current_time()
    for number, call in enumerate(calls_of(store, wanted), 1):
        with pytest.raises(kind, match=r"^no$"):
            await call()
        assert faulty.calls == number
    assert trio.current_time() == began
    assert lines_of(caplog) == []


async def test_what_was_wrong_twice_is_answered(autojump_clock: MockClock) -> None:
    """With the bytes, and by the third request."""
    for kind in PASSING:
        left = [kind("broken"), kind("broken")]
        store, faulty, wanted = make(ERROR, lambda left=left: left.pop() if left else None)
        assert await store.get_range(wanted, WHOLE) == b"content"
        assert faulty.calls == 3


async def test_a_final_answer_after_a_failure_is_the_answer(autojump_clock: MockClock) -> None:
    """The second attempt says that there is no such object: that is not asked a third time."""
    answers: list[StoreError] = [ObjectNotFound("no such key"), StoreFailure("broken")]
    store, faulty, _ = make(WAIT, answers.pop)
    with pytest.raises(ObjectNotFound):
        await store.head("object")
    assert faulty.calls == 2


async def test_only_the_last_attempt_goes_to_the_other_store(autojump_clock: MockClock) -> None:
    """Three go to the first store and one to the other, whose error it is."""
    fake = FakeStore()
    wanted = fake.put("object", b"content")
    ours = FaultyStore(fake, lambda operation, key, number: StoreFailure("untold"))
    other = FaultyStore(fake, lambda operation, key, number: StoreFailure("told", request_id="ID"))
    store = PatientStore(ours, Retries(ERROR, lambda: 1.0), other)
    for number, call in enumerate(calls_of(store, wanted), 1):
        with pytest.raises(StoreFailure, match="told; asked 4 times") as caught:
            await call()
        assert caught.value.request_id == "ID"
        assert (ours.calls, other.calls) == (3 * number, number)


async def test_the_deadline_bounds_all_attempts(autojump_clock: MockClock) -> None:
    """S3 that answers slowly and badly: 60 s with error, and the window more with wait; never longer."""
    for patience, ends_after in ((ERROR, 60.0), (WAIT, 150.0)):
        fake = FakeStore(latency_s=1e9)
        wanted = fake.put("object", b"content")
        guarded = GuardedStore(fake, fake, GuardConfig(deadline_s=60.0), bucket="bucket")
        store = PatientStore(guarded, Retries(patience))
        began = trio.current_time()
        with pytest.raises(StoreTimeout, match="--request-deadline") as caught:
            await store.get_range(wanted, WHOLE)
        assert trio.current_time() - began == pytest.approx(ends_after)
        assert (caught.value.key, caught.value.operation) == ("object", "GetObject")
        assert guarded.statistics().in_flight == 0


async def test_a_callers_own_deadline_is_its_own(autojump_clock: MockClock) -> None:
    """A caller that gives up in the middle of an outage is not told of StoreTimeout."""
    store, _, wanted = make(WAIT, Away(0, 1e9))
    with pytest.raises(trio.TooSlowError), trio.fail_after(7.0):
        await store.get_range(wanted, WHOLE)


# -- an outage --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PASSING)
async def test_an_outage_within_the_window_is_waited_for(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, kind: type[StoreError]
) -> None:
    """The bytes, no error, one WARNING when it is noticed and one INFO when it is over."""
    caplog.set_level(logging.INFO)
    away = Away(0, 60, kind)
    store, _, wanted = make(WAIT, away, chance=random.Random(1).random)
    assert await store.get_range(wanted, WHOLE) == b"content"
    assert trio.current_time() - away.stop < 6
    (warned, warning), (informed, info) = lines_of(caplog)
    assert (warned, informed) == ("WARNING", "INFO")
    assert "S3 has not answered for" in warning
    assert "reads wait up to 90 s (--on-outage)" in warning
    assert "S3 answers again, after 6" in info
    assert store.statistics().outage.is_closed is False
    store.check_invariants()


async def test_an_outage_beyond_the_window_is_its_error(autojump_clock: MockClock) -> None:
    """90 s after the first failure, with the store's own error; by the client that tells what S3 said."""
    fake = FakeStore()
    wanted = fake.put("object", b"content")
    ours = FaultyStore(fake, lambda operation, key, number: StoreUnreachable("refused"))
    other = FaultyStore(fake, lambda operation, key, number: StoreFailure("told"))
    store = PatientStore(ours, Retries(WAIT), other)
    began = trio.current_time()
    with pytest.raises(StoreFailure, match="told; asked"):
        await store.get_range(wanted, WHOLE)
    assert trio.current_time() - began == pytest.approx(90.0)
    assert other.calls == 1


async def test_many_readers_ask_little_and_go_on_together(autojump_clock: MockClock) -> None:
    """200 readers and 60 s: their own first requests, then one probe at a time; all are answered at once."""
    away = Away(0, 60)
    store, _, wanted = make(WAIT, away, chance=random.Random(2).random)
    answered: list[float] = []

    async def read() -> None:
        assert await store.get_range(wanted, WHOLE) == b"content"
        answered.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(read)
    assert len(answered) == 200
    assert away.asked <= 200 + 60 / 2.5 + 7  # half of 5 s at least apart, and 7 that grow up to it
    assert max(answered) == min(answered)
    assert answered[0] - away.stop <= 5
    assert store.statistics().outage.times == 1


async def test_who_comes_during_an_outage_waits_with_the_others(autojump_clock: MockClock) -> None:
    """A hundred new readers in the middle add a probe at a time, and are answered with the others."""
    away = Away(0, 60)
    store, faulty, wanted = make(WAIT, away, chance=lambda: 1.0)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(store.get_range, wanted, WHOLE)
        await trio.sleep(30)
        before = faulty.calls
        for _ in range(100):
            nursery.start_soon(store.get_range, wanted, WHOLE)
        await wait_all_tasks_blocked()
        assert faulty.calls == before
    assert away.asked <= 5 + 7 + 2 * 60 / 5  # one of each line
    assert faulty.calls - away.asked == 105


async def test_probes_that_hang_do_not_stop_the_next(autojump_clock: MockClock) -> None:
    """A connection into nowhere fails after a minute; the end of the outage is noticed within seconds."""
    fake = FakeStore()
    wanted = fake.put("object", b"content")
    began = trio.current_time()

    class Nowhere(FakeStore):
        async def get_range(self, wanted: ObjectId, span: ByteRange, arrival: Arrival | None = None) -> bytes:
            if trio.current_time() < began + 0.05:
                raise StoreUnreachable("refused")
            if trio.current_time() < began + 30:
                await trio.sleep(60)
                raise StoreTimeout("late")
            return await fake.get_range(wanted, span)

    store = PatientStore(Nowhere(), Retries(WAIT, lambda: 1.0))
    answered: list[float] = []

    async def read() -> None:
        await store.get_range(wanted, WHOLE)
        answered.append(trio.current_time() - began)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(read)
    assert sorted(answered)[25] <= 35
    assert max(answered) < 95  # the probes that hung


async def test_with_error_nobody_waits_for_others(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """50 readers make their four attempts each, fail in their own time, and the log is the boundary's."""
    store, faulty, wanted = make(ERROR, lambda: StoreUnreachable("refused"))
    failed: list[float] = []
    began = trio.current_time()

    async def read() -> None:
        with pytest.raises(StoreUnreachable):
            await store.get_range(wanted, WHOLE)
        failed.append(trio.current_time() - began)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(read)
    assert faulty.calls == 200
    assert failed == [pytest.approx(0.7)] * 50
    assert lines_of(caplog) == []


async def test_any_answer_ends_an_outage(autojump_clock: MockClock) -> None:
    """A refusal is an answer: S3 is there, and the other readers go on."""
    away = Away(0, 10)
    store, _, wanted = make(WAIT, away)
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(store.get_range, wanted, WHOLE)
        with pytest.raises(ObjectNotFound):
            await store.head("absent")
        assert not store.statistics().outage.is_closed


async def test_a_cancelled_waiter_is_gone_at_once(autojump_clock: MockClock) -> None:
    """Whoever waits, sleeps or is next for the probe; the others are answered as before."""
    away = Away(0, 30)
    store, _, wanted = make(WAIT, away, chance=random.Random(3).random)
    for cancel_at in (0.0, 0.03, 1.0, 7.3):
        with trio.move_on_after(cancel_at):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(store.get_range, wanted, WHOLE)
        store.check_invariants()
    assert await store.get_range(wanted, WHOLE) == b"content"
    assert trio.current_time() - away.stop <= 5.1


async def test_one_broken_object_stops_no_other(autojump_clock: MockClock) -> None:
    """A key that S3 always fails on, asked for by eight readers, delays another key by seconds at most."""
    fake = FakeStore()
    good, bad = fake.put("good", b"content"), fake.put("bad", b"content")
    faulty = FaultyStore(fake, lambda operation, key, number: StoreFailure("broken") if key == "bad" else None)
    store = PatientStore(faulty, Retries(WAIT, random.Random(4).random))
    async with trio.open_nursery() as nursery:

        async def read_bad() -> None:
            with pytest.raises(StoreFailure):
                await store.get_range(bad, WHOLE)

        for _ in range(8):
            nursery.start_soon(read_bad)
        await trio.sleep(20)
        for _ in range(20):
            began = trio.current_time()
            await store.get_range(good, WHOLE)
            assert trio.current_time() - began <= 5
            await trio.sleep(1)
