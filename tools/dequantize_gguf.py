#!/usr/bin/env python3
"""Writes a GGUF file with every tensor as F32, metadata unchanged: the common ground for exact comparisons between engines.

  tools/dequantize_gguf.py IN.gguf OUT.gguf        needs the `gguf` package
"""
import sys

import gguf
import numpy as np


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    arch = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(sys.argv[2], arch)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(key, field.contents(), kind, sub_type=field.types[-1])
        else:
            writer.add_key_value(key, 0 if key == "general.file_type" else field.contents(), kind)
    for t in reader.tensors:
        values = gguf.dequantize(t.data, t.tensor_type).astype(np.float32)
        writer.add_tensor(t.name, values.reshape(tuple(int(d) for d in reversed(t.shape))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
