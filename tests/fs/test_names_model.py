"""Programs that change names, on a mount and on a tree of dictionaries: the same results, the same tree.

Files stay open over what happens to their names.  At the end a new mount sees the files and links that the model has.
"""

import tempfile
from pathlib import Path

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from s3mount.errors import (
    AlreadyExists,
    DirectoryNotEmpty,
    FileSystemError,
    InvalidName,
    IsADirectory,
    NameNotFound,
    NotADirectory,
)
from s3mount.fs.namespace import NamespaceConfig
from tests.fs.names_harness import GOOD, NOW, MountedNames, namespace
from tests.support.fake_store import FakeStore
from tests.support.fake_writer import FakeWriter

#: Without any, what is asked and answered at one time has no order.
LATENCY_S = 0.001


class File:
    """A file: what it has, whatever its name."""

    def __init__(self, content: bytes) -> None:
        self.content = content


Node = dict[str, "Node"] | File | str


class Model:
    """What a local file system would do.  Links are not followed, as the kernel follows them itself."""

    def __init__(self) -> None:
        self.root: dict[str, Node] = {}

    def parent(self, path: str) -> tuple[dict[str, Node], str]:
        *parents, name = path.split("/")
        node = self.root
        for each in parents:
            child = node.get(each)
            if child is None:
                raise NameNotFound(path)
            if not isinstance(child, dict):
                raise NotADirectory(path)
            node = child
        return node, name

    def get(self, path: str) -> Node:
        directory, name = self.parent(path)
        if name not in directory:
            raise NameNotFound(path)
        return directory[name]

    def make(self, path: str, node: Node) -> None:
        directory, name = self.parent(path)
        if name in directory:
            raise AlreadyExists(path)
        directory[name] = node

    def rmdir(self, path: str) -> None:
        directory, name = self.parent(path)
        node = self.get(path)
        if not isinstance(node, dict):
            raise NotADirectory(path)
        if node:
            raise DirectoryNotEmpty(path)
        del directory[name]

    def unlink(self, path: str) -> None:
        directory, name = self.parent(path)
        if isinstance(self.get(path), dict):
            raise IsADirectory(path)
        del directory[name]

    def rename(self, path: str, new_path: str, *, may_replace: bool) -> None:
        (directory, name), (new_directory, new_name) = self.parent(path), self.parent(new_path)
        if path == new_path:
            return
        if new_path.startswith(path + "/"):
            raise InvalidName(path)
        node, replaced = self.get(path), new_directory.get(new_name)
        if replaced is not None and not may_replace:
            raise AlreadyExists(new_path)
        if replaced is not None and isinstance(node, dict) != isinstance(replaced, dict):
            raise (NotADirectory if isinstance(node, dict) else IsADirectory)(new_path)
        if isinstance(replaced, dict) and replaced:
            raise DirectoryNotEmpty(new_path)
        del directory[name]
        new_directory[new_name] = node

    def link(self, path: str, new_path: str) -> None:
        node, _ = self.get(path), self.parent(new_path)
        if isinstance(node, dict):
            raise IsADirectory(path)
        self.make(new_path, File(node.content) if isinstance(node, File) else node)

    def tree(self) -> dict[str, bytes | str | None]:
        found: dict[str, bytes | str | None] = {}

        def add(prefix: str, directory: dict[str, Node]) -> None:
            for name, node in directory.items():
                if isinstance(node, dict):
                    found[prefix + name] = None
                    add(f"{prefix}{name}/", node)
                else:
                    found[prefix + name] = node.content if isinstance(node, File) else node

        add("", self.root)
        return found


paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("mkdir"), paths, paths),
        st.tuples(st.just("mkdir"), paths, paths),
        st.tuples(st.just("rmdir"), paths, paths),
        st.tuples(st.just("unlink"), paths, paths),
        st.tuples(st.just("rename"), paths, paths),
        st.tuples(st.just("rename"), paths, paths),
        st.tuples(st.just("rename new"), paths, paths),
        st.tuples(st.just("link"), paths, paths),
        st.tuples(st.just("symlink"), paths, paths),
        st.tuples(st.just("write"), paths, paths),
        st.tuples(st.just("write"), paths, paths),
        st.tuples(st.just("hold"), paths, paths),
        st.tuples(st.just("finish"), paths, paths),
        st.tuples(st.just("wait"), st.sampled_from(["0.05", "0.3", "3"]), paths),
        st.tuples(st.just("look"), paths, paths),
    ),
    min_size=8,
    max_size=40,
)


class Program:
    """Does each step on both.

    Attributes:
        held: open handles, and the files they are on.
    """

    def __init__(self, mount: MountedNames) -> None:
        self.mount = mount
        self.model = Model()
        self.held: list[tuple[int, File]] = []
        self.count = 0

    async def step(self, verb: str, path: str, other: str) -> None:
        expected = outcome = None
        try:
            self.on_model(verb, path, other)
        except FileSystemError as error:
            expected = error
        except AlreadyExists as error:
            expected = error
        try:
            await self.on_mount(verb, path, other)
        except FileSystemError as error:
            outcome = error
        except AlreadyExists as error:
            outcome = error
        assert type(outcome) is type(expected), (verb, path, other, outcome, expected)
        self.mount.check_invariants()

    def on_model(self, verb: str, path: str, other: str) -> None:
        model = self.model
        match verb:
            case "mkdir":
                model.make(path, {})
            case "rmdir":
                model.rmdir(path)
            case "unlink":
                model.unlink(path)
            case "rename":
                model.rename(path, other, may_replace=True)
            case "rename new":
                model.rename(path, other, may_replace=False)
            case "link":
                model.link(path, other)
            case "symlink":
                model.make(path, other)
            case "write" | "hold":
                self.count += 1
                model.make(path, File(f"{self.count}".encode()))

    async def on_mount(self, verb: str, path: str, other: str) -> None:
        mount = self.mount
        match verb:
            case "mkdir":
                await mount.mkdir(path)
            case "rmdir":
                await mount.rmdir(path)
            case "unlink":
                await mount.unlink(path)
            case "rename":
                await mount.rename(path, other)
            case "rename new":
                await mount.rename(path, other, may_replace=False)
            case "link":
                await mount.link(path, other)
            case "symlink":
                await mount.symlink(path, other)
            case _:
                await self.beside(verb, path)

    async def beside(self, verb: str, path: str) -> None:
        match verb:
            case "write" | "hold":
                await self.write(path, is_closed=verb == "write")
            case "finish" if self.held:
                await self.finish(*self.held.pop(0))
            case "wait":
                await trio.sleep(float(path))
            case "look":
                assert await self.mount.tree() == self.model.tree()

    async def write(self, path: str, *, is_closed: bool) -> None:
        if await self.mount.exists(path):
            raise AlreadyExists(path)
        handle = await self.mount.create(path, f"{self.count}".encode())
        if is_closed:
            await self.mount.close(handle)
        else:
            node = self.model.get(path)
            assert isinstance(node, File)
            self.held.append((handle, node))

    async def finish(self, handle: int, file: File) -> None:
        await self.mount.files.write(handle, len(file.content), b"+")
        file.content += b"+"
        assert bytes(await self.mount.mounted.fs.read(handle, 0, 99)) == file.content
        await self.mount.close(handle)


async def run_program(program: list[tuple[str, str, str]], directory: Path) -> None:
    store = FakeStore(is_ordered=False, latency_s=LATENCY_S)
    writer = FakeWriter(store, latency_s=LATENCY_S)
    config = NamespaceConfig(conditions=GOOD, clock=lambda: NOW, mover=writer)
    async with namespace(store, directory, writer=writer, config=config) as here:
        run = Program(here)
        for step in program:
            await run.step(*step)
        for held in run.held:
            await run.finish(*held)
        wanted = run.model.tree()
        assert await here.tree() == wanted
        await here.names.sync()
        assert await here.tree() == wanted
    async with namespace(store, directory) as there:
        assert await there.tree() == wanted


@settings(max_examples=20, deadline=None)
@given(steps)
def test_names_are_as_on_a_local_disk(program: list[tuple[str, str, str]]) -> None:
    """On a bucket that renames objects, results and tree are those of a local disk, here and in the next mount."""
    with tempfile.TemporaryDirectory() as directory:
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(run_program, program, Path(directory), clock=clock)
