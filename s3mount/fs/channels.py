"""Memory channels without a turn of the loop where none is needed; cancellation waits until one is."""

from contextlib import suppress
from typing import TypeVar

import trio

T = TypeVar("T")


async def receive(channel: trio.MemoryReceiveChannel[T]) -> T | None:
    """As `channel.receive`, without a turn of the loop while there is something: a tenth of the CPU of a small file.

    Returns:
        None at the end.
    """
    try:
        return channel.receive_nowait()
    except trio.WouldBlock:
        with suppress(trio.EndOfChannel):
            return await channel.receive()
    except trio.EndOfChannel:
        pass
    return None


async def send(channel: trio.MemorySendChannel[T], value: T) -> None:
    """As `channel.send`, without a turn of the loop while there is room."""
    try:
        channel.send_nowait(value)
    except trio.WouldBlock:
        await channel.send(value)
