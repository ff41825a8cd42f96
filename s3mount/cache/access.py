"""Who may use a cache directory: one user, or the members of a unix group.

Who can read it reads objects without asking S3, and who can write it can forge them: checksums tell
damage, not malice.  So a directory is used only when nobody else can change what is in it.

    of          owner                             group      folders  files
    ----------  --------------------------------  ---------  -------  -----
    one user    that user                         any        0700     0600
    a group     the user, root, or a member of    the group  2770     0660
                it as this host knows them

Whoever made a folder inside could write to the directory, so of those the owner does not matter.
2770 has the set-group-ID bit, by which everything made inside belongs to the group.  Members need to
write to each other's files to keep when these were used last.
"""

import errno
import os
import pwd
import stat
from pathlib import Path

from s3mount.errors import BadOption

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Access:
    """Who may use one cache directory.

    Args:
        path: as the user named it.
        group: gid of those who share it; None for one user.
    """

    def __init__(self, path: Path, group: int | None) -> None:
        self._path = path
        self._group = group
        self._folder_mode = 0o700 if group is None else 0o2770
        self._file_mode = 0o600 if group is None else 0o660

    def check_member(self) -> None:
        """Whether this process is one of those who share.

        Raises:
            BadOption: it is not in the group.
        """
        if self._group is not None and os.geteuid() and self._group not in (os.getegid(), *os.getgroups()):
            raise self._refusal(f"uid {os.geteuid()} is not in group {self._group}; add it, and log in again")

    def make_folder(self, path: str) -> None:
        """A new folder, which nobody sees before it has its mode: who starts at the same moment checks it.

        Raises:
            OSError: FileExistsError when there is one.
        """
        if self._group is None:
            os.mkdir(path, mode=0o700)
            return
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        aside = f"{path}.{os.urandom(4).hex()}"
        os.mkdir(aside, mode=0o700)
        try:
            os.chown(aside, -1, self._group)
            os.chmod(aside, self._folder_mode)  # whatever the umask is
            os.rename(aside, path)
        except OSError as error:
            os.rmdir(aside)
            if error.errno == errno.ENOTEMPTY:  # somebody was faster, and uses it
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
            raise

    def make_file(self, path: str) -> int:
        """A descriptor to write a new file.

        Raises:
            OSError: FileExistsError when there is one.
        """
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._file_mode)
        if self._group is not None:
            os.fchmod(fd, self._file_mode)
        return fd

    def touch(self, path: str, used_s: float) -> None:
        """Keep when a file was last used; of another user's file, that it was used by now."""
        try:
            os.utime(path, (used_s, used_s))
        except PermissionError:
            os.utime(path)

    def check(self, path: str) -> None:
        """Whether a folder may be used, the directory itself or one in it.

        Raises:
            BadOption: others could change what is in it; the message says what to do.
            OSError: it cannot be looked at.
        """
        found = os.lstat(path) if path != str(self._path) else os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise self._refusal(f"{path} is not a directory; name another place")
        if self._group is None:
            self._check_user(path, found)
        else:
            self._check_group(path, found, self._group)

    def _check_user(self, path: str, found: os.stat_result) -> None:
        if found.st_uid != os.geteuid():
            raise self._refusal(
                f"{path} belongs to uid {found.st_uid}, who could change what is read; "
                f"name a directory of uid {os.geteuid()}, or share it by --cache-group"
            )
        if found.st_mode & _OTHERS_MAY_WRITE:
            raise self._refusal(f"others may write to {path} and change what is read; chmod 700 {path}")

    def _check_group(self, path: str, found: os.stat_result, group: int) -> None:
        is_inside = path != str(self._path)
        if not is_inside and found.st_uid not in (0, os.geteuid()) and not _is_member(found.st_uid, group):
            raise self._refusal(
                f"{path} belongs to uid {found.st_uid}, who is not in group {group} and could change what is read; "
                f"chown root {path}"
            )
        if found.st_gid == group and stat.S_IMODE(found.st_mode) == self._folder_mode:
            return
        if is_inside:
            raise self._refusal(f"{path} was not made with --cache-group {group}; delete {self._path}/v*")
        raise self._refusal(
            f"a directory that group {group} shares has mode 2770 and that group; "
            f"chgrp {group} {path} && chmod 2770 {path}"
        )

    def _refusal(self, why: str) -> BadOption:
        return BadOption(f"--cache {self._path}: {why}")


def _is_member(uid: int, group: int) -> bool:
    """Whether a user of this host is in a group; one who is not known here is not."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return False
    return group in os.getgrouplist(user.pw_name, user.pw_gid)
