// See compare.h.
#include "legalize/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "base/splitmix64.h"

namespace slm::legalize {
namespace {

using reference::Array;
using Outcome = Comparison::Outcome;

constexpr int64_t kMostSteps = int64_t{1} << 26;  // of one form, values that it keeps included: about a second
constexpr int64_t kMostValues = int64_t{1} << 22;
constexpr double kWhole = 8;  // roundings of a whole graph beside those of a piece

// Numbers that are the same at every run.
class Random {
 public:
  double Real() { return static_cast<double>(numbers_.Next() >> 11) * 0x1p-52 - 1; }  // [-1, 1)
  int64_t Between(int64_t low, int64_t high) { return low + static_cast<int64_t>(numbers_.Next() % static_cast<uint64_t>(high - low + 1)); }

 private:
  SplitMix64 numbers_{1};
};

// Fills an array whose type and dims are set.
void Fill(Array& a, Random& random, int64_t low, int64_t high) {
  size_t n = 1;
  for (const int64_t d : a.dims) n *= static_cast<size_t>(d);
  const onnx::ElementKind kind = onnx::Info(a.type).kind;
  if (kind == onnx::ElementKind::kFloating) {
    for (size_t k = 0; k < n; ++k) a.f.push_back(2 * random.Real());
    if (const auto stored = Encode("", a))  // each a value of the type
      if (auto back = reference::FromTensor(stored->tensor); back.ok()) a = back.Take();
  } else {
    if (kind == onnx::ElementKind::kBool) low = 0, high = 1;
    for (size_t k = 0; k < n; ++k) a.i.push_back(random.Between(low, high));
  }
}

std::optional<Array> Blank(const targets::Value& v, std::map<std::string, int64_t>& sizes) {
  Array a;
  a.type = v.type;
  if (v.type == ElementType::kUndefined || !v.has_shape) return std::nullopt;
  const onnx::ElementKind kind = onnx::Info(v.type).kind;
  if (kind == onnx::ElementKind::kString || kind == onnx::ElementKind::kComplex || onnx::Info(v.type).bits < 8) return std::nullopt;
  int64_t n = 1;
  for (const onnx::Dim& d : v.shape) {
    const int64_t size = d.value >= 0 ? d.value : sizes.try_emplace(d.symbol, 2 + static_cast<int64_t>(sizes.size())).first->second;
    if (__builtin_mul_overflow(n, size, &n) || n > kMostValues) return std::nullopt;
    a.dims.push_back(size);
  }
  return a;
}

// Steps of the products inside, as far as shapes tell: the executor's own bound is seconds of one operator.
bool TooMuch(const targets::Flat& flat, const onnx::Node& n) {
  const targets::Value *in = n.inputs.empty() ? nullptr : flat.Find(n.inputs[0]), *out = flat.Find(Key(n));
  for (const std::string& name : n.inputs)
    if (const targets::Value* v = flat.Find(name); v && v->n_values() > kMostValues) return true;
  if (!in || !out || in->shape.empty() || in->n_values() < 0 || out->n_values() < 0) return false;
  if (out->n_values() > kMostValues) return true;
  int64_t inner = 1;
  if (n.op_type == "MatMul" || n.op_type == "Gemm" || n.op_type == "MatMulNBits") inner = in->shape.back().value;
  if (n.op_type == "MatMulNBits" && n.Int("N", 0) > 0 && n.Int("K", 0) > kMostValues / n.Int("N", 0)) return true;
  if (n.op_type == "GroupQueryAttention" || n.op_type == "Attention")
    if (const targets::Value* keys = n.outputs.size() > 1 ? flat.Find(n.outputs[1]) : nullptr; keys && keys->shape.size() == 4)
      inner = std::max<int64_t>(1, keys->shape[2].value);
  return inner > 0 && out->n_values() > kMostSteps / inner;
}

Comparison NotRun(const Error& e) { return {e.code() == Code::kLimit ? Outcome::kTooLarge : Outcome::kNoRun, 0, 0, e.message()}; }

bool IsAmong(const std::vector<std::string>* keys, const onnx::Node& n) {
  return !keys || std::find(keys->begin(), keys->end(), Key(n)) != keys->end();
}

// The nodes in the graph's order, on values that grow. `keys` null: all.
Status Run(const onnx::Model& model, const targets::Flat& flat, const std::vector<std::string>* keys, Inputs& values) {
  int64_t work = 0;
  for (const onnx::Node& n : model.graph.nodes) {
    if (!IsAmong(keys, n)) continue;
    if (TooMuch(flat, n)) return Error(Code::kLimit, OpName(n) + " of this size");
    std::vector<const Array*> in;
    for (const std::string& name : n.inputs) {
      const auto at = values.find(name);
      in.push_back(name.empty() || at == values.end() ? nullptr : &at->second);
    }
    auto made = reference::RunNode(n, model.opsets, in, &work);
    if (!made.ok()) return made.error().At(OpName(n));
    if (work > kMostSteps) return Error(Code::kLimit, "more work than is done here");
    for (size_t k = 0; k < n.outputs.size(); ++k)
      if (!n.outputs[k].empty()) values.insert_or_assign(n.outputs[k], std::move(made.value()[k]));
  }
  return Ok();
}

// Constants that the nodes read; the names of what is left to be filled.
Status Constants(const onnx::Model& model, const targets::Flat& flat, const std::vector<std::string>& keys, Inputs& constants,
                 std::set<std::string>& open) {
  std::set<std::string> made;
  for (const onnx::Node& n : model.graph.nodes) {
    if (!IsAmong(&keys, n)) continue;
    for (const std::string& name : n.inputs) {
      const targets::Value* v = flat.Find(name);
      if (name.empty() || made.contains(name) || constants.contains(name)) continue;
      if (v && v->tensor && v->tensor->n_values() <= kMostValues) {
        SLM_ASSIGN_OR_RETURN(Array a, reference::FromTensor(*v->tensor));
        constants.emplace(name, std::move(a));
      } else if (v && v->tensor) {
        return Error(Code::kLimit, "a constant of " + onnx::ShapeText(v->tensor->dims));
      } else if (v && v->data) {
        constants.emplace(name, *v->data);
      } else {
        open.insert(name);
      }
    }
    made.insert(n.outputs.begin(), n.outputs.end());
  }
  return Ok();
}

// What others read of the old form. Names inside of a form say nothing: both may have the same.
std::vector<std::string> Results(const Forms& f) {
  std::vector<std::string> out;
  const auto inside = [&](int reader) {
    const targets::FlatNode& n = f.view_before.flat.nodes[static_cast<size_t>(reader)];
    return n.owner < 0 && IsAmong(&f.nodes_before, n.node);
  };
  for (const onnx::Node& n : f.before.model.graph.nodes) {
    if (!IsAmong(&f.nodes_before, n)) continue;
    for (const std::string& name : n.outputs) {
      const targets::Value* v = f.view_before.flat.Find(name);
      if (v && (v->graph_output || !std::all_of(v->consumers.begin(), v->consumers.end(), inside))) out.push_back(name);
    }
  }
  return out;
}

// Relative to the value, and to the largest one of its output: what rounding after each operator of a piece may add up to.
double ToleranceOf(ElementType type) {
  switch (type) {
    case ElementType::kDouble: return 0x1p-40;
    case ElementType::kFloat: return 0x1p-16;
    case ElementType::kFloat16: return 0x1p-7;
    case ElementType::kBfloat16: return 0x1p-4;
    default: return 0;
  }
}

// Adds one output to a comparison.
void Join(const Array& got, const Array& want, double factor, const std::string& name, Comparison& c) {
  double largest = 0;
  for (const double x : want.f)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  const double relative = ToleranceOf(want.type) * factor;
  const reference::Difference d = reference::Compare(got, want, {.relative = relative, .absolute = relative * largest});
  if (d.largest >= c.largest) c.largest = d.largest, c.allowed = 2 * relative * largest;
  if (d.differs && c.outcome == Outcome::kEqual) c.outcome = Outcome::kDiffers, c.why = name + ": " + d.where;
}

}  // namespace

Comparison ComparePieces(const Forms& f, const Piece& piece) {
  Comparison out;
  Random random;
  for (int trial = 0; trial < piece.trials; ++trial) {
    Inputs values, constants_after;
    std::set<std::string> open, open_after;
    if (const Status s = Constants(f.before.model, f.view_before.flat, f.nodes_before, values, open); !s.ok()) return NotRun(s.error());
    if (const Status s = Constants(f.after.model, f.view_after.flat, f.nodes_after, constants_after, open_after); !s.ok())
      return NotRun(s.error());
    for (const std::string& name : open_after)
      if (!values.contains(name)) open.insert(name);
    std::map<std::string, int64_t> sizes;
    for (const std::string& name : open) {
      const targets::Value* v = f.view_before.flat.Find(name);
      auto blank = v ? Blank(*v, sizes) : std::nullopt;
      if (!blank) return {Outcome::kNoRun, 0, 0, "'" + name + "': its shape or type is not known, or it is large"};
      const auto range = piece.between.find(name);
      const auto [low, high] = range == piece.between.end() ? std::pair<int64_t, int64_t>{0, 1} : range->second;
      Fill(*blank, random, low, high);
      values.emplace(name, std::move(*blank));
    }
    if (piece.settle) piece.settle(values, trial);
    Inputs after = values;
    for (auto& [name, array] : constants_after) after.insert_or_assign(name, std::move(array));
    if (const Status s = Run(f.before.model, f.view_before.flat, &f.nodes_before, values); !s.ok()) return NotRun(s.error());
    if (const Status s = Run(f.after.model, f.view_after.flat, &f.nodes_after, after); !s.ok()) return NotRun(s.error());
    for (const std::string& name : Results(f)) {
      const auto got = after.find(name), want = values.find(name);
      if (got == after.end() || want == values.end()) return {Outcome::kDiffers, 0, 0, "'" + name + "' is not made"};
      Join(got->second, want->second, 1, name, out);
    }
  }
  return out;
}

Comparison CompareWhole(const Graphs& g, const std::vector<Piece>& pieces) {
  const onnx::Model& before = g.before;
  const targets::Flat& flat = g.flat_before;
  int64_t n_constants = 0;
  for (const onnx::Model* m : {&g.before, &g.after}) {
    for (const onnx::Tensor& t : m->graph.initializers)
      if (__builtin_add_overflow(n_constants, t.n_values(), &n_constants)) return {Outcome::kTooLarge, 0, 0, "its constants"};
    for (const onnx::Node& n : m->graph.nodes)
      if (std::any_of(n.attributes.begin(), n.attributes.end(), [](const onnx::Attribute& a) { return !a.graphs.empty(); }))
        return {Outcome::kNoRun, 0, 0, OpName(n) + ": graphs inside are not run here"};
  }
  if (n_constants > 2 * kMostValues) return {Outcome::kTooLarge, 0, 0, fmt::format("{} constant values", n_constants)};
  if (!before.graph.sparse_initializers.empty()) return {Outcome::kNoRun, 0, 0, "sparse constants"};
  Random random;
  std::map<std::string, int64_t> sizes;
  Inputs values;
  for (const onnx::ValueInfo& v : before.graph.inputs) {
    const targets::Value* known = flat.Find(v.name);
    if (known && known->tensor) {
      auto given = reference::FromTensor(*known->tensor);
      if (!given.ok()) return NotRun(given.error());
      values.emplace(v.name, given.Take());
      continue;
    }
    if (known && !known->IsStatic()) return {Outcome::kNoRun, 0, 0, "open dimensions: --dim NAME=N fixes them"};
    auto blank = known ? Blank(*known, sizes) : std::nullopt;
    if (!blank) return {Outcome::kNoRun, 0, 0, "input '" + v.name + "': its type is not known, or it is large"};
    Fill(*blank, random, 1, 1);
    values.emplace(v.name, std::move(*blank));
  }
  for (const Piece& p : pieces) {
    for (const auto& [name, range] : p.between)
      if (const auto at = values.find(name); at != values.end())
        for (int64_t& x : at->second.i) x = std::clamp(x, range.first, range.second);
    if (p.settle) p.settle(values, 0);
  }
  Inputs want = values, got = values;
  for (const auto& [model, known, into] : {std::tuple{&g.before, &g.flat_before, &want}, std::tuple{&g.after, &g.flat_after, &got}}) {
    for (const onnx::Tensor& t : model->graph.initializers) {
      auto a = reference::FromTensor(t);
      if (!a.ok()) return NotRun(a.error());
      into->insert_or_assign(t.name, a.Take());
    }
    for (const auto& [name, array] : values) into->insert_or_assign(name, array);
    if (const Status s = Run(*model, *known, nullptr, *into); !s.ok()) return NotRun(s.error());
  }
  Comparison out;
  for (const onnx::ValueInfo& v : before.graph.outputs) {
    if (!got.contains(v.name) || !want.contains(v.name)) return {Outcome::kNoRun, 0, 0, "output '" + v.name + "' has no value"};
    Join(got.at(v.name), want.at(v.name), kWhole, v.name, out);
  }
  return out;
}

}  // namespace slm::legalize
