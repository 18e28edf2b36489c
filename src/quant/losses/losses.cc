// See losses.h.
#include "quant/losses/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <vector>

#include "quant/ggml_blocks.h"
#include "quant/row_sums.h"

namespace slm::quant {
namespace {
using model::Tensor;

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// How the rows of a matrix are kept, and the name of that.
struct Kept {
  StoredForm form;
  std::string name;
  double bits = 0;
};

Result<Kept> KeptOf(const RoundingScheme& s, int64_t width) {
  if (s.dtype != DType::kCount) {
    const DType fitting = FittingType(s.dtype, width);
    return Kept{StoredForm::Of(fitting), Lower(Info(fitting).name),
                8.0 * static_cast<double>(Info(fitting).block_bytes) / Info(fitting).block};
  }
  WeightScheme scheme = s.scheme;
  if (scheme.storage == Storage::kGrid || scheme.storage == Storage::kLpbq) {
    SLM_ASSIGN_OR_RETURN(const GroupChoice choice, ChooseGroup(width, scheme.group));
    scheme.group = choice.group;
  } else if (width % scheme.group != 0) {
    return Error(Code::kUnsupported, fmt::format("{}: a width of {} does not divide into groups of {}", s.name, width, scheme.group),
                 "leave the scheme out");
  }
  StoredForm form =
      scheme.storage == Storage::kGrid ? StoredForm::Of(FormOf(scheme, width, Store::kF16)) : StoredForm::Of(scheme.storage, scheme.group);
  return Kept{form, SchemeName(scheme), BitsPerWeight(scheme, width)};
}

// Each row by itself.
std::vector<RowSums> ByRow(const Tensor& t, const StoredForm& form, Search search, ThreadTeam& team) {
  std::vector<RowSums> sums(static_cast<size_t>(t.dims[0]));
  auto work = [&](int thread, int n_threads) {
    std::vector<float> row(static_cast<size_t>(t.dims[1])), stored(row.size());
    const Range mine = SplitRange(t.dims[0], 1, thread, n_threads);
    for (int64_t i = mine.begin; i < mine.end; ++i) {
      RowSums& s = sums[static_cast<size_t>(i)];
      model::ReadRows(t, i, i + 1, row.data());
      s.power = Squares(row);
      if (!std::isfinite(s.power)) continue;
      StoreRow(form, search, row, nullptr, stored.data());
      s.lost = SquaresLost(row, stored);
    }
  };
  team.Run(work);
  return sums;
}

// With a number that all rows share.
std::vector<RowSums> Whole(const Tensor& t, const StoredForm& form, Search search, ThreadTeam& team) {
  const std::vector<float> w = model::DequantizeAll(t);
  const int64_t rows = t.dims[0], width = t.dims[1];
  std::vector<RowSums> sums(static_cast<size_t>(rows));
  const auto row = [&](int64_t i) { return std::span(w).subspan(static_cast<size_t>(i * width), static_cast<size_t>(width)); };
  for (int64_t i = 0; i < rows; ++i)
    if (!std::isfinite(sums[static_cast<size_t>(i)].power = Squares(row(i)))) return sums;
  const CodedRows coded = QuantizeStored(form, search, w.data(), rows, width, nullptr, team);
  std::vector<float> stored(static_cast<size_t>(width));
  for (int64_t i = 0; i < rows; ++i) {
    coded.Values(i, stored.data());
    sums[static_cast<size_t>(i)].lost = SquaresLost(row(i), stored);
  }
  return sums;
}

}  // namespace

Result<RoundingScheme> ParseRounding(std::string_view name) {
  std::string types;
  for (int i = 0; i < static_cast<int>(DType::kCount); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (Info(dtype).block <= 1 || !CanEncode(dtype)) continue;
    if (Lower(Info(dtype).name) == name) return RoundingScheme{std::string(name), dtype, {}};
    types += Lower(Info(dtype).name) + ", ";
  }
  auto scheme = ParseScheme(name);
  if (scheme.ok()) return RoundingScheme{std::string(name), DType::kCount, scheme.value()};
  return Error(Code::kInvalidArgument, fmt::format("no type or weight scheme '{}'", name), types + scheme.error().hint());
}

double RoundingLoss::error() const { return power > 0 ? std::sqrt(lost / power) : 0.0; }
double RoundingLoss::sqnr_db() const { return lost > 0 ? 10 * std::log10(power / lost) : std::numeric_limits<double>::infinity(); }

bool IsFloatMatrix(const Tensor& t) {
  const bool is_float = t.dtype == DType::kF32 || t.dtype == DType::kF16 || t.dtype == DType::kBF16;
  return t.foreign_type.empty() && !t.grouped && t.packed_bytes == 0 && is_float && t.dims.size() == 2 && t.dims[0] > 0 && t.dims[1] > 0;
}

Result<RoundingLoss> MeasureRounding(const Tensor& t, const RoundingScheme& scheme, Search search, ThreadTeam& team) {
  if (!IsFloatMatrix(t)) return Error(Code::kInvalidArgument, t.name + ": is no matrix of floats");
  auto kept = KeptOf(scheme, t.dims[1]);
  if (!kept.ok()) return kept.error().At(t.name);
  RoundingLoss out{.stored = kept.value().name, .bits = kept.value().bits};
  const bool is_shared = kept.value().form.storage == Storage::kNvFp4;
  const std::vector<RowSums> sums = (is_shared ? Whole : ByRow)(t, kept.value().form, search, team);
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!std::isfinite(sums[i].power))
      return Error(Code::kCorrupt, fmt::format("{}: row {} holds NaN or infinity", t.name, i),
                   "the weights are damaged: fetch or convert the model again");
    if (!std::isfinite(sums[i].lost))
      return Error(Code::kUnsupported, fmt::format("{}: row {} is beyond the range of the f16 scales of {}", t.name, i, out.stored),
                   "no type with f16 scales can hold it");
    out.lost += sums[i].lost;
    out.power += sums[i].power;
  }
  return out;
}

}  // namespace slm::quant
