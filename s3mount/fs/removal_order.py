"""Which of the names that were removed may be deleted now.

A marker goes after all that was in its directory.  A server with directories of its own (SeaweedFS) removes one with
its marker, if it is empty by then; else it keeps it, and shows it to every mount.
"""

from collections.abc import Iterable

from s3mount.core.keys import SEPARATOR, paths_above
from s3mount.fs.removal import Removal


def in_turn(due: list[Removal], held: list[Removal], sent: Iterable[Removal]) -> list[Removal]:
    """Those that may be deleted in one request, in the order they were removed.

    Args:
        held: of them, those that wait for readers.
        sent: others, that are being deleted.
    """
    first = [*held, *sent]
    if not first:
        return due
    later = {each.path for each in held}
    above = {path + SEPARATOR for each in first for path in paths_above(each.path)}
    return [each for each in due if each.path not in later and each.key not in above]
