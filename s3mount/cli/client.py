"""One request to a daemon, and its answers line by line (daemon.control has the protocol)."""

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from s3mount.cli.mounts import NotThere

#: Seconds without a line; a daemon that lives sends one every five.
SILENCE_S = 30.0


def ask(path: Path, verb: str, args: dict[str, Any], *, silence_s: float = SILENCE_S) -> Iterator[dict[str, Any]]:
    """Every event up to the last one, which is the result or the error.

    Raises:
        NotThere: the daemon does not answer, or went away meanwhile.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(silence_s)
        try:
            connection.connect(str(path))
            with suppress(BrokenPipeError):  # it was refused, and the reason is there to be read
                connection.sendall(json.dumps({"verb": verb, "args": args}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                for line in lines:
                    if not line.endswith(b"\n"):
                        break  # it was killed in the middle of it
                    event = json.loads(line)
                    yield event
                    if event["event"] in ("result", "error"):
                        return
        except TimeoutError as error:
            raise NotThere(f"the daemon has not answered for {silence_s:g} s") from error
        except OSError as error:
            raise NotThere(f"the daemon does not answer: {error.strerror}") from error
    raise NotThere("the daemon went away before it was done; run the command again")
