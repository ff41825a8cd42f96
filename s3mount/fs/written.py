"""Files being written, and their inodes: what the kernel and every name are told of a draft.

    opened to be written   the inode has the draft, is kept, and its name is known here before S3 is asked
    written                its size and time are the draft's
    saved                  it is that version, with the number it had
    the name is gone       it goes on without one
    killed unsaved         its daemon is: the record says so, and the next one fails what comes for handles on it
    ended                  S3's word counts again; what could not be saved is forgotten, in the kernel too

INVARIANT: as long as there is a draft its inode is in the table, and is no other draft's.
"""

from s3mount.core.attrs import ObjectStat
from s3mount.core.inode import Inode
from s3mount.fs.draft import Draft
from s3mount.fs.draft_watch import Watched
from s3mount.fs.tree import Tree


class WrittenInodes:
    """Inode by draft."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._inodes: dict[Watched, Inode] = {}
        self._saved_at: dict[Watched, float] = {}  # on the timer of the metadata cache

    def begin(self, draft: Draft, inode: Inode | None = None) -> None:
        """A draft is there; nothing if that is known.

        Args:
            inode: of a file the kernel knows; None for one by its key, of a draft that was found in the spool.
        """
        if draft in self._inodes:
            return
        found = draft.base or ObjectStat(draft.key, "", draft.size, draft.mtime_s)
        inode = inode or self._tree.inodes.intern(draft.key, found)
        self._inodes[draft] = inode
        self._tree.inodes.opened(inode)
        self._tree.handles.pins += 1
        inode.unsaved = draft
        self._tree.cache.local.add_file(inode)
        self._show(draft, inode)
        self._mark(inode, is_unsaved=draft.is_unsaved and not draft.is_acknowledged)

    def _mark(self, inode: Inode, *, is_unsaved: bool) -> None:
        self._tree.inodes.ledger.mark(inode, is_unsaved=is_unsaved)

    def _show(self, draft: Draft, inode: Inode) -> None:
        if inode.found is not None:
            inode.found = inode.found._replace(size=draft.size, mtime_s=draft.mtime_s)

    def wrote(self, draft: Draft) -> None:
        """Its size or content changed."""
        inode = self._inodes[draft]
        self._show(draft, inode)
        self._tree.shown.written(inode)
        self._tree.stored.written(inode)
        self._mark(inode, is_unsaved=True)

    def saved(self, draft: Watched) -> None:
        """See `DraftWatch.saved`."""
        inode, found = self._inodes.get(draft), draft.base
        if inode is None or found is None or inode.is_orphan:
            return
        tree, old_key = self._tree, inode.key
        self._saved_at[draft] = tree.cache.now()
        tree.cache.made(draft.key, found)
        if draft.key != old_key:
            tree.cache.local.forget_file(old_key)
            replaced = tree.known(draft.key)
            if replaced is not None and replaced is not inode:
                tree.orphan(replaced)
                tree.cache.local.forget_file(draft.key)
            tree.shown.moved(old_key, draft.key)
        tree.inodes.rewrite(inode, draft.key, found)
        tree.cache.local.add_file(inode)
        tree.shown.saved(draft.key, found.etag)
        inode.delivered = 0
        self._mark(inode, is_unsaved=False)

    def acknowledged(self, draft: Watched) -> None:
        """See `DraftWatch.acknowledged`."""
        if (inode := self._inodes.get(draft)) is not None:
            self._mark(inode, is_unsaved=False)

    def orphaned(self, draft: Watched) -> None:
        """See `DraftWatch.orphaned`."""
        inode = self._inodes.get(draft)
        if inode is not None and not inode.is_orphan:
            self._tree.cache.local.forget_file(inode.key)
            self._tree.orphan(inode)

    def ended(self, draft: Watched) -> None:
        """See `DraftWatch.ended`."""
        inode, saved_at = self._inodes.pop(draft, None), self._saved_at.pop(draft, None)
        if inode is None:
            return
        tree = self._tree
        inode.unsaved = None
        self._mark(inode, is_unsaved=False)
        if not inode.is_orphan:
            tree.cache.local.forget_file(inode.key)
            if draft.is_unsaved and not draft.is_acknowledged:  # the kernel has pages that nobody saved
                tree.cache.drop(inode.key)
                tree.kernel.forget_name(inode.key)
                tree.inodes.orphan(inode)
                inode.is_gone = True  # nor may who still knows it by number open it: there never was such a version
            elif draft.base is not None and saved_at is not None:
                tree.cache.put(inode.key, draft.base, saved_at)
        tree.handles.pins -= 1
        tree.inodes.closed(inode)

    def check_invariants(self) -> None:
        """Raises ValueError when an inode and its draft do not know each other."""
        for draft, inode in self._inodes.items():
            if inode.unsaved is None:
                raise ValueError(f"inode {inode.ino} does not show {draft.key!r}")
            if not inode.is_orphan and inode.key != draft.key:
                raise ValueError(f"{draft.key!r} is written as {inode.key!r}")
