// ObserveActivations: see static.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/block_runner.h"
#include "quant/hidden_states.h"
#include "quant/static/static.h"

namespace slm::quant {
namespace {
using backend::BlockRunner;
using graph::AttrKey;
using graph::Node;
using graph::Op;

constexpr int64_t kHeadRows = 4096;  // of the vocabulary, multiplied at a time

class Observer {
 public:
  Observer(const graph::Graph& g, const CalibrationText& text, int prefix, const StaticWork& work)
      : g_(g), c_(g.model->config), text_(text), prefix_(prefix), work_(work) {}

  Result<ActivationSpans> Run() {
    SLM_RETURN_IF_ERROR(CheckText());
    SLM_ASSIGN_OR_RETURN(streams_, Embed(*g_.model, text_.sequences));
    for (int layer = 0; layer < c_.n_layers; ++layer) {
      SLM_RETURN_IF_ERROR(Layer(layer));
      if (work_.layer_done) work_.layer_done(layer + 1);
    }
    SLM_RETURN_IF_ERROR(Tail());
    for (const auto& [name, span] : out_.values)
      if (!std::isfinite(span.low) || !std::isfinite(span.high))
        return Error(Code::kCorrupt, name + ": NaN or infinity in the float forward pass", "the weights are damaged");
    return std::move(out_);
  }

 private:
  Status CheckText() const {
    const auto& all = text_.sequences;
    const auto n = static_cast<size_t>(prefix_);
    for (const auto& s : all) {
      if (s.size() <= n) return Error(Code::kInvalidArgument, fmt::format("a sequence of {} tokens", s.size()), "give longer ones");
      if (!std::equal(s.begin(), s.begin() + prefix_, all[0].begin()))
        return Error(Code::kInvalidArgument, "sequences that do not begin with the prefix");
    }
    if (all.empty()) return Error(Code::kInvalidArgument, "no tokens to calibrate on", "give a longer text");
    return Ok();
  }
  Status GoOn() const { return work_.cancelled && work_.cancelled() ? Status(Error(Code::kCancelled, "interrupted")) : Ok(); }

  void Add(const std::string& name, const float* values, int64_t n) {
    if (n == 0) return;
    const auto [at, is_new] = out_.values.try_emplace(name, model::ValueRange{values[0], values[0]});
    model::ValueRange& s = at->second;
    for (int64_t i = 0; i < n; ++i) {
      // Comparisons that NaN makes true, so that it is found.
      if (!(values[i] >= s.low)) s.low = values[i];
      if (!(values[i] <= s.high)) s.high = values[i];
    }
  }

  Status Layer(int layer) {
    const int longest = static_cast<int>(text_.longest());
    SLM_ASSIGN_OR_RETURN(
        const auto runner,
        BlockRunner::Create(
            g_, {.layer = layer, .max_tokens = longest, .isa = work_.machine.isa, .replaced = {}, .outputs = backend::KeepOutputs::kYes},
            *work_.machine.team));
    const Node* attention = nullptr;
    for (const Node& n : g_.nodes)
      if (n.layer == layer && n.op == Op::kGroupQueryAttention) attention = &n;
    for (HiddenStates& s : streams_) {
      SLM_RETURN_IF_ERROR(GoOn());
      runner->Run(s.rows.data(), s.n, s.rows.data());
      for (const backend::LayerOutput& out : runner->outputs()) Add(out.name, out.rows + prefix_ * out.width, (s.n - prefix_) * out.width);
      if (!attention) continue;
      const auto of = [&](int input) {
        const std::string& name = g_.values[attention->inputs[static_cast<size_t>(input)]].name;
        return *std::find_if(runner->outputs().begin(), runner->outputs().end(), [&](const auto& o) { return o.name == name; });
      };
      const backend::LayerOutput keys = of(graph::kGqaKey), values = of(graph::kGqaValue);
      Scores(*attention, of(graph::kGqaQuery), keys, s.n);
      if (out_.prefix.size() == static_cast<size_t>(layer)) {
        const int64_t n = prefix_ * keys.width;
        out_.prefix.push_back({{keys.rows, keys.rows + n}, {values.rows, values.rows + n}});
      }
    }
    return Ok();
  }

  // Of queries after the prefix with all keys up to their own.
  void Scores(const Node& n, const backend::LayerOutput& queries, const backend::LayerOutput& keys, int tokens) {
    const int64_t d = c_.head_dim, hq = n.Int(AttrKey::kNumHeads), per_kv = hq / n.Int(AttrKey::kKvNumHeads);
    const float scale = n.Float(AttrKey::kScale, 1);
    Matrix q(tokens, d), k(tokens, d), product(tokens, tokens);
    const auto take = [&](const backend::LayerOutput& from, int64_t head, Matrix* to) {
      for (int i = 0; i < tokens; ++i) std::copy_n(from.rows + i * from.width + head * d, d, to->Row(i));
    };
    for (int64_t kv = 0; kv < hq / per_kv; ++kv) {
      take(keys, kv, &k);
      const Multiplier by_keys(work_.machine, k);
      for (int64_t head = kv * per_kv; head < (kv + 1) * per_kv; ++head) {
        take(queries, head, &q);
        by_keys.Multiply(q, product);
        for (int i = prefix_; i < tokens; ++i) {
          for (int j = 0; j <= i; ++j) product.Row(i)[j] *= scale;
          Add(n.name + ".scores", product.Row(i), i + 1);
        }
      }
    }
  }

  // After the last layer: norm and head.
  Status Tail() {
    const auto at = [&](Op op) {
      return *std::find_if(g_.nodes.rbegin(), g_.nodes.rend(), [&](const Node& n) { return n.op == op && n.layer < 0; });
    };
    const Node norm = at(Op::kRmsNorm), head = at(Op::kGemm);
    const std::vector<float> w = graph::FixedValues(g_, norm.inputs[1]);
    const float eps = norm.Float(AttrKey::kEpsilon);
    const auto width = static_cast<int64_t>(w.size());
    int64_t n = 0;
    for (const HiddenStates& s : streams_) n += s.n - prefix_;
    Matrix normed(n, width);
    int64_t row = 0;
    for (const HiddenStates& s : streams_)
      for (int i = prefix_; i < s.n; ++i, ++row) {
        const float* x = s.rows.data() + i * width;
        double power = 0;
        for (int64_t j = 0; j < width; ++j) power += static_cast<double>(x[j]) * static_cast<double>(x[j]);
        const auto inverse = static_cast<float>(1 / std::sqrt(power / static_cast<double>(width) + static_cast<double>(eps)));
        for (int64_t j = 0; j < width; ++j) normed.Row(row)[j] = x[j] * inverse * w[static_cast<size_t>(j)];
        Add(norm.name, normed.Row(row), width);
      }
    const graph::ConstantPart& part = g_.values[head.inputs[1]].constant->parts[0];
    for (int64_t begin = part.row_begin; begin < part.row_end; begin += kHeadRows) {
      SLM_RETURN_IF_ERROR(GoOn());
      const int64_t end = std::min(begin + kHeadRows, part.row_end);
      std::vector<float> rows(static_cast<size_t>((end - begin) * width));
      model::ReadRows(*part.tensor, begin, end, rows.data());
      Matrix some(end - begin, width), logits(n, end - begin);
      for (int64_t i = 0; i < end - begin; ++i) std::copy_n(rows.data() + i * width, width, some.Row(i));
      Multiplier(work_.machine, some).Multiply(normed, logits);
      for (int64_t i = 0; i < n; ++i) Add(head.name, logits.Row(i), end - begin);
    }
    return Ok();
  }

  const graph::Graph& g_;
  const model::ModelConfig& c_;
  const CalibrationText& text_;
  const int prefix_;
  const StaticWork& work_;
  std::vector<HiddenStates> streams_;
  ActivationSpans out_;
};

}  // namespace

Result<ActivationSpans> ObserveActivations(const graph::Graph& decoder, const CalibrationText& text, int prefix, const StaticWork& work) {
  return Observer(decoder, text, prefix, work).Run();
}

}  // namespace slm::quant
