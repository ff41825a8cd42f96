"""Servers shared by the session, isolation from the developer's own AWS settings, and nothing that outlives a test."""

import contextlib
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.processes import kill_all, let_go, strays, wait_until
from tests.support.servers import Server, moto, seaweedfs

settings.register_profile(
    "project", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("project")
_HAS_FAILED = pytest.StashKey[bool]()


def pytest_configure() -> None:
    """SIGTERM, as `timeout` sends it, ends the session as an interrupt does: with what it started."""
    session = os.getpid()

    def interrupt(number: int, _frame: object) -> None:
        if os.getpid() != session:  # a child that was forked
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if not callable(signal.getsignal(signal.SIGINT)):  # in the background of a shell it is ignored
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember which tests failed, for `_no_process_left`."""
    report = yield
    if report.failed:
        item.stash[_HAS_FAILED] = True
    return report


@pytest.fixture(autouse=True)
def _no_process_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test started and did not end is killed, and a test that did not fail otherwise fails by that."""
    before = strays()
    yield
    if request.node.stash.get(_HAS_FAILED, False):
        let_go(before)
    with contextlib.suppress(TimeoutError):  # some are on their way out
        wait_until(lambda: strays().keys() <= before.keys(), 10, "the end of what the test started")
    left = {pid: command for pid, command in strays().items() if pid not in before}
    kill_all(left)
    assert left == {}, "processes that the test did not end"


@pytest.fixture(autouse=True)
def _no_aws_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test must not find credentials or endpoints of the machine it runs on."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent/config")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials")


@pytest.fixture(scope="session")
def weed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """SeaweedFS, for the whole session."""
    with seaweedfs(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """moto, for the whole session."""
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory for one test's mount and logs."""
    return tmp_path.resolve()
