"""The files that the law reads, and the map (cmake/rooms.txt)."""
import fnmatch
import pathlib
import subprocess
from dataclasses import dataclass

NOT_OURS = ("build/", "third_party/", ".git/", "tests/golden/", "tests/corpus/", "tests/tiny/")


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    what: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True)
class Room:
    name: str
    floor: int
    may: tuple
    doors: tuple


class Tree:
    """A checkout: its files as relative paths with '/', and their text."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.paths = sorted(p for p in self._list() if not p.startswith(NOT_OURS) and (self.root / p).is_file())

    def _list(self):
        git = subprocess.run(["git", "-C", self.root, "ls-files", "-co", "--exclude-standard", "-z"],
                             capture_output=True, check=False)
        if git.returncode == 0 and git.stdout:
            return git.stdout.decode().rstrip("\0").split("\0")
        found = (p.relative_to(self.root) for p in self.root.rglob("*"))
        return [p.as_posix() for p in found if "target" not in p.parts and "__pycache__" not in p.parts]

    def glob(self, *patterns):
        return [p for p in self.paths if any(fnmatch.fnmatch(p, x) for x in patterns)]

    def lines(self, path):
        try:
            return (self.root / path).read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:  # a picture, an archive
            return []


def rooms(tree):
    """cmake/rooms.txt as {name: Room}."""
    found = {}
    for line in tree.lines("cmake/rooms.txt"):
        if line and not line.startswith("#"):
            name, floor, may, doors = (x.strip() for x in line.split("|"))
            found[name] = Room(name, int(floor), tuple(may.split()), tuple(doors.split()))
    return found
