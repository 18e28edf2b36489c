"""with_isa.py TIER COMMAND...: runs COMMAND with SLM_FORCE_ISA=TIER, or exits 77 where this CPU lacks the tier."""
import ctypes
import os
import pathlib
import sys

NEEDS = {
    "scalar": (),
    "avx2": ("avx2", "fma", "f16c"),
    "avxvnni": ("avx2", "fma", "f16c", "avx_vnni"),
    "avx512vnni": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"),
    "avx512bf16": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16"),
    "amx": ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"),
    "neon_dotprod": ("asimddp",),
    "neon_i8mm": ("asimddp", "i8mm"),
}


def refused(tier):
    """True when the system does not grant tile registers: arch_prctl(ARCH_REQ_XCOMP_PERM, 18) of x86-64 Linux."""
    return tier == "amx" and ctypes.CDLL(None).syscall(158, 0x1023, 18) != 0


def main():
    tier, command = sys.argv[1], sys.argv[2:]
    here = set(pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    missing = [flag for flag in NEEDS[tier] if flag not in here]
    if missing:
        print(f"skipped: this CPU has no {' '.join(missing)}")
        sys.exit(77)
    if refused(tier):
        print("skipped: the system refuses the tile registers")
        sys.exit(77)
    os.execvpe(command[0], command, {**os.environ, "SLM_FORCE_ISA": tier})


main()
