"""Includes point strictly down and only at doors; files stay small."""
import fnmatch
import re

from tree import Finding, rooms

INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
HARD_LIMIT = 600
CODE = ("*.h", "*.cc", "*.hpp", "*.inc", "*.rs", "*.py", "*.js", "*.css", "*.html", "dev", ".ci/run", "*CMakeLists.txt", "*.cmake")


def check_map(tree):
    """Every edge that the table grants goes to a lower floor, every room of src/ is in the table, every door of a room exists."""
    table = rooms(tree)
    for room in table.values():
        for other in room.may:
            if other not in table or table[other].floor >= room.floor:
                yield Finding("cmake/rooms.txt", 1, f"{room.name} may include {other}, which is not on a lower floor")
    built = {p.split("/")[1] for p in tree.glob("src/*/*")}
    for room in table.values():
        for door in room.doors if room.name in built else ():
            if not tree.glob(f"src/{door}"):
                yield Finding("cmake/rooms.txt", 1, f"{room.name} has no door {door}")
    for name in built - set(table):
        yield Finding("cmake/rooms.txt", 1, f"no row for the room src/{name}")


def is_door(header, room):
    return header == f"{room.name}/{room.name}.h" or any(fnmatch.fnmatch(header, door) for door in room.doors)


def check_includes(tree):
    """A pull across rooms: the room must be granted, the header must be a door."""
    table = rooms(tree)
    for path in tree.glob("src/*.h", "src/*.cc", "src/*.inc", "apps/*.h", "apps/*.cc", "api/*"):
        home = path.split("/")[1] if path.startswith("src/") else None
        if home is not None and home not in table:
            continue
        for number, line in enumerate(tree.lines(path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match.group(1)
            target = header.split("/")[0]
            if ".." in header.split("/"):
                yield Finding(path, number, f'"{header}": include from src/, not by ".."')
            elif target in table and target != home:
                if home is not None and target not in table[home].may:
                    yield Finding(path, number, f"{home} (floor {table[home].floor}) may not include {target} "
                                                f"(floor {table[target].floor}); allowed: {' '.join(table[home].may)}")
                elif not is_door(header, table[target]):
                    yield Finding(path, number, f'"{header}" is not a door of {target}; doors stand in cmake/rooms.txt')


def check_sizes(tree):
    """No file over 600 lines unless tools/size_waivers.txt says why; no waiver that is not needed any more."""
    waived = {}
    for number, line in enumerate(tree.lines("tools/size_waivers.txt") if "tools/size_waivers.txt" in tree.paths else [], 1):
        if line and not line.startswith("#"):
            path, _, reason = line.partition(" ")
            waived[path] = number
            if not reason.strip():
                yield Finding("tools/size_waivers.txt", number, f"{path}: no reason given")
    for path in tree.glob(*CODE):
        length = len(tree.lines(path))
        if length > HARD_LIMIT and waived.pop(path, None) is None:
            yield Finding(path, HARD_LIMIT, f"{length} lines, the limit is {HARD_LIMIT}: split it, or give the reason in tools/size_waivers.txt")
        elif length <= HARD_LIMIT and path in waived:
            yield Finding("tools/size_waivers.txt", waived.pop(path), f"{path} has {length} lines: the waiver can go")
    for path, number in waived.items():
        if path not in tree.paths:
            yield Finding("tools/size_waivers.txt", number, f"{path} does not exist")


CHECKS = (check_map, check_includes, check_sizes)
