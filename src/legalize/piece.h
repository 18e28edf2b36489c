// What a rewrite sees and what it makes.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "onnx/onnx.h"
#include "reference/reference.h"
#include "targets/flat.h"

namespace slm::legalize {

using onnx::ElementType;
using Dims = std::vector<int64_t>;
using Names = std::vector<std::string>;

// A tensor with the bytes that it points at.
struct OwnedTensor {
  onnx::Tensor tensor;
  std::shared_ptr<const std::vector<std::byte>> bytes;
};
// `array` as stored values; nullopt: a type that no constant of a rewrite and no folded value has.
std::optional<OwnedTensor> Encode(const std::string& name, const reference::Array& array);

// A fixed value of one number; nullopt: it is none.
std::optional<double> FixedNumber(const targets::Flat& flat, const std::string& value);

// Bytes that are 0, as many as anybody asked for, in one piece: each layer of a decoder asks for its own.
class Zeros {
 public:
  // At least `n`.
  const std::shared_ptr<const std::vector<std::byte>>& Of(size_t n);

 private:
  std::shared_ptr<const std::vector<std::byte>> bytes_;
};

// One node of the main graph with what is known around it.
struct Site {
  const onnx::Graph& graph;
  const targets::Flat& flat;
  size_t at;      // in graph.nodes
  int flat_node;  // in flat.nodes
  int64_t opset;  // of ONNX's own domain
  Zeros& zeros;

  const onnx::Node& node() const { return graph.nodes[at]; }
  bool Given(size_t input) const { return input < node().inputs.size() && !node().inputs[input].empty(); }
  bool Wanted(size_t output) const;  // somebody reads it, or it is the graph's
  const targets::Value* In(size_t input) const { return flat.Input(flat_node, input); }
  ElementType Type(size_t input) const;
  std::optional<Dims> Shape(size_t input) const;    // when it is fixed
  std::optional<int64_t> Rank(size_t input) const;  // when it is known
  bool Ints(size_t input, Dims& out) const;         // of a fixed input
  std::optional<double> Number(const std::string& value) const { return FixedNumber(flat, value); }
  double Float(const char* attribute, double otherwise) const;
  std::string Text(const char* attribute, const char* otherwise) const;
  // The place in graph.nodes of who makes a value; -1: no node of the main graph.
  int Maker(const std::string& value) const;
  // Of the only node that reads a value, which is not the graph's output; -1.
  int OnlyReader(const std::string& value) const;
};

// Inputs of a comparison, by name, with random values; a rewrite may settle what its operator asks of them.
using Inputs = std::map<std::string, reference::Array>;

struct Piece {
  std::vector<size_t> takes;  // of graph.nodes, in order; the new nodes come where the last one was
  std::vector<onnx::Node> nodes;
  std::vector<OwnedTensor> tensors;
  int64_t least_opset = 0;                                     // that its operators need
  std::map<std::string, std::pair<int64_t, int64_t>> between;  // whole numbers that an input may have, both ends included
  int trials = 1;
  std::function<void(Inputs&, int trial)> settle;
};

using Rewrite = std::optional<Piece> (*)(const Site&);

// `axis` of a value of `rank` dimensions, counted from the front; nullopt: there is none.
std::optional<int64_t> FromFront(int64_t axis, int64_t rank);

onnx::Attribute IntAttribute(const char* name, int64_t value);
onnx::Attribute IntsAttribute(const char* name, Dims values);
onnx::Attribute FloatAttribute(const char* name, double value);
onnx::Attribute TextAttribute(const char* name, const char* value);

// Writes the nodes of a piece, operators of ONNX's own domain. Every call returns the name of the value that it made.
class Builder {
 public:
  explicit Builder(const Site& site);

  std::string Op(const char* op, Names inputs, std::vector<onnx::Attribute> attributes = {});
  // The same, and its value is output `output` of the site's node.
  void To(size_t output, const char* op, Names inputs, std::vector<onnx::Attribute> attributes = {});
  void ToName(const std::string& name, const char* op, Names inputs, std::vector<onnx::Attribute> attributes = {});

  // The value of the node made last gets another name.
  std::string CallLast(const std::string& name);

  std::string Constant(reference::Array array);
  std::string Ints(Dims values);  // INT64 [n]
  std::string Int32s(Dims values, Dims dims);
  std::string Number(ElementType type, double x);  // a scalar
  std::string Bools(Dims values, Dims dims);
  std::string Stored(ElementType type, Dims dims, std::vector<std::byte> bytes);
  std::string Zero(ElementType type, Dims dims);  // whose number of values fits int64

  std::string Cast(const std::string& x, ElementType to);
  std::string Reshape(const std::string& x, Dims dims);
  std::string Transpose(const std::string& x, Dims perm);
  std::string Slice(const std::string& x, int64_t axis, int64_t from, int64_t to);
  std::string Concat(Names parts, int64_t axis);
  std::string Mean(const std::string& x, Dims axes);  // kept dimensions

  Piece& piece() { return piece_; }
  // The piece takes the site's node, and `more` before it.
  Piece Take(std::vector<size_t> more = {});

 private:
  std::string Fresh();
  const Site& site_;
  std::string prefix_;
  int made_ = 0;
  Piece piece_;
};

}  // namespace slm::legalize
