// See logit_change.h.
#include "quant/allocation/logit_change.h"

#include <algorithm>
#include <cmath>

#include "kernels/norm/contract.h"

namespace slm::quant {
namespace {
using model::Role;

constexpr int64_t kPartRows = 1024;  // of the vocabulary

// The final norm of each row, as the graph computes it.
class FinalNorm {
 public:
  FinalNorm(const model::Model& m, Isa isa) : eps_(m.config.rms_eps), kernel_(kernels::Norm(isa)) {
    weight_ = model::DequantizeAll(*m.Find(Role::kFinalNorm));
    for (float& w : weight_) w += m.config.norm_offset;
  }
  void Apply(const float* x, float* out) const { kernel_.rms_norm(x, weight_.data(), eps_, static_cast<int>(weight_.size()), out); }

 private:
  std::vector<float> weight_;
  const float eps_;
  const kernels::NormKernels kernel_;
};

// Of one token: sums of e^(z - top), and of each change times d and e^d.
struct TokenSums {
  double top = -INFINITY, whole = 0;
  std::vector<double> moved, grown;
};

class Sums {
 public:
  Sums(const model::Model& m, int64_t tokens, size_t changes) : scale_(m.config.logit_scale), cap_(m.config.logit_softcap) {
    tokens_.resize(static_cast<size_t>(tokens));
    for (TokenSums& t : tokens_) t.moved.assign(changes, 0.0), t.grown.assign(changes, 0.0);
  }

  // Of token `i`: `p` becomes e^(logit - top) of the products `z` [n] with the head. Lowers earlier sums to the new top.
  void Open(size_t i, const float* z, int64_t n, std::vector<double>* p) {
    TokenSums& t = tokens_[i];
    p->resize(static_cast<size_t>(n));
    double top = t.top;
    for (size_t v = 0; v < p->size(); ++v) top = std::max(top, (*p)[v] = Logit(static_cast<double>(z[v])));
    const double lower = std::exp(t.top - top);
    t.top = top;
    t.whole *= lower;
    for (double& x : t.moved) x *= lower;
    for (double& x : t.grown) x *= lower;
    for (double& x : *p) t.whole += x = std::exp(x - top);
  }
  // What `change` adds to the products: `d` [p.size()].
  void Add(size_t i, size_t change, const float* z, const float* d, const std::vector<double>& p) {
    double moved = 0, grown = 0;
    for (size_t v = 0; v < p.size(); ++v) {
      const auto at = static_cast<double>(z[v]), by = static_cast<double>(d[v]);
      const double change_of_logit = cap_ == 0 ? by * scale_ : Logit(at + by) - Logit(at);
      moved += p[v] * change_of_logit;
      grown += p[v] * std::exp(change_of_logit);
    }
    tokens_[i].moved[change] += moved;
    tokens_[i].grown[change] += grown;
  }
  double MeanKld(size_t change) const {
    double sum = 0;
    for (const TokenSums& t : tokens_) {
      const double kld = std::log(t.grown[change] / t.whole) - t.moved[change] / t.whole;
      sum += kld < 0 ? 0 : kld;  // below by rounding only; NaN goes on
    }
    return sum / static_cast<double>(tokens_.size());
  }

 private:
  double Logit(double z) const { return cap_ == 0 ? z * scale_ : cap_ * std::tanh(z * scale_ / cap_); }

  const double scale_, cap_;
  std::vector<TokenSums> tokens_;
};

// The final norm of each row of every state.
struct NormedRows {
  std::vector<int64_t> heads;  // changes with a changed head
  // x [n]. Rows i * changes + c of `change`: of token i what change c adds to it. Rows i * heads.size() + h of `moved`: of token i what
  // change heads[h] makes of it.
  Matrix x, change, moved;

  NormedRows(const model::Model& m, const Machine& machine, std::span<const float> rows, std::span<const LogitChange> changes) {
    const int64_t width = m.config.d_model, n = std::ssize(rows) / width, n_changes = std::ssize(changes);
    for (int64_t c = 0; c < n_changes; ++c)
      if (changes[static_cast<size_t>(c)].head == HeadState::kChanged) heads.push_back(c);
    const int64_t n_heads = std::ssize(heads);
    x = Matrix(n, width), change = Matrix(n * n_changes, width), moved = Matrix(n * n_heads, width);
    const FinalNorm norm(m, machine.isa);
    auto fill = [&](int thread, int n_threads) {
      const Range mine = SplitRange(n, 1, thread, n_threads);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        norm.Apply(rows.data() + i * width, x.Row(i));
        for (int64_t c = 0; c < n_changes; ++c) {
          const std::span<const float> changed = changes[static_cast<size_t>(c)].rows;
          if (changed.empty()) continue;
          float* to = change.Row(i * n_changes + c);
          norm.Apply(changed.data() + i * width, to);
          for (int64_t j = 0; j < width; ++j) to[j] -= x.Row(i)[j];
        }
        for (int64_t h = 0; h < n_heads; ++h)
          for (int64_t j = 0; j < width; ++j)
            moved.Row(i * n_heads + h)[j] = x.Row(i)[j] + change.Row(i * n_changes + heads[static_cast<size_t>(h)])[j];
      }
    };
    machine.team->Run(fill);
  }
};

// Rows of the head from `at` on.
void ReadPart(const model::Model& m, const Machine& machine, int64_t at, Matrix* part) {
  const model::Tensor& head = *m.Find(m.config.tied_head ? Role::kEmbedding : Role::kHead);
  auto read = [&](int thread, int n_threads) {
    const Range mine = SplitRange(part->rows(), 1, thread, n_threads);
    for (int64_t r = mine.begin; r < mine.end; ++r) model::ReadRows(head, at + r, at + r + 1, part->Row(r));
  };
  machine.team->Run(read);
  if (head.data.empty()) return;
  const uint64_t row_bytes = head.data.size() / static_cast<uint64_t>(head.dims[0]);
  m.DropPages(head.data.subspan(static_cast<uint64_t>(at) * row_bytes, static_cast<uint64_t>(part->rows()) * row_bytes));
}

// The rows of `part` become what `change_row` changes of them.
void TakeChanges(const Machine& machine, const std::function<void(std::span<float> row)>& change_row, Matrix* part) {
  auto subtract = [&](int thread, int n_threads) {
    const auto width = static_cast<size_t>(part->columns());
    std::vector<float> row(width);
    const Range mine = SplitRange(part->rows(), 1, thread, n_threads);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
      std::copy(part->Row(r), part->Row(r) + width, row.begin());
      change_row(row);
      for (size_t j = 0; j < width; ++j) part->Row(r)[j] = row[j] - part->Row(r)[j];
    }
  };
  machine.team->Run(subtract);
}

}  // namespace

std::vector<float> FinalNormed(const model::Model& m, const Machine& machine, std::span<const float> rows) {
  const int64_t width = m.config.d_model;
  const FinalNorm norm(m, machine.isa);
  std::vector<float> out(rows.size());
  auto apply = [&](int thread, int n_threads) {
    const Range mine = SplitRange(static_cast<int64_t>(rows.size()) / width, 1, thread, n_threads);
    for (int64_t i = mine.begin; i < mine.end; ++i) norm.Apply(rows.data() + i * width, out.data() + i * width);
  };
  machine.team->Run(apply);
  return out;
}

Result<std::vector<double>> MeanDivergences(const model::Model& m, const Machine& machine, std::span<const float> rows,
                                            std::span<const LogitChange> changes,
                                            const std::function<void(std::span<float> row)>& change_row) {
  const NormedRows normed(m, machine, rows, changes);
  const int64_t n = normed.x.rows(), n_changes = std::ssize(changes), n_heads = std::ssize(normed.heads), width = m.config.d_model;
  Sums sums(m, n, changes.size());
  Matrix part(std::min<int64_t>(kPartRows, m.config.vocab_size), width);
  Matrix z(n, part.rows()), d(n * n_changes, part.rows()), d_head(n * n_heads, part.rows());
  for (int64_t at = 0; at < m.config.vocab_size; at += kPartRows) {
    const int64_t n_rows = std::min<int64_t>(kPartRows, m.config.vocab_size - at);
    if (n_rows < part.rows())
      part = Matrix(n_rows, width), z = Matrix(n, n_rows), d = Matrix(n * n_changes, n_rows), d_head = Matrix(n * n_heads, n_rows);
    ReadPart(m, machine, at, &part);
    const Multiplier words(machine, part);
    words.Multiply(normed.x, z);
    words.Multiply(normed.change, d);
    if (n_heads > 0) {
      TakeChanges(machine, change_row, &part);
      Multiplier(machine, part).Multiply(normed.moved, d_head);
    }
    auto add = [&](int thread, int n_threads) {
      std::vector<double> p;
      const Range mine = SplitRange(n, 1, thread, n_threads);
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        sums.Open(static_cast<size_t>(i), z.Row(i), n_rows, &p);
        for (int64_t h = 0; h < n_heads; ++h) {
          float* to = d.Row(i * n_changes + normed.heads[static_cast<size_t>(h)]);
          for (int64_t v = 0; v < n_rows; ++v) to[v] += d_head.Row(i * n_heads + h)[v];
        }
        for (int64_t c = 0; c < n_changes; ++c)
          sums.Add(static_cast<size_t>(i), static_cast<size_t>(c), z.Row(i), d.Row(i * n_changes + c), p);
      }
    };
    machine.team->Run(add);
  }
  std::vector<double> mean(changes.size());
  for (size_t c = 0; c < mean.size(); ++c) {
    mean[c] = sums.MeanKld(c);
    if (!std::isfinite(mean[c]))
      return Error(Code::kCorrupt, "NaN or infinity in the logits of the float model", "the weights are damaged");
  }
  return mean;
}

uint64_t DivergenceBytes(const model::Model& m, int64_t n_tokens, int64_t n_changes) {
  const int64_t rows = n_tokens * (n_changes + 3), e = m.config.d_model;
  return static_cast<uint64_t>(Matrix::BytesOf(rows, e) + Matrix::BytesOf(rows, kPartRows) + 3 * Matrix::BytesOf(kPartRows, e) +
                               16 * n_tokens * n_changes);
}

}  // namespace slm::quant
