// A model as one list of nodes with one name space: functions in place of their calls, bodies of If, Loop and Scan after their node.
// With it what is known of each value: type, shape, fixed content.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/onnx.h"
#include "reference/reference.h"
#include "targets/targets.h"

namespace slm::targets {

struct Value {
  onnx::ElementType type = onnx::ElementType::kUndefined;  // kUndefined: not known
  bool has_shape = false;
  std::vector<onnx::Dim> shape;
  bool fixed = false;                            // the same at every run: a constant or made of constants only
  const onnx::Tensor* tensor = nullptr;          // an initializer
  std::shared_ptr<const reference::Array> data;  // small fixed content
  int producer = -1;                             // node; -1: none
  std::vector<int> consumers;                    // nodes, one entry an input
  bool graph_input = false, graph_output = false;

  bool IsStatic() const;
  int64_t n_values() const;           // -1: not known
  std::vector<int64_t> Dims() const;  // -1: open
};

struct FlatNode {
  onnx::Node node;  // names are those of Flat::values
  int64_t opset = 0;
  int owner = -1;  // the node whose body it is in
  std::string label;
};

struct Flat {
  std::vector<FlatNode> nodes;
  std::map<std::string, Value, std::less<>> values;
  std::vector<std::string> open_dims;     // of the graph's inputs, that no option fixed
  std::vector<std::string> unknown_dims;  // of the options, that the graph has not

  const Value* Find(const std::string& name) const;  // nullptr for "" and unknown names
  const Value* Input(int node, size_t i) const;
  const Value* Output(int node, size_t i) const;
  // The one node that reads output `i` of `node`, when there is no other reader; -1.
  int OnlyConsumer(int node, size_t i = 0) const;
  int Producer(int node, size_t i) const;  // of an input; -1
};

// Errors: kLimit.
Result<Flat> Flatten(const onnx::Model& model, const CheckOptions& options);

// Does the node compute the same from the same inputs? Not random numbers, nor what a runtime compiled.
bool IsRepeatable(const onnx::Node& n);

// Types and shapes of a node's outputs from what is known of its inputs (facts.cc).
void InferNode(Flat& flat, int node);
// Output shapes by operator (shapes.cc). False: not known for this node.
bool InferShapes(const Flat& flat, const FlatNode& n, std::vector<std::vector<onnx::Dim>>& out);
// The values of a fixed input as whole numbers; false: not fixed, or large.
bool FixedInts(const Flat& flat, const FlatNode& n, size_t input, std::vector<int64_t>& out);

bool IsStatic(const std::vector<onnx::Dim>& shape);
// No real tensor is longer: such a size, or a negative one, is taken as open, so that sums of sizes cannot overflow.
inline onnx::Dim Sane(onnx::Dim d) {
  constexpr int64_t kLongest = int64_t{1} << 48;
  if (d.value < 0 || d.value > kLongest) d.value = -1;
  return d;
}

}  // namespace slm::targets
