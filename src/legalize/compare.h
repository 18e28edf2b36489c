// Two forms of a computation run by the reference executor on the same random values.
#pragma once
#include "legalize/state.h"

namespace slm::legalize {

struct Forms {
  const State &before, &after;
  const View &view_before, &view_after;
  std::vector<std::string> nodes_before, nodes_after;  // keys
};
// Constants are as they are, other inputs random by their type, of the shapes that are known; an open dimension gets a small size.
Comparison ComparePieces(const Forms& forms, const Piece& piece);

struct Graphs {
  const onnx::Model& before;
  const targets::Flat& flat_before;
  const onnx::Model& after;
  const targets::Flat& flat_after;
};
// Both graphs, whole: floats random, whole numbers 1 (ids, and masks that let everything through), or what `pieces` ask of an input.
Comparison CompareWhole(const Graphs& graphs, const std::vector<Piece>& pieces);

}  // namespace slm::legalize
