// A graph on its way, what the target says of it, and the steps between two graphs.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "legalize/legalize.h"
#include "legalize/piece.h"
#include "targets/flat.h"
#include "targets/match.h"

namespace slm::legalize {

// The same model without what keeps its bytes: `model` outlives it.
onnx::Model Borrow(const onnx::Model& model);

struct State {
  onnx::Model model;                                                 // borrowed
  std::vector<std::shared_ptr<const std::vector<std::byte>>> owned;  // bytes of tensors that are not of the file
  State Copy() const { return {Borrow(model), owned}; }
};

// Points into the state's model, which must stay as it is.
struct View {
  targets::Flat flat;
  targets::Placement placed;
  std::map<std::string, int, std::less<>> of_output;  // flat node by its first output, of nodes of the main graph

  int FlatNode(const onnx::Node& node) const;  // -1
};
Result<View> Look(const State& state, const targets::Target& target);

// A name by which a node of the main graph is found again: its first output that is not left out.
std::string Key(const onnx::Node& node);
int FindNode(const onnx::Graph& graph, const std::string& key);  // -1

std::string OpName(const onnx::Node& node);

// Names that nodes read or the graph gives out, those of bodies included.
std::set<std::string, std::less<>> UsedNames(const onnx::Graph& graph);

// What nobody used from the beginning stays.
struct Unused {
  std::set<std::string, std::less<>> nodes, tensors;  // keys, names
};
Unused UnusedOf(const onnx::Graph& graph);
// Takes away nodes, constants and shapes of values that nobody uses any more.
void Prune(onnx::Graph& graph, const Unused& from_the_beginning);

// The graph with a piece in its place.
State Apply(const State& state, const Piece& piece);

// May the graph be read as one of a newer operator set? From 18 on three operators have changed their meaning.
bool CanRaise(const onnx::Model& model, int64_t opset);

// Nodes and constants that `before` had not and that are the same as an earlier one become that one: layers share their positions and
// masks.
void ShareMade(onnx::Graph& graph, const onnx::Graph& before);

// Fixes dimensions by name in everything that the graph declares.
void FixDims(onnx::Graph& graph, const std::map<std::string, int64_t>& dims);

// Computes what is the same at every run and small, takes branches whose condition is; the number of nodes that went. Errors: kLimit.
Result<int64_t> Fold(State& state);

}  // namespace slm::legalize
