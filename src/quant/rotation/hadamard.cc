// See hadamard.h.
#include "quant/rotation/hadamard.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/splitmix64.h"

namespace slm::quant {
namespace {

using Signs = std::vector<int8_t>;

bool IsPrime(int64_t q) {
  for (int64_t d = 2; d * d <= q; ++d)
    if (q % d == 0) return false;
  return q > 2;
}

// chi(i): 1 for squares modulo q, -1 for the others, 0 for 0.
std::vector<int8_t> Residues(int64_t q) {
  std::vector<int8_t> chi(static_cast<size_t>(q), int8_t{-1});
  for (int64_t i = 1; i < q; ++i) chi[static_cast<size_t>(i * i % q)] = 1;
  chi[0] = 0;
  return chi;
}

// [q + 1][q + 1]: 0 on the diagonal, `corner` in the first column below it, 1 in the first row, chi(i - j) elsewhere.
std::vector<int8_t> Conference(int64_t q, int8_t corner) {
  const std::vector<int8_t> chi = Residues(q);
  const int64_t n = q + 1;
  std::vector<int8_t> c(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      int8_t& to = c[static_cast<size_t>(i * n + j)];
      if (i == j) to = 0;
      else if (i == 0) to = 1;
      else if (j == 0) to = corner;
      else to = chi[static_cast<size_t>((i - j + q) % q)];
    }
  return c;
}

// q + 1 for q = 3 modulo 4: I + S with S skew.
Signs PaleyOne(int64_t q) {
  Signs h = Conference(q, -1);
  for (int64_t i = 0; i <= q; ++i) h[static_cast<size_t>(i * (q + 1) + i)] = 1;
  return h;
}

// 2 (q + 1) for q = 1 modulo 4: each entry of the symmetric C becomes a block of four.
Signs PaleyTwo(int64_t q) {
  const std::vector<int8_t> c = Conference(q, 1);
  const int64_t m = q + 1, n = 2 * m;
  Signs h(static_cast<size_t>(n * n));
  constexpr int8_t kOff[2][2] = {{1, 1}, {1, -1}}, kOn[2][2] = {{1, -1}, {-1, -1}};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const int8_t of = c[static_cast<size_t>(i / 2 * m + j / 2)];
      h[static_cast<size_t>(i * n + j)] = static_cast<int8_t>(i / 2 == j / 2 ? kOn[i % 2][j % 2] : of * kOff[i % 2][j % 2]);
    }
  return h;
}

// Empty: none.
Signs Find(int64_t n) {
  if (n == 1) return {1};
  if (n % 2 != 0) return {};
  if (const Signs half = Find(n / 2); !half.empty()) {
    Signs h(static_cast<size_t>(n * n));
    const int64_t m = n / 2;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const int8_t of = half[static_cast<size_t>(i % m * m + j % m)];
        h[static_cast<size_t>(i * n + j)] = static_cast<int8_t>(i >= m && j >= m ? -of : of);
      }
    return h;
  }
  if (n % 4 == 0 && (n - 1) % 4 == 3 && IsPrime(n - 1)) return PaleyOne(n - 1);
  if (n % 4 == 0 && (n / 2 - 1) % 4 == 1 && IsPrime(n / 2 - 1)) return PaleyTwo(n / 2 - 1);
  return {};
}

}  // namespace

Result<std::vector<int8_t>> HadamardSigns(int64_t n) {
  constexpr int64_t kMost = 1 << 15;
  Signs h = n > 0 && n <= kMost ? Find(n) : Signs();
  if (h.empty())
    return Error(Code::kUnsupported, fmt::format("no Hadamard matrix of order {} is known here", n), "quantize without rotation");
  return h;
}

Result<std::vector<float>> RandomHadamard(int64_t n, uint64_t seed) {
  SLM_ASSIGN_OR_RETURN(const Signs h, HadamardSigns(n));
  std::vector<float> column(static_cast<size_t>(n)), out(h.size());
  const auto size = static_cast<float>(1 / std::sqrt(static_cast<double>(n)));
  SplitMix64 draw(seed);
  for (float& c : column) c = draw.Next() >> 63 ? -size : size;
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(h[i]) * column[i % column.size()];
  return out;
}

}  // namespace slm::quant
