"""What must not end a mount although no handler of the kernel's is in between: mistakes in a command or in metrics."""

from s3mount.errors import S3MountError

#: What Python raises for a mistake of ours, and the system where it fails us.
MISTAKES: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
#: What a command may raise, from its nurseries, too.
FAILURES: tuple[type[Exception], ...] = (S3MountError, ExceptionGroup, *MISTAKES)
