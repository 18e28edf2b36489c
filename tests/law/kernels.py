"""Kernels and objects: ISA files stand alone, names are short, no weak symbol leaves an ISA object, nothing runs before main."""
import pathlib
import re
import subprocess

from tree import Finding

ISAS = ("avx2", "avxvnni", "avx512vnni", "avx512bf16", "amx", "neon_dotprod", "neon_i8mm")
NAME_LIMIT = 48
INCLUDE = re.compile(r'\s*#\s*include\s+([<"][^>"]+[>"])')
ALLOWED = re.compile(r'<(stdint\.h|stddef\.h|[a-z0-9]+intrin\.h|arm_neon\.h)>|"kernels/[a-z0-9_/]+\.(h|inc)"')
KERNEL_NAME = re.compile(r'\b[a-z][a-z0-9_]*_(?:scalar|' + "|".join(ISAS) + r')\b')


def check_isa_includes(tree):
    """An ISA file takes <stdint.h>, intrinsics and headers of its own room: std templates compiled here could be kept by the
    linker for everybody, and an old CPU would meet AVX-512 in them."""
    for path in tree.glob("src/kernels/*/*.cc"):
        if pathlib.Path(path).stem not in ISAS:
            continue
        for number, line in enumerate(tree.lines(path), 1):
            match = INCLUDE.match(line)
            if match and not ALLOWED.fullmatch(match.group(1)):
                yield Finding(path, number, f"{match.group(1)} in an ISA file; allowed: <stdint.h>, intrinsics, kernels/")


def check_kernel_names(tree):
    for path in tree.glob("src/kernels/*.cc", "src/kernels/*.inc", "src/kernels/*.h"):
        for number, line in enumerate(tree.lines(path), 1):
            for name in KERNEL_NAME.findall(line):
                if len(name) > NAME_LIMIT:
                    yield Finding(path, number, f"{name}: {len(name)} characters, the limit is {NAME_LIMIT}")


def weak_symbols(object_file):
    """Names of the symbols that object_file defines weakly (nm's W, V and u)."""
    out = subprocess.run(["nm", "--defined-only", object_file], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in out.splitlines() if line.split()[-2] in "WVu"]


# All that the initialiser of <iostream> itself refers to. Protobuf's headers include it; nothing of ours does.
IOSTREAM = ("_ZStL8__ioinit", "_ZNSt8ios_base4Init", "__dso_handle", "__cxa_atexit")


def initialisers(object_file):
    """Names of the functions that run before main, the one that <iostream> brings left out."""
    out = subprocess.run(["nm", "--defined-only", object_file], capture_output=True, text=True, check=True).stdout
    names = [line.split()[-1] for line in out.splitlines() if "_GLOBAL__sub_I" in line]
    if not names:
        return []
    relocations = subprocess.run(["objdump", "-r", object_file], capture_output=True, text=True, check=True).stdout
    startup = re.findall(r"RELOCATION RECORDS FOR \[\.text(?:\.startup|\S*_GLOBAL__sub_I).*\]:\n(.*\n(?:.+\n)*)", relocations)
    used = [line.split()[2] for block in startup for line in block.splitlines()[1:]]
    return [] if used and all(any(known in symbol for known in IOSTREAM) for symbol in used) else names


def check_objects(build):
    """Over the objects of a build folder (no sanitizer: they add weak symbols of their own)."""
    objects = [p for p in sorted(pathlib.Path(build).glob("src/*/CMakeFiles/slm_*.dir/**/*.o"))]
    if not objects:
        yield Finding(str(build), 1, "no objects of slm_* rooms: build first")
    for path in objects:
        where = path.relative_to(build).as_posix()
        if path.name.split(".")[0] in ISAS:
            for symbol in weak_symbols(path):
                yield Finding(where, 1, f"weak symbol {symbol} in an ISA object")
        for symbol in initialisers(path):
            yield Finding(where, 1, f"{symbol} runs before main")


CHECKS = (check_isa_includes, check_kernel_names)
