// Owns memory and threads, checks what comes in, walks the plan on every thread, checks what goes out.
#include "backend/cpu/cpu.h"

#include <fmt/format.h>

#include <cmath>

#include "backend/cpu/kv_port.h"
#include "backend/cpu/lower.h"
#include "base/arena.h"
#include "kernels/activation/contract.h"
#include "kernels/quantize/contract.h"

namespace slm::backend {
namespace {

// "1 B", "1.5 KiB", "3 MiB": in the powers of 1024 that budgets are given in, with a decimal where it says something.
std::string Bytes(int64_t n) {
  double x = static_cast<double>(n);
  const char* unit = "B";
  for (const char* larger : {"KiB", "MiB", "GiB"}) {
    if (x < 1024) break;
    x /= 1024;
    unit = larger;
  }
  return fmt::format("{:g} {}", std::round(x * 10) / 10, unit);
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::unique_ptr<LoweredPlan> plan, std::shared_ptr<const model::Model> model, std::unique_ptr<ThreadTeam> team,
             std::vector<KeyOrder> key_orders, const CpuOptions& o)
      : plan_(std::move(plan)),
        model_(std::move(model)),
        o_(o),
        team_(std::move(team)),
        cursor_(o.context),
        key_orders_(std::move(key_orders)) {}

  Status Allocate() {
    const int n = o_.n_threads;
    const int rows = o_.logits == LogitsOf::kAllTokens ? plan_->chunk : 1;
    ArenaPlan a;
    const size_t arena = a.Add(static_cast<size_t>(plan_->arena_bytes) + 64);
    const size_t logits = a.Add(static_cast<size_t>(rows * plan_->logits_stride) * 4);
    const size_t shared = AddActivations(a, plan_->chunk);
    const size_t padded = a.Add(static_cast<size_t>(plan_->padded_k) * static_cast<size_t>(plan_->chunk) * 4);
    const size_t partial = a.Add(static_cast<size_t>(plan_->partial_floats) * 4);
    std::vector<size_t> mine, scratch, row, unpack, piece;
    for (int t = 0; t < n; ++t) {
      mine.push_back(AddActivations(a, 1));
      scratch.push_back(a.Add(static_cast<size_t>(plan_->attention_floats) * 4));
      row.push_back(a.Add(static_cast<size_t>(plan_->row_floats) * 4));
      unpack.push_back(a.Add(static_cast<size_t>(plan_->unpack_bytes)));
      piece.push_back(a.Add(static_cast<size_t>(plan_->piece_bytes)));
    }
    const int64_t total = plan_->weights_bytes + static_cast<int64_t>(plan_->kv.total_bytes() + a.total());
    if (o_.memory_budget_bytes > 0 && total > o_.memory_budget_bytes)
      return Error(Code::kLimit,
                   fmt::format("needs {} (weights {}, KV cache {}, activations {}), the budget is {}", Bytes(total),
                               Bytes(plan_->weights_bytes), Bytes(static_cast<int64_t>(plan_->kv.total_bytes())),
                               Bytes(static_cast<int64_t>(a.total())), Bytes(o_.memory_budget_bytes)),
                   "reduce the context, the KV type or the model, or raise the budget");
    SLM_ASSIGN_OR_RETURN(work_, Buffer::Allocate(a.total()));
    SLM_ASSIGN_OR_RETURN(kv_, Buffer::Allocate(static_cast<size_t>(plan_->kv.total_bytes())));
    frames_.resize(static_cast<size_t>(n));
    for (int t = 0; t < n; ++t) {
      Frame& f = frames_[static_cast<size_t>(t)];
      f.thread = t;
      f.n_threads = n;
      f.arena = At<float>(arena);
      f.logits = At<float>(logits);
      f.shared = ActivationsAt(shared, plan_->chunk);
      f.mine = ActivationsAt(mine[static_cast<size_t>(t)], 1);
      f.padded = At<float>(padded);
      f.partial = At<float>(partial);
      f.scratch = At<float>(scratch[static_cast<size_t>(t)]);
      f.row = At<float>(row[static_cast<size_t>(t)]);
      f.unpack = At<uint8_t>(unpack[static_cast<size_t>(t)]);
      f.piece = At<uint8_t>(piece[static_cast<size_t>(t)]);
      f.kv = kv_.data();
    }
    activations_bytes_ = static_cast<int64_t>(a.total());
    return Ok();
  }

  Status PackWeights() {
    int64_t to_pack = 0;
    for (const PackedMatrix& m : plan_->matrices) to_pack += m.data || m.file ? 0 : m.bytes;
    SLM_ASSIGN_OR_RETURN(weights_, Buffer::Allocate(static_cast<size_t>(to_pack)));
    uint8_t* at = weights_.as<uint8_t>();
    for (PackedMatrix& m : plan_->matrices) {
      if (m.data || m.file) continue;  // a package: used where it is mapped
      PackMatrix(m, *model_, at, *team_);
      m.data = at;
      m.source = nullptr;
      at += m.bytes;
    }
    FillCapabilities();
    return Ok();
  }

  Result<Logits> Forward(std::span<const int32_t> tokens, LogitsOf which) override {
    SLM_RETURN_IF_ERROR(CheckCall(tokens, which));
    const int m = static_cast<int>(tokens.size());
    auto position = cursor_.Advance(m);
    if (!position.ok()) return position.error();
    const int tail = which == LogitsOf::kAllTokens ? 0 : m - 1;
    for (Frame& f : frames_) {
      f.tokens = tokens.data();
      f.m = m;
      f.position = static_cast<int>(position.value());
      f.tail_begin = tail;
    }
    mode_ = m == 1 ? Mode::kDecode : which == LogitsOf::kAllTokens ? Mode::kPrefillAll : Mode::kPrefillLast;
    finite_.store(true, std::memory_order_relaxed);
    auto walk = [this](int t, int) { Walk(t); };
    team_->Run(walk);
    if (!finite_.load(std::memory_order_relaxed)) return Diagnose();
    return Logits{frames_[0].logits, m - tail, plan_->logits_stride, plan_->vocab_size};
  }

  Status Rewind(int position) override { return cursor_.Rewind(position); }
  int used() const override { return static_cast<int>(cursor_.used()); }
  const Capabilities& capabilities() const override { return capabilities_; }
  std::vector<PlacementRow> Placement() const override { return plan_->placement; }
  KvPort* kv_port() override {
    if (!port_) port_ = CpuKvPort::Create(plan_->kv, key_orders_, kv_.data(), cursor_);
    return port_.get();
  }

 private:
  template <class T>
  T* At(size_t offset) {
    return reinterpret_cast<T*>(work_.data() + offset);
  }
  size_t AddActivations(ArenaPlan& a, int rows) const {
    const size_t values = static_cast<size_t>(plan_->activation_k) * static_cast<size_t>(rows), blocks = values / kernels::kBlockK;
    const size_t at = a.Add(values);
    a.Add(blocks * 4);
    a.Add(blocks * 4);
    a.Add(blocks * sizeof(kernels::ResidualBlock));
    a.Add(static_cast<size_t>(rows) * 4);
    const size_t tiles =
        rows >= kernels::kWideTokens && plan_->wide ? static_cast<size_t>(kernels::TiledValues(rows, plan_->activation_k)) * 2 : 0;
    if (tiles > a.total() - at) a.Add(tiles - (a.total() - at));
    return at;
  }
  ActivationBuffer ActivationsAt(size_t at, int rows) {
    const size_t values = static_cast<size_t>(plan_->activation_k) * static_cast<size_t>(rows), blocks = values / kernels::kBlockK;
    const size_t scales = at + AlignUp(values, 64), sums = scales + AlignUp(blocks * 4, 64);
    const size_t residuals = sums + AlignUp(blocks * 4, 64);
    const size_t counts = residuals + AlignUp(blocks * sizeof(kernels::ResidualBlock), 64);
    return {At<int8_t>(at), At<float>(scales), At<int32_t>(sums), At<kernels::ResidualBlock>(residuals), At<int32_t>(counts)};
  }

  Status CheckCall(std::span<const int32_t> tokens, LogitsOf which) const {
    if (tokens.empty() || static_cast<int64_t>(tokens.size()) > plan_->chunk)
      return Error(Code::kInvalidArgument, fmt::format("{} tokens in one call", tokens.size()), fmt::format("give 1 to {}", plan_->chunk));
    if (which == LogitsOf::kAllTokens && o_.logits != LogitsOf::kAllTokens)
      return Error(Code::kInvalidArgument, "logits of all tokens were not asked for at load", "set CpuOptions::logits");
    for (int32_t t : tokens)
      if (t < 0 || t >= plan_->vocab_size)
        return Error(Code::kInvalidArgument, fmt::format("token {} is outside the vocabulary of {}", t, plan_->vocab_size),
                     "check the tokenizer");
    return Ok();
  }

  void Walk(int t) {
    const Frame& f = frames_[static_cast<size_t>(t)];
    const int mode = static_cast<int>(mode_);
    for (const Step& s : plan_->steps) {
      if (s.barrier[mode]) team_->Barrier(t);
      s.fn(s.operands.get(), f);
    }
    team_->Barrier(t);
    const Range r = SplitRange(plan_->vocab_size, 64, t, f.n_threads);
    if (r.begin == r.end) return;
    for (int row = 0; row < f.m - f.tail_begin; ++row) {
      float top;
      if (act_.argmax(f.logits + row * plan_->logits_stride + r.begin, r.end - r.begin, &top) < 0)
        finite_.store(false, std::memory_order_relaxed);
    }
  }

  // Evaluates the same tokens again, looking at every result, and says where the first value that is no number came from.
  Error Diagnose() {
    const Step* first = nullptr;
    auto walk = [&](int t, int) {
      const Frame& f = frames_[static_cast<size_t>(t)];
      for (const Step& s : plan_->steps) {
        team_->Barrier(t);
        s.fn(s.operands.get(), f);
        team_->Barrier(t);
        if (t == 0 && !first && !IsFinite(s, f)) first = &s;
      }
    };
    team_->Run(walk);
    const Status rewound = cursor_.Rewind(frames_[0].position);
    SLM_ASSERT(rewound.ok());
    const std::string place = !first             ? "the head"
                              : first->layer < 0 ? first->name
                                                 : fmt::format("layer {} ({})", first->layer, first->name);
    return Error(Code::kCorrupt, fmt::format("{}: logits are NaN or infinite; the first bad value appears in {}", model_->path, place),
                 "the weights are damaged or overflow: check the file's sha256, try --compute f32");
  }
  static bool IsFinite(const Step& s, const Frame& f) {
    if (s.out.width == 0) return true;
    const RowRange rows = RowsOf(s.rows, f);
    for (int i = 0; i < rows.count; ++i) {
      const float* x = f.At(s.out, rows.begin + i);
      for (int64_t j = 0; j < s.out.width; ++j)
        if (!std::isfinite(x[j])) return false;
    }
    return true;
  }

  void FillCapabilities() {
    Capabilities& c = capabilities_;
    c.device = c.backend = "cpu";
    c.isa = IsaName(o_.isa);
    c.n_threads = o_.n_threads;
    c.max_context = o_.context;
    c.max_tokens = plan_->chunk;
    c.vocab_size = plan_->vocab_size;
    c.weights_bytes = plan_->weights_bytes;
    c.kv_bytes = static_cast<int64_t>(plan_->kv.total_bytes());
    c.activations_bytes = activations_bytes_;
    c.bytes_per_token = plan_->bytes_per_token;
    c.ops_per_token = plan_->ops_per_token;
  }

  std::unique_ptr<LoweredPlan> plan_;
  std::shared_ptr<const model::Model> model_;
  CpuOptions o_;
  std::unique_ptr<ThreadTeam> team_;
  kv::Cursor cursor_;
  Buffer weights_, kv_, work_;
  std::vector<KeyOrder> key_orders_;  // by layer
  std::unique_ptr<CpuKvPort> port_;   // when it was asked for
  std::vector<Frame> frames_;
  kernels::ActivationKernels act_ = kernels::Activations(o_.isa);  // arg-max sees what is not finite
  Mode mode_ = Mode::kDecode;
  std::atomic<bool> finite_{true};
  int64_t activations_bytes_ = 0;
  Capabilities capabilities_;
};

}  // namespace

Result<std::unique_ptr<Backend>> CreateCpuBackend(const graph::Graph& g, const CpuOptions& options) {
  if (options.n_threads < 1 || options.n_threads > 1024)
    return Error(Code::kInvalidArgument, fmt::format("{} threads", options.n_threads), "give 1 to 1024");
  if (options.context < 1 || options.chunk < 1)
    return Error(Code::kInvalidArgument, fmt::format("context of {} tokens, chunks of {}", options.context, options.chunk),
                 "give positive numbers");
  SLM_ASSIGN_OR_RETURN(auto plan, Lower(g, options));
  SLM_ASSIGN_OR_RETURN(auto team, ThreadTeam::Create(options.n_threads));
  std::vector<KeyOrder> orders = KeyOrdersOf(g, plan->kv);
  auto backend = std::make_unique<CpuBackend>(std::move(plan), g.model, std::move(team), std::move(orders), options);
  SLM_RETURN_IF_ERROR(backend->Allocate());
  SLM_RETURN_IF_ERROR(backend->PackWeights());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace slm::backend
