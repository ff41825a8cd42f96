"""What a local file system would do: a tree of dictionaries, files that keep their content whatever their name.

Links are not followed, as the kernel follows them itself.  Of each file it is known which states may be there after
kill -9 of the daemon: what was acknowledged last, and every state since.
"""

import zlib
from collections.abc import Iterator

from s3mount.errors import AlreadyExists, DirectoryNotEmpty, InvalidName, IsADirectory, NameNotFound, NotADirectory

#: Modes of files that nobody set.
FILE_MODE = 0o644


class File:
    """A file: what it has, whatever its name.

    Attributes:
        mode: permission bits.
        is_durable: something of it was acknowledged, so that it is there after a kill.
        is_late: it was appended to, so that S3 has it a second after the close.
        is_taken: its object is gone, since another file has its name.
        n_writers: handles on it that may write.
    """

    def __init__(self, content: bytes = b"", *, is_durable: bool = False) -> None:
        self.content = bytearray(content)
        self.mode = FILE_MODE
        self.is_durable = is_durable
        self.is_late = self.is_taken = self.has_name = False
        self.n_writers = 0
        self._states = {_digest(content)}

    def changed(self) -> None:
        """It has another content, that nothing was promised for."""
        self._states.add(_digest(self.content))

    def saved(self) -> None:
        """What it has was acknowledged."""
        self.is_durable = True
        self._states = {_digest(self.content)}

    def may_be(self, content: bytes) -> bool:
        """Whether a kill may leave this."""
        return _digest(content) in self._states

    def write(self, offset: int, data: bytes) -> None:
        """As pwrite(2)."""
        if data:
            self.content.extend(bytes(max(0, offset - len(self.content))))
            self.content[offset : offset + len(data)] = data
        self.changed()

    def truncate(self, size: int) -> None:
        """As ftruncate(2)."""
        self.content = self.content[:size].ljust(size, b"\0")
        self.changed()


def _digest(content: bytes | bytearray) -> tuple[int, int]:
    return len(content), zlib.crc32(content)


#: A directory, a file, or where a symbolic link points to.
Node = dict[str, "Node"] | File | str
#: By path: content, target, None for a directory.
Tree = dict[str, bytes | str | None]


class Model:
    """A tree, and what was removed of it a moment ago.

    Attributes:
        removed: by path; a daemon killed before its DELETE left has not done it.
    """

    def __init__(self) -> None:
        self.root: dict[str, Node] = {}
        self.removed: dict[str, Node] = {}

    def parent(self, path: str) -> tuple[dict[str, Node], str]:
        """The directory that a path is in, and the name there."""
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
        self._put(directory, name, node)

    def _put(self, directory: dict[str, Node], name: str, node: Node) -> None:
        if isinstance(node, File):
            node.has_name = True
        directory[name] = node

    def rmdir(self, path: str) -> None:
        directory, name = self.parent(path)
        node = self.get(path)
        if not isinstance(node, dict):
            raise NotADirectory(path)
        if node:
            raise DirectoryNotEmpty(path)
        self.removed[path] = directory.pop(name)

    def unlink(self, path: str) -> None:
        directory, name = self.parent(path)
        node = self.get(path)
        if isinstance(node, dict):
            raise IsADirectory(path)
        self.removed[path] = directory.pop(name)
        if isinstance(node, File):
            node.has_name = False

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
        if isinstance(replaced, File):
            replaced.has_name, replaced.is_taken = False, True
        for each in files_in(node):
            each.saved()
        del directory[name]
        new_directory[new_name] = node

    def link(self, path: str, new_path: str) -> None:
        node, _ = self.get(path), self.parent(new_path)
        if isinstance(node, dict):
            raise IsADirectory(path)
        if isinstance(node, str):
            self.make(new_path, node)
            return
        self.make(new_path, File(bytes(node.content), is_durable=True))
        node.saved()

    def tree(self) -> Tree:
        """All of it."""
        return {
            path: bytes(node.content) if isinstance(node, File) else None if isinstance(node, dict) else node
            for path, node in nodes_in("", self.root)
        }

    def objects(self) -> dict[str, bytes]:
        """Content of the files, by key."""
        return {path: bytes(node.content) for path, node in nodes_in("", self.root) if isinstance(node, File)}

    def check_left(self, found: Tree) -> None:
        """Whether a kill may leave this tree; raises AssertionError."""
        here = dict(nodes_in("", self.root))
        for path, node in here.items():
            if isinstance(node, File) and not node.is_durable and path not in found:
                continue
            assert path in found, f"{path} is lost"
            _check_node(path, node, found[path])
        for path in found.keys() - here.keys():
            assert path in self.removed, f"{path} is there, and nobody made it"
            _check_node(path, self.removed[path], found[path])

    def adopt(self, found: Tree) -> None:
        """Be this tree."""
        self.root, self.removed = {}, {}
        for path, content in sorted(found.items()):
            node: Node = {} if content is None else content if isinstance(content, str) else File(content)
            if isinstance(node, File):
                node.saved()
            self.make(path, node)


def _check_node(path: str, node: Node, content: bytes | str | None) -> None:
    if isinstance(node, File):
        assert isinstance(content, bytes), f"{path} is no file"
        assert node.may_be(content), (
            f"{path} has {len(content)} bytes that it had not when it was acknowledged or later"
        )
    else:
        assert content == (None if isinstance(node, dict) else node), f"{path} is {content!r}"


def nodes_in(prefix: str, directory: dict[str, Node]) -> Iterator[tuple[str, Node]]:
    """Everything below, by path."""
    for name, node in directory.items():
        yield prefix + name, node
        if isinstance(node, dict):
            yield from nodes_in(f"{prefix}{name}/", node)


def files_in(node: Node) -> list[File]:
    """The file, or all that are in a directory."""
    if isinstance(node, dict):
        return [each for _, each in nodes_in("", node) if isinstance(each, File)]
    return [node] if isinstance(node, File) else []
