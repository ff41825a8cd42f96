"""Files whose content this mount let go of although S3 does not have it: the mount's exit code tells at its end.

    counts till the end    what was acknowledged and then refused: it stays in the spool
    counts                 what could not be saved at the last close, whether or not a program looked at the error;
                           no more when its name is saved, removed, or given to another file
    never counts           what another host was first with: the close said so, and that host's file is there

It is what one daemon knows: a later one tries again what is in the spool, and counts for itself.
"""

from s3mount.fs.draft_watch import Watched

#: Keys that are remembered; what is lost beyond counts until the end.
_MAX_KEYS = 1000


class Losses:
    """Those of one mount, since its daemon started."""

    def __init__(self) -> None:
        self._keys: dict[str, bool] = {}  # whether it is in the spool
        self._n_more = 0

    def ended(self, draft: Watched) -> None:
        """A draft is let go of."""
        if draft.is_unsaved and not draft.is_orphan and (draft.is_acknowledged or not draft.is_superseded):
            self.add(draft.key, is_spooled=draft.is_acknowledged)

    def add(self, key: str, *, is_spooled: bool = False) -> None:
        """What was written of a file is not in S3."""
        if len(self._keys) < _MAX_KEYS or key in self._keys:
            self._keys[key] = is_spooled or self._keys.get(key, False)
        else:
            self._n_more += 1

    def forget(self, key: str) -> None:
        """What S3 has under the key is what is wanted."""
        if not self._keys.get(key, True):
            del self._keys[key]

    def told(self) -> list[str]:
        """Keys, and how many more there were."""
        return [*self._keys, *([f"and {self._n_more} more"] if self._n_more else [])]
