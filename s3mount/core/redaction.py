"""Text without what nobody should see: credentials, signatures, and what signs a request by its address.

Two ways at once: values that are known to be secret, wherever they are, and everything that stands where a secret does.
"""

import re
from collections.abc import Collection

HIDDEN = "[hidden]"
#: Shorter values are no secrets, and would hide half of the text.
_MIN_SECRET = 6
#: In each, the first group stays.
_PLACES = (
    re.compile(r"(?i)(\b(?:aws_?)?(?:secret_?access_?key|session_?token|access_?key_?id|security_?token)[\"']?\s*[=:]\s*)[^\s,;&]+"),
    re.compile(r"(?i)(\bX-Amz-(?:Signature|Credential|Security-Token)[\"']?\s*[=:]\s*)[^\s&,;]+"),
    re.compile(r"(?i)(\b(?:Authorization|Proxy-Authorization)[\"']?\s*[=:]\s*)[^\n]+"),
    re.compile(r"(?i)(\bSignature=)[0-9a-zA-Z%/+=]+"),
    re.compile(r"(://)[^/\s:@]*:[^\s@]*(?=@)"),
    re.compile(r"(\b(?:AKIA|ASIA))[A-Z0-9]{16}\b"),
)  # fmt: skip


def redacted(text: str, secrets: Collection[str]) -> str:
    """The text with every secret replaced.

    Args:
        secrets: values that are known.
    """
    for secret in sorted({each for each in secrets if len(each) >= _MIN_SECRET}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for place in _PLACES:
        text = place.sub(rf"\g<1>{HIDDEN}", text)
    return text
