"""Signals as something to poll for: what asks to stop or for something to be done, and the end of a child.

SIGHUP means two things.  A terminal that is closed sends it to what runs on it, and that is to end; an operator sends
it to have logs opened anew and metadata forgotten.  When the first comes the terminal is gone already: it cannot
be opened any more (tty_ioctl(4), the kernel's __tty_hangup).
"""

import os
import signal
from types import FrameType, TracebackType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: What the mounter hands on to the daemon that serves.
HANDED_ON = (signal.SIGUSR1, signal.SIGUSR2)
#: Of these a process knows nothing until its handlers stand: whoever starts it blocks them.
HELD_BACK = (*STOPPING, *HANDED_ON)


class Terminal:
    """The one that this process was started on, if it was on any."""

    def __init__(self) -> None:
        self._was_there = _has_terminal()

    def is_gone(self) -> bool:
        """Whether there was one, and it was closed."""
        return self._was_there and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class Signals:
    """Handlers stand inside the block; readable when one came."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._came: list[int] = []
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def __enter__(self) -> "Signals":
        signal.set_wakeup_fd(self._writer)
        for number in (*HELD_BACK, signal.SIGCHLD):
            if number == signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:  # as nohup ignores
                signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)

    def _note(self, number: int, _: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._came.append(number)

    def fileno(self) -> int:
        """For poll(2)."""
        return self._reader

    def take(self) -> list[int]:
        """What was asked for since the last call."""
        while True:
            try:
                if len(os.read(self._reader, 512)) < 512:
                    break
            except BlockingIOError:
                break
        came, self._came = self._came, []
        return came
