"""The rename of one directory: what has been done of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from s3mount.core.attrs import ObjectStat
from s3mount.store.writing import MAX_DELETES, Writer


@dataclass
class RenameJob:
    """One rename.

    Attributes:
        begun: keys that were or may have been made.
        copied: by the key it was copied from, the version that was, and what it is now.
        deleted: keys that nothing has any more.
    """

    old_key: str
    new_key: str
    begun: set[str] = field(default_factory=set)
    copied: dict[str, tuple[ObjectStat, ObjectStat]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)

    def renamed(self, key: str) -> str:
        """The key that an object gets."""
        return self.new_key + key.removeprefix(self.old_key)

    def adopt(self, old: Iterable[ObjectStat], new: Iterable[ObjectStat]) -> None:
        """Take what is below the new name for the work of a daemon that died, if it may be that.

        It copies all before it deletes any: so one side has all that the other has, in the same sizes.
        """
        sources = {self.renamed(each.key): each.size for each in old}
        made = {each.key: each.size for each in new}
        common = sources.keys() & made.keys()
        is_nested = len(common) in (len(sources), len(made))
        if is_nested and all(sources[key] == made[key] for key in common):
            self.begun.update(made)

    async def delete_copied(self, writer: Writer) -> None:
        """What was copied goes, markers last.  Raises the first StoreError of a key that is still there."""
        left = sorted((key for key in self.copied if key not in self.deleted), reverse=True)
        for start in range(0, len(left), MAX_DELETES):
            keys = left[start : start + MAX_DELETES]
            refused = await writer.delete_many(keys)
            self.deleted.update(key for key in keys if key not in refused)
            for error in refused.values():
                raise error
