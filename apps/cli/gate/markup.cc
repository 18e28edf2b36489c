// See markup.h.
#include "gate/markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "printable.h"

namespace slm::cli {
namespace {

constexpr double kWidth = 760, kHeight = 360, kLeft = 70, kRight = 20, kTop = 20, kBottom = 50;

// From a value to a place on the page.
struct Axis {
  double low, high, from, to;
  double At(double v) const { return from + (std::clamp(v, low, high) - low) / (high - low) * (to - from); }
};

double Decade(double kld) { return std::log10(std::max(kld, 1e-9)); }  // a KLD of 0 has no logarithm

std::string Line(double x0, double y0, double x1, double y1, const char* colour) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>", x0, y0, x1, y1, colour);
}
std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor, Escaped(text));
}

std::string Grid(const Axis& x, const Axis& y) {
  std::string s;
  for (int decade = static_cast<int>(y.low); decade <= static_cast<int>(y.high); ++decade) {
    s += Line(kLeft, y.At(decade), kWidth - kRight, y.At(decade), "#d8dee4");
    s += Text(kLeft - 8, y.At(decade) + 4, "end", fmt::format("{:g}", std::pow(10.0, decade)));
  }
  for (int i = 0; i <= 4; ++i) {
    const double mb = x.low + (x.high - x.low) * i / 4;
    s += Text(x.At(mb), kHeight - kBottom + 18, "middle", fmt::format("{:.1f}", mb));
  }
  s += Text((kLeft + kWidth - kRight) / 2, kHeight - 10, "middle", "size, MB") + Text(8, kTop - 6, "start", "KLD, nats a token");
  return s;
}

// A label's box on the page; the text is drawn on its lower edge.
struct Label {
  double left, right, bottom;
  bool Hits(const Label& o) const { return left < o.right && o.left < right && std::abs(bottom - o.bottom) < kLine; }
  static constexpr double kLine = 13;
};

// The height nearest to the wished one where the label covers none before it, above or below in whole lines; the wished one when all
// are taken.
double FreeHeight(Label wished, std::vector<Label>& taken) {
  const double at = wished.bottom;
  for (int i = 0; i < 40; ++i) {
    wished.bottom = at + Label::kLine * (i % 2 != 0 ? -(i + 1) / 2 : i / 2);
    const bool inside = wished.bottom > kTop && wished.bottom < kHeight - kBottom;
    if (inside && std::none_of(taken.begin(), taken.end(), [&](const Label& o) { return wished.Hits(o); })) break;
    if (i == 39) wished.bottom = at;
  }
  taken.push_back(wished);
  return wished.bottom;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : Printable(text, Show::kLines)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string SizeChart(const std::vector<SizePoint>& points) {
  double most_mb = 0, low = 9, high = -9;
  for (const SizePoint& p : points) {
    most_mb = std::max(most_mb, static_cast<double>(p.bytes) / 1e6);
    low = std::min(low, std::floor(Decade(p.kld)));
    high = std::max(high, std::ceil(Decade(p.kld + p.sigma)));
  }
  const Axis x{0, std::max(most_mb * 1.15, 1e-3), kLeft, kWidth - kRight};
  const Axis y{low, std::max(high, low + 1), kHeight - kBottom, kTop};
  std::string s = fmt::format("<svg viewBox=\"0 0 {} {}\" font-size=\"12\" role=\"img\">", kWidth, kHeight) + Grid(x, y);
  std::vector<Label> taken;
  for (const SizePoint& p : points) {
    const bool last = &p == &points.back();
    const char* colour = last ? "#cf222e" : "#0969da";
    const double cx = x.At(static_cast<double>(p.bytes) / 1e6);
    s += Line(cx, y.At(Decade(std::max(0.0, p.kld - p.sigma))), cx, y.At(Decade(p.kld + p.sigma)), colour);
    s += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>", cx, y.At(Decade(p.kld)), last ? 5 : 4, colour);
    const bool before = cx > kWidth * 0.75;  // there is more room on the left
    const double width = 7.0 * static_cast<double>(p.label.size()), at = before ? cx - 8 : cx + 8;
    const Label wished{before ? at - width : at, before ? at : at + width, y.At(Decade(p.kld)) - 6};
    s += Text(at, FreeHeight(wished, taken), before ? "end" : "start", p.label);
  }
  return s + "</svg>\n";
}

}  // namespace slm::cli
