"""Strategies for programs of `twins`: what training programs do with files, in any order."""

import os

from hypothesis import strategies as st

from tests.mount.twins import Program, Step

#: Few, so that calls meet; "a/b" is below a file.
NAMES = ("a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/ü %+&=", "a/b")
_ACCESS = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)
_CREATION = (0, os.O_CREAT, os.O_CREAT | os.O_TRUNC, os.O_CREAT | os.O_EXCL, os.O_TRUNC)
_OTHER = (0, 0, 0, os.O_APPEND, os.O_NOFOLLOW, os.O_SYNC, os.O_DSYNC, os.O_NONBLOCK)
_RARE = (os.O_DIRECTORY, os.O_TMPFILE | os.O_RDWR, os.O_PATH)

paths = st.sampled_from(NAMES)
handles = st.integers(0, 5)
lengths = st.one_of(st.integers(0, 100), st.sampled_from([4095, 4096, 4097, 70_000, 131_072, 300_000]))
offsets = st.one_of(st.integers(0, 100), st.sampled_from([4095, 4096, 4097, 70_000, 300_000]))
contents = st.tuples(st.integers(0, 255), lengths)
times = st.integers(1_000_000_000, 1_100_000_000)
modes = st.sampled_from([0o644, 0o600, 0o755, 0o400, 0o777])
flags = st.one_of(
    st.builds(lambda *bits: bits[0] | bits[1] | bits[2], *map(st.sampled_from, (_ACCESS, _CREATION, _OTHER))),
    st.sampled_from(_RARE),
)
#: How programs do open to write.
usual = st.sampled_from([
    os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_RDWR | os.O_CREAT | os.O_TRUNC, os.O_RDWR | os.O_CREAT,
    os.O_WRONLY | os.O_CREAT | os.O_APPEND, os.O_RDWR, os.O_RDONLY,
])  # fmt: skip


def _step(name: str, *arguments: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), *arguments)


_on_handles = (
    *[_step("open", paths, usual)] * 3, _step("open", paths, flags), _step("dup", handles),
    *[_step("close", handles)] * 2, *[_step("read", handles, lengths)] * 2,
    *[_step("pread", handles, lengths, offsets)] * 2, *[_step("write", handles, contents)] * 4,
    *[_step("pwrite", handles, contents, offsets)] * 3, *[_step("ftruncate", handles, offsets)] * 2,
    _step("seek", handles, offsets, st.sampled_from([os.SEEK_SET, os.SEEK_CUR, os.SEEK_END])),
    _step("allocate", handles, lengths.filter(bool)), *[_step("fsync", handles)] * 2, _step("fdatasync", handles),
    _step("fstat", handles), _step("send_file", handles, handles, lengths), _step("is_same", handles, paths),
    _step("copy_range", handles, handles, lengths), _step("map_read", handles), _step("futime", handles, times),
    *[_step("map_write", handles, contents, offsets, st.booleans())] * 2, _step("list_handle", handles),
    _step("map_and_close", handles, contents, offsets), _step("child_writes", handles, contents),
    _step("child_starts", handles), _step("child_ends", handles, contents),
)  # fmt: skip
_alone = (
    _step("stat", paths), _step("lstat", paths), _step("list", paths), *[_step("load", paths)] * 2,
    *[_step("mkdir", paths)] * 2, _step("rmdir", paths), _step("unlink", paths), _step("remove_tree", paths),
    *[_step("rename", paths, paths)] * 4, _step("rename_new", paths, paths), *[_step("link", paths, paths)] * 2,
    _step("symlink", st.sampled_from(["a", "d", "e/a", "nowhere"]), paths), _step("readlink", paths),
    _step("chmod", paths, modes), _step("utime", paths, times),
)  # fmt: skip
_on_names = (
    *_alone, *[_step("save", paths, contents)] * 3, _step("append", paths, contents), _step("truncate", paths, offsets),
)  # fmt: skip
_big = st.sampled_from([(0, 5 << 20), (7, (5 << 20) + 1), (1, 6_000_000), (3, 8 << 20)])
_far = st.sampled_from([(5 << 20) - 1, 5 << 20, 11_000_000])
_rarely = (
    _step("remount"), *[_step("write", handles, _big)] * 2, _step("save", paths, _big),
    _step("pwrite", handles, contents, _far), _step("ftruncate", handles, _far),
)  # fmt: skip
steps = st.integers(0, 39).flatmap(
    lambda kind: st.one_of(*(_rarely if kind == 39 else _on_handles if kind < 25 else _on_names))
)


_START: Program = [("mkdir", "d"), ("mkdir", "f"), ("save", "a", (1, 10)), ("save", "d/a", (2, 5000))]
_moments = st.sampled_from([0.0, 0.001, 0.002, 0.004, 0.008, 0.016])
#: What a daemon may die in; files that are being written die with it.
_deadly = _step("killed", _moments, st.one_of(*_alone))


def programs_with_kills(length: int) -> st.SearchStrategy[Program]:
    """Programs in which daemons are killed, each in another call on names."""
    each = st.tuples(st.lists(steps, min_size=length // 2, max_size=length), _deadly)
    return st.lists(each, min_size=2, max_size=3).map(
        lambda parts: _START + [step for before, kill in parts for step in (*before, kill)]
    )


def programs(length: int) -> st.SearchStrategy[Program]:
    """Programs of up to so many steps, on a tree that has something in it."""
    return st.lists(steps, min_size=length // 2, max_size=length).map(lambda program: _START + program)
