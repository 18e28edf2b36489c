"""llama2c_to_hf.py on a made-up file: where each array goes, the order of rotated rows by hand, files that do not fit."""
import struct
import unittest

import llama2c_to_hf as converter

E, F, LAYERS, HEADS, KV, VOCAB, CONTEXT = 8, 6, 2, 2, 1, 5, 3
HEAD = E // HEADS


def made(vocab=VOCAB):
    """Arrays whose values count on through the file."""
    sizes = [abs(vocab) * E, LAYERS * E, LAYERS * E * E, LAYERS * KV * HEAD * E, LAYERS * KV * HEAD * E, LAYERS * E * E, LAYERS * E, LAYERS * F * E,
             LAYERS * E * F, LAYERS * F * E, E, CONTEXT * HEAD] + ([] if vocab > 0 else [-vocab * E])
    n, starts = 0, []
    for size in sizes:
        starts.append(n)
        n += size
    return struct.pack("<7i", E, F, LAYERS, HEADS, KV, vocab, CONTEXT) + struct.pack(f"<{n}f", *range(n)), starts


def rows(tensor):
    (n, width), raw = tensor
    return [struct.unpack_from(f"<{width}f", raw, 4 * width * i) for i in range(n)]


class Llama2c(unittest.TestCase):
    def test_arrays_in_the_order_of_run_c(self):
        data, at = made()
        config, t = converter.matrices(data)
        self.assertTrue(config["tie_word_embeddings"])
        self.assertEqual((config["hidden_size"], config["intermediate_size"], config["num_key_value_heads"], config["vocab_size"]), (E, F, KV, VOCAB))
        self.assertEqual(len(t), 2 + 9 * LAYERS)
        for layer in range(LAYERS):
            for name, array, width, n in (("self_attn.v_proj", 4, E, KV * HEAD), ("self_attn.o_proj", 5, E, E), ("mlp.gate_proj", 7, E, F),
                                          ("mlp.down_proj", 8, F, E), ("mlp.up_proj", 9, E, F)):
                first = at[array] + layer * n * width
                self.assertEqual(rows(t[f"model.layers.{layer}.{name}.weight"]), [tuple(range(first + i * width, first + (i + 1) * width)) for i in range(n)])

    def test_pairs_that_rotate_together_move_half_a_head_apart(self):
        data, at = made()
        _, t = converter.matrices(data)
        first = [(r[0] - at[2]) / E for r in rows(t["model.layers.0.self_attn.q_proj.weight"])]
        self.assertEqual(first, [0, 2, 1, 3, 4, 6, 5, 7])  # of heads of 4
        first = [(r[0] - at[3]) / E for r in rows(t["model.layers.0.self_attn.k_proj.weight"])]
        self.assertEqual(first, [0, 2, 1, 3])

    def test_a_head_of_its_own(self):
        data, at = made(-VOCAB)
        config, t = converter.matrices(data)
        self.assertFalse(config["tie_word_embeddings"])
        self.assertEqual(rows(t["lm_head.weight"])[0][0], at[12])

    def test_what_does_not_fit_is_refused(self):
        data, _ = made()
        for wrong in (data[:-4], data + b"\0" * 4):
            with self.assertRaises(SystemExit):
                converter.matrices(wrong)

    def test_pieces(self):
        """Fields by sentencepiece_model.proto: 1 piece, 2 score (f32), 3 type; spaces are U+2581."""
        pieces = [(0.0, b"<unk>"), (0.0, b"\n<s>\n"), (0.0, b"\n</s>\n"), (0.0, b"<0x0A>"), (-1.5, b" a")]
        data = struct.pack("<I", 6) + b"".join(struct.pack("<fI", s, len(p)) + p for s, p in pieces)
        model = converter.sentencepiece(data)
        score = lambda s: b"\x15" + struct.pack("<f", s)
        for piece, s, kind in ((b"<unk>", 0, 2), (b"<s>", 0, 3), (b"</s>", 0, 3), (b"<0x0A>", 0, 6), ("▁a".encode(), -1.5, 1)):
            inner = b"\x0a" + bytes([len(piece)]) + piece + score(s) + b"\x18" + bytes([kind])
            self.assertIn(b"\x0a" + bytes([len(inner)]) + inner, model)


if __name__ == "__main__":
    unittest.main()
