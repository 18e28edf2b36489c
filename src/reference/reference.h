// The door of `reference`: runs an ONNX graph by the plainest implementation of each operator, to compare others with.
//
// Values are held wider than their type (double, 64-bit integers) and rounded to it after every operator, so the arithmetic of an
// operator is at least as exact as its type allows. Speed and memory are not its business.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "onnx/onnx.h"

namespace slm::reference {

// A tensor of any element type: one of the three lists has the values, row-major.
struct Array {
  onnx::ElementType type = onnx::ElementType::kUndefined;
  std::vector<int64_t> dims;
  std::vector<double> f;       // floating types, each exactly a value of the type
  std::vector<int64_t> i;      // integers and BOOL; UINT64 as the same 64 bits
  std::vector<std::string> s;  // strings
  int64_t size() const;        // number of values
};

// Errors: kUnsupported (complex numbers).
Result<Array> FromTensor(const onnx::Tensor& t);

// Runs the main graph. `inputs` in the order of the graph's inputs; those that have an initializer may be left out at the end.
// Outputs in the graph's order. Errors: kUnsupported (an operator, an opset, a type that is not here: named), kCorrupt (inputs that are
// not the graph's, a node that its operator does not allow), kLimit (a value too large to compute slowly).
Result<std::vector<Array>> RunGraph(const onnx::Model& model, const std::vector<Array>& inputs);

// Runs one node that calls no function. `opsets`: what its model imports. `inputs`: one for each name of the node, any shapes and types,
// nullptr where the name is empty; they are read during the call only. One array for each output, an empty one where it is left out.
// `work`, if given, grows by what was done: steps of sums and products, and values of the outputs; the same on every machine.
// Errors: as RunGraph; kUnsupported for a node with graphs inside. Thread-safe.
Result<std::vector<Array>> RunNode(const onnx::Node& node, std::span<const onnx::Opset> opsets, std::span<const Array* const> inputs,
                                   int64_t* work = nullptr);

// What the node, a Shape or a Size, says of a value with these dimensions. An open one is -1; so is a Size that is not known or does not
// fit int64.
Array ShapeContent(const onnx::Node& node, std::span<const int64_t> dims);

struct Tolerance {
  double relative = 1e-3, absolute = 1e-7;
};
struct Difference {
  bool differs = false;
  std::string where;   // type, shape, or the first value beyond the tolerance
  double largest = 0;  // largest |got - want| of finite values
};
// |got - want| <= absolute + relative * |want|; NaN equals NaN; type and shape must agree.
Difference Compare(const Array& got, const Array& want, const Tolerance& tolerance);

struct OperatorRow {
  const char* domain;
  const char* name;
  int first_opset;  // oldest operator set whose meaning is implemented
};
std::vector<OperatorRow> Operators();

}  // namespace slm::reference
