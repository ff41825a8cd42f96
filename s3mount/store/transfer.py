"""One request of the CRT on its way: what its callbacks bring, and the trio task that waits for it.

* Callbacks come on C threads and do nothing but keep the bytes, go on with their checksum and wake the task.
* The request object, its callbacks and their owner form a cycle, which is broken when the request ended, or
  memory would grow by every part until the collector runs (measured: 5 GB).
* The CRT says that headers came only when the body is complete (measured), so the first byte of a GET
  cannot be seen here; when the last one was complete, it says on its own thread.
"""

from collections.abc import Callable
from typing import Any

import trio

from s3mount.errors import StoreError
from s3mount.store.checksums import Checksum, checksum_of
from s3mount.store.s3_errors import from_crt


class Transfer:
    """One request on its way.

    Args:
        ended: called on trio's thread when the CRT is done with the request, whoever waits for it.

    Attributes:
        etag: of the answer; empty where it has none.
        headers: of the answer, names in lower case.
        checksum: what verifies the content, if S3 said something that does.
        failure: makes our error of the CRT's, given where it happened; None when it went well.
        request: the CRT's own object; the caller sets it, and the end of the request drops it.
        ended_at: when it ended, in trio's time, however late its task goes on.
    """

    __slots__ = (
        "_clock", "_done", "_ended", "_is_left", "_pieces", "_token",
        "checksum", "ended_at", "etag", "failure", "headers", "request",
    )  # fmt: skip

    def __init__(self, token: trio.lowlevel.TrioToken, ended: Callable[[], None]) -> None:
        self._token = token
        self._ended = ended
        self._is_left = False
        self._clock = trio.lowlevel.current_clock()
        self._done = trio.Event()
        self.ended_at = 0.0
        self._pieces: list[bytes] = []
        self.etag = ""
        self.headers: dict[str, str] = {}
        self.checksum: Checksum | None = None
        self.failure: Any = None
        self.request: Any = None

    def on_headers(self, headers: list[tuple[str, str]], **_: Any) -> None:
        """The answer began."""
        self.headers = by_name = {name.lower(): value for name, value in headers}
        self.etag = by_name.get("etag", "")
        self.checksum = checksum_of(by_name)

    def on_body(self, chunk: bytes, **_: Any) -> None:
        """The next bytes came; nobody keeps them when nobody waits any more."""
        if self._is_left:
            return
        self._pieces.append(chunk)
        if self.checksum is not None:
            self.checksum.update(chunk)

    def on_done(self, error: Any, status_code: Any, error_body: Any, error_headers: Any, **_: Any) -> None:
        """The request ended."""
        self.ended_at = self._clock.current_time()
        if error is not None:

            def failure(**context: str) -> StoreError:
                return from_crt(error, status_code, error_body, error_headers, **context)

            self.failure = failure
        try:
            self._token.run_sync_soon(self._finish)
        except trio.RunFinishedError:
            self.request = None  # the daemon has stopped; nobody waits

    def _finish(self) -> None:
        self.request = None
        self._ended()
        self._done.set()

    async def wait(self) -> None:
        """Until the request ended; being cancelled cancels it at once."""
        try:
            await self._done.wait()
        except trio.Cancelled:
            self._is_left = True
            self._pieces.clear()
            if self.request is not None:
                self.request.cancel()
            raise

    def content(self) -> bytes:
        """The body: one piece when the range fits one part, so that nothing is copied."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
