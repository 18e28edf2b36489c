// See schemes.h.
#include "quant/schemes.h"

#include <fmt/format.h>

#include <charconv>

#include "base/check.h"
#include "quant/fp4.h"
#include "quant/lpbq.h"

namespace slm::quant {
namespace {

struct Kind {
  std::string_view name;
  Scheme grid;
  int extra_bits;  // of a group beside the scale; -1: as many as a code has
};
constexpr Kind kKinds[] = {
    {"sym", Scheme::kSymmetric, 0}, {"full", Scheme::kSignedExtreme, 0}, {"zp", Scheme::kIntegerZero, -1}, {"min", Scheme::kFloatMin, 16}};
constexpr int kLeastGroup = 16, kMostGroup = 256;

const Kind& KindOf(Scheme grid) {
  for (const Kind& k : kKinds)
    if (k.grid == grid) return k;
  SLM_ASSERT(false);
}

bool TakeNumber(std::string_view* text, int* to) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *to);
  if (error != std::errc() || end == text->data()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}
bool Take(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}
bool IsGroup(int n) { return n >= kLeastGroup && n <= kMostGroup && (n & (n - 1)) == 0; }

bool ParseLength(std::string_view text, int* group) {
  *group = 0;
  if (text == "-channel") return true;
  return Take(&text, "-g") && TakeNumber(&text, group) && text.empty() && IsGroup(*group);
}

bool Parse(std::string_view text, WeightScheme* s) {
  if (text == "mxfp4") return *s = {.storage = Storage::kMxFp4, .group = 32}, true;
  if (text == "nvfp4") return *s = {.storage = Storage::kNvFp4, .group = 16}, true;
  if (Take(&text, "lpbq")) {
    s->storage = Storage::kLpbq;
    return ParseLength(text, &s->group) && s->group > 0;
  }
  if (!Take(&text, "w") || !TakeNumber(&text, &s->bits) || s->bits < 2 || s->bits > 8 || !Take(&text, "-")) return false;
  for (const Kind& k : kKinds)
    if (Take(&text, k.name)) {
      s->grid = k.grid;
      return ParseLength(text, &s->group);
    }
  return false;
}

std::string Length(int group) { return group == 0 ? "-channel" : fmt::format("-g{}", group); }

}  // namespace

Result<WeightScheme> ParseScheme(std::string_view name) {
  WeightScheme s;
  if (Parse(name, &s)) return s;
  return Error(Code::kInvalidArgument, fmt::format("no weight scheme '{}'", name),
               "w<2 to 8>-<sym|full|zp|min>-<g16 to g256|channel>, lpbq-g<16 to 256>, mxfp4 or nvfp4: for example w4-zp-g32");
}

std::string SchemeName(const WeightScheme& scheme) {
  switch (scheme.storage) {
    case Storage::kLpbq: return "lpbq" + Length(scheme.group);
    case Storage::kMxFp4: return "mxfp4";
    case Storage::kNvFp4: return "nvfp4";
    case Storage::kGrid: break;
  }
  return fmt::format("w{}-{}{}", scheme.bits, KindOf(scheme.grid).name, Length(scheme.group));
}

Result<GroupChoice> ChooseGroup(int64_t width, int wanted) {
  if (wanted == 0) return GroupChoice{};
  SLM_ASSERT(IsGroup(wanted));
  for (int group = wanted; group >= kLeastGroup; group /= 2)
    if (width % group == 0)
      return GroupChoice{group, group == wanted ? "" : fmt::format("width {} is no multiple of {}: groups of {}", width, wanted, group)};
  return Error(Code::kUnsupported, fmt::format("a width of {} divides into no groups of {} to {}", width, kLeastGroup, wanted),
               "choose a scheme per channel");
}

double BitsPerWeight(const WeightScheme& scheme, int64_t width) {
  const double group = scheme.group == 0 ? static_cast<double>(width) : scheme.group;
  switch (scheme.storage) {
    case Storage::kLpbq: return 4 + 4 / group + 32 / static_cast<double>(width);
    case Storage::kMxFp4:
    case Storage::kNvFp4: return 4 + 8 / group;
    case Storage::kGrid: break;
  }
  const int extra = KindOf(scheme.grid).extra_bits;
  return scheme.bits + (16 + (extra < 0 ? scheme.bits : extra)) / group;
}

BlockForm FormOf(const WeightScheme& scheme, int64_t width, Store store) {
  SLM_ASSERT(scheme.storage == Storage::kGrid);
  return {.scheme = scheme.grid, .bits = scheme.bits, .group = scheme.group == 0 ? static_cast<int>(width) : scheme.group, .store = store};
}

CodedRows QuantizeStored(const StoredForm& form, Search search, const float* w, int64_t rows, int64_t width, const float* u,
                         ThreadTeam& team) {
  const BlockForm& grid = *form.grid;
  if (!form.is_fp4()) return QuantizeGrid(grid, search, w, rows, width, u, team);
  CodedRows out(grid, rows, width);
  const Fp4 kind = Fp4Of(form.storage);
  Fp4Rows q = QuantizeFp4(kind, search, w, rows, width, u, team);
  for (size_t i = 0; i < out.codes.size(); ++i) out.codes[i] = static_cast<uint8_t>(128 + TwiceE2M1(q.codes[i]));
  for (size_t i = 0; i < out.grids.size(); ++i)
    out.grids[i] = {.scale = (kind == Fp4::kMx ? E8M0Value(q.scales[i]) : E4M3Value(q.scales[i]) * q.shared) / 2, .min = 0, .zero = 128};
  out.shared = {{.d = q.shared}};
  return out;
}

void QuantizeRow(Search search, std::span<const float> w, const float* u, int64_t i, CodedRows* out) {
  const BlockForm& form = out->form;
  SLM_ASSERT(static_cast<int64_t>(w.size()) == out->width && out->width % form.width() == 0);
  const auto width = static_cast<size_t>(form.width()), group = static_cast<size_t>(form.group);
  Grid* grids = out->grids.data() + i * (out->width / form.group);
  if (form.row_multiples > 0) ChooseLpbqGrids(form, search, w, u, grids);
  for (size_t at = 0; at < w.size() && form.row_multiples == 0; at += width) {
    const Shared shared = ChooseBlock(form, search, w.subspan(at, width), u ? u + at : nullptr, grids + at / group);
    if (form.is_super()) out->shared[static_cast<size_t>(i) * (w.size() / width) + at / width] = shared;
  }
  uint8_t* codes = out->codes.data() + i * out->width;
  for (size_t at = 0; at < w.size(); at += group) AssignCodes(grids[at / group], form.bits, w.subspan(at, group), nullptr, codes + at);
}

CodedRows QuantizeGrid(const BlockForm& form, Search search, const float* w, int64_t rows, int64_t width, const float* u,
                       ThreadTeam& team) {
  CodedRows out(form, rows, width);
  auto work = [&](int thread, int n_threads) {
    const Range mine = SplitRange(rows, 1, thread, n_threads);
    for (int64_t i = mine.begin; i < mine.end; ++i) QuantizeRow(search, {w + i * width, static_cast<size_t>(width)}, u, i, &out);
  };
  team.Run(work);
  return out;
}

}  // namespace slm::quant
