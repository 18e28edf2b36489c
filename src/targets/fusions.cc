// RMSNorm, softmax, RoPE and attention: as one operator, inside another, or in pieces. Forms after the exports of PyTorch and of
// onnxruntime's tools; values between pieces may pass casts and pairs of QuantizeLinear and DequantizeLinear.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "targets/audit.h"

namespace slm::targets {
namespace {

using Nodes = std::vector<int>;

// Bounds of a search around one node: no pattern is wider, and a hostile graph costs no more.
constexpr int kMostPassed = 8;
constexpr int kMostReaders = 64;

class FusionFinder {
 public:
  FusionFinder(const Flat& flat, std::vector<NodeVerdict>& verdicts, const Description& target)
      : flat_(flat), verdicts_(verdicts), target_(target) {}

  std::vector<Fusion> Run() {
    for (int i = 0; i < static_cast<int>(flat_.nodes.size()); ++i) {
      Operator(i);
      if (const auto nodes = Norm(i)) Decomposed(is_layer_norm_ ? "LayerNorm" : "RMSNorm", *nodes);
      if (const auto nodes = Softmax(i)) Decomposed("softmax", *nodes);
      if (const auto nodes = HalfRotation(i)) Decomposed("RoPE", *nodes);
      if (const auto nodes = PairRotation(i)) Decomposed("RoPE", *nodes);
      if (const auto nodes = Gelu(i)) Decomposed("GELU", *nodes);
      if (const auto nodes = WideTranspose(i)) Decomposed("transpose between reshapes", *nodes);
    }
    for (int i = 0; i < static_cast<int>(flat_.nodes.size()); ++i)
      if (const auto nodes = Attention(i)) Decomposed("attention", *nodes);
    return std::move(found_);
  }

 private:
  const onnx::Node& At(int i) const { return flat_.nodes[static_cast<size_t>(i)].node; }
  bool Is(int i, std::initializer_list<std::string_view> ops) const {
    return i >= 0 && std::find(ops.begin(), ops.end(), At(i).op_type) != ops.end();
  }
  bool Passes(int i) const { return Is(i, {"Cast", "Identity", "QuantizeLinear", "DequantizeLinear"}); }
  bool IsFixed(int i, size_t input) const {
    const Value* v = flat_.Input(i, input);
    return v && v->fixed;
  }

  // The value that an input is, before casts and quantizing: its name, and who makes it.
  std::string Source(int i, size_t input) const {
    std::string name = input < At(i).inputs.size() ? At(i).inputs[input] : "";
    for (int step = 0; step < kMostPassed; ++step) {
      const Value* v = flat_.Find(name);
      if (!v || !Passes(v->producer) || At(v->producer).inputs.empty()) break;
      name = At(v->producer).inputs[0];
    }
    return name;
  }
  int Up(int i, size_t input) const {
    const Value* v = flat_.Find(Source(i, input));
    return v ? v->producer : -1;
  }
  // Readers of an output behind casts and quantizing.
  void Readers(int i, Nodes& out) const {
    int budget = kMostReaders;
    Readers(i, out, budget, 0);
  }
  void Readers(int i, Nodes& out, int& budget, int passed) const {
    for (const std::string& name : At(i).outputs)
      if (const Value* v = flat_.Find(name))
        for (const int reader : v->consumers) {
          if (--budget < 0) return;
          if (!Passes(reader)) out.push_back(reader);
          else if (passed < kMostPassed) Readers(reader, out, budget, passed + 1);
        }
  }
  int Reader(int i, std::initializer_list<std::string_view> ops) const {
    Nodes readers;
    Readers(i, readers);
    for (const int r : readers)
      if (Is(r, ops)) return r;
    return -1;
  }
  // The input of a node with two that is not `value`; -1 when neither is it.
  int OtherInput(int i, const std::string& value) const {
    if (At(i).inputs.size() < 2) return -1;
    if (Source(i, 0) == value) return 1;
    return Source(i, 1) == value ? 0 : -1;
  }
  std::optional<double> Number(int i, size_t input) const {
    const Value* v = flat_.Input(i, input);
    if (!v) return std::nullopt;
    if (v->data && v->data->size() == 1)
      return v->data->f.empty() ? static_cast<double>(v->data->i.empty() ? 0 : v->data->i[0]) : v->data->f[0];
    if (!v->tensor || v->tensor->n_values() != 1) return std::nullopt;
    const auto array = reference::FromTensor(*v->tensor);
    if (!array.ok() || (array.value().f.empty() && array.value().i.empty())) return std::nullopt;
    return array.value().f.empty() ? static_cast<double>(array.value().i[0]) : array.value().f[0];
  }

  // From the mean of squares on: ReduceMean(x * x) + epsilon, root, division; then the weight.
  std::optional<Nodes> Norm(int mean) {
    if (!Is(mean, {"ReduceMean"})) return std::nullopt;
    const int square = Up(mean, 0);
    const bool power = Is(square, {"Pow"}) && Number(square, 1) == 2.0;
    if (!power && !(Is(square, {"Mul"}) && Source(square, 0) == Source(square, 1))) return std::nullopt;
    const std::string x = Source(square, 0);
    const int plus = Reader(mean, {"Add"});
    if (plus < 0) return std::nullopt;
    int root = Reader(plus, {"Sqrt", "Pow"});
    bool inverse = false;
    if (Is(root, {"Pow"})) {
      const auto e = Number(root, 1);
      if (e != 0.5 && e != -0.5) return std::nullopt;
      inverse = e < 0;
    }
    if (root < 0) return std::nullopt;
    Nodes nodes{square, mean, plus, root};
    int last = root;
    if (!inverse) {
      const int division = Reader(root, {"Div", "Reciprocal"});
      if (division < 0) return std::nullopt;
      nodes.push_back(division);
      last = division;
      inverse = Is(division, {"Reciprocal"}) || Source(division, 0) != x;
    }
    if (inverse) {
      last = Reader(last, {"Mul"});
      if (last < 0 || OtherInput(last, x) < 0) return std::nullopt;
      nodes.push_back(last);
    }
    if (const int weight = Reader(last, {"Mul"}); weight >= 0 && (IsFixed(weight, 0) || IsFixed(weight, 1))) nodes.push_back(weight);
    const Value* value = flat_.Find(x);
    const int centre = value ? value->producer : -1;
    is_layer_norm_ = Is(centre, {"Sub"}) && Is(Up(centre, 1), {"ReduceMean"});
    if (is_layer_norm_) nodes.insert(nodes.begin(), {Up(centre, 1), centre});
    return nodes;
  }

  std::optional<Nodes> Softmax(int exponential) const {
    if (!Is(exponential, {"Exp"})) return std::nullopt;
    const int sum = Reader(exponential, {"ReduceSum"});
    const int division = sum >= 0 ? Reader(sum, {"Div"}) : -1;
    if (division < 0 || Up(division, 0) != exponential) return std::nullopt;
    Nodes nodes;
    if (const int shift = Up(exponential, 0); Is(shift, {"Sub"}) && Is(Up(shift, 1), {"ReduceMax"})) nodes = {Up(shift, 1), shift};
    nodes.insert(nodes.end(), {exponential, sum, division});
    return nodes;
  }

  // The part of a value that a Slice or Split takes, else "".
  std::string PartOf(int i) const { return Is(i, {"Slice", "Split", "Gather", "StridedSlice"}) ? Source(i, 0) : ""; }

  // x * cos + (-second half, first half) * sin.
  std::optional<Nodes> HalfRotation(int join) const {
    if (!Is(join, {"Concat"}) || At(join).inputs.size() != 2) return std::nullopt;
    const int minus = Up(join, 0), first = Up(join, 1);
    if (!Is(minus, {"Neg"})) return std::nullopt;
    const int second = Up(minus, 0);
    const std::string x = PartOf(second);
    if (x.empty() || PartOf(first) != x) return std::nullopt;
    const int with_sin = Reader(join, {"Mul"});
    const int plus = with_sin >= 0 ? Reader(with_sin, {"Add"}) : -1;
    if (plus < 0) return std::nullopt;
    const int with_cos = Up(plus, 0) == with_sin ? Up(plus, 1) : Up(plus, 0);
    if (!Is(with_cos, {"Mul"}) || OtherInput(with_cos, x) < 0) return std::nullopt;
    Nodes nodes{second, minus, join, with_sin, with_cos, plus};
    if (first != second) nodes.insert(nodes.begin() + 1, first);
    return nodes;
  }

  // (a * cos - b * sin, b * cos + a * sin) joined, a and b parts of x.
  std::optional<Nodes> PairRotation(int join) const {
    if (!Is(join, {"Concat"}) || At(join).inputs.size() != 2) return std::nullopt;
    const auto bare = [&](int i) { return Is(i, {"Unsqueeze", "Reshape"}) ? Up(i, 0) : i; };
    const int minus = bare(Up(join, 0)), plus = bare(Up(join, 1));
    if (!Is(minus, {"Sub"}) || !Is(plus, {"Add"})) return std::nullopt;
    Nodes nodes;
    std::string x;
    for (const int sum : {minus, plus})
      for (const size_t side : {size_t{0}, size_t{1}}) {
        const int product = Up(sum, side);
        if (!Is(product, {"Mul"})) return std::nullopt;
        std::string part;
        for (const size_t in : {size_t{0}, size_t{1}})
          if (const std::string p = PartOf(Up(product, in)); !p.empty() && (x.empty() || p == x)) part = p;
        if (part.empty()) return std::nullopt;
        x = part;
        nodes.push_back(product);
      }
    nodes.insert(nodes.end(), {minus, plus, join});
    return nodes;
  }

  // x * (1 + erf(x / sqrt 2)) / 2
  std::optional<Nodes> Gelu(int erf) const {
    if (!Is(erf, {"Erf"})) return std::nullopt;
    const int scaled = Up(erf, 0), plus = Reader(erf, {"Add"});
    const int product = plus >= 0 ? Reader(plus, {"Mul"}) : -1;
    if (!Is(scaled, {"Div", "Mul"}) || product < 0) return std::nullopt;
    Nodes nodes{scaled, erf, plus, product};
    const int halved = Up(product, Up(product, 0) == plus ? 1 : 0);
    if (Is(halved, {"Mul", "Div"}) && (IsFixed(halved, 0) || IsFixed(halved, 1))) nodes.insert(nodes.begin(), halved);
    else if (const int half = Reader(product, {"Mul", "Div"}); half >= 0 && (IsFixed(half, 0) || IsFixed(half, 1))) nodes.push_back(half);
    return nodes;
  }

  // More dimensions than the target has, only between two reshapes: asked about targets that know the form.
  std::optional<Nodes> WideTranspose(int transpose) const {
    if (!Is(transpose, {"Transpose"})) return std::nullopt;
    const Value* v = flat_.Input(transpose, 0);
    const int before = flat_.Producer(transpose, 0), after = flat_.OnlyConsumer(transpose);
    if (!v || static_cast<int64_t>(v->shape.size()) <= target_.most_rank || !Is(before, {"Reshape"}) || !Is(after, {"Reshape"}))
      return std::nullopt;
    return Nodes{before, transpose, after};
  }

  // Scores, softmax (in one or in pieces), values.
  std::optional<Nodes> Attention(int softmax) const {
    const bool pieces = Is(softmax, {"Div"}) && Softmax(Up(softmax, 0)).has_value();
    if (!Is(softmax, {"Softmax"}) && !pieces) return std::nullopt;
    const int values = Reader(softmax, {"MatMul"});
    if (values < 0 || Up(values, 0) != softmax) return std::nullopt;
    int at = softmax;
    if (pieces) {
      at = Up(softmax, 0);
      if (const int shift = Up(at, 0); Is(shift, {"Sub"})) at = shift;
    }
    Nodes nodes{softmax, values};
    constexpr int kMostSteps = 6;  // scale, mask, soft cap
    for (int step = 0; step < kMostSteps; ++step) {
      int above = Up(at, 0);
      if (Is(at, {"Where"})) above = Up(at, 1);
      if (above < 0 || (Is(at, {"Add", "Mul", "Where"}) && !Is(above, {"MatMul", "Add", "Mul", "Div", "Where", "Tanh", "Sub", "Reshape"})))
        above = Up(at, Is(at, {"Where"}) ? 2 : 1);
      if (above < 0) return std::nullopt;
      nodes.insert(nodes.begin(), above);
      if (Is(above, {"MatMul"})) return nodes;
      if (!Is(above, {"Add", "Mul", "Div", "Where", "Tanh", "Sub", "Reshape"})) return std::nullopt;
      at = above;
    }
    return std::nullopt;
  }

  void Operator(int i) {
    struct Known {
      const char *op, *what;
    };
    static constexpr Known kKnown[] = {{"RMSNormalization", "RMSNorm"},
                                       {"SimplifiedLayerNormalization", "RMSNorm"},
                                       {"SkipSimplifiedLayerNormalization", "RMSNorm"},
                                       {"LayerNormalization", "LayerNorm"},
                                       {"SkipLayerNormalization", "LayerNorm"},
                                       {"Softmax", "softmax"},
                                       {"RotaryEmbedding", "RoPE"},
                                       {"Attention", "attention"},
                                       {"GroupQueryAttention", "attention"},
                                       {"MultiHeadAttention", "attention"}};
    for (const Known& k : kKnown) {
      if (At(i).op_type != k.op) continue;
      Add(k.what, Fusion::Form::kOperator, {i});
      if (std::string_view(k.what) != "attention") continue;
      Add("softmax", Fusion::Form::kInside, {i});
      if (At(i).Int("do_rotary", 0) != 0) Add("RoPE", Fusion::Form::kInside, {i});
    }
  }
  void Add(const char* what, Fusion::Form form, const Nodes& nodes) {
    const NodeVerdict& v = verdicts_[static_cast<size_t>(nodes[0])];
    const bool native = v.verdict == Verdict::kNative;
    found_.push_back(
        {what, form, native, v.kernel.empty() ? At(nodes[0]).op_type : v.kernel, native ? "" : v.reason, v.source, Labels(nodes)});
  }

  void Decomposed(const char* what, const Nodes& nodes) {
    Fusion f{what, Fusion::Form::kDecomposed, false, "", "", "", Labels(nodes)};
    for (const FusedForm& known : target_.fused)
      if (known.what == what) f.one_kernel = true, f.kernel = known.kernel, f.source = known.source;
    if (f.one_kernel)
      for (const int n : nodes) {
        NodeVerdict& v = verdicts_[static_cast<size_t>(n)];
        if (v.verdict != Verdict::kNative) v = {Verdict::kNative, "", "", "", f.kernel, "", f.source};
      }
    else f.note = Instead(what, nodes.size());
    found_.push_back(std::move(f));
  }
  // Which operator the target has a kernel for.
  std::string Instead(std::string_view what, size_t n) const {
    struct Candidate {
      const char *what, *domain, *op;
    };
    static constexpr Candidate kCandidates[] = {{"RMSNorm", "", "RMSNormalization"},
                                                {"RMSNorm", "", "SimplifiedLayerNormalization"},
                                                {"LayerNorm", "", "LayerNormalization"},
                                                {"softmax", "", "Softmax"},
                                                {"RoPE", "", "RotaryEmbedding"},
                                                {"RoPE", "com.microsoft", "RotaryEmbedding"},
                                                {"attention", "com.microsoft", "GroupQueryAttention"},
                                                {"attention", "", "Attention"}};
    const std::string pieces = std::to_string(n) + " operators";
    for (const Candidate& c : kCandidates) {
      if (what != c.what) continue;
      const auto rows = target_.rows.find({c.domain, c.op});
      if (rows != target_.rows.end() && std::any_of(rows->second.begin(), rows->second.end(), [](const Row& r) { return r.native; }))
        return pieces + "; the target has a kernel for " + (*c.domain ? std::string(c.domain) + "." : "") + c.op;
    }
    return pieces + "; the description knows no kernel for it";
  }
  std::vector<std::string> Labels(const Nodes& nodes) const {
    std::vector<std::string> out;
    for (const int n : nodes) out.push_back(flat_.nodes[static_cast<size_t>(n)].label);
    return out;
  }

  const Flat& flat_;
  std::vector<NodeVerdict>& verdicts_;
  const Description& target_;
  std::vector<Fusion> found_;
  bool is_layer_norm_ = false;
};

}  // namespace

std::vector<Fusion> FindFusions(const Flat& flat, std::vector<NodeVerdict>& verdicts, const Description& target) {
  return FusionFinder(flat, verdicts, target).Run();
}

}  // namespace slm::targets
