"""Who reads: mounts and libraries, each behind the same line of text for the reader programs.

Ours and Debian's s3fs have a daemon, whose CPU and memory count; the libraries do their work in the reader's
own process.  The local disk is the ceiling of what a reader can do.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import contenders
from benchmarks.contenders import Contender

#: Ours and the local disk; the others need what `.ci/prepare bench` installs.
OURS = ("s3mount", "local")


@dataclass(frozen=True)
class Link:
    """A way to the server. Attributes: its URL, and the authority to trust on TLS."""

    url: str
    ca: str | None = None


@dataclass(frozen=True)
class Contestant:
    """Attributes: the name; the source for `benchmarks.readers`; the daemon, if there is one."""

    name: str
    source: str
    daemon: Contender | None = None

    @property
    def path(self) -> Path:
        """The directory of a mount or of local files."""
        return Path(self.source.removeprefix("path:"))


Maker = Callable[[Link, str, Path], AbstractContextManager[Contestant]]


def s3mount(*flags: str, name: str = "s3mount") -> Maker:
    """Ours with these flags."""

    @contextlib.contextmanager
    def make(link: Link, bucket: str, work: Path) -> Iterator[Contestant]:
        with contenders.s3mount(bucket, link.url, work, *flags, ca=link.ca) as mount:
            yield Contestant(name, f"path:{mount.path}", mount)

    return make


@contextlib.contextmanager
def s3fs_fuse(link: Link, bucket: str, work: Path) -> Iterator[Contestant]:
    """Debian's, with the ranges in parallel that its manual offers."""
    with contenders.s3fs_tuned(bucket, link.url, work, ca=link.ca) as mount:
        yield Contestant("s3fs-fuse", f"path:{mount.path}", mount)


@contextlib.contextmanager
def connector(link: Link, bucket: str, _: Path) -> Iterator[Contestant]:
    """The S3 Connector for PyTorch."""
    yield Contestant("connector", f"connector:{link.url},{bucket}")


@contextlib.contextmanager
def fsspec(link: Link, bucket: str, _: Path) -> Iterator[Contestant]:
    """fsspec's s3fs."""
    ca = f",{link.ca}" if link.ca else ""
    yield Contestant("fsspec s3fs", f"fsspec:{link.url},{bucket}{ca}")


def local(directory: Path) -> Maker:
    """Files on the local disk."""

    @contextlib.contextmanager
    def make(*_: object) -> Iterator[Contestant]:
        yield Contestant("local", f"path:{directory}")

    return make
