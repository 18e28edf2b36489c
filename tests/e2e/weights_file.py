"""model.safetensors, read and written by hand: header length, JSON header, data. Shared by the tests."""
import json
import pathlib
import struct


def read_tensors(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    rows = json.loads(data[8:begin])
    rows.pop("__metadata__", None)
    return {n: (r["dtype"], r["shape"], data[begin + r["data_offsets"][0]:begin + r["data_offsets"][1]]) for n, r in rows.items()}


def write_tensors(path, tensors):
    """The other way."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
