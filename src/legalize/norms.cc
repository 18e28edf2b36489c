// Normalizations: one operator as another, or in pieces. Formulas after ONNX's LayerNormalization and RMSNormalization, which compute in
// f32 where the values are narrower (stash_type 1), and onnxruntime's docs/ContribOperators.md.
#include "legalize/families.h"
#include "legalize/rewrites.h"

namespace slm::legalize {
namespace {

// The dimensions from the attribute `axis` on.
std::optional<Dims> NormAxes(const Site& s) {
  const auto rank = s.Rank(0);
  const auto first = rank ? FromFront(s.node().Int("axis", -1), *rank) : std::nullopt;
  if (!first) return std::nullopt;
  Dims axes;
  for (int64_t axis = *first; axis < *rank; ++axis) axes.push_back(axis);
  return axes;
}

bool OnlyFirstOutput(const Site& s) {
  for (size_t k = 1; k < s.node().outputs.size(); ++k)
    if (s.Wanted(k)) return false;
  return true;
}

// f32 is what narrower types are computed in.
ElementType Wide(ElementType type) { return type == ElementType::kDouble ? type : ElementType::kFloat; }

enum class Centred : uint8_t { kNo, kYes };

// x / sqrt(mean(x * x) + epsilon), or that of x - mean(x); in the type of x.
std::string Normalized(Builder& b, std::string x, ElementType type, const Dims& axes, double epsilon, Centred centred) {
  const ElementType wide = Wide(type);
  if (wide != type) x = b.Cast(x, wide);
  if (centred == Centred::kYes) {
    const std::string mean = b.Mean(x, axes);
    x = b.Op("Sub", {x, mean});
  }
  const std::string squares = b.Op("Mul", {x, x});
  const std::string mean = b.Mean(squares, axes), small = b.Number(wide, epsilon);
  const std::string root = b.Op("Sqrt", {b.Op("Add", {mean, small})});
  const std::string y = b.Op("Div", {x, root});
  return wide == type ? y : b.Cast(y, type);
}

std::optional<Piece> SkipNorm(const Site& s, const char* norm, size_t bias, size_t beta) {
  // Input order: x, skip, weight, then [beta,] bias; outputs y, mean, factor, sum.
  if (s.node().outputs.empty() || s.node().outputs[0].empty() || s.Wanted(1) || s.Wanted(2)) return std::nullopt;
  if (!s.Rank(0) || !s.Given(2)) return std::nullopt;
  const auto& in = s.node().inputs;
  Builder b(s);
  std::string sum = in[0];
  const bool own = s.node().outputs.size() > 3 && !s.node().outputs[3].empty();
  if (s.Given(bias)) sum = b.Op("Add", {in[0], in[bias]});
  if (own) b.To(3, "Add", {sum, in[1]});
  else sum = b.Op("Add", {sum, in[1]});
  if (own) sum = s.node().outputs[3];
  Names inputs{sum, in[2]};
  if (beta != 0 && s.Given(beta)) inputs.push_back(in[beta]);
  b.To(0, norm, std::move(inputs), {IntAttribute("axis", -1), FloatAttribute("epsilon", s.Float("epsilon", 1e-12))});
  if (beta != 0) b.piece().least_opset = 17;
  return b.Take();
}

std::optional<Piece> Exchange(const Site& s, const char* norm, int64_t least_opset) {
  if (!OnlyFirstOutput(s)) return std::nullopt;
  Builder b(s);
  b.To(0, norm, s.node().inputs, {IntAttribute("axis", s.node().Int("axis", -1)), FloatAttribute("epsilon", s.Float("epsilon", 1e-5))});
  b.piece().least_opset = least_opset;
  return b.Take();
}

std::optional<Piece> InPieces(const Site& s, Centred centred) {
  const auto axes = NormAxes(s);
  const ElementType type = s.Type(0);
  if (!axes || !OnlyFirstOutput(s) || !IsFloating(type) || s.Type(1) != type) return std::nullopt;
  const auto& in = s.node().inputs;
  Builder b(s);
  const std::string x = Normalized(b, in[0], type, *axes, s.Float("epsilon", 1e-5), centred);
  if (!s.Given(2)) b.To(0, "Mul", {x, in[1]});
  else b.To(0, "Add", {b.Op("Mul", {x, in[1]}), in[2]});
  return b.Take();
}

}  // namespace

std::optional<Piece> SkipRmsNorm(const Site& s) { return SkipNorm(s, "SimplifiedLayerNormalization", 3, 0); }
std::optional<Piece> SkipLayerNorm(const Site& s) { return SkipNorm(s, "LayerNormalization", 4, 3); }
std::optional<Piece> RmsNormAsStandard(const Site& s) { return Exchange(s, "RMSNormalization", 23); }
std::optional<Piece> RmsNormAsSimplified(const Site& s) { return Exchange(s, "SimplifiedLayerNormalization", 0); }
std::optional<Piece> RmsNormInPieces(const Site& s) { return InPieces(s, Centred::kNo); }
std::optional<Piece> LayerNormInPieces(const Site& s) { return InPieces(s, Centred::kYes); }

}  // namespace slm::legalize
