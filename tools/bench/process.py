"""Runs one measured program: its output, wall time and peak memory, killed when it takes too long."""
import dataclasses
import json
import os
import subprocess
import tempfile
import threading
import time


class Failed(Exception):
    """A program did not give its figures; the text says which and why."""


@dataclasses.dataclass
class Finished:
    command: list
    records: list      # the JSON objects among the lines of stdout
    wall_ms: float     # from fork to exit
    rss_mib: float     # peak of the program, or of this script before it became the program when that was more (some 20 MiB)

    def as_json(self):
        return dataclasses.asdict(self)


def run(command, timeout, prefix=()):
    """Runs `prefix` + `command`. Raises Failed with the end of its stderr when it does not exit with 0."""
    command = [*prefix, *map(str, command)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.perf_counter()
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        except OSError as error:
            raise Failed(f"{command[0]}: {error.strerror}") from error
        late = threading.Event()

        def stop():
            late.set()
            child.kill()
        killer = threading.Timer(timeout, stop)
        killer.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)  # wait4 has this child's own peak; resource.getrusage the largest of all
            wall_ms = (time.perf_counter() - start) * 1e3
            child.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            child.kill()
            raise
        finally:
            killer.cancel()
        if child.returncode != 0:
            err.seek(0)
            why = f"no end after {timeout} s" if late.is_set() else f"exit {child.returncode}"
            raise Failed(f"{why}: {' '.join(command)}\n{err.read()[-1500:]}")
        out.seek(0)
        return Finished(command, json_lines(out.read()), wall_ms, usage.ru_maxrss / 1024)


def json_lines(text):
    records = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                records.append(json.loads(line))
            except ValueError:
                pass  # a program's own chatter
    return records
