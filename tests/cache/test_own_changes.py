"""What this mount changed, in the metadata cache: on a clock that never says the same time twice."""

from itertools import count

from s3mount.cache.answers import Record
from s3mount.cache.metadata import MetadataCache
from s3mount.core.attrs import ObjectStat
from s3mount.core.entry_pages import EntryPages
from s3mount.core.inode import Inode
from s3mount.core.listing import Entry

FILE = ObjectStat("d/a", '"1"', 3, 0)
NEW = ObjectStat("d/a", '"2"', 4, 0)


def ticking() -> MetadataCache:
    ticks = count(1)
    return MetadataCache(lambda: next(ticks) / 1e6)


def found_under(cache: MetadataCache, path: str) -> ObjectStat | None:
    known = cache.get(path)
    assert isinstance(known, Record)
    return known.found


def test_a_file_that_was_saved_needs_no_question() -> None:
    """What was saved is known when its name is decided here no more, and a question from before changes nothing."""
    cache = ticking()
    asked_at = cache.now()
    cache.local.add_file(Inode(7, "d/a", NEW))
    cache.made("d/a", NEW)
    cache.local.forget_file("d/a")
    assert found_under(cache, "d/a") == NEW
    cache.put("d/a", FILE, asked_at)
    cache.put_absent("d/a", asked_at)
    assert found_under(cache, "d/a") == NEW
    cache.check_invariants()


def test_a_listing_from_before_is_not_whole() -> None:
    """A listing asked for before a name was made or removed is not whole, though nothing was known of that name."""
    cache = ticking()
    for change in (lambda: cache.made("d/b", None), lambda: cache.gone("d/c")):
        asked_at = cache.now()
        change()
        cache.listings.put("d/", EntryPages("d/", [Entry("a", FILE)]), asked_at)
        assert cache.listings.current("d/", is_walked=True) is None
        assert cache.listings.may_differ("d/", asked_at)
        asked_at = cache.now()
        assert not cache.listings.may_differ("d/", asked_at)
        cache.listings.put("d/", EntryPages("d/", [Entry("a", FILE)]), asked_at)
        assert cache.listings.current("d/", is_walked=True) is not None


def test_what_is_gone_and_what_is_not_known() -> None:
    """What was removed is known to be absent; of what something contradicted nothing is known."""
    cache = ticking()
    asked_at = cache.now()
    cache.gone("d/a")
    cache.drop("d/b")
    gone, dropped = cache.newer("d/a", asked_at), cache.newer("d/b", asked_at)
    assert [getattr(each, "is_known", None) for each in (gone, dropped)] == [True, False]
    assert cache.newer("d/a", cache.now()) is None


def test_a_ghost_is_not_believed() -> None:
    """Listings, and answers from before, do not bring a removed directory back; a later answer, or mkdir, does."""
    cache = ticking()
    asked_at = cache.now()
    cache.local.ghosts.add("d/")
    cache.put("d", None, cache.now())
    assert cache.get("d") is None
    cache.local.ghosts.forget("d", asked_at)
    assert "d" in cache.local.ghosts
    cache.local.ghosts.forget("d", cache.now())
    cache.put("d", None, cache.now())
    assert found_under(cache, "d") is None
    cache.local.ghosts.add("d/")
    cache.made("d", None)
    assert found_under(cache, "d") is None
    assert "d" not in cache.local.ghosts
