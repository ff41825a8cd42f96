"""What the interpreter runs as the mounter: isolated, and without the packages that the daemon needs.

The arguments are `CHANNEL PID`, the daemon's, and what a reader of ps(1) should see.
"""

import os
import resource
import signal
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from s3mount.errors import BadOption
from s3mount.logs import LogConfig, logging_to
from s3mount.mounter.channel import Channel, Hello
from s3mount.mounter.crew import Crew
from s3mount.mounter.mounter import Mounter
from s3mount.mounter.offspring import Offspring
from s3mount.mounter.sdnotify import ServiceManager


def main(fd: int, pid: int) -> int:
    """The mounter's whole life; returns its exit code, -N for signal N.

    Args:
        fd: of the channel.
        pid: the first daemon, a child of this process.
    """
    channel = Channel.inherited(fd)
    message = channel.receive()
    if message is None:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    hello = Hello(**message.facts)
    directory = None if hello.log_directory is None else Path(hello.log_directory)
    stream = os.environ.get("JOURNAL_STREAM", "")
    config = LogConfig(directory, hello.is_debug, hello.is_log_off, is_json=hello.is_log_json, journal_stream=stream)
    crew = Crew(hello, message.descriptors, Offspring(pid, channel), time.perf_counter)
    manager = ServiceManager.of(os.environ)
    try:
        with logging_to(config, is_foreground=hello.is_foreground) as log:
            return Mounter(hello, crew, manager, log).run()
    except BadOption:  # the daemon says it, and ends
        with logging_to(LogConfig(None, is_off=True), is_foreground=hello.is_foreground) as log:
            return Mounter(hello, crew, manager, log).run()


def end_as(code: int) -> None:
    """As the daemon ended that decided it."""
    if code >= 0:
        sys.exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the core that tells something is the daemon's
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [-code])
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    end_as(main(int(sys.argv[1]), int(sys.argv[2])))
