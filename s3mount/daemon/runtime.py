"""One daemon from start to end: trio.run, signals, readiness, ordered shutdown.

Start: the mount point is checked, the bucket is proven, the mount is made and served, and a
process outside asks the mount something.  Only then it is ready.  (A thread of this process that
stats its own mount proves nothing and can become unkillable: measured.)

Stop, by SIGINT, SIGTERM or a closed terminal: the mount is detached first, so that nobody new comes; calls in flight
get `_GRACE_S` to be answered; then they are cancelled and the kernel fails them.  An unmount from
outside ends the loop by itself.
"""

import gc
import logging
import signal
from collections.abc import AsyncIterator
from typing import Protocol

import trio

from s3mount.config import MountConfig
from s3mount.daemon import mountpoint, stacks
from s3mount.daemon.allocator import keep_memory
from s3mount.daemon.commands import Commands, ignore_from_now_on, pass_over_at_the_end, signals_heeded
from s3mount.daemon.desk import desk_of
from s3mount.daemon.exits import ExitCode
from s3mount.daemon.keeper import Keeper
from s3mount.daemon.metering import meter_of
from s3mount.daemon.status import tell_status
from s3mount.daemon.telemetry import Telemetry
from s3mount.daemon.verbs import verbs_of
from s3mount.daemon.wiring import Components, components
from s3mount.daemon.writing import FINISH_S, Writing
from s3mount.errors import MountNotAnswering, sole_cause
from s3mount.fuse import device, kernel, session
from s3mount.fuse.mountinfo import FILE_SYSTEM_TYPE, mounted_on
from s3mount.logs import Log
from s3mount.units import counted

log = logging.getLogger(__name__)

#: Seconds a call in flight may take after a stop was asked for.
_GRACE_S = 5.0
#: Seconds without a call after which nobody is taken to be in the middle of something.
_QUIET_S = 0.1
#: Seconds for the first answer of a fresh mount; with the probes this stays under the 30 s that
#: the parent in the background waits.
_ANSWER_S = 10.0
_UNMOUNT_S = 5.0
#: Seconds to let go of everything.
_END_S = 5.0


class Readiness(Protocol):
    """Who waits for the mount."""

    def ready(self) -> None:
        """The mount answers."""
        ...


def run(config: MountConfig, readiness: Readiness, keeper: Keeper, own_log: Log) -> ExitCode:
    """Serve one mount until it is unmounted or a signal asks to stop.

    Args:
        own_log: of this process.

    Returns:
        OK, or NOT_SAVED if not all that was written is in S3; the log names what is not.

    Raises:
        StartupError, StoreError: the mount could not be made; nothing stays mounted.
    """
    if keeper.region is None:
        mountpoint.check(config.fuse)
    keep_memory(config.read.budget_bytes)
    try:
        writing = trio.run(_run, config, readiness, keeper, own_log)
    except BaseExceptionGroup as group:
        raise sole_cause(group) from group
    finally:
        ignore_from_now_on()
    return ExitCode.OK if writing is None or writing.is_saved else ExitCode.NOT_SAVED


async def _run(config: MountConfig, readiness: Readiness, keeper: Keeper, own_log: Log) -> Writing | None:
    async with components(config, keeper) as parts:
        if keeper.region is None:
            gc.collect()
        gc.freeze()  # botocore's models are 300,000 objects that no later collection need look at
        telemetry = Telemetry(config, parts)
        pass_over_at_the_end()
        with (
            trio.open_signal_receiver(*signals_heeded()) as signals,
            stacks.dumped(own_log.descriptor) as dumps,
            meter_of(config.metrics, telemetry.stats, is_first=keeper.region is None) as meter,
            session.mounted(parts.operations, config.fuse, keeper.connect),
            desk_of(config, verbs_of(config, parts, keeper, telemetry, own_log)) as desk,
        ):
            commands = Commands(parts.filesystem, own_log)
            # A later daemon is started with them blocked.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [*signals_heeded(), stacks.SIGNAL])
            was_handed_over = False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(desk.serve)
                nursery.start_soon(meter.serve)
                nursery.start_soon(_announce, config, readiness, keeper, parts)
                nursery.start_soon(keeper.watch, parts.boundary, parts.obstacle)
                nursery.start_soon(tell_status, _where(config, parts), keeper, parts)
                nursery.start_soon(stacks.report, dumps, parts.statistics)
                nursery.start_soon(_stop_on_signal, commands, signals, config, parts, nursery, keeper)
                with keeper.patience:
                    await session.serve()
                desk.close()
                meter.close()
                was_handed_over = await keeper.hand_over(parts.settle)
                await desk.finish()
                nursery.cancel_scope.cancel()
            if not was_handed_over:  # else the service goes on
                keeper.stopping(_patience_s(parts))
            parts.notifier.close()
        _log_summary(parts, "handed over" if was_handed_over else "unmounted")
    return parts.writing


async def _announce(config: MountConfig, readiness: Readiness, keeper: Keeper, parts: Components) -> None:
    """Say ready when the mount answers a process outside; a later daemon does not wait for that.

    Nor one that does not know where the mount is: it has answered the kernel.

    Raises:
        MountNotAnswering: it does not.
    """
    mount_point = config.fuse.mount_point
    where = _where(config, parts)
    if keeper.region is not None or config.fuse.descriptor is not None:
        log.info("%s: %s on %s", "taken over" if keeper.region is not None else "serving", where, mount_point)
        keeper.ready(f"serving {where}", parts.region)
        readiness.ready()
        return
    with trio.move_on_after(_ANSWER_S):
        command = ["stat", "-f", mount_point]
        probe = await trio.run_process(command, check=False, capture_stdout=True, capture_stderr=True)
        mounted = mounted_on(mount_point)
        if mounted is None:
            return  # somebody unmounted it, or asked us to stop, before it was ready
        if probe.returncode == 0 and mounted.kind == FILE_SYSTEM_TYPE:
            if config.fuse.read_ahead_kib is not None:
                kernel.set_read_ahead(mounted.device, config.fuse.read_ahead_kib)
            keeper.ready(f"serving {where}", parts.region)
            log.info("mounted %s on %s", where, mount_point)
            readiness.ready()
            return
    raise MountNotAnswering(f"{mount_point} was mounted but did not answer within {_ANSWER_S:g} s")


def _where(config: MountConfig, parts: Components) -> str:
    return f"s3://{config.s3.location.bucket}/{config.s3.location.prefix} ({parts.region})"


def _patience_s(parts: Components) -> float:
    """What a stop may take at most."""
    writing_s = 0.0 if parts.writing is None else FINISH_S
    return _UNMOUNT_S + writing_s + _GRACE_S + _END_S


async def _stop_on_signal(
    commands: Commands,
    signals: AsyncIterator[int],
    config: MountConfig,
    parts: Components,
    nursery: trio.Nursery,
    keeper: Keeper,
) -> None:
    number = await commands.until_stop(signals)
    if number is None:
        return
    keeper.stopping(_patience_s(parts))
    log.info("stopping on %s", number.name)
    if config.fuse.descriptor is None:
        with trio.move_on_after(_UNMOUNT_S):
            await trio.to_thread.run_sync(device.unmount, config.fuse.mount_point, abandon_on_cancel=True)
    if parts.writing is not None:
        await parts.writing.finish()
    with trio.move_on_after(_GRACE_S):
        await parts.boundary.wait_idle(_QUIET_S)
    nursery.cancel_scope.cancel()


def _log_summary(parts: Components, end: str) -> None:
    log.info("readers waited %s", parts.filesystem.statistics().reader_wait_seconds)
    if parts.disk is not None:
        for directory, counts in parts.disk.statistics().items():
            log.info("disk cache %s: %s", directory, counts)
    requests = parts.store.statistics()
    log.info(
        "%s after %s (%d LIST, %d HEAD, %d GET) and %s read; answers: %s",
        end, counted(requests.requests, "request"), requests.lists, requests.heads, requests.gets,
        counted(requests.bytes_read, "byte"), parts.boundary.statistics(),
    )  # fmt: skip
