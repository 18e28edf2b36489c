// See allocation.h.
#include "quant/allocation/allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "quant/allocation/allocate.h"

namespace slm::quant {
namespace {
using model::Tensor;

uint64_t BytesAs(const Tensor& t, DType dtype) { return RowBytes(dtype, static_cast<uint64_t>(t.n_values())); }

// The options of each matrix, and which of the types each option is.
struct Options {
  std::vector<TypeOptions> of;
  std::vector<std::vector<size_t>> types;
};
Options OptionsOf(const Sensitivities& s) {
  Options o;
  for (const MatrixSensitivity& one : s.matrices) {
    TypeOptions& options = o.of.emplace_back();
    std::vector<size_t>& types = o.types.emplace_back();
    for (size_t t = 0; t < s.types.size(); ++t) {
      if (one.errors[t] < 0) continue;
      options.push_back({BytesAs(*one.tensor, s.types[t]), one.Loss(t)});
      types.push_back(t);
    }
  }
  return o;
}

// Bytes and weights of a plan: of the measured matrices, of the rest of the layers, of the rest.
struct Parts {
  uint64_t measured_weights = 0, body_rest = 0, body_rest_weights = 0, rest = 0, rest_weights = 0;
};
Parts PartsOf(const Sensitivities& s, const Plan& plan) {
  std::set<const Tensor*> measured;
  for (const MatrixSensitivity& one : s.matrices) measured.insert(one.tensor);
  Parts p;
  for (const Choice& c : plan.choices) {
    const auto weights = static_cast<uint64_t>(c.tensor->n_values());
    if (measured.contains(c.tensor)) p.measured_weights += weights;
    else if (c.is_body) p.body_rest += BytesAs(*c.tensor, c.dtype), p.body_rest_weights += weights;
    else p.rest += BytesAs(*c.tensor, c.dtype), p.rest_weights += weights;
  }
  return p;
}

uint64_t LeastBytes(const Options& options) {
  uint64_t sum = 0;
  for (const TypeOptions& o : options.of)
    sum += std::min_element(o.begin(), o.end(), [](auto& a, auto& b) { return a.bytes < b.bytes; })->bytes;
  return sum;
}

// What the measured matrices may take.
uint64_t MostBytes(const Parts& p, const TypeBudget& b) {
  constexpr auto kMost = std::numeric_limits<uint64_t>::max();
  const auto left = [](double bpw, uint64_t weights, uint64_t taken) -> uint64_t {
    if (bpw <= 0) return kMost;
    const auto most = static_cast<uint64_t>(bpw / 8 * static_cast<double>(weights));
    return most > taken ? most - taken : 0;
  };
  return std::min(left(b.body_bpw, p.measured_weights + p.body_rest_weights, p.body_rest),
                  left(b.bpw, p.measured_weights + p.body_rest_weights + p.rest_weights, p.body_rest + p.rest));
}

ExpectedPoint PointOf(const Parts& p, const Allocation& a) {
  const uint64_t body = p.measured_weights + p.body_rest_weights;
  const double bits = 8.0 * static_cast<double>(a.bytes + p.body_rest);
  return {body == 0 ? 0 : bits / static_cast<double>(body), a.bytes + p.body_rest + p.rest, a.loss};
}

}  // namespace

Result<ExpectedPoint> AllocateTypes(const Sensitivities& sensitivities, const TypeBudget& budget, Plan* plan) {
  const Options options = OptionsOf(sensitivities);
  const Parts parts = PartsOf(sensitivities, *plan);
  const bool by_kld = budget.kld > 0 && budget.bpw <= 0 && budget.body_bpw <= 0;
  const uint64_t least = budget.kind == BudgetKind::kWish ? LeastBytes(options) : 0;
  auto found = by_kld ? AllocateLoss(options.of, budget.kld) : AllocateBytes(options.of, std::max(least, MostBytes(parts, budget)));
  if (!found.ok()) return found.error().At(by_kld ? "the expected KLD" : "the layers' matrices");
  std::map<const Tensor*, DType> types;
  for (size_t i = 0; i < sensitivities.matrices.size(); ++i)
    types[sensitivities.matrices[i].tensor] = sensitivities.types[options.types[i][static_cast<size_t>(found.value().chosen[i])]];
  for (Choice& c : plan->choices)
    if (const auto it = types.find(c.tensor); it != types.end()) c.dtype = it->second;
  return PointOf(parts, found.value());
}

std::vector<ExpectedPoint> ExpectedCurve(const Sensitivities& sensitivities, const Plan& plan) {
  constexpr int kPoints = 9;
  const Options options = OptionsOf(sensitivities);
  const Parts parts = PartsOf(sensitivities, plan);
  const uint64_t least = LeastBytes(options);
  uint64_t most = 0;
  for (const TypeOptions& o : options.of)
    most += std::max_element(o.begin(), o.end(), [](auto& a, auto& b) { return a.bytes < b.bytes; })->bytes;
  std::vector<ExpectedPoint> points;
  for (int i = 0; i < kPoints; ++i) {
    const auto found = AllocateBytes(options.of, least + (most - least) * static_cast<uint64_t>(i) / (kPoints - 1));
    if (found.ok()) points.push_back(PointOf(parts, found.value()));
  }
  return points;
}

}  // namespace slm::quant
