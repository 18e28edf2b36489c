// Activations: GELU in its three forms, SiLU, and powers. Formulas after ONNX's Gelu and Swish, and onnxruntime's docs/ContribOperators.md.
#include <cmath>
#include <numbers>

#include "legalize/families.h"
#include "legalize/rewrites.h"

namespace slm::legalize {

bool IsFloating(ElementType type) {
  return onnx::IsElementType(static_cast<int64_t>(type)) && onnx::Info(type).kind == onnx::ElementKind::kFloating &&
         onnx::Info(type).bits >= 16;
}

namespace {

// x times half of (1 + f).
void HalfOnePlus(Builder& b, const std::string& x, const std::string& f, ElementType type) {
  const std::string half = b.Op("Mul", {x, b.Number(type, 0.5)});
  const std::string one = b.Op("Add", {f, b.Number(type, 1)});
  b.To(0, "Mul", {half, one});
}

void TanhGelu(Builder& b, const std::string& x, ElementType type) {
  const std::string cube = b.Op("Mul", {b.Op("Mul", {x, x}), x});
  const std::string inner = b.Op("Add", {x, b.Op("Mul", {cube, b.Number(type, 0.044715)})});
  const std::string scaled = b.Op("Mul", {inner, b.Number(type, std::sqrt(2 / std::numbers::pi))});
  HalfOnePlus(b, x, b.Op("Tanh", {scaled}), type);
}

// x sigmoid(alpha x)
std::optional<Piece> SigmoidGate(const Site& s, double alpha) {
  if (!IsFloating(s.Type(0))) return std::nullopt;
  Builder b(s);
  const std::string& x = s.node().inputs[0];
  const std::string scaled = alpha == 1 ? x : b.Op("Mul", {x, b.Number(s.Type(0), alpha)});
  b.To(0, "Mul", {x, b.Op("Sigmoid", {scaled})});
  return b.Take();
}

}  // namespace

std::optional<Piece> GeluInPieces(const Site& s) {
  const ElementType type = s.Type(0);
  if (!IsFloating(type)) return std::nullopt;
  Builder b(s);
  const std::string& x = s.node().inputs[0];
  if (s.Text("approximate", "none") == "tanh") {
    TanhGelu(b, x, type);
  } else {
    const std::string scaled = b.Op("Mul", {x, b.Number(type, 1 / std::numbers::sqrt2)});
    HalfOnePlus(b, x, b.Op("Erf", {scaled}), type);
  }
  return b.Take();
}

std::optional<Piece> GeluAsStandard(const Site& s) {
  Builder b(s);
  b.To(0, "Gelu", {s.node().inputs[0]});
  b.piece().least_opset = 20;
  return b.Take();
}

std::optional<Piece> FastGeluAsStandard(const Site& s) {
  Builder b(s);
  std::string x = s.node().inputs[0];
  if (s.Given(1)) x = b.Op("Add", {x, s.node().inputs[1]});
  b.To(0, "Gelu", {x}, {TextAttribute("approximate", "tanh")});
  b.piece().least_opset = 20;
  return b.Take();
}

// Erf of x / sqrt 2, halves and products.
std::optional<Piece> BiasGeluInPieces(const Site& s) {
  const ElementType type = s.Type(0);
  if (!IsFloating(type) || !s.Given(1)) return std::nullopt;
  Builder b(s);
  const std::string x = b.Op("Add", {s.node().inputs[0], s.node().inputs[1]});
  HalfOnePlus(b, x, b.Op("Erf", {b.Op("Mul", {x, b.Number(type, 1 / std::numbers::sqrt2)})}), type);
  return b.Take();
}

std::optional<Piece> BiasGeluAsStandard(const Site& s) {
  if (!s.Given(1)) return std::nullopt;
  Builder b(s);
  b.To(0, "Gelu", {b.Op("Add", {s.node().inputs[0], s.node().inputs[1]})});
  b.piece().least_opset = 20;
  return b.Take();
}

std::optional<Piece> FastGeluInPieces(const Site& s) {
  if (!IsFloating(s.Type(0))) return std::nullopt;
  Builder b(s);
  std::string x = s.node().inputs[0];
  if (s.Given(1)) x = b.Op("Add", {x, s.node().inputs[1]});
  TanhGelu(b, x, s.Type(0));
  return b.Take();
}

std::optional<Piece> QuickGeluInPieces(const Site& s) { return SigmoidGate(s, s.Float("alpha", 1.702)); }
std::optional<Piece> SwishInPieces(const Site& s) { return SigmoidGate(s, s.Float("alpha", 1)); }

std::optional<Piece> PowAsProducts(const Site& s) {
  const ElementType type = s.Type(0);
  const auto exponent = s.Given(1) ? s.Number(s.node().inputs[1]) : std::nullopt;
  const auto rank = s.Rank(1);
  if (!IsFloating(type) || !exponent || !rank || *rank > s.Rank(0).value_or(0)) return std::nullopt;
  Builder b(s);
  const std::string& x = s.node().inputs[0];
  if (*exponent == 2) b.To(0, "Mul", {x, x});
  else if (*exponent == 3) b.To(0, "Mul", {b.Op("Mul", {x, x}), x});
  else if (*exponent == 0.5) b.To(0, "Sqrt", {x});
  else if (*exponent == -0.5) b.To(0, "Reciprocal", {b.Op("Sqrt", {x})});
  else if (*exponent == -1) b.To(0, "Reciprocal", {x});
  else return std::nullopt;
  return b.Take();
}

std::optional<Piece> ReciprocalAsDiv(const Site& s) {
  if (!IsFloating(s.Type(0))) return std::nullopt;
  Builder b(s);
  b.To(0, "Div", {b.Number(s.Type(0), 1), s.node().inputs[0]});
  return b.Take();
}

std::optional<Piece> DivAsReciprocal(const Site& s) {
  if (!IsFloating(s.Type(0)) || !s.Given(1)) return std::nullopt;
  Builder b(s);
  b.To(0, "Mul", {s.node().inputs[0], b.Op("Reciprocal", {s.node().inputs[1]})});
  return b.Take();
}

}  // namespace slm::legalize
