// Text, tables and the page around them; the chart is in size_chart.cc. See report_page.h.
#include "gate/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fetch/digest.h"
#include "gate/markup.h"
#include "progress.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;

constexpr std::string_view kDataBegin = "<script type=\"application/json\" id=\"slm-report\">", kDataEnd = "</script>";
constexpr size_t kMostPoints = 200;

const char kStyle[] =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}"
    "table{border-collapse:collapse;width:100%}td,th{padding:.25rem .6rem;border-bottom:1px solid #d8dee4;text-align:left}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}pre{background:#f6f8fa;padding:1rem;overflow:auto}"
    ".passed{color:#1a7f37}.missed{color:#cf222e}svg{width:100%;height:auto}code{word-break:break-all}";

// A value of `o` as text: numbers as JSON has them, strings without quotes, "" when it is missing or null.
std::string Cell(const ordered_json& o, const char* key) {
  const auto it = o.is_object() ? o.find(key) : o.end();
  if (!o.is_object() || it == o.end() || it->is_null()) return {};
  return Escaped(it->is_string() ? it->get<std::string>() : it->dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}
double Number(const ordered_json& o, const char* key) {
  const auto it = o.is_object() ? o.find(key) : o.end();
  return o.is_object() && it != o.end() && it->is_number() ? it->get<double>() : std::nan("");
}
const ordered_json& Part(const ordered_json& o, const char* key) {
  static const ordered_json kNothing = ordered_json::object();
  const auto it = o.is_object() ? o.find(key) : o.end();
  return o.is_object() && it != o.end() ? *it : kNothing;
}

std::string Row(const char* name, const std::string& value) {
  return value.empty() ? std::string() : fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", name, value);
}
std::string Figure(double value, double sigma) {
  return std::isfinite(value) ? fmt::format("{:.6f}", value) + (std::isfinite(sigma) ? fmt::format(" ± {:.6f}", sigma) : "") : "";
}
std::string Rounded(const ordered_json& o, const char* key, int digits) {
  const double value = Number(o, key);
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "";
}
std::string Size(const ordered_json& o, const char* key) {
  const auto it = o.is_object() ? o.find(key) : o.end();
  return o.is_object() && it != o.end() && it->is_number_unsigned() ? FormatBytes(it->get<uint64_t>()) : "";
}
// The same with the exact number behind it.
std::string ExactSize(const ordered_json& o, const char* key) {
  const std::string size = Size(o, key);
  return size.empty() ? size : size + " (" + Cell(o, key) + " bytes)";
}
std::string Code(const std::string& text) { return text.empty() ? text : "<code>" + text + "</code>"; }
std::string Percent(double share) { return std::isfinite(share) ? fmt::format("{:.2f} %", 100 * share) : ""; }

std::string Summary(const ordered_json& run) {
  const ordered_json &source = Part(run, "source"), &file = Part(run, "file"), &machine = Part(run, "machine");
  const ordered_json& text = Part(Part(run, "calibration"), "text");
  std::string s = "<table>\n";
  s += Row("source", Cell(source, "path")) + Row("size of the source", ExactSize(source, "bytes"));
  s += Row("sha256 of the source", Code(Cell(source, "sha256")));
  s += Row("file", Cell(file, "path")) + Row("size", ExactSize(run, "bytes")) + Row("sha256", Code(Cell(file, "sha256")));
  s += Row("bits per weight", Rounded(run, "bpw", 3)) + Row("in the layers", Rounded(run, "body_bpw", 3));
  s += Row("calibration text", Cell(text, "source")) + Row("sha256 of that text", Code(Cell(text, "sha256")));
  s += Row("seconds", Rounded(run, "seconds", 1)) + Row("peak memory", Size(run, "peak_rss_bytes"));
  s += Row("processor", Cell(machine, "cpu")) + Row("kernels", Cell(machine, "isa")) + Row("threads", Cell(machine, "threads"));
  s += Row("program", Cell(machine, "program"));
  return s + "</table>\n";
}

std::string GatePart(const ordered_json& gate) {
  if (gate.empty()) return "<p>The file was not compared with its source.</p>\n";
  const ordered_json &kld = Part(gate, "kld"), &dlnppl = Part(gate, "dlnppl");
  std::string s;
  if (const std::string passed = Cell(gate, "passed"); !passed.empty()) {
    const bool yes = passed == "true";
    s += fmt::format("<p class=\"{}\">{} a mean KLD of at most {}.</p>\n", yes ? "passed" : "missed",
                     yes ? "Passed:" : "Missed:", Cell(gate, "max_kld"));
  }
  s += "<table>\n" + Row("mean KLD, nats a token", Figure(Number(kld, "mean"), Number(kld, "sigma")));
  for (const auto& [name, key] : {std::pair("median", "p50"), {"99 %", "p99"}, {"99.9 %", "p999"}, {"largest", "max"}})
    s += Row(name, Figure(Number(kld, key), std::nan("")));
  s += Row("same top token", Percent(Number(gate, "top1")));
  s += Row("Δ ln PPL", Figure(Number(dlnppl, "mean"), Number(dlnppl, "sigma")));
  s += Row("tokens scored", Cell(gate, "tokens")) + Row("windows", Cell(gate, "windows")) + Row("tokens of a window", Cell(gate, "ctx"));
  s += Row("begin token", Cell(gate, "bos")) + Row("text", Cell(gate, "text")) + Row("sha256 of the text", Code(Cell(gate, "text_sha256")));
  return s + "</table>\n";
}

// What could be had: size of the tensors against expected KLD, and how often each type was chosen.
std::string Allocation(const ordered_json& allocation) {
  if (!allocation.contains("curve")) return {};
  std::string s = "<h2>Types by sensitivity</h2>\n<p>Matrices of the layers:";
  for (const auto& [type, n] : Part(allocation, "types").items()) s += " " + Escaped(n.dump()) + " " + Escaped(type);
  const ordered_json& vocabulary = Part(allocation, "vocabulary");
  for (const auto& [name, type] : vocabulary.items()) s += "; " + Escaped(name) + " " + Cell(vocabulary, name.c_str());
  s += ".</p>\n<table>\n<tr><th class=\"n\">bits in the layers</th><th class=\"n\">size</th><th class=\"n\">expected KLD</th></tr>\n";
  const auto row = [&](const ordered_json& p, const char* mark) {
    s += fmt::format("<tr><td class=\"n\">{:.3f}</td><td class=\"n\">{}</td><td class=\"n\">{:.6f}{}</td></tr>\n", Number(p, "body_bpw"),
                     Size(p, "bytes"), Number(p, "kld"), mark);
  };
  if (const ordered_json& curve = Part(allocation, "curve"); curve.is_array())
    for (const ordered_json& p : curve) row(p, "");
  row(Part(allocation, "expected"), " (this file)");
  return s + "</table>\n";
}

std::string Tensors(const ordered_json& tensors) {
  std::string s =
      "<p>Relative error: of the values themselves. A calibrated recipe spends it where the inputs are small, so it may grow while the "
      "model "
      "loses less. Sensitivity: nats of KLD that a relative error of 1 in the tensor's products would cost, measured with small errors; "
      "expected KLD: what its type costs by that.</p>\n"
      "<table>\n<tr><th>tensor</th><th>from</th><th>to</th><th class=\"n\">size</th><th class=\"n\">relative error</th>"
      "<th class=\"n\">sensitivity</th><th class=\"n\">expected KLD</th></tr>\n";
  if (tensors.is_array())
    for (const ordered_json& t : tensors) {
      const auto figure = [](double x) { return std::isfinite(x) ? fmt::format("{:.6f}", x) : ""; };
      const ordered_json& sensitivity = Part(t, "sensitivity");
      s += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td>", Cell(t, "name"), Cell(t, "from"), Cell(t, "scheme"));
      s += fmt::format("<td class=\"n\">{}</td><td class=\"n\">{}</td>", Size(t, "bytes"), figure(Number(t, "error")));
      s += fmt::format("<td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n", figure(Number(sensitivity, "kld")),
                       figure(Number(sensitivity, "loss")));
    }
  return s + "</table>\n";
}

std::string Data(const PointsKey& key, const std::vector<SizePoint>& points) {
  ordered_json j = {
      {"slm_report", 1}, {"source_sha256", key.source_sha256}, {"text_sha256", key.text_sha256}, {"points", ordered_json::array()}};
  for (const SizePoint& p : points) j["points"].push_back({{"label", p.label}, {"bytes", p.bytes}, {"kld", p.kld}, {"sigma", p.sigma}});
  std::string text;
  for (const char c : j.dump(-1, ' ', true, ordered_json::error_handler_t::replace)) text += c == '<' ? "\\u003c" : std::string(1, c);
  return std::string(kDataBegin) + text + std::string(kDataEnd) + "\n";
}

bool ReadPoint(const ordered_json& o, SizePoint* p) {
  const ordered_json &label = Part(o, "label"), &bytes = Part(o, "bytes");
  if (!label.is_string() || !bytes.is_number_unsigned()) return false;
  *p = {label.get<std::string>(), bytes.get<uint64_t>(), Number(o, "kld"), Number(o, "sigma")};
  return p->label.size() <= 200 && std::isfinite(p->kld) && std::isfinite(p->sigma) && p->kld >= 0 && p->sigma >= 0;
}

}  // namespace

std::string ReportPage(const ordered_json& run, const PointsKey& key, const std::vector<SizePoint>& points) {
  ordered_json recipe;
  for (const char* name : {"recipe", "to", "scheme", "type", "head", "bits", "group", "symmetric", "search", "budget_bpw", "body_bpw_limit",
                           "norms", "allocation", "calibration"})
    if (run.is_object() && run.contains(name)) recipe[name] = run[name];
  std::string s = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>slm quantize: " + Cell(Part(run, "file"), "path") +
                  "</title>\n<style>" + kStyle + "</style>\n<h1>" + Cell(Part(run, "file"), "path") + "</h1>\n";
  s += Summary(run) + "<h2>Against the source</h2>\n" + GatePart(Part(run, "gate"));
  if (!points.empty()) s += "<h2>Size against divergence</h2>\n" + SizeChart(points);
  if (const ordered_json& notes = Part(run, "notes"); notes.is_array() && !notes.empty()) {
    s += "<h2>Notes</h2>\n<ul>\n";
    for (const ordered_json& n : notes) s += "<li>" + Escaped(n.is_string() ? n.get<std::string>() : n.dump()) + "</li>\n";
    s += "</ul>\n";
  }
  s += Allocation(Part(run, "allocation"));
  s += "<h2>Tensors</h2>\n" + Tensors(Part(run, "tensors"));
  s += "<h2>Recipe</h2>\n<pre>" + Escaped(recipe.dump(2, ' ', false, ordered_json::error_handler_t::replace)) + "</pre>\n";
  return s + Data(key, points) + "</html>\n";
}

std::vector<SizePoint> PointsOfPage(std::string_view page, const PointsKey& key) {
  const size_t begin = page.find(kDataBegin);
  if (begin == page.npos) return {};
  page.remove_prefix(begin + kDataBegin.size());
  page = page.substr(0, page.find(kDataEnd));
  constexpr size_t kMostBytes = size_t{1} << 20;
  if (page.size() > kMostBytes) return {};
  const ordered_json j = ordered_json::parse(page.begin(), page.end(), nullptr, false);
  if (!j.is_object() || Part(j, "source_sha256") != key.source_sha256 || Part(j, "text_sha256") != key.text_sha256) return {};
  std::vector<SizePoint> points;
  if (const ordered_json& list = Part(j, "points"); list.is_array())
    for (const ordered_json& o : list)
      if (SizePoint p; points.size() < kMostPoints && ReadPoint(o, &p)) points.push_back(std::move(p));
  return points;
}

}  // namespace slm::cli
