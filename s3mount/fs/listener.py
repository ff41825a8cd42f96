"""Who asked for something long, as the file system sees it; in the daemon a connection of s3mountctl."""

from typing import Any, Protocol


class Listener(Protocol):
    """Who asked for it."""

    def progress(self, **facts: Any) -> None:
        """How far it is."""
        ...

    async def tell(self, event: str, **facts: Any) -> None:
        """Something that must not be missed."""
        ...
