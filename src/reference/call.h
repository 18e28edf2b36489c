// One call of an operator: its node, its inputs, its attributes; and the list of operators.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "reference/array.h"

namespace slm::reference {

using Arrays = std::vector<Array>;

enum class Accept : uint8_t {
  kAny,
  kFloat,
  kInteger,
  kIndex,    // INT32, INT64
  kNumber,   // floating or integer
  kOrdered,  // number or BOOL
  kBool,
};

class Call {
 public:
  Call(const onnx::Node& node, int64_t opset, std::vector<const Array*> inputs) : node_(node), opset_(opset), inputs_(std::move(inputs)) {}
  const onnx::Node& node() const { return node_; }
  int64_t opset() const { return opset_; }

  // Input `at`, or nullptr when it is left out.
  const Array* Optional(size_t at) const { return at < inputs_.size() ? inputs_[at] : nullptr; }
  size_t n_inputs() const { return inputs_.size(); }
  // Input `at`. Errors: kCorrupt when it is left out, kUnsupported when it is of another type.
  Result<const Array*> In(size_t at, Accept accept = Accept::kAny) const;
  // Whole numbers of input `at` (INT32 or INT64). Errors as In.
  Result<std::vector<int64_t>> Ints(size_t at) const;
  // The same, or `otherwise` when the input is left out.
  Result<std::vector<int64_t>> IntsOr(size_t at, std::vector<int64_t> otherwise) const;

  bool Has(std::string_view name) const { return node_.Find(name) != nullptr; }
  int64_t Int(std::string_view name, int64_t otherwise) const { return node_.Int(name, otherwise); }
  double Float(std::string_view name, double otherwise) const;
  std::string Text(std::string_view name, std::string otherwise) const;
  std::vector<int64_t> IntList(std::string_view name) const;
  Result<ElementType> Type(std::string_view name, ElementType otherwise) const;
  // Counts a * b steps, neither negative, before they are done. Errors: kLimit above kMaxSteps.
  Status Count(int64_t a, int64_t b) const;
  int64_t steps() const { return steps_; }
  size_t n_outputs() const { return node_.outputs.size(); }
  bool Wants(size_t output) const { return output < node_.outputs.size() && !node_.outputs[output].empty(); }

 private:
  const onnx::Node& node_;
  int64_t opset_;
  std::vector<const Array*> inputs_;
  mutable int64_t steps_ = 0;
};

using Operator = Result<Arrays> (*)(const Call&);

// What a function returns that makes one array.
inline Result<Arrays> One(Array a) {
  Arrays out;
  out.push_back(std::move(a));
  return out;
}

#define SLM_OP(domain, name, first_opset, function) Result<Arrays> function(const Call&);
#include "reference/operators.inc"
#undef SLM_OP

// Shared between families.
Result<Array> MatMulArrays(const Call& c, const Array& a, const Array& b, ElementType out);
// Sums of (a - zero of a)(b - zero of b), exact: codes of 8 bits. Zero points: one, or one a row of a, one a column of b.
struct CodeSums {
  std::vector<double> values;
  Dims dims;
  int64_t n = 0;  // columns
};
Result<CodeSums> MultiplyCodes(const Call& c, const Array& a, const Array* a_zero, const Array& b, const Array* b_zero);
Result<Array> CastTo(const Array& a, ElementType type, Saturate saturate, const std::string& round_mode);
// Softmax in place over the last dimension of `n` values; a row of -inf gives zeros.
void SoftmaxRow(double* row, int64_t n);

}  // namespace slm::reference
