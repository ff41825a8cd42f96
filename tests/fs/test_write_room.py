"""The memory of writers: what leaves it, in which order, and when."""

from collections.abc import Callable

import pytest

from s3mount.fs.budget import ByteBudget
from s3mount.fs.write_room import Allowance, WriteRoom
from s3mount.units import GIB, MIB


@pytest.mark.parametrize(
    ("budget_bytes", "stays_bytes"), [(128 * MIB, 32 * MIB), (2 * GIB, 512 * MIB), (4 * GIB, 1536 * MIB)]
)
async def test_how_much_stays_in_memory(budget_bytes: int, stays_bytes: int) -> None:
    """What was sent stays while half of the writers' share is left, or 512 MiB; the oldest of the rest goes first."""
    room = WriteRoom(ByteBudget(budget_bytes))
    allowance, gone = Allowance(room), []
    for number in range(room.share // (8 * MIB)):
        await allowance.take(8 * MIB)
        room.offer(number, 8 * MIB, lambda number=number: gone.append(number))  # type: ignore[misc]
        room.check_invariants()
        assert gone == list(range(max(0, number + 1 - stays_bytes // (8 * MIB))))
    for number in range(room.share // (8 * MIB)):
        room.unkeep(number)
    allowance.close()
    room.check_invariants()


async def test_what_was_kept_first_goes_first() -> None:
    """Of bytes that may be dropped the oldest go first, also when the younger are told of again meanwhile."""
    room = WriteRoom(ByteBudget(8 * MIB))
    allowance, dropped = Allowance(room), []

    def dropping(name: str) -> Callable[[], None]:
        def drop() -> None:
            dropped.append(name)
            allowance.give(1 * MIB)

        return drop

    await allowance.take(3 * MIB)
    for name in ("old", "young", "old"):
        room.keep(name, 1 * MIB, dropping(name))
        room.check_invariants()
    await allowance.take(2 * MIB)
    assert dropped == ["old"]
    room.check_invariants()
