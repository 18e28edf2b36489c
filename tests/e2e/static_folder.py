"""A host for folders of `slm export --to qdq`: chunks through the prefill graph, then tokens through the decode graph."""
import json
import pathlib

import numpy as np

from weights_file import read_tensors

KINDS = {"U16": np.uint16, "I16": np.int16, "F32": np.float32}


def read_safetensors(path):
    return {name: np.frombuffer(data, KINDS[dtype]).reshape(shape) for name, (dtype, shape, data) in read_tensors(path).items()}


def log_softmax(a):
    a = a.astype(np.float64) - a.max(-1, keepdims=True)
    return a - np.log(np.exp(a).sum(-1, keepdims=True))


def divergence(base, other):
    """Mean over rows of KL(base || other), in nat."""
    p, q = log_softmax(base), log_softmax(other)
    return (np.exp(p) * (p - q)).sum(-1).mean()


def cpu_session(path):
    """All operators as they stand in the file."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Host:
    def __init__(self, folder, session=cpu_session, files=None):
        """`files`: others in place of a graph's, by its name."""
        self.folder = pathlib.Path(folder)
        self.m = json.loads((self.folder / "manifest.json").read_text())
        self.tables = read_safetensors(self.folder / self.m["host_file"])
        self.graphs = {g["tokens"]: session(self.folder / (files or {}).get(g["file"], g["file"])) for g in self.m["graphs"]}
        self.chunk, self.step = max(self.graphs), min(self.graphs)
        self.dtype, self.layers = KINDS[self.m["cache"]["dtype"]], self.m["cache"]["layers"]
        self.reset()

    def reset(self):
        shape = self.m["cache"]["key_shape"], self.m["cache"]["value_shape"]
        self.keys = [np.zeros(shape[0], self.dtype) for _ in range(self.layers)]
        self.values = [np.zeros(shape[1], self.dtype) for _ in range(self.layers)]
        self.n = 0

    def begin(self, tokens):
        """Forgets everything and takes the prefix from the folder; the tokens that are left."""
        self.reset()
        prefix = self.m["prefix"]["tokens"]
        if not prefix:
            return tokens
        assert tokens[:len(prefix)] == prefix, "a sequence that does not begin with the prefix"
        self.n = len(prefix)
        for layer in range(self.layers):
            self.keys[layer][0, :, :, :self.n] = self.tables[f"prefix_key.{layer}"]
            self.values[layer][0, :, :self.n] = self.tables[f"prefix_value.{layer}"]
        return tokens[self.n:]

    def feeds(self, tokens, size):
        context = self.m["context"]
        assert self.n + len(tokens) <= context
        ids = np.zeros(size, np.int64)
        ids[:len(tokens)] = tokens
        positions = np.minimum(self.n + np.arange(size), context - 1)
        out = {}
        for i in self.m["inputs"]:
            kind = KINDS[self.m["input_dtype"]]
            if i["rows"] == "token":
                out[i["name"]] = self.tables[i["table"]][ids][None]
            elif i["rows"] == "position":
                out[i["name"]] = self.tables[i["table"]][positions][None, None]
            else:
                mask = np.full((size, context + size), i["masked"], kind)
                window = i["window"] or context + size
                for row in range(size):
                    at = self.n + row
                    mask[row, max(0, at - window + 1):self.n] = i["allowed"]
                    mask[row, context + max(0, row - window + 1):context + row + 1] = i["allowed"]
                out[i["name"]] = np.tile(mask, (i["repeats"], 1))[None, None]
        for layer in range(self.layers):
            out[f"past_key.{layer}"], out[f"past_value.{layer}"] = self.keys[layer], self.values[layer]
        return out

    def feed(self, tokens):
        """Logits [n, V] of all of `tokens`."""
        rows = []
        while tokens:
            size = self.step if len(tokens) <= self.step else self.chunk
            part, tokens = tokens[:size], tokens[size:]
            session = self.graphs[size]
            names = [o.name for o in session.get_outputs()]
            got = dict(zip(names, session.run(None, self.feeds(part, size))))
            k = len(part)
            for layer in range(self.layers):
                self.keys[layer][0, :, :, self.n:self.n + k] = got[f"key.{layer}"][0, :, :, :k]
                self.values[layer][0, :, self.n:self.n + k] = got[f"value.{layer}"][0, :, :k]
            self.n += k
            rows.append(got[self.m["logits"]["name"]][0, :k])
        return np.concatenate(rows)
