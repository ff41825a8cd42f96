"""A restart on demand: a new daemon, of whatever code is installed, takes the mount over from one that works.

It prepares itself first, and only then is the one that serves told to answer what it has read and to read no more.  If
the new one cannot start, the old one goes on.
"""

import logging

from s3mount.mounter.crew import Crew
from s3mount.mounter.offspring import Offspring
from s3mount.mounter.sdnotify import ServiceManager

log = logging.getLogger(__name__)


#: Messages of a daemon that are for `Renewal.heed`.
KINDS = ("restart", "stays")


class Renewal:
    """Of one mount; a second request replaces the first."""

    def __init__(self, crew: Crew, manager: ServiceManager) -> None:
        self._crew = crew
        self._manager = manager
        self._newcomer: Offspring | None = None

    @property
    def is_under_way(self) -> bool:
        """A new one prepares itself."""
        return self._newcomer is not None

    def heed(self, kind: str, *, can_take_over: bool) -> None:
        """What the one that serves says: it asks for a new one, or it does not make room for it now."""
        if kind == "restart":
            self._begin(can_take_over=can_take_over)
        elif self._crew.facts is not None:
            self._manager.reloaded()

    def _begin(self, *, can_take_over: bool) -> None:
        if self._crew.facts is not None:
            self._manager.reloading()
        self._newcomer = self._crew.renew_standby() if can_take_over else None
        if self._newcomer is None:
            self._refuse("no process can be started" if can_take_over else "libfuse made this mount")

    def go_on(self) -> None:
        """Look at how far it is."""
        newcomer = self._newcomer
        if newcomer is None:
            return
        if newcomer is self._crew.serving:
            self._newcomer = None  # it was needed sooner
        elif newcomer is not self._crew.standby:
            self._refuse(newcomer.reason or "the new daemon did not start; its lines above say why")
        elif newcomer.is_prepared and self._crew.serving is not None and self._crew.serving.serving_since is not None:
            self._newcomer = None
            self._crew.serving.tell("drain")

    def _refuse(self, reason: str) -> None:
        self._newcomer = None
        log.error("not restarted: %s", reason)
        if self._crew.facts is not None:
            self._manager.reloaded()
        if self._crew.serving is not None:
            self._crew.serving.tell("cannot", reason=reason)
