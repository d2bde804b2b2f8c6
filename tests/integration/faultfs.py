# SPDX-License-Identifier: Apache-2.0
"""File systems of a test's own: small, full, cut off. Needs root.

    with Ext4(64 << 20) as fs:
        fs.path             # an empty folder
        fs.cut(fs.NO_FLUSH) # as a power cut: from now on every call fails
        fs.remount()        # what the disk had
"""
import ctypes
import fcntl
import os
import shutil
import subprocess
import tempfile
import time

SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN, _IOR('X', 125, __u32)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18


def mount_alone():
    """Mounts of this process and its children are its own. Another program that takes a copy of all
    mounts, as a sandbox does, would keep a file system alive that was cut off, and mounted again it
    would be the same one."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "a mount namespace of its own")


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def why_not(*programs):
    """Why none can be mounted here; "": it can, from now on where nobody else sees it."""
    if os.geteuid() != 0:
        return "not root"
    for p in ("mount", "umount", *programs):
        if not shutil.which(p):
            return f"{p} is not installed"
    try:
        mount_alone()
        with Tmpfs(1 << 20):
            return ""
    except OSError as e:
        return str(e)


class Tmpfs:
    def __init__(self, size):
        self.size = size

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="strata-fs-")
        try:
            self.mount()
        except OSError:
            os.rmdir(self.path)
            raise
        os.chmod(self.path, 0o700)
        return self

    def mount(self):
        run("mount", "-t", "tmpfs", "-o", f"size={self.size}", "strata-test", self.path)

    def unmount(self):
        for i in range(100):  # a killed program may take a moment to let go
            try:
                return run("umount", self.path)
            except OSError:
                if i == 99:
                    raise
                time.sleep(0.05)

    def __exit__(self, *_):
        self.unmount()
        os.rmdir(self.path)

    def free(self):
        v = os.statvfs(self.path)
        return v.f_bavail * v.f_frsize


class Ext4(Tmpfs):
    """In a file, on a loop device."""
    FLUSH, LOG_FLUSH, NO_FLUSH = 0, 1, 2

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="strata-fs-image-")
        self.image = os.path.join(self.folder, "ext4")
        with open(self.image, "wb") as f:
            f.truncate(self.size)
        try:
            run("mkfs.ext4", "-q", "-F", "-m", "0", self.image)
            return super().__enter__()
        except OSError:
            shutil.rmtree(self.folder)
            raise

    def mount(self):
        run("mount", "-t", "ext4", "-o", "loop", self.image, self.path)

    def __exit__(self, *_):
        super().__exit__()
        shutil.rmtree(self.folder)

    def cut(self, how):
        """The kernel drops (NO_FLUSH) or writes (the others) its log and stops the file system;
        what is in memory alone is gone with the unmount."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, how.to_bytes(4, "little"))
        finally:
            os.close(fd)

    def remount(self):
        self.unmount()
        self.mount()
