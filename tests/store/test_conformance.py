"""The contract of `store.base`, written once: fakes, RacingStore, moto and SeaweedFS, by either client.

And an emulated directory bucket, which lists in no order, only below prefixes that end in a slash, and from its start.
"""

from itertools import pairwise

import pytest
import trio

from s3mount.core.attrs import ObjectId
from s3mount.core.listing import ListPage
from s3mount.core.ranges import ByteRange
from s3mount.errors import NotSupported, ObjectChanged, ObjectNotFound, StoreError, StoreFailure, StoreThrottled
from s3mount.store.base import ObjectStore
from tests.store.conftest import ORDERED, PART, UNORDERED, Bucket
from tests.support.content import make_content
from tests.support.fake_store import FakeStore, FaultyStore

ORDERED_ONLY = pytest.mark.parametrize("flavour", ORDERED, indirect=True)
TREE = ("a.txt", "b/1", "b/2", "b/c/3", "b0", "d-1/x", "d/y", "e/f/g/h", "z")

#: Every kind of byte that a client, a URL library or an XML parser could change.
ODD_KEYS = (
    "a#b", "a?b=c&d=e", "a%2Fb", "%", "%zz", "a+b", "a b", " a ", "a\tb", "a\"b'c`d", "<xml>&amp;", "a;b,c:d@e=f$g",
    "*(a)!~", "[a]{b}|^", "\x01", "\x7f", "\u00e9", "e\u0301", "\u2028", "\N{GRINNING FACE}/\N{PILE OF POO}",
    "\u65e5\u672c\u8a9e", "/".join(["y" * 204] * 5),
)  # fmt: skip
#: moto and the fake store these; SeaweedFS keeps objects in directories and cannot.
PATH_LIKE_KEYS = ("a//b", "a/../b", "../up", "a/./b", "/lead", "/", "//", "trail/", "a\\b", "x" * 1024)


async def list_all(
    store: ObjectStore, prefix: str = "", *, delimiter: str = "/", max_keys: int = 1000, start_after: str = ""
) -> tuple[list[str], list[str], int]:
    """Keys, common prefixes and number of pages of a whole listing."""
    keys: list[str] = []
    prefixes: list[str] = []
    pages = 0
    token = None
    while True:
        page = await store.list_page(
            prefix, delimiter=delimiter, token=token, max_keys=max_keys, start_after=start_after
        )
        assert len(page.objects) + len(page.prefixes) <= max_keys
        keys += [each.key for each in page.objects]
        prefixes += page.prefixes
        pages += 1
        token = page.next_token
        if token is None:
            return keys, prefixes, pages


async def stat_of(bucket: Bucket, key: str, content: bytes) -> ObjectId:
    """Puts an object; its identity by HEAD."""
    bucket.put(key, content)
    return (await bucket.store.head(key)).id


# -- listing ----------------------------------------------------------------------------------


async def test_pages_of_any_size_give_the_whole_listing_once(bucket: Bucket) -> None:
    """Paging loses nothing and repeats nothing, with a delimiter and without, and ends with no token."""
    for key in TREE:
        bucket.put(key, b"x")
    # SeaweedFS walks directories by their names without the slash, so `d/` comes before `d-1/`.
    in_order = sorted if bucket.is_weed or bucket.directory else list
    for max_keys in (1, 2, 3, 7, 1000):
        keys, prefixes, pages = await list_all(bucket.store, max_keys=max_keys)
        assert (sorted(keys) if bucket.directory else keys) == ["a.txt", "b0", "z"]
        assert in_order(prefixes) == ["b/", "d-1/", "d/", "e/"]
        assert pages >= 7 // max_keys
        keys, prefixes, _ = await list_all(bucket.store, delimiter="", max_keys=max_keys)
        assert in_order(keys) == sorted(TREE)
        assert prefixes == []


async def test_a_prefix_selects_by_bytes_not_by_component(bucket: Bucket) -> None:
    """`b` finds b0 and b/, `b/` what is below, `b/c/` one object, and an absent prefix an empty page."""
    for key in TREE:
        bucket.put(key, b"x")
    if bucket.directory is None:
        assert (await list_all(bucket.store, "b"))[:2] == (["b0"], ["b/"])
    keys, prefixes, _ = await list_all(bucket.store, "b/")
    assert (sorted(keys), prefixes) == (["b/1", "b/2"], ["b/c/"])
    assert (await list_all(bucket.store, "b/c/"))[:2] == (["b/c/3"], [])
    assert await bucket.store.list_page("absent/") == ListPage((), (), None)


async def test_an_empty_bucket_is_one_empty_page(bucket: Bucket) -> None:
    """No objects, no prefixes, no token."""
    assert await bucket.store.list_page("") == ListPage((), (), None)


@ORDERED_ONLY
async def test_keys_come_in_the_order_the_store_promises(bucket: Bucket) -> None:
    """UTF-8 order, which is not UTF-16 order."""
    keys = ["A", "a", "a-1", "a0", "\u00e9", "\uffee", "\N{GRINNING FACE}"]
    for key in reversed(keys):
        bucket.put(key, b"x")
    assert bucket.store.is_ordered
    listed, _, _ = await list_all(bucket.store, max_keys=3)
    assert all(left.encode() < right.encode() for left, right in pairwise(listed))
    assert listed == keys


async def test_a_listing_and_a_head_say_the_same(bucket: Bucket) -> None:
    """ETag, size and a modification time in whole seconds."""
    bucket.put("dir/object", b"hello")
    page = await bucket.store.list_page("dir/")
    found = await bucket.store.head("dir/object")
    (listed,) = page.objects
    assert (listed.key, listed.etag, listed.size, listed.mtime_s) == ("dir/object", found.etag, 5, found.mtime_s)
    assert isinstance(found.mtime_s, int)
    assert found.etag.startswith('"')
    assert not found.is_archived


async def test_an_empty_object_is_listed_with_size_0(bucket: Bucket) -> None:
    """It has no range to read, and still a size, a time and an ETag."""
    bucket.put("dir/empty", b"")
    found = await bucket.store.head("dir/empty")
    assert found.size == 0
    assert found.etag
    assert (await bucket.store.list_page("dir/")).objects[0].id == found.id


@ORDERED_ONLY
async def test_start_after_lists_what_is_greater(bucket: Bucket) -> None:
    """Keys and common prefixes greater than it, at any page size, and whatever it has to do with the prefix."""
    for key in TREE:
        bucket.put(key, b"x")
    points = ["", "A", "a.txt", "b0", "b1", "c", "z", "zz"]
    # SeaweedFS takes a name for its directory, and what is below it for an entry of this level.
    points += [] if bucket.is_weed else ["b", "b/", "b/1", "b/2", "b/c/", "b/c/3", "d", "d-1/", "d/", "d/y", "e/f"]
    for prefix, delimiter in (("", "/"), ("", ""), ("b", "/"), ("b/", "/"), ("b/", ""), ("d/", "/")):
        for point in points:
            greater = [key for key in sorted(TREE) if key.startswith(prefix) and key > point]
            expected = {key for key in greater if not delimiter or delimiter not in key[len(prefix) :]}
            common = {prefix + key[len(prefix) :].partition("/")[0] + "/" for key in greater if key not in expected}
            for max_keys in (2, 1000):
                keys, prefixes, _ = await list_all(
                    bucket.store, prefix, delimiter=delimiter, max_keys=max_keys, start_after=point
                )
                assert sorted(keys) == sorted(expected)
                assert len(set(prefixes)) == len(prefixes)
                assert {each for each in common if each > point} <= set(prefixes) <= common
                if bucket.fake is not None:
                    assert set(prefixes) == common


@ORDERED_ONLY
async def test_start_after_takes_every_legal_character(bucket: Bucket) -> None:
    """The names after each odd one are those after it in UTF-8 order."""
    # moto repeats the parameter as it came, and XML cannot say \x01.
    names = [key for key in (*ODD_KEYS, "\uffee") if "/" not in key and not (bucket.is_moto and key == "\x01")]
    names.sort(key=str.encode)
    for name in names:
        bucket.put(name, b"x")
    for index, name in enumerate(names):
        page = await bucket.store.list_page("", delimiter="/" if index % 2 else "", start_after=name)
        assert [each.key for each in page.objects] == names[index + 1 :]


@ORDERED_ONLY
async def test_start_after_is_for_the_first_page(bucket: Bucket) -> None:
    """With a token, the listing goes on where the token says."""
    for key in "abcd":
        bucket.put(key, b"x")
    first = await bucket.store.list_page("", max_keys=1, start_after="a")
    assert [each.key for each in first.objects] == ["b"]
    rest = await bucket.store.list_page("", token=first.next_token, start_after="c")
    assert [each.key for each in rest.objects] == ["c", "d"]


@pytest.mark.parametrize("flavour", UNORDERED, indirect=True)
async def test_a_directory_bucket_starts_at_its_start(bucket: Bucket) -> None:
    """It refuses a point to start after, and a prefix that is no directory's."""
    assert not bucket.store.is_ordered
    with pytest.raises(NotSupported):
        await bucket.store.list_page("", start_after="b")
    with pytest.raises(StoreError):
        await bucket.store.list_page("b")


# -- keys -------------------------------------------------------------------------------------


async def test_odd_keys_survive_byte_for_byte(bucket: Bucket) -> None:
    """Each is listed, found and read under exactly its own name."""
    keys = ODD_KEYS if bucket.is_weed else ODD_KEYS + PATH_LIKE_KEYS
    for key in keys:
        bucket.put(key, key.encode())
    listed, _, _ = await list_all(bucket.store, delimiter="")
    assert sorted(listed) == sorted(keys)
    for key in keys:
        found = await bucket.store.head(key)
        assert found.key == key
        assert await bucket.store.get_range(found.id, ByteRange(0, found.size)) == key.encode()
        await bucket.store.confirm(found.id)


async def test_a_missing_key_is_not_found(bucket: Bucket) -> None:
    """HEAD of nothing, and of a mere directory."""
    bucket.put("dir/object", b"x")
    for key in ("absent", "dir", "dir/absent", "dir/object/below"):
        with pytest.raises(ObjectNotFound) as caught:
            await bucket.store.head(key)
        assert caught.value.key == key
        assert caught.value.operation == "HeadObject"


# -- content ----------------------------------------------------------------------------------


async def test_ranges_around_part_boundaries_are_exact(bucket: Bucket) -> None:
    """First byte, last byte, a whole part, one byte either side of a boundary, the short last part."""
    size = 3 * PART + 7
    content = make_content("ranges", size)
    wanted = await stat_of(bucket, "object", content)
    spans = [(0, 1), (0, PART), (PART - 1, PART + 1), (PART, 2 * PART), (2 * PART - 1, 2 * PART), (3 * PART, size)]
    spans += [(size - 1, size), (4095, 4097), (size - PART, size)]
    for start, stop in spans:
        assert await bucket.store.get_range(wanted, ByteRange(start, stop)) == content[start:stop]


async def test_an_identity_without_an_etag_reads_what_is_there(bucket: Bucket) -> None:
    """A server that sends no ETags can still be read."""
    await stat_of(bucket, "object", b"hello")
    assert await bucket.store.get_range(ObjectId("object", ""), ByteRange(1, 3)) == b"el"


async def test_another_version_is_not_read(bucket: Bucket) -> None:
    """A replaced object is ObjectChanged for who knows the old ETag, and readable by the new one."""
    old = await stat_of(bucket, "object", b"old content")
    new = await stat_of(bucket, "object", b"new content")
    with pytest.raises(ObjectChanged) as caught:
        await bucket.store.get_range(old, ByteRange(0, 11))
    assert caught.value.key == "object"
    assert await bucket.store.get_range(new, ByteRange(0, 11)) == b"new content"


async def test_a_deleted_object_is_changed_not_missing(bucket: Bucket) -> None:
    """Who reads a version that is gone learns that the content changed."""
    wanted = await stat_of(bucket, "object", b"content")
    bucket.delete("object")
    with pytest.raises(ObjectChanged):
        await bucket.store.get_range(wanted, ByteRange(0, 7))


async def test_a_range_beyond_the_end_is_an_error(bucket: Bucket) -> None:
    """Never fewer bytes than asked for; wholly beyond it, the object is not what the reader thinks."""
    wanted = await stat_of(bucket, "object", b"content")
    for span in (ByteRange(7, 8), ByteRange(1000, 2000)):
        with pytest.raises(ObjectChanged):
            await bucket.store.get_range(wanted, span)
    with pytest.raises(StoreFailure):
        await bucket.store.get_range(wanted, ByteRange(5, 9))


async def test_a_range_of_an_object_that_became_empty_is_an_error(bucket: Bucket) -> None:
    """Also when its ETag is not known."""
    await stat_of(bucket, "object", b"")
    with pytest.raises(ObjectChanged):
        await bucket.store.get_range(ObjectId("object", ""), ByteRange(0, 1))


async def test_fifty_gets_at_once_each_get_their_own_bytes(bucket: Bucket) -> None:
    """No answer reaches another reader."""
    content = make_content("fifty", 50 * 10_000)
    wanted = await stat_of(bucket, "object", content)
    got: dict[int, bytes] = {}

    async def read(number: int) -> None:
        got[number] = await bucket.store.get_range(wanted, ByteRange(number * 10_000, (number + 1) * 10_000))

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(read, number)
    assert b"".join(got[number] for number in range(50)) == content


async def test_an_object_replaced_between_gets_never_gives_mixed_bytes(bucket: Bucket) -> None:
    """What comes back under an identity is of that version, or it is ObjectChanged."""
    versions: dict[str, bytes] = {}
    refused = 0
    for number in range(4):
        content = make_content(f"version {number}", 20_000)
        wanted = await stat_of(bucket, "object", content)
        versions[wanted.etag] = content
        for etag, expected in versions.items():
            for start in (0, 10_000):
                try:
                    got = await bucket.store.get_range(ObjectId("object", etag), ByteRange(start, start + 10_000))
                except ObjectChanged:
                    refused += 1
                else:
                    assert etag == wanted.etag
                    assert got == expected[start : start + 10_000]
    assert refused == 2 * (0 + 1 + 2 + 3)


async def test_cancelled_gets_leave_the_store_usable(bucket: Bucket) -> None:
    """Twenty GETs given up at once; the next one is whole."""
    content = make_content("cancelled", PART)
    wanted = await stat_of(bucket, "object", content)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(bucket.store.get_range, wanted, ByteRange(0, PART))
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert await bucket.store.get_range(wanted, ByteRange(0, PART)) == content
    assert [each.key for each in (await bucket.store.list_page("")).objects] == ["object"]


# -- revalidation -----------------------------------------------------------------------------


async def test_only_the_version_that_is_there_is_confirmed(bucket: Bucket) -> None:
    """The current version, also when it is empty or its ETag is not known; not one that was replaced or deleted."""
    for content in (b"", b"first"):
        await bucket.store.confirm(await stat_of(bucket, "dir/object", content))
    old, new = ObjectId("dir/object", '"0"'), await stat_of(bucket, "dir/object", b"second")
    await bucket.store.confirm(new)
    await bucket.store.confirm(ObjectId("dir/object", ""))
    replaced = new
    new = await stat_of(bucket, "dir/object", b"third!")
    bucket.put("deleted", b"x")
    bucket.delete("deleted")
    for wanted in (old, replaced, ObjectId("deleted", new.etag), ObjectId("deleted", ""), ObjectId("dir", "")):
        with pytest.raises(ObjectChanged) as caught:
            await bucket.store.confirm(wanted)
        assert caught.value.key == wanted.key
        assert caught.value.operation == "HeadObject"
    await bucket.store.confirm(new)


async def test_cancelled_confirmations_leave_the_store_usable(bucket: Bucket) -> None:
    """Twenty given up at once; the next one is answered."""
    wanted = await stat_of(bucket, "object", b"content")
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(bucket.store.confirm, wanted)
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    await bucket.store.confirm(wanted)


# -- faults -----------------------------------------------------------------------------------


async def test_a_faulty_store_fails_as_told_and_then_works() -> None:
    """The fault sees operation, key and number of each call; what it returns is raised, once."""
    fake = FakeStore()
    wanted = fake.put("object", b"content")
    seen: list[tuple[str, str, int]] = []

    def fault(operation: str, key: str, number: int) -> StoreError | None:
        seen.append((operation, key, number))
        return StoreThrottled("slow down") if number <= 4 else None

    store = FaultyStore(fake, fault)
    with pytest.raises(StoreThrottled):
        await store.list_page("prefix/")
    with pytest.raises(StoreThrottled):
        await store.head("object")
    with pytest.raises(StoreThrottled):
        await store.get_range(wanted, ByteRange(0, 7))
    with pytest.raises(StoreThrottled):
        await store.confirm(wanted)
    assert fake.counts.total() == 0
    assert await store.get_range(wanted, ByteRange(0, 7)) == b"content"
    assert [operation for operation, _, _ in seen] == ["list", "head", "get", "head", "get"]
    assert [(key, number) for _, key, number in seen] == [("prefix/", 1), *(("object", call) for call in (2, 3, 4, 5))]


async def test_an_unordered_store_still_pages_completely() -> None:
    """As S3 Express lists: scrambled, but everything exactly once."""
    store = FakeStore(is_ordered=False)
    for key in TREE:
        store.put(key, b"x")
    assert not store.is_ordered
    for max_keys in (1, 2, 1000):
        keys, prefixes, _ = await list_all(store, max_keys=max_keys)
        assert sorted([*keys, *prefixes]) == ["a.txt", "b/", "b0", "d-1/", "d/", "e/", "z"]
    with pytest.raises(StoreFailure):
        await store.list_page("", start_after="b")
