"""What an examination found: one line each, with what to do about it."""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Whether a mount works."""

    GOOD = "good"
    #: It works, but not as well as it could.
    WEAK = "weak"
    #: It does not work.
    BAD = "bad"


@dataclass(frozen=True)
class Finding:
    """One line.

    Attributes:
        subject: what was examined; a stable name.
        message: what was found.
        fix: what to do about it; empty for what is good.
    """

    subject: str
    verdict: Verdict
    message: str
    fix: str = ""


def good(subject: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(subject, Verdict.GOOD, message)


def weak(subject: str, message: str, fix: str) -> Finding:
    """Something could be better."""
    return Finding(subject, Verdict.WEAK, message, fix)


def bad(subject: str, message: str, fix: str) -> Finding:
    """Something must be done."""
    return Finding(subject, Verdict.BAD, message, fix)
