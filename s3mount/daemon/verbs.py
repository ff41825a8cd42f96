"""The table of what `s3mountctl` can ask: each verb is one of a component's own, with its arguments unpacked.

A new verb is one line in `verbs_of`.  What a verb returns are the facts of its result; `failed` among them says
how many things were told to have failed.
"""

import os
from dataclasses import asdict

from s3mount import __version__
from s3mount.cache.inventory import DirectoryReport, Inventory
from s3mount.config import MountConfig
from s3mount.core.keys import SEPARATOR, is_text
from s3mount.daemon.control import Arguments, Talk, Verb
from s3mount.daemon.keeper import Keeper
from s3mount.daemon.telemetry import Telemetry
from s3mount.daemon.wiring import Components
from s3mount.daemon.writing import Writing
from s3mount.errors import BadOption
from s3mount.fs.emptying import Emptier
from s3mount.fs.filesystem import S3FileSystem
from s3mount.fs.selection import Selector
from s3mount.fs.warming import Warmer
from s3mount.logs import LEVELS, Log

Facts = dict[str, object]

#: Files and openers that are told, if the client does not say, and at most.
_TOP = 20
_MAX_TOP = 1000


def verbs_of(
    config: MountConfig, parts: Components, keeper: Keeper, telemetry: Telemetry, own_log: Log
) -> dict[str, Verb]:
    """Everything that this daemon does on demand."""
    verbs: dict[str, Verb] = {
        "status": _status(config),
        "refresh": _refresh(parts.filesystem),
        "restart": _restart(keeper),
        "stats": _stats(telemetry),
        "top": _top(telemetry),
        "log-level": _log_level(own_log),
        "uploads": _uploads(parts.writing),
    }
    if parts.inventory is None or parts.warmer is None:
        return verbs | dict.fromkeys(("warm", "evict", "cache", "verify"), _no_cache)
    return verbs | {
        "warm": _warm(parts.warmer),
        "evict": _evict(parts.inventory, parts.selector),
        "cache": _cache(parts.inventory),
        "verify": _verify(parts.inventory),
    }


async def _no_cache(args: Arguments, talk: Talk) -> Facts:
    raise BadOption("this mount has no disk cache: mount it with --cache DIRECTORY")


def _paths(args: Arguments) -> list[str]:
    paths = args.get("paths", [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise BadOption("paths must be a list of texts")
    return paths


def _status(config: MountConfig) -> Verb:
    location = config.s3.location
    facts: Facts = {
        "mount_point": config.fuse.mount_point,
        "bucket": location.bucket,
        "prefix": location.prefix,
        "pid": os.getpid(),
        "version": __version__,
    }

    async def status(args: Arguments, talk: Talk) -> Facts:
        return facts

    return status


def _refresh(filesystem: S3FileSystem) -> Verb:
    async def refresh(args: Arguments, talk: Talk) -> Facts:
        for path in _paths(args) or [""]:
            if is_text(path):  # else no object has the name, and nothing is known of it
                await filesystem.refresh(path.strip(SEPARATOR))
        return {"failed": 0}

    return refresh


def _restart(keeper: Keeper) -> Verb:
    async def restart(args: Arguments, talk: Talk) -> Facts:
        await keeper.restart()
        return {"failed": 0}

    return restart


def _stats(telemetry: Telemetry) -> Verb:
    async def stats(args: Arguments, talk: Talk) -> Facts:
        return telemetry.stats() | {"failed": 0}

    return stats


def _top(telemetry: Telemetry) -> Verb:
    async def top(args: Arguments, talk: Talk) -> Facts:
        n = args.get("n", _TOP)
        if not isinstance(n, int) or not 0 < n <= _MAX_TOP:
            raise BadOption(f"n must be a number from 1 to {_MAX_TOP}")
        return telemetry.top(n) | {"failed": 0}

    return top


def _log_level(own_log: Log) -> Verb:
    async def log_level(args: Arguments, talk: Talk) -> Facts:
        level = args.get("level")
        if level is not None:
            if level not in LEVELS:
                raise BadOption(f"a log level is one of {', '.join(LEVELS)}")
            own_log.level = level
        return {"level": own_log.level, "failed": 0}

    return log_level


def _uploads(writing: Writing | None) -> Verb:
    async def uploads(args: Arguments, talk: Talk) -> Facts:
        if writing is None:
            raise BadOption("this mount uploads nothing: it is --read-only")
        return asdict(await writing.left.report(talk, is_aborting=bool(args.get("is_aborting"))))

    return uploads


def _warm(warmer: Warmer) -> Verb:
    async def warm(args: Arguments, talk: Talk) -> Facts:
        return asdict(await warmer.warm(_paths(args), talk))

    return warm


def _evict(inventory: Inventory, selector: Selector) -> Verb:
    emptier = Emptier(inventory, selector)

    async def evict(args: Arguments, talk: Talk) -> Facts:
        if args.get("is_all"):
            return {"bytes": await inventory.clear(), "failed": 0}
        return asdict(await emptier.evict(_paths(args), talk))

    return evict


def _cache(inventory: Inventory) -> Verb:
    async def cache(args: Arguments, talk: Talk) -> Facts:
        return {"directories": [_told(report) for report in await inventory.report()], "failed": 0}

    return cache


def _told(report: DirectoryReport) -> Facts:
    counters = asdict(report.counters)
    level = None if report.level is None else report.level._asdict()
    reads = report.counters.hits + report.counters.misses
    hit_rate = report.counters.hits / reads if reads else None
    return {"path": str(report.path), **counters, "hit_rate": hit_rate, "level": level}


def _verify(inventory: Inventory) -> Verb:
    async def verify(args: Arguments, talk: Talk) -> Facts:
        total = sum(report.counters.blocks for report in await inventory.report())
        done = {"blocks": 0, "n_bytes": 0, "all_blocks": total}

        def on_progress(n_bytes: int) -> None:
            done["blocks"] += 1
            done["n_bytes"] += n_bytes
            talk.progress(**done)

        found = await inventory.verify(on_progress)
        for path, counts in found.items():
            for name in counts.removed:
                await talk.tell("failed", path=f"{path}/{name.hex()}", reason="the block was wrong, and is removed")
        unread = sum(counts.unread for counts in found.values())
        wrong = sum(len(counts.removed) for counts in found.values())
        right = sum(counts.right for counts in found.values())
        return {"right": right, "wrong": wrong, "unread": unread, "n_bytes": done["n_bytes"], "failed": wrong + unread}

    return verify
