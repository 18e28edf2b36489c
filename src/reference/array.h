// Arithmetic of shapes and of values in their types; what all operators share.
#pragma once
#include <fmt/format.h>

#include <span>

#include "reference/reference.h"

namespace slm::reference {

using onnx::ElementType;
using Dims = std::vector<int64_t>;

inline constexpr int64_t kMaxValues = int64_t{1} << 24;  // of one array: 128 MiB
inline constexpr int64_t kMaxSteps = int64_t{1} << 30;   // multiplications of one operator: seconds

inline bool IsFloat(ElementType t) { return onnx::Info(t).kind == onnx::ElementKind::kFloating; }
inline bool IsString(ElementType t) { return t == ElementType::kString; }
inline bool IsInteger(ElementType t) {
  return onnx::Info(t).kind == onnx::ElementKind::kSigned || onnx::Info(t).kind == onnx::ElementKind::kUnsigned;
}
inline bool IsBool(ElementType t) { return t == ElementType::kBool; }

// The nearest value of a floating type. `saturate` matters for types of 8 bits and less.
enum class Saturate : uint8_t { kYes, kNo };
double RoundTo(ElementType type, double x, Saturate saturate = Saturate::kYes);
// The low bits of x as a value of an integer type; BOOL: x != 0.
int64_t WrapTo(ElementType type, int64_t x);
// Smallest and largest value of an integer type of less than 64 bits.
int64_t LowestOf(ElementType type);
int64_t HighestOf(ElementType type);

// A value of any numeric array as a double.
double Number(const Array& a, int64_t at);
// Sets a value of any numeric array: rounded to a floating type, wrapped to an integer type.
void Set(Array& a, int64_t at, double x);

// a < b of two values of an integer type of any width, and of two values of a numeric array; no order with NaN.
bool Less64(ElementType type, int64_t a, int64_t b);
bool Less(const Array& array, int64_t a, int64_t b);

Error Refuse(std::string what);           // kUnsupported
Error Wrong(std::string what);            // kCorrupt: the node is not what its operator allows
Result<int64_t> Count(const Dims& dims);  // kLimit above kMaxValues
// Errors: kLimit when a * b is more than kMaxSteps; neither is negative.
Status CheckSteps(int64_t a, int64_t b);

// Zeros (empty strings) of a type and shape.
Result<Array> Zeros(ElementType type, Dims dims);
Array Scalar(ElementType type, double x);
Array IntVector(std::vector<int64_t> values);  // INT64 [n]

// Copies value `from` of `a` to place `to` of `out`, which has the same type.
void CopyValue(const Array& a, int64_t from, Array& out, int64_t to);

Dims Strides(const Dims& dims);
// Strides over the values of `dims` when it is broadcast to `to` (numpy's rules): 0 where a dimension is repeated.
Dims BroadcastStrides(const Dims& dims, const Dims& to);
Result<Dims> BroadcastShape(const Dims& a, const Dims& b);
Result<Array> BroadcastTo(const Array& a, const Dims& dims);

// -rank <= axis < rank, made non-negative.
Result<int64_t> Axis(int64_t axis, size_t rank);
// dims before, at and behind an axis multiplied: index = (outer * n + k) * inner + i.
struct Lanes {
  int64_t outer = 1, n = 1, inner = 1;
};
Lanes LanesOf(const Dims& dims, int64_t axis);

// Calls f(flat, offsets) for each index of `dims` in row-major order; offsets[k] = sum of index * strides[k].
template <class F>
void Walk(const Dims& dims, const std::vector<Dims>& strides, F f) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  Dims index(dims.size()), offsets(strides.size());
  for (int64_t flat = 0; flat < n; ++flat) {
    f(flat, std::as_const(offsets));
    for (size_t axis = dims.size(); axis-- > 0;) {
      for (size_t k = 0; k < strides.size(); ++k) offsets[k] += strides[k][axis];
      if (++index[axis] < dims[axis]) break;
      for (size_t k = 0; k < strides.size(); ++k) offsets[k] -= strides[k][axis] * dims[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace slm::reference
