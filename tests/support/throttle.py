"""A server that takes so many requests a second, as a proxy's `decide`, and refuses those above as S3 does."""

import threading
import time
from collections import Counter
from urllib.parse import urlsplit

from tests.support.proxy import Decide, Fault, Request, error_answer

_SLOW_DOWN = Fault(answer=error_answer(503, "SlowDown", "Please reduce your request rate."))


class TokenBucket:
    """Give it to a proxy as `decide`.

    Args:
        others: what decides about the requests that pass.
        per_s: tokens a second; `burst` of them can be saved.

    Attributes:
        passed, refused: requests since the start.
        keys: how often each object's key passed; path style.
    """

    def __init__(self, others: Decide | None = None, *, per_s: float, burst: float = 20.0) -> None:
        self.passed = 0
        self.refused = 0
        self.keys: Counter[str] = Counter()
        self._others = others
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._at = time.perf_counter()
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Fault | None:
        with self._lock:
            now = time.perf_counter()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_s)
            self._at = now
            if self._tokens < 1:
                self.refused += 1
                return _SLOW_DOWN
            self._tokens -= 1
            self.passed += 1
            self.keys[urlsplit(request.target).path.lstrip("/").partition("/")[2]] += 1
        return self._others(request) if self._others else None
