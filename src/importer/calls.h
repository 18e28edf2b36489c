// The part of the graph that depends on the call's lengths only: shapes, positions, masks. It is computed by the reference
// implementations for a few calls, which shows what it is; rotation tables are computed for every position.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "importer/value.h"
#include "onnx/onnx.h"

namespace slm::importer {

// What a graph input holds in a call.
enum class Input : uint8_t { kIds, kMask, kPositions, kPast, kLastSlot, kTotal, kUnknown };

// Steps of the reference implementations, as reference::RunNode counts them.
struct Work {
  int64_t most = int64_t{1} << 29;  // seconds; masks and shapes of 131072 positions take a tenth
  int64_t done = 0;
};

class Calls {
 public:
  // `longest`: tokens of the longest call that is probed.
  Calls(std::shared_ptr<const onnx::Model> m, int64_t longest, CallForm form);

  const std::vector<CallLengths>& probes() const { return probes_; }
  void IndexNodes();  // again, when the nodes of the model were changed

  void AddInput(const onnx::ValueInfo& v, Input input) { inputs_[v.name] = {input, v.type.element, v.type.shape.size()}; }
  // The array of a graph input in a call; of kMask, kPositions, kLastSlot and kTotal.
  reference::Array ArrayOf(const std::string& input, const CallLengths& call) const;

  // One node, computed; `inputs` as reference::RunNode. Errors: what that says, kLimit when `work` grows above its most.
  Result<std::vector<reference::Array>> Run(const onnx::Node& n, const std::vector<const reference::Array*>& inputs, Work& work) const;

  // The value `name` in any call; `values` holds what the nodes before it are. Errors: as Run.
  Result<reference::Array> Evaluate(const std::string& name, const CallLengths& call, const std::map<std::string, ValuePtr>& values,
                                    Work& work) const;

 private:
  struct InputOf {
    Input input;
    onnx::ElementType type;
    size_t rank;
  };
  std::shared_ptr<const onnx::Model> m_;
  std::vector<CallLengths> probes_;
  std::map<std::string, InputOf> inputs_;
  std::map<std::string, size_t> producer_;
};

// The values of something known without the call; ArrayOfFixed keeps them in `v`. Errors: kUnsupported (too large to compute with).
Result<std::shared_ptr<const reference::Array>> ReadFixed(const Value& v);
Result<std::shared_ptr<const reference::Array>> ArrayOfFixed(Value& v);

// A number that is the same in every call.
std::optional<double> NumberOf(Value& v);
// Whole numbers of a fixed value, or of a value of the calls, one list a call.
Result<std::vector<std::vector<int64_t>>> IntsOf(Value& v, size_t n_calls);
// The lone values of a floating array or an integer one.
double NumberAt(const reference::Array& a, int64_t i);

}  // namespace slm::importer
