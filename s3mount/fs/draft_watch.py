"""Who is told what becomes of files being written; nothing awaits meanwhile."""

from typing import Protocol

from s3mount.core.attrs import ObjectStat


class Watched(Protocol):
    """What is told of a draft.

    Attributes:
        base: the version S3 has of it; None for none.
        is_unsaved, is_acknowledged, is_orphan, is_superseded: see `fs.draft`.
    """

    key: str
    base: ObjectStat | None
    is_unsaved: bool
    is_acknowledged: bool
    is_orphan: bool
    is_superseded: bool


class DraftWatch(Protocol):
    """Whoever wants to know."""

    def saved(self, draft: Watched) -> None:
        """S3 has it as it is, under its key, which may be another than before."""

    def acknowledged(self, draft: Watched) -> None:
        """The spool has it as it is, for another daemon."""

    def orphaned(self, draft: Watched) -> None:
        """Its name is gone."""

    def ended(self, draft: Watched) -> None:
        """It is let go of, whether S3 has it or not."""


class _Nobody:
    """Watches nothing."""

    def saved(self, draft: Watched) -> None:
        return

    def acknowledged(self, draft: Watched) -> None:
        return

    def orphaned(self, draft: Watched) -> None:
        return

    def ended(self, draft: Watched) -> None:
        return


NOBODY: DraftWatch = _Nobody()
