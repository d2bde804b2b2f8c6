# SPDX-License-Identifier: Apache-2.0
"""Copies of a libpython that are not what they were: without the size of the eval function, so that it is
found by entry frames alone, or with another version number."""
import os
import shutil
import struct
import subprocess


def libpython(python):
    """The libpython that an interpreter is linked to; None: it is static."""
    out = subprocess.run(["ldd", os.path.realpath(python)], capture_output=True, text=True, check=False).stdout
    for line in out.splitlines():
        words = line.split()
        if words and words[0].startswith("libpython") and len(words) > 2:
            return words[2]
    return None


class Elf:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = bytearray(f.read())
        at, = struct.unpack_from("<Q", self.data, 40)
        size, n = struct.unpack_from("<HH", self.data, 58)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", self.data, at + i * size) for i in range(n)]

    def symbols(self, name):
        """Offset in the file of each entry of that name, .dynsym and .symtab."""
        for s in self.sections:
            if s[1] not in (2, 11):
                continue
            names = self.sections[s[6]][4]
            for at in range(s[4], s[4] + s[5], 24):
                text = names + struct.unpack_from("<I", self.data, at)[0]
                if self.data[text:text + len(name) + 1] == name.encode() + b"\0":
                    yield at

    def offset(self, address):
        for s in self.sections:
            if s[1] != 8 and s[3] and s[3] <= address < s[3] + s[5]:
                return address - s[3] + s[4]
        raise ValueError(hex(address))


def without_eval(library, folder):
    """Beside, without the eval function's size: what _PyEval_EvalFrameDefault covers is not known."""
    elf = Elf(library)
    for name in ("_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault.cold"):
        for at in elf.symbols(name):
            struct.pack_into("<Q", elf.data, at + 16, 0)
    return write(elf, library, folder)


def says_version(library, folder, number):
    """Beside, with another Py_Version: (3, 12) says 3.12.0."""
    elf = Elf(library)
    at = next(elf.symbols("Py_Version"))
    value = elf.offset(struct.unpack_from("<Q", elf.data, at + 8)[0])
    struct.pack_into("<Q", elf.data, value, number[0] << 24 | number[1] << 16 | 0xf0)
    return write(elf, library, folder)


def write(elf, library, folder):
    os.makedirs(folder, exist_ok=True)
    note = elf.data.find(b"\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0")
    if note >= 0:  # another build: what is known of the real one is not true of it
        elf.data[note + 16] ^= 0xff
    path = os.path.join(folder, os.path.basename(library))
    with open(path, "wb") as f:
        f.write(elf.data)
    shutil.copymode(library, path)
    return folder
