// See allocate.h.
#include "quant/allocation/allocate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace slm::quant {
namespace {

// Cost and value of an option in the direction of the walk: cost is what the budget limits.
struct Point {
  double cost = 0, loss = 0;
  int option = 0;
};

// A step of one tensor along its hull.
struct Step {
  size_t tensor = 0;
  int option = 0;
  double cost = 0, gain = 0;  // both > 0
};

// The lower convex hull of the points from the least cost to the least loss.
std::vector<Point> Hull(std::vector<Point> points) {
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    if (a.cost != b.cost) return a.cost < b.cost;
    return a.loss != b.loss ? a.loss < b.loss : a.option < b.option;
  });
  std::vector<Point> hull;
  for (const Point& p : points) {
    if (!hull.empty() && p.loss >= hull.back().loss) continue;  // costs more or as much, and is no better
    while (hull.size() >= 2) {
      const Point &a = hull[hull.size() - 2], &b = hull.back();
      if ((a.loss - b.loss) * (p.cost - a.cost) > (a.loss - p.loss) * (b.cost - a.cost)) break;
      hull.pop_back();
    }
    hull.push_back(p);
  }
  return hull;
}

struct Walk {
  std::vector<int> chosen;
  double cost = 0, loss = 0, bound = 0;
};

// The least loss for at most `budget`; `points` [tensor][option]. The least cost is within the budget.
Walk LeastLoss(const std::vector<std::vector<Point>>& points, double budget) {
  Walk walk;
  std::vector<Step> steps;
  for (size_t t = 0; t < points.size(); ++t) {
    const std::vector<Point> hull = Hull(points[t]);
    walk.chosen.push_back(hull.front().option);
    walk.cost += hull.front().cost;
    walk.loss += hull.front().loss;
    for (size_t i = 1; i < hull.size(); ++i)
      steps.push_back({t, hull[i].option, hull[i].cost - hull[i - 1].cost, hull[i - 1].loss - hull[i].loss});
  }
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.gain * b.cost > b.gain * a.cost; });
  size_t next = 0;
  for (; next < steps.size() && walk.cost + steps[next].cost <= budget; ++next) {
    walk.chosen[steps[next].tensor] = steps[next].option;
    walk.cost += steps[next].cost;
    walk.loss -= steps[next].gain;
  }
  walk.bound = next == steps.size() ? walk.loss : walk.loss - steps[next].gain * (budget - walk.cost) / steps[next].cost;
  return walk;
}

// Spends what is left: the single change of a tensor that gains most, as long as one fits.
void SpendRest(const std::vector<std::vector<Point>>& points, double budget, Walk* walk) {
  for (;;) {
    double best = 0;
    Step step;
    for (size_t t = 0; t < points.size(); ++t) {
      const Point& now = points[t][static_cast<size_t>(walk->chosen[t])];
      for (const Point& p : points[t]) {
        if (walk->cost - now.cost + p.cost > budget || now.loss - p.loss <= best) continue;
        best = now.loss - p.loss;
        step = {t, p.option, p.cost - now.cost, best};
      }
    }
    if (best <= 0) return;
    walk->chosen[step.tensor] = step.option;
    walk->cost += step.cost;
    walk->loss -= step.gain;
  }
}

enum class Budget : uint8_t { kBytes, kLoss };

// With a budget of loss the axes change places: cost is loss, and bytes are what is lost.
std::vector<std::vector<Point>> PointsOf(std::span<const TypeOptions> tensors, Budget budget) {
  std::vector<std::vector<Point>> points;
  for (const TypeOptions& options : tensors) {
    SLM_ASSERT(!options.empty());
    std::vector<Point>& to = points.emplace_back();
    for (const TypeOption& o : options) {
      SLM_ASSERT(std::isfinite(o.loss));
      const auto bytes = static_cast<double>(o.bytes);
      const int option = static_cast<int>(to.size());
      to.push_back(budget == Budget::kBytes ? Point{bytes, o.loss, option} : Point{o.loss, bytes, option});
    }
  }
  return points;
}

double LeastCost(const std::vector<std::vector<Point>>& points) {
  double sum = 0;
  for (const std::vector<Point>& options : points)
    sum += std::min_element(options.begin(), options.end(), [](const Point& a, const Point& b) { return a.cost < b.cost; })->cost;
  return sum;
}

Allocation Solve(std::span<const TypeOptions> tensors, const std::vector<std::vector<Point>>& points, double budget) {
  Walk walk = LeastLoss(points, budget);
  SpendRest(points, budget, &walk);
  Allocation a{.chosen = std::move(walk.chosen), .bound = walk.bound};
  for (size_t t = 0; t < tensors.size(); ++t) {
    const TypeOption& o = tensors[t][static_cast<size_t>(a.chosen[t])];
    a.bytes += o.bytes;
    a.loss += o.loss;
  }
  return a;
}

}  // namespace

Result<Allocation> AllocateBytes(std::span<const TypeOptions> tensors, uint64_t most_bytes) {
  const auto points = PointsOf(tensors, Budget::kBytes);
  const double least = LeastCost(points), budget = static_cast<double>(most_bytes);
  if (least > budget)
    return Error(Code::kLimit, fmt::format("the smallest types take {:.0f} bytes, the budget is {}", least, most_bytes),
                 "raise the budget, or allow smaller types");
  return Solve(tensors, points, budget);
}

Result<Allocation> AllocateLoss(std::span<const TypeOptions> tensors, double most_loss) {
  const auto points = PointsOf(tensors, Budget::kLoss);
  const double least = LeastCost(points);
  if (!(least <= most_loss))
    return Error(Code::kLimit, fmt::format("the best types lose {:.6g}, the budget is {:.6g}", least, most_loss),
                 "raise the budget, or allow larger types");
  return Solve(tensors, points, most_loss);
}

}  // namespace slm::quant
