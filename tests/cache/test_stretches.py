"""A page of names proves that others are not there."""

import hypothesis.strategies as st
from hypothesis import given

from s3mount.cache.stretches import Stretches
from s3mount.core.keys import just_before
from s3mount.core.symlinks import link_key
from tests.support.fake_store import FakeStore

_NAMES = st.text("ab-0", min_size=1, max_size=3)
_KEYS = st.one_of(_NAMES, st.tuples(_NAMES, _NAMES).map("/".join), _NAMES.map(link_key))


@given(keys=st.sets(_KEYS, max_size=12), start=_NAMES, paths=st.lists(_NAMES, min_size=1), size=st.integers(1, 6))
async def test_what_is_lacking_is_not_there(keys: set[str], start: str, paths: list[str], size: int) -> None:
    """Of no file, directory or link a page says that it is not there, and the last page says it of all others."""
    store, stretches = FakeStore(), Stretches()
    for key in keys:
        store.put(f"d/{key}", b"1")
    page = await store.list_page("d/", max_keys=size, start_after=just_before(f"d/{start}"))
    stretch = stretches.put("d/", f"d/{start}", page, 1.0)
    for path in paths:
        is_there = any(key in (path, link_key(path)) or key.startswith(path + "/") for key in keys)
        if stretch.lacks(f"d/{path}"):
            assert not is_there
        elif page.next_token is None and path >= start:
            assert is_there
        assert stretch.covers(f"d/{path}") or not stretch.lacks(f"d/{path}")


async def test_an_older_page_does_not_replace_a_newer_one() -> None:
    """The newest page counts, whichever came last."""
    store, stretches = FakeStore(), Stretches()
    page = await store.list_page("d/")
    newest = stretches.put("d/", "d/b", page, 2.0)
    assert stretches.put("d/", "d/a", page, 1.0) is newest
    assert stretches.get("d/") is newest
    stretches.check_invariants()
