"""Results of verbs in words."""

from collections.abc import Iterator
from typing import Any

from s3mount.units import counted, format_size


def result_line(verb: str, facts: dict[str, Any]) -> str:
    """What a verb did."""
    if verb == "warm":
        return warm_line(facts)
    if verb == "evict" and "bytes" in facts:
        return f"{format_size(facts['bytes'])} removed"
    if verb == "evict":
        return f"{counted(facts['blocks'], 'block')} of {counted(facts['files'], 'file')} removed{_failures(facts)}"
    if verb == "verify":
        sizes = f"{counted(facts['right'], 'block')} right, {facts['wrong']} wrong and removed"
        return f"{sizes}, {facts['unread']} could not be read ({format_size(facts['n_bytes'])})"
    if verb == "uploads":
        return f"{counted(facts['uploads'], 'upload')} left, {facts['aborted']} aborted{_failures(facts)}"
    return "done"


def upload_line(facts: dict[str, Any]) -> str:
    """One that was left."""
    end = "  aborted" if facts["is_aborted"] else ""
    return f"{facts['key']}  {format_age(facts['age_s'])}  {facts['upload_id']}{end}"


def warm_line(facts: dict[str, Any]) -> str:
    """How far a warm came."""
    known = "" if facts["is_listed"] else "at least "
    left_out = f", {facts['left_out']} left out" if facts["left_out"] else ""
    return (
        f"{facts['done_files']} of {known}{counted(facts['files'], 'file')}, {format_size(facts['done_bytes'])} of "
        f"{known}{format_size(facts['n_bytes'])} on disk; {counted(facts['cached_files'], 'file')} there before"
        f"{_failures(facts)}{left_out}"
    )


def _failures(facts: dict[str, Any]) -> str:
    return f", {facts['failed']} failed" if facts["failed"] else ""


def cache_lines(facts: dict[str, Any]) -> list[str]:
    """The state of a cache."""
    return [line for directory in facts["directories"] for line in _directory_lines(directory)]


def _directory_lines(facts: dict[str, Any]) -> Iterator[str]:
    level, rate = facts["level"], facts["hit_rate"]
    yield facts["path"]
    yield f"  size      {format_size(facts['n_bytes'])} in {counted(facts['blocks'], 'block')}"
    if level is None:
        yield "  disk      does not answer"
    else:
        yield f"  limit     {format_size(level['capacity'])} as the disk is now; {format_size(level['free'])} are free"
        if level["oldest_s"] is not None:
            yield f"  oldest    not used for {format_age(level['oldest_s'])}"
    yield f"  hits      {facts['hits']} of {counted(facts['hits'] + facts['misses'], 'read')}" + (
        "" if rate is None else f" ({rate:.1%})"
    )
    counts = ["written", "evicted", "dropped", "refused", "corrupt", "bypassed", "late"]
    told = [f"{facts[name]} {name}" for name in counts] + [f"{n} {what}" for what, n in facts["errors"].items()]
    yield f"  counters  {', '.join(told)}"


def format_age(seconds: float) -> str:
    """Hours, minutes or seconds, whichever says it best: "3.5 h"."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{max(0, seconds):.0f} s"
