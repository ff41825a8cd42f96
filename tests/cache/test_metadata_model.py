"""The metadata cache against a model that keeps every answer for as long as one may be good.

Answers arrive late and out of order: about single paths, about absent ones, about whole
directories, with drops and time between them.  The model says of a path what the answer to the
latest question said, while that is good.
"""

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from s3mount.cache.ages import MetadataConfig
from s3mount.cache.answers import Absence, Record
from s3mount.cache.metadata import MetadataCache
from s3mount.core.attrs import ObjectStat
from s3mount.core.listing import Entry
from s3mount.core.ttl import INDEFINITE, MINIMAL, TimeToLive
from tests.cache.test_metadata import at, pages

V1, V2 = (ObjectStat("k", f'"{n}"', n, 1_700_000_000) for n in (1, 2))
FOUND = st.sampled_from([V1, V2, None])
PATHS = ["a", "b", "d", "d/a", "d/b"]
DIRECTORIES = {"": ["a", "b", "d"], "d/": ["a", "b"]}
#: The times that answers take; and each rule takes a moment, so that no two questions are asked at once.
AGES = st.integers(0, 12)
MOMENT_S = 2.0**-20
TTLS = [
    MetadataConfig(),
    MetadataConfig(TimeToLive(2.0), TimeToLive(2.0)),
    MetadataConfig(TimeToLive(2.0), TimeToLive(0.75)),
    MetadataConfig(TimeToLive(0.75), TimeToLive(2.0)),
    MetadataConfig(TimeToLive(2.0), MINIMAL),
    MetadataConfig(MINIMAL, TimeToLive(2.0)),
    MetadataConfig(INDEFINITE, INDEFINITE),
    MetadataConfig(INDEFINITE, TimeToLive(0.5)),
]


def directory_of(path: str) -> str:
    return path[: path.rfind("/") + 1]


class Model:
    """Every answer that ever counted.  A drop is an answer, too: an absence good for no time."""

    def __init__(self, config: MetadataConfig) -> None:
        self.config = config
        self.answers: dict[str, list[tuple[float, Record | Absence]]] = {path: [] for path in PATHS}
        self.listings: dict[str, tuple[float, Mapping[str, ObjectStat | None]]] = {}
        self.marks: dict[str, list[float]] = {key: [] for key in DIRECTORIES}
        self.not_whole: set[str] = set()
        self.not_before = 0.0

    def record(self, found: ObjectStat | None, asked_at: float) -> Record:
        return Record(found, asked_at, asked_at + self.config.ttl.seconds)

    def absence(self, asked_at: float) -> Absence:
        is_kept = not self.config.negative_ttl.is_minimal
        return Absence(asked_at, asked_at + (self.config.negative_ttl.seconds if is_kept else 0.0))

    def listed(self, path: str, now: float) -> Record | Absence | None:
        key = directory_of(path)
        if key not in self.listings:
            return None
        asked_at, found = self.listings[key]
        name = path.removeprefix(key)
        return self.record(found[name], asked_at) if name in found else self.absence(asked_at)

    def newest(self, path: str, now: float) -> Record | Absence | None:
        listed = self.listed(path, now)
        answers = [answer for _, answer in self.answers[path]]
        answers += [] if listed is None else [listed]
        return max(answers, key=lambda answer: answer.asked_at, default=None)

    def answer(self, path: str, answer: Record | Absence, now: float) -> None:
        newest = self.newest(path, now)
        if answer.asked_at < self.not_before or (newest is not None and newest.asked_at > answer.asked_at):
            return
        if answer.expires_at > now or (newest is not None and differ(newest, answer)):
            self.answers[path].append((now, answer))
        listed = self.listed(path, now)
        is_news = newest is not None and differ(newest, answer)
        if is_news or (listed is not None and differ(listed, answer)):
            self.contradict(directory_of(path), answer.asked_at)

    def contradict(self, key: str, at: float) -> None:
        self.marks[key].append(at)
        self.not_whole.add(key)

    def drop(self, path: str, now: float) -> None:
        self.answers[path].append((now, Absence(now, now)))
        self.contradict(directory_of(path), now)

    def list(self, key: str, found: Mapping[str, ObjectStat | None], asked_at: float, now: float) -> None:
        held = self.listings.get(key)
        is_older = asked_at < self.not_before or (held is not None and asked_at < held[0])
        if is_older:
            return
        self.listings[key] = (asked_at, found)
        self.not_whole.discard(key)
        if any(at > asked_at for at in self.marks[key]):
            self.not_whole.add(key)

    def drop_below(self, directory_key: str, now: float) -> None:
        for path in PATHS:
            if path.startswith(directory_key):
                self.answers[path] = []
        for key in DIRECTORIES:
            if key.startswith(directory_key):
                self.listings.pop(key, None)
        if directory_key:
            self.drop(directory_key.rstrip("/"), now)
        self.not_before = now


def differ(one: Record | Absence, other: Record | Absence) -> bool:
    if isinstance(one, Record) and isinstance(other, Record):
        return one.found != other.found
    return isinstance(one, Record) != isinstance(other, Record)


class Answers(RuleBasedStateMachine):
    """Answers that arrive late and out of order, drops, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    @initialize(config=st.sampled_from(TTLS))
    def start(self, config: MetadataConfig) -> None:
        self.cache = MetadataCache(lambda: self.now, config)
        self.model = Model(config)

    def asked_at(self, age_quarters: int) -> float:
        self.now += MOMENT_S
        return self.now - age_quarters / 4

    @rule(quarters=st.integers(1, 12))
    def wait(self, quarters: int) -> None:
        self.now += quarters / 4

    @rule(path=st.sampled_from(PATHS), age=AGES, found=FOUND)
    def something_is_there(self, path: str, age: int, found: ObjectStat | None) -> None:
        asked_at = self.asked_at(age)
        found = at(path, found)
        record = self.model.record(found, asked_at)
        assert self.cache.put(path, found, asked_at) == record
        self.model.answer(path, record, self.now)

    @rule(path=st.sampled_from(PATHS), age=AGES)
    def nothing_is_there(self, path: str, age: int) -> None:
        asked_at = self.asked_at(age)
        absence = self.model.absence(asked_at)
        assert self.cache.put_absent(path, asked_at) == absence
        self.model.answer(path, absence, self.now)

    @rule(key=st.sampled_from(list(DIRECTORIES)), age=AGES, found=st.dictionaries(st.sampled_from("abd"), FOUND))
    def a_directory_is_listed(self, key: str, age: int, found: dict[str, ObjectStat | None]) -> None:
        asked_at = self.asked_at(age)
        found = {name: at(key + name, each) for name, each in found.items()}
        self.cache.listings.put(key, pages(key, [Entry(name, found[name]) for name in reversed(found)]), asked_at)
        self.model.list(key, found, asked_at, self.now)

    @rule(path=st.sampled_from(PATHS))
    def drop(self, path: str) -> None:
        self.now += MOMENT_S
        self.cache.drop(path)
        self.model.drop(path, self.now)

    @rule(key=st.sampled_from(list(DIRECTORIES)))
    def refresh(self, key: str) -> None:
        self.now += MOMENT_S
        self.cache.drop_below(key)
        self.model.drop_below(key, self.now)

    @invariant()
    def what_is_known_is_the_newest_answer_while_it_is_good(self) -> None:
        self.cache.check_invariants()
        for path in PATHS:
            newest = self.model.newest(path, self.now)
            expected = newest if newest is not None and newest.expires_at > self.now else None
            assert self.cache.get(path) == expected, path
            assert self.cache.last_record(path) == (newest if isinstance(newest, Record) else None), path

    @invariant()
    def a_directory_is_known_until_it_expires_or_is_contradicted(self) -> None:
        for key in DIRECTORIES:
            asked_at, found = self.model.listings.get(key, (0.0, {}))
            is_known = key in self.model.listings and key not in self.model.not_whole
            listing = self.cache.listings.current(key)
            is_known &= not self.model.config.ttl.is_minimal
            if not is_known or asked_at + self.model.config.ttl.seconds <= self.now:
                assert listing is None
            else:
                assert listing is not None
                assert (listing.asked_at, {each.name: each.found for each in listing.entries}) == (asked_at, found)


Answers.TestCase.settings = settings(max_examples=300, stateful_step_count=30)
test_the_newest_answer_counts_while_it_is_good = Answers.TestCase
