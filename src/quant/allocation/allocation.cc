// See allocation.h.
#include "quant/allocation/allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "quant/allocation/allocate.h"

namespace slm::quant {
namespace {
using model::Tensor;

uint64_t BytesAs(const Tensor& t, DType dtype) { return RowBytes(dtype, static_cast<uint64_t>(t.n_values())); }

// The options of some matrices, and which of the types each option is.
struct Options {
  std::vector<const Tensor*> tensors;
  std::vector<TypeOptions> of;
  std::vector<std::vector<size_t>> types;

  void Add(const Sensitivities& s, const MatrixSensitivity& one) {
    tensors.push_back(one.tensor);
    TypeOptions& options = of.emplace_back();
    std::vector<size_t>& which = types.emplace_back();
    for (size_t t = 0; t < s.types.size(); ++t) {
      if (one.errors[t] < 0) continue;
      options.push_back({BytesAs(*one.tensor, s.types[t]), one.Loss(t)});
      which.push_back(t);
    }
  }
  uint64_t SmallestBytes() const {
    uint64_t sum = 0;
    for (const TypeOptions& o : of) sum += std::ranges::min_element(o, {}, &TypeOption::bytes)->bytes;
    return sum;
  }
  uint64_t LargestBytes() const {
    uint64_t sum = 0;
    for (const TypeOptions& o : of) sum += std::ranges::max_element(o, {}, &TypeOption::bytes)->bytes;
    return sum;
  }
};

// Bytes and weights of a plan: of the measured matrices of the layers, of the rest of the layers, of embedding and head where they are
// measured, of the rest.
struct Parts {
  uint64_t body_weights = 0, body_rest = 0, body_rest_weights = 0, vocabulary_weights = 0, rest = 0, rest_weights = 0;
};

// What is chosen for.
struct Problem {
  Options body, vocabulary;
  Parts parts;

  Problem(const Sensitivities& s, const Plan& plan) {
    std::set<const Tensor*> measured;
    for (const MatrixSensitivity& one : s.matrices) {
      measured.insert(one.tensor);
      (one.layer < 0 ? vocabulary : body).Add(s, one);
    }
    for (const Choice& c : plan.choices) {
      const auto weights = static_cast<uint64_t>(c.tensor->n_values());
      if (measured.contains(c.tensor)) (c.is_body ? parts.body_weights : parts.vocabulary_weights) += weights;
      else if (c.is_body) parts.body_rest += BytesAs(*c.tensor, c.dtype), parts.body_rest_weights += weights;
      else parts.rest += BytesAs(*c.tensor, c.dtype), parts.rest_weights += weights;
    }
  }
};

// What the measured matrices may take: those of the layers, and all.
struct MostBytes {
  uint64_t body = 0, all = 0;
};
MostBytes MostBytesOf(const Parts& p, const TypeBudget& b) {
  const auto left = [](double bpw, uint64_t weights, uint64_t taken) -> uint64_t {
    if (bpw <= 0) return std::numeric_limits<uint64_t>::max();
    const auto most = static_cast<uint64_t>(bpw / 8 * static_cast<double>(weights));
    return most > taken ? most - taken : 0;
  };
  const uint64_t body = p.body_weights + p.body_rest_weights;
  return {left(b.body_bpw, body, p.body_rest), left(b.bpw, body + p.vocabulary_weights + p.rest_weights, p.body_rest + p.rest)};
}

// Options of embedding and head, and what is chosen beside them.
struct Found {
  std::vector<int> vocabulary;
  uint64_t vocabulary_bytes = 0;
  double vocabulary_loss = 0;
  Allocation body;
  uint64_t bytes() const { return vocabulary_bytes + body.bytes; }
  double loss() const { return vocabulary_loss + body.loss; }
};

// Calls f(Found) with every combination of options of embedding and head, few that each make a large part of the file: no walk along
// hulls steps over them.
template <class F>
void EachVocabulary(const Options& vocabulary, const F& f) {
  const size_t n = vocabulary.of.size();
  Found found;
  found.vocabulary.assign(n, 0);
  for (;;) {
    found.vocabulary_bytes = 0, found.vocabulary_loss = 0;
    for (size_t i = 0; i < n; ++i) {
      const TypeOption& o = vocabulary.of[i][static_cast<size_t>(found.vocabulary[i])];
      found.vocabulary_bytes += o.bytes;
      found.vocabulary_loss += o.loss;
    }
    f(found);
    size_t i = 0;
    while (i < n && ++found.vocabulary[i] == static_cast<int>(vocabulary.of[i].size())) found.vocabulary[i++] = 0;
    if (i == n) return;
  }
}

// The least loss in so many bytes. Error: that of the smallest embedding and head.
Result<Found> LeastLoss(const Problem& p, const MostBytes& most) {
  const uint64_t smallest = p.vocabulary.SmallestBytes();
  if (smallest > most.all)
    return Error(Code::kLimit, fmt::format("the smallest types of embedding and head take {} bytes, the budget is {}", smallest, most.all),
                 "raise the budget, or allow smaller types");
  std::optional<Found> best;
  std::optional<Error> failed;
  EachVocabulary(p.vocabulary, [&](Found found) {
    if (found.vocabulary_bytes > most.all) return;
    auto body = AllocateBytes(p.body.of, std::min(most.body, most.all - found.vocabulary_bytes));
    if (!body.ok()) {
      if (found.vocabulary_bytes == smallest) failed = body.error();
      return;
    }
    found.body = body.Take();
    const bool better = !best || found.loss() < best->loss() || (found.loss() == best->loss() && found.bytes() < best->bytes());
    if (better) best = std::move(found);
  });
  if (best) return *std::move(best);
  return *std::move(failed);
}

// The fewest bytes with at most that loss. Error: that of the best embedding and head.
Result<Found> FewestBytes(const Problem& p, double most_loss) {
  std::optional<Found> best;
  std::optional<Error> failed;
  double least = std::numeric_limits<double>::infinity();
  EachVocabulary(p.vocabulary, [&](Found found) {
    auto body = AllocateLoss(p.body.of, most_loss - found.vocabulary_loss);
    if (!body.ok()) {
      if (!failed || found.vocabulary_loss < least) failed = body.error();
      least = std::min(least, found.vocabulary_loss);
      return;
    }
    found.body = body.Take();
    const bool better = !best || found.bytes() < best->bytes() || (found.bytes() == best->bytes() && found.loss() < best->loss());
    if (better) best = std::move(found);
  });
  if (best) return *std::move(best);
  return *std::move(failed);
}

ExpectedPoint PointOf(const Parts& p, const Found& found) {
  const uint64_t body = p.body_weights + p.body_rest_weights;
  const double bits = 8.0 * static_cast<double>(found.body.bytes + p.body_rest);
  return {body == 0 ? 0 : bits / static_cast<double>(body), found.bytes() + p.body_rest + p.rest, found.loss()};
}

}  // namespace

Result<ExpectedPoint> AllocateTypes(const Sensitivities& sensitivities, const TypeBudget& budget, Plan* plan) {
  const Problem problem(sensitivities, *plan);
  const bool by_kld = budget.kld > 0 && budget.bpw <= 0 && budget.body_bpw <= 0;
  MostBytes most = MostBytesOf(problem.parts, budget);
  if (budget.kind == BudgetKind::kWish) {
    most.body = std::max(most.body, problem.body.SmallestBytes());
    most.all = std::max(most.all, problem.body.SmallestBytes() + problem.vocabulary.SmallestBytes());
  }
  auto found = by_kld ? FewestBytes(problem, budget.kld) : LeastLoss(problem, most);
  if (!found.ok()) return found.error().At(by_kld ? "the expected KLD" : "the matrices");
  std::map<const Tensor*, DType> types;
  const auto take = [&](const Options& o, const std::vector<int>& chosen) {
    for (size_t i = 0; i < o.tensors.size(); ++i) types[o.tensors[i]] = sensitivities.types[o.types[i][static_cast<size_t>(chosen[i])]];
  };
  take(problem.body, found.value().body.chosen);
  take(problem.vocabulary, found.value().vocabulary);
  for (Choice& c : plan->choices)
    if (const auto it = types.find(c.tensor); it != types.end()) c.dtype = it->second;
  return PointOf(problem.parts, found.value());
}

std::vector<ExpectedPoint> ExpectedCurve(const Sensitivities& sensitivities, const Plan& plan) {
  constexpr int kPoints = 9;
  const Problem problem(sensitivities, plan);
  const uint64_t least = problem.body.SmallestBytes() + problem.vocabulary.SmallestBytes();
  const uint64_t range = problem.body.LargestBytes() + problem.vocabulary.LargestBytes() - least;
  std::vector<ExpectedPoint> points;
  for (int i = 0; i < kPoints; ++i) {
    const auto found = LeastLoss(problem, {std::numeric_limits<uint64_t>::max(), least + range * static_cast<uint64_t>(i) / (kPoints - 1)});
    if (found.ok()) points.push_back(PointOf(problem.parts, found.value()));
  }
  return points;
}

}  // namespace slm::quant
