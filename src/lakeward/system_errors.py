"""What errors of the operating system mean: a disk that is full, a place that is wrong, something that passes."""

from __future__ import annotations

import errno

from lakeward.errors import ConfigurationError, LakewardError, RetriableError

# They do not get better by waiting: the address is wrong, or permissions are.
WRONG_PLACE = frozenset({
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ENOTEMPTY,
    errno.EPERM, errno.EROFS,
})  # fmt: skip
# Symbolic links and names that no waiting and no permission makes readable.
UNREACHABLE = frozenset({errno.ELOOP, errno.ENAMETOOLONG})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SCARCE = {
    errno.EMFILE: ("this process has too many files open", "raise the limit: ulimit -n 65536"),
    errno.ENFILE: ("the machine has too many files open", "end other programs, or raise fs.file-max"),
    errno.ENOMEM: ("the machine has no memory left", "end other programs, or use a machine with more memory"),
}
FULL_HINT = "free space there (df -h tells which disk), then run again: what was published stays, the rest is done anew"


def scarcity(error: OSError, what: str) -> LakewardError | None:
    """Return the error for something that has run out, disk space above all; None for anything else."""
    place = f" ({error.filename})" if error.filename else ""
    if error.errno in _FULL:
        return RetriableError(f"{what}: the disk is full{place}", hint=FULL_HINT)
    if error.errno in _SCARCE:
        found, hint = _SCARCE[error.errno]
        return RetriableError(f"{what}: {found}{place}", hint=hint)
    return None


def system_error(error: OSError, place: str = "") -> LakewardError:
    """Return the error that says what to do; ``place`` is named where the error itself names nothing."""
    where = str(error.filename or place or "the operating system")
    found = scarcity(error, where) if not isinstance(error, ConnectionError) else None
    if found is not None:
        return found
    msg = f"{where}: {error.strerror or error}"
    if error.errno in WRONG_PLACE:
        return ConfigurationError(msg, hint="check the path and its permissions")
    return RetriableError(msg, hint="run again")
