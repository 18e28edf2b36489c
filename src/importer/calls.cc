// See calls.h.
#include "importer/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace slm::importer {
namespace {

using onnx::ElementType;
using reference::Array;

constexpr int64_t kMostFolded = int64_t{1} << 22;  // values of an initializer that is computed with

bool IsFloat(ElementType t) { return onnx::Info(t).kind == onnx::ElementKind::kFloating; }

}  // namespace

double NumberAt(const Array& a, int64_t i) {
  return IsFloat(a.type) ? a.f[static_cast<size_t>(i)] : static_cast<double>(a.i[static_cast<size_t>(i)]);
}

Calls::Calls(std::shared_ptr<const onnx::Model> m, int64_t longest, CallForm form)
    : m_(std::move(m)), probes_{{0, 3}, {0, 1}, {1, 2}, {5, 1}, {4, 3}} {
  if (form == CallForm::kOneToken) probes_ = {{0, 1}, {1, 1}, {3, 1}, {5, 1}};
  if (longest > 8) probes_.push_back({longest - 1, 1});
  IndexNodes();
}

void Calls::IndexNodes() {
  producer_.clear();
  for (size_t i = 0; i < m_->graph.nodes.size(); ++i)
    for (const std::string& name : m_->graph.nodes[i].outputs) producer_[name] = i;
}

Array Calls::ArrayOf(const std::string& input, const CallLengths& call) const {
  const InputOf& in = inputs_.at(input);
  const Input what = in.input;
  const onnx::ElementType type = in.type;  // not a structured binding: clang 14 captures none
  const size_t rank = in.rank;
  Array a;
  a.type = type;
  const int64_t total = call.past + call.tokens;
  const auto number = [&](int64_t x) { IsFloat(type) ? a.f.push_back(static_cast<double>(x)) : a.i.push_back(x); };
  switch (what) {
    case Input::kMask:
      a.dims = {1, total};
      for (int64_t i = 0; i < total; ++i) number(1);
      break;
    case Input::kPositions:
      a.dims = {1, call.tokens};
      for (int64_t i = 0; i < call.tokens; ++i) number(call.past + i);
      break;
    case Input::kLastSlot:
      a.dims = {1, 1};
      number(total - 1);
      break;
    case Input::kTotal: number(total); break;
    default: break;
  }
  if (rank == 1) a.dims = {a.size()};  // without the batch
  return a;
}

Result<std::vector<Array>> Calls::Run(const onnx::Node& n, const std::vector<const Array*>& inputs, Work& work) const {
  SLM_ASSIGN_OR_RETURN(std::vector<Array> made, reference::RunNode(n, m_->opsets, inputs, &work.done));
  if (work.done > work.most)
    return Error(Code::kLimit, fmt::format("more than {} steps to compute what does not depend on tokens", work.most),
                 "export the model with its constants folded, or run it with ONNX Runtime");
  return made;
}

Result<Array> Calls::Evaluate(const std::string& name, const CallLengths& call, const std::map<std::string, ValuePtr>& values,
                              Work& work) const {
  // The nodes that it needs, from the back; nodes are in order, so one walk forward computes them.
  std::set<size_t> needed;
  std::vector<std::string> open{name};
  const auto is_call = [&](const std::string& s) {
    const auto v = values.find(s);
    return v != values.end() && v->second->kind == Kind::kCall;
  };
  while (!open.empty()) {
    const std::string at = std::move(open.back());
    open.pop_back();
    const auto p = producer_.find(at);
    if (!is_call(at) || p == producer_.end() || !needed.insert(p->second).second) continue;
    for (const std::string& in : m_->graph.nodes[p->second].inputs)
      if (!in.empty()) open.push_back(in);
  }
  std::map<std::string, Array> made;
  for (const size_t i : needed) {
    const onnx::Node& n = m_->graph.nodes[i];
    std::vector<std::shared_ptr<const Array>> held;
    std::vector<const Array*> inputs;
    for (const std::string& in : n.inputs) {
      inputs.push_back(nullptr);
      if (in.empty()) continue;
      if (const auto done = made.find(in); done != made.end()) inputs.back() = &done->second;
      else if (inputs_.contains(in) && is_call(in)) inputs.back() = &(made[in] = ArrayOf(in, call));
      else if (const ValuePtr& v = values.at(in); v->kind == Kind::kFixed && !v->axes.size()) {
        SLM_ASSIGN_OR_RETURN(auto array, ReadFixed(*v));  // other threads may read the same value
        held.push_back(array);
        inputs.back() = array.get();
      }
    }
    if (n.domain.empty() && (n.op_type == "Shape" || n.op_type == "Size")) {
      const ValuePtr& v = values.at(n.inputs[0]);
      const Dims dims = inputs[0] ? inputs[0]->dims : ShapeOf(v->axes, call);
      made[n.outputs[0]] = reference::ShapeContent(n, dims);
      continue;
    }
    auto run = Run(n, inputs, work);
    if (!run.ok()) return run.error().At(n.name.empty() ? n.op_type : n.name);
    for (size_t k = 0; k < n.outputs.size(); ++k)
      if (!n.outputs[k].empty()) made[n.outputs[k]] = std::move(run.value()[k]);
  }
  const auto at = made.find(name);
  if (at != made.end()) return std::move(at->second);
  if (inputs_.contains(name)) return ArrayOf(name, call);
  return Error(Code::kInternal, "value '" + name + "' is not of the call");
}

Result<std::shared_ptr<const Array>> ReadFixed(const Value& v) {
  if (v.array) return v.array;
  SLM_ASSERT(v.weight.has_value());
  const WeightView& w = *v.weight;
  if (w.scales || (w.transposed && w.values->n_values() > 1) || w.values->n_values() > kMostFolded)
    return Error(Code::kUnsupported, fmt::format("arithmetic with the weight {} {}", w.values->name, onnx::ShapeText(w.values->dims)),
                 "weights are multiplied with, gathered from, transposed and cast only");
  SLM_ASSIGN_OR_RETURN(Array a, reference::FromTensor(*w.values));
  if (!w.shape.empty()) a.dims = w.shape;
  return std::make_shared<const Array>(std::move(a));
}

Result<std::shared_ptr<const Array>> ArrayOfFixed(Value& v) {
  SLM_ASSIGN_OR_RETURN(v.array, ReadFixed(v));
  return v.array;
}

std::optional<double> NumberOf(Value& v) {
  if (v.kind == Kind::kCall) {
    for (const Array& a : v.at)
      if (a.size() != 1 || NumberAt(a, 0) != NumberAt(v.at[0], 0)) return std::nullopt;
    return NumberAt(v.at[0], 0);
  }
  if (v.kind != Kind::kFixed || (v.weight && !v.array && v.weight->values->n_values() != 1)) return std::nullopt;
  const auto a = ArrayOfFixed(v);
  if (!a.ok() || a.value()->size() != 1 || a.value()->type == ElementType::kString) return std::nullopt;
  return NumberAt(*a.value(), 0);
}

Result<std::vector<std::vector<int64_t>>> IntsOf(Value& v, size_t n_calls) {
  std::vector<std::vector<int64_t>> out;
  const auto whole = [](const Array& a) { return a.type == ElementType::kInt64 || a.type == ElementType::kInt32; };
  if (v.kind == Kind::kCall) {
    for (const Array& a : v.at) out.push_back(a.i);
    if (std::all_of(v.at.begin(), v.at.end(), whole)) return out;
  } else if (v.kind == Kind::kFixed) {
    SLM_ASSIGN_OR_RETURN(const auto a, ArrayOfFixed(v));
    out.assign(n_calls, a->i);
    if (whole(*a)) return out;
  }
  return Error(Code::kUnsupported, "a shape or an index that depends on the tokens", "export the model with a plain decoder graph");
}

}  // namespace slm::importer
