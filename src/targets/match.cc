// See match.h.
#include "targets/match.h"

#include <fmt/format.h>

#include <algorithm>

#include "targets/audit.h"
#include "targets/read.h"

namespace slm::targets {
namespace {

using onnx::ElementType;

bool IsFloating(ElementType t) { return onnx::Info(t).kind == onnx::ElementKind::kFloating && onnx::Info(t).bits >= 16; }
bool Is(const Flat& flat, int node, std::string_view op) { return node >= 0 && flat.nodes[static_cast<size_t>(node)].node.op_type == op; }

// The types by which a value may be looked up in a row: as it is, and as the codes beside it.
enum class LookUp : uint8_t { kEither, kCodes };  // kCodes: the values are quantized where codes lie beside them
TypeSet Candidates(ElementType plain, ElementType codes, LookUp by) {
  if (plain == ElementType::kUndefined && codes == ElementType::kUndefined) return kAnyType;
  TypeSet set = codes != ElementType::kUndefined ? Quantized(codes) : 0;
  if (codes == ElementType::kUndefined || by == LookUp::kEither) set |= Plain(plain);
  return set;
}

class RowMatch {
 public:
  RowMatch(const Flat& flat, int node, const Description& d, const Row& row)
      : flat_(flat),
        index_(node),
        n_(flat.nodes[static_cast<size_t>(node)]),
        d_(d),
        row_(row),
        by_(IsQuantizedUnit(flat, node) ? LookUp::kCodes : LookUp::kEither) {}

  // "" when the node fits; else what does not, in words.
  std::string Misfit() {
    if (n_.opset > 0 && (n_.opset < row_.first_opset || n_.opset > row_.last_opset))
      return fmt::format("operator set {}; taken: {} to {}", n_.opset, row_.first_opset,
                         row_.last_opset == INT64_MAX ? "newest" : std::to_string(row_.last_opset));
    for (const std::string& misfit : {Border(), Readers(), Inputs(), Outputs(), Ranks(), Attributes()})
      if (!misfit.empty()) return misfit;
    return "";
  }
  bool widened() const { return widened_; }

  // When a type is the misfit: where, and what the row takes there.
  struct TypeMisfit {
    const char* side = nullptr;
    size_t index = 0;
    TypeSet got = 0, allowed = 0;
    bool SamePlace(const TypeMisfit& o) const { return side && o.side && std::string_view(side) == o.side && index == o.index; }
    std::string Text() const { return fmt::format("{} {} of type {}; taken: {}", side, index, TypeNames(got), TypeNames(allowed)); }
  };
  const TypeMisfit& type_misfit() const { return type_misfit_; }

 private:
  std::string Border() const {
    bool input = false, output = false;
    for (size_t i = 0; i < n_.node.inputs.size(); ++i)
      if (const Value* v = flat_.Input(index_, i)) input |= v->graph_input;
    for (size_t i = 0; i < n_.node.outputs.size(); ++i)
      if (const Value* v = flat_.Output(index_, i)) output |= v->graph_output;
    if (row_.inside && (input || output)) return "at the border of the graph";
    const bool border = (input && n_.node.op_type == "QuantizeLinear") || (output && n_.node.op_type == "DequantizeLinear");
    return row_.border && !border ? "not at the border of the graph" : "";
  }

  std::string Readers() const {
    const Value* v = flat_.Output(index_, 0);
    if (row_.readers.empty() || !v) return "";
    for (const int reader : v->consumers)
      if (const std::string& op = flat_.nodes[static_cast<size_t>(reader)].node.op_type;
          std::find(row_.readers.begin(), row_.readers.end(), op) == row_.readers.end())
        return "read by " + op;
    return v->consumers.empty() ? "read by no operator" : "";
  }

  bool Fits(TypeSet allowed, TypeSet candidates) {
    if ((allowed & candidates) != 0) return true;
    for (const auto& [from, to] : d_.widened)
      if ((candidates & from) != 0 && (allowed & to) != 0) return widened_ = true;
    return false;
  }

  std::string Inputs() {
    for (const size_t i : row_.absent)
      if (flat_.Input(index_, i)) return fmt::format("input {} is given", i);
    for (const size_t i : row_.blocked)
      if (const int from = flat_.Producer(index_, i);
          !Is(flat_, from, "DequantizeLinear") || flat_.nodes[static_cast<size_t>(from)].node.Int("block_size", 0) == 0)
        return fmt::format("input {} has no scales in blocks", i);
    for (const size_t i : row_.constant)
      if (const Value* v = flat_.Input(index_, i); v && !v->fixed) return fmt::format("input {} is not a constant", i);
    for (const size_t i : row_.variable)
      if (const Value* v = flat_.Input(index_, i); !v || v->fixed) return fmt::format("input {} is a constant", i);
    for (size_t i = 0; i < n_.node.inputs.size(); ++i) {
      const Value* v = flat_.Input(index_, i);
      if (!v) continue;
      const TypeSet got = Candidates(v->type, d_.quantized_units ? CodesBefore(flat_, index_, i) : ElementType::kUndefined, by_);
      if (!Fits(row_.in.Of(i), got)) return Wrong("input", i, got, row_.in.Of(i));
    }
    return "";
  }
  std::string Outputs() {
    for (size_t i = 0; i < n_.node.outputs.size(); ++i) {
      const Value* v = flat_.Output(index_, i);
      if (!v) continue;
      const TypeSet got = Candidates(v->type, d_.quantized_units ? CodesAfter(flat_, index_, i) : ElementType::kUndefined, by_);
      if (!Fits(row_.out.Of(i), got)) return Wrong("output", i, got, row_.out.Of(i));
    }
    return "";
  }
  std::string Wrong(const char* side, size_t i, TypeSet got, TypeSet allowed) {
    type_misfit_ = {side, i, got, allowed};
    return type_misfit_.Text();
  }

  std::string Ranks() const {
    const auto wrong = [&](const Value* v) {
      const int64_t rank = v && v->has_shape ? static_cast<int64_t>(v->shape.size()) : -1;
      return rank >= 0 && (rank < row_.least_rank || rank > std::min(row_.most_rank, d_.most_rank)) ? rank : -1;
    };
    for (size_t i = 0; i < n_.node.inputs.size(); ++i)
      if (const int64_t rank = wrong(flat_.Input(index_, i)); rank >= 0) return RankText(rank);
    for (size_t i = 0; i < n_.node.outputs.size(); ++i)
      if (const int64_t rank = wrong(flat_.Output(index_, i)); rank >= 0) return RankText(rank);
    return "";
  }
  std::string RankText(int64_t rank) const {
    return fmt::format("a tensor of rank {}; taken: {} to {}", rank, row_.least_rank, std::min(row_.most_rank, d_.most_rank));
  }

  std::string Attributes() const {
    for (const AttributeRule& rule : row_.attributes) {
      const onnx::Attribute* a = n_.node.Find(rule.name);
      if (!a) {
        if (!rule.absent) return fmt::format("attribute {} is not given", rule.name);
        continue;
      }
      bool fits = false;
      for (const int64_t v : a->ints) {
        const Value* in = flat_.Input(index_, 0);
        const bool last = v == -1 || (in && in->has_shape && v == static_cast<int64_t>(in->shape.size()) - 1) || (in && !in->has_shape);
        fits |= std::find(rule.ints.begin(), rule.ints.end(), v) != rule.ints.end() || (rule.last_axis && last);
      }
      for (const float v : a->floats)
        fits |= std::any_of(rule.ints.begin(), rule.ints.end(), [v](int64_t want) { return static_cast<float>(want) == v; });
      for (const std::string& v : a->strings) fits |= std::find(rule.texts.begin(), rule.texts.end(), v) != rule.texts.end();
      if (!fits) return fmt::format("attribute {} has another value than the target takes", rule.name);
    }
    return "";
  }

  const Flat& flat_;
  const int index_;
  const FlatNode& n_;
  const Description& d_;
  const Row& row_;
  const LookUp by_;
  bool widened_ = false;
  TypeMisfit type_misfit_;
};

// A size that only a run tells: an open dimension, or what comes out of a loop or of an operator whose values decide the shape.
bool HasOpenDimension(const Flat& flat, int node) {
  const onnx::Node& n = flat.nodes[static_cast<size_t>(node)].node;
  for (const std::string& name : n.inputs)
    if (const Value* v = flat.Find(name); v && !v->has_shape)
      for (const char* op : {"Loop", "Scan", "NonZero", "Unique", "Compress", "NonMaxSuppression"})
        if (Is(flat, v->producer, op)) return true;
  for (const auto* names : {&n.inputs, &n.outputs})
    for (const std::string& name : *names)
      if (const Value* v = flat.Find(name); v && v->has_shape && !v->IsStatic()) return true;
  return false;
}

// Does `d` itself take the node?
NodeVerdict MatchOwn(const Flat& flat, int node, const Description& d) {
  const FlatNode& n = flat.nodes[static_cast<size_t>(node)];
  NodeVerdict out;
  const auto rows = d.rows.find({n.node.domain, n.node.op_type});
  if (rows == d.rows.end()) return {Verdict::kFallback, d.unlisted_reason, "", "", "", "", d.unlisted_source};
  if (d.static_only && HasOpenDimension(flat, node))
    return {Verdict::kFallback,
            "an open dimension: " + d.shapes_reason,
            "a graph with fixed sizes (--dim shows what it would be)",
            "slm export --to qdq",
            "",
            "",
            d.shapes_source};
  std::string misfit;
  const Row* nearest = nullptr;
  RowMatch::TypeMisfit types;  // of all native rows that fail at one place together
  for (const Row& row : rows->second) {
    RowMatch match(flat, node, d, row);
    const std::string why = match.Misfit();
    if (why.empty()) {
      out = {row.native ? Verdict::kNative : Verdict::kFallback,
             row.reason,
             row.replacement,
             row.applied_by,
             row.kernel,
             row.warning,
             row.source};
      if (row.native && match.widened()) out.warning = "computed in a wider type, between casts";
      return out;
    }
    if (!row.native && nearest) continue;
    const bool joined = nearest && nearest->native && types.SamePlace(match.type_misfit());
    const TypeSet before = joined ? types.allowed : 0;
    types = match.type_misfit();
    types.allowed |= before;
    misfit = joined ? types.Text() : why;
    nearest = &row;
  }
  return {Verdict::kFallback, misfit, nearest->replacement, nearest->applied_by, "", "", nearest->source};
}

}  // namespace

onnx::ElementType CodesBefore(const Flat& flat, int node, size_t input) {
  const int from = flat.Producer(node, input);
  const Value* codes = Is(flat, from, "DequantizeLinear") ? flat.Input(from, 0) : nullptr;
  return codes ? codes->type : ElementType::kUndefined;
}

onnx::ElementType CodesAfter(const Flat& flat, int node, size_t output) {
  const Value* v = flat.Output(node, output);
  if (!v || v->graph_output || v->consumers.empty()) return ElementType::kUndefined;
  ElementType codes = ElementType::kUndefined;
  for (const int reader : v->consumers) {
    if (!Is(flat, reader, "QuantizeLinear")) return ElementType::kUndefined;
    const Value* q = flat.Output(reader, 0);
    if (!q || (codes != ElementType::kUndefined && codes != q->type)) return ElementType::kUndefined;
    codes = q->type;
  }
  return codes;
}

bool IsQuantizedUnit(const Flat& flat, int node) {
  const onnx::Node& n = flat.nodes[static_cast<size_t>(node)].node;
  if (n.op_type == "QuantizeLinear" || n.op_type == "DequantizeLinear") return false;
  bool any = false;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const Value* v = flat.Input(node, i);
    if (!v || !IsFloating(v->type)) continue;
    const bool codes = CodesBefore(flat, node, i) != ElementType::kUndefined;
    if (!codes && !v->fixed) return false;
    any |= codes;
  }
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    const Value* v = flat.Output(node, i);
    if (v && IsFloating(v->type) && CodesAfter(flat, node, i) == ElementType::kUndefined) return false;
  }
  return any;
}

NodeVerdict Match(const Flat& flat, int node, const Description& target) {
  const FlatNode& n = flat.nodes[static_cast<size_t>(node)];
  NodeVerdict own = MatchOwn(flat, node, target);
  if (own.verdict == Verdict::kNative) return own;
  const Description* other = target.fallback.get();
  const std::pair<std::string, std::string> key{n.node.domain, n.node.op_type};
  const bool lacks = std::find(target.fallback_lacks.begin(), target.fallback_lacks.end(), key) != target.fallback_lacks.end();
  if (other && !lacks && MatchOwn(flat, node, *other).verdict == Verdict::kNative) return own;
  own.verdict = Verdict::kBlocked;
  if (!other) own.reason += "; nothing else computes it here";
  else own.reason += fmt::format("; {} does not take it either", other->name);
  return own;
}

namespace {

std::vector<NodeVerdict> Verdicts(const Flat& flat, const Description& d) {
  std::vector<NodeVerdict> out(flat.nodes.size());
  const auto is = [&](int i, const char* op) { return flat.nodes[static_cast<size_t>(i)].node.op_type == op; };
  for (size_t i = 0; i < out.size(); ++i) {
    const int at = static_cast<int>(i);
    const FlatNode& n = flat.nodes[i];
    if (d.whole_bodies && n.owner >= 0 && out[static_cast<size_t>(n.owner)].verdict != Verdict::kNative) {
      out[i] = out[static_cast<size_t>(n.owner)];
      out[i].reason = "inside of " + flat.nodes[static_cast<size_t>(n.owner)].node.op_type + ", which is not native";
      continue;
    }
    bool folded = !is(at, "DequantizeLinear") && !n.node.outputs.empty();
    for (const std::string& name : n.node.outputs)
      if (const Value* v = flat.Find(name)) folded &= v->fixed;
    if (folded) out[i].verdict = Verdict::kFolded;
    else out[i] = Match(flat, at, d);
  }
  return out;
}

}  // namespace

Placement Place(const Flat& flat, const Description& target) {
  Placement out{Verdicts(flat, target), {}};
  out.fusions = FindFusions(flat, out.verdicts, target);
  return out;
}

}  // namespace slm::targets
