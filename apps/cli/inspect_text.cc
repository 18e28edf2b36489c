// InspectText: the report of `slm inspect` for people (declared in inspect_report.h). Reads the JSON document, so that both
// forms can never say different things.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "inspect_report.h"
#include "progress.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;

std::string Line(const char* label, const std::string& text) { return fmt::format("{:<10} {}\n", label, text); }

std::string Text(const ordered_json& j) { return j.is_string() ? j.get<std::string>() : j.is_null() ? "-" : j.dump(); }

// 134.5 M, 1.24 B
std::string Count(int64_t n) {
  const double x = static_cast<double>(n);
  if (n >= 1'000'000'000) return fmt::format("{:.2f} B", x / 1e9);
  if (n >= 1'000'000) return fmt::format("{:.1f} M", x / 1e6);
  if (n >= 1'000) return fmt::format("{:.1f} K", x / 1e3);
  return fmt::format("{}", n);
}

std::string Bytes(const ordered_json& j) { return j.is_number() ? FormatBytes(j.get<uint64_t>()) : "-"; }

std::string Rope(const ordered_json& r) {
  std::string s = fmt::format("base {:g}, {} values a head in {}", r["theta"].get<double>(), r["rotary_dim"].get<int>(),
                              r["pairs"].get<std::string>() == "halves" ? "halves" : "interleaved pairs");
  if (r["scaling"] != "none") s += ", scaling: " + r["scaling"].get<std::string>();
  if (r["factor"].get<double>() != 1) s += fmt::format(", factor {:g}", r["factor"].get<double>());
  if (r["attention_factor"].get<double>() != 1) s += fmt::format(", attention factor {:.4g}", r["attention_factor"].get<double>());
  return s;
}

std::string Config(const ordered_json& c) {
  std::string s = Line("shape", fmt::format("{} layers, width {}, {} heads ({} for keys) of {}, FFN {}, vocabulary {}", Text(c["n_layers"]),
                                            Text(c["d_model"]), Text(c["n_heads"]), Text(c["n_kv_heads"]), Text(c["head_dim"]),
                                            Text(c["d_ff"]), Text(c["vocab_size"])));
  s += Line("context", Text(c["max_context"]) + " tokens");
  const ordered_json& layers = c["layers"];
  std::string kinds = Text(layers["global"]) + " global";
  if (layers["local"] != 0)
    kinds += fmt::format(", {} local with a window of {} tokens", Text(layers["local"]), Text(layers["sliding_window"]));
  if (layers["without_rope"] != 0) kinds += fmt::format(", {} of them without rope", Text(layers["without_rope"]));
  s += Line("layers", kinds);
  s += Line("rope", c["rope"].is_null() ? "by tables of the graph" : Rope(c["rope"]));
  if (!c["rope_local"].is_null()) s += Line("  local", Rope(c["rope_local"]));
  std::string features;
  for (const auto& [key, label] : {std::pair{"tied_head", "tied head"}, {"qkv_bias", "qkv bias"}, {"qk_norm", "qk norm"}})
    if (c[key].get<bool>()) features += (features.empty() ? "" : ", ") + std::string(label);
  return features.empty() ? s : s + Line("features", features);
}

std::string Tokenizer(const ordered_json& t) {
  if (t.is_null()) return Line("tokenizer", "none in the file");
  std::string s = t["kind"].get<std::string>();
  if (t.contains("model"))
    s += fmt::format(" vocabulary: {} ({}), {} tokens, {} merges", Text(t["model"]),
                     t["pre"] == "" ? "no pre-tokenizer named" : Text(t["pre"]), Text(t["n_tokens"]), Text(t["n_merges"]));
  else
    for (const auto& file : t["files"]) s += " " + file.get<std::string>();
  return Line("tokenizer", s) + Line("  ids", "bos " + t["bos_ids"].dump() + ", ends " + t["eos_ids"].dump());
}

std::string Types(const ordered_json& types) {
  std::string s;
  for (const auto& t : types)
    s += fmt::format("{:<10} {:<8} {:>5} tensors {:>9} values {:>10}\n", s.empty() ? "types" : "", Text(t["dtype"]),
                     t["tensors"].get<int64_t>(), Count(t["n_params"].get<int64_t>()), Bytes(t["bytes"]));
  return s;
}

std::string Memory(const ordered_json& m) {
  if (m["context"].is_null()) return {};
  std::string s = Line("memory", "with a context of " + Text(m["context"]) + " tokens");
  s += fmt::format("{:<10} {:>10}\n", "  weights", Bytes(m["weights_bytes"]));
  s += fmt::format("{:<10} {:>10}   (int8: {}, f32: {})\n", "  kv f16", Bytes(m["kv_bytes"]), Bytes(m["kv_bytes_int8"]),
                   Bytes(m["kv_bytes_f32"]));
  s += fmt::format("{:<10} {:>10}   planned for one chunk of a prompt\n", "  compute", Bytes(m["activations_bytes"]));
  return s;
}

std::string Values(const char* label, const ordered_json& values) {
  std::string s;
  for (const auto& v : values) {
    std::string shape;
    for (const auto& d : v["shape"]) shape += (shape.empty() ? "" : ", ") + Text(d);
    s += Line(s.empty() ? label : "",
              fmt::format("{} {} {}", Text(v["name"]), Text(v["type"]), v["shape"].is_null() ? "of any rank" : "[" + shape + "]"));
  }
  return s;
}

// A graph of an ONNX file.
std::string Graph(const ordered_json& g) {
  std::string opsets, operators, external;
  for (const auto& o : g["opsets"])
    opsets += fmt::format("{}{} {}", opsets.empty() ? "" : ", ", o["domain"] == "" ? "ai.onnx" : Text(o["domain"]), Text(o["version"]));
  for (const auto& o : g["operators"]) operators += fmt::format("{}{} {}", operators.empty() ? "" : ", ", Text(o["count"]), Text(o["op"]));
  for (const auto& f : g["external_files"])
    external += fmt::format("{}{} ({})", external.empty() ? "" : ", ", Text(f["name"]), Bytes(f["bytes"]));
  std::string s = Line("graph", fmt::format("{}{}: {} nodes, made by {} {}, IR version {}", Text(g["file"]),
                                            g["role"].is_null() ? "" : " (" + Text(g["role"]) + ")", Text(g["nodes"]),
                                            g["producer"] == "" ? "an unnamed producer" : Text(g["producer"]), Text(g["producer_version"]),
                                            Text(g["ir_version"])));
  s += Line("  opsets", opsets) + Values("  inputs", g["inputs"]) + Values("  outputs", g["outputs"]) + Line("  nodes", operators);
  for (const auto& f : g["functions"]) s += Line("  function", fmt::format("{} of {} nodes", Text(f["name"]), Text(f["nodes"])));
  return external.empty() ? s : s + Line("  data", external);
}

// What genai_config.json says about the shape.
std::string GenAi(const ordered_json& c) {
  return Line("shape",
              fmt::format("{} layers, width {}, {} heads ({} for keys) of {}, vocabulary {}", Text(c["n_layers"]), Text(c["d_model"]),
                          Text(c["n_heads"]), Text(c["n_kv_heads"]), Text(c["head_dim"]), Text(c["vocab_size"]))) +
         Line("context", Text(c["max_context"]) + " tokens");
}

}  // namespace

std::string InspectText(const ordered_json& j) {
  std::string s = Line("model", Text(j["name"]));
  s += Line("file", fmt::format("{} ({}, {})", Text(j["path"]), Text(j["format"]), Bytes(j["file_bytes"])));
  s += Line("arch", Text(j["arch"]));
  if (!j["reason"].is_null()) s += Line("runnable", "no: " + Text(j["reason"]));
  if (!j["config"].is_null()) s += Config(j["config"]);
  else if (j.contains("genai")) s += GenAi(j["genai"]);
  if (!j["bpw"].is_null())
    s += Line("weights", fmt::format("{} parameters, {:.2f} bits each", Count(j["n_params"].get<int64_t>()), j["bpw"].get<double>()));
  s += Types(j["types"]);
  if (j.contains("graphs")) {
    for (const auto& g : j["graphs"]) s += Graph(g);
    if (j["format"] == "onnx" && j["tokenizer"].is_null()) return s + Memory(j["memory"]);
  }
  s += Tokenizer(j["tokenizer"]);
  const ordered_json& t = j["chat_template"];
  s += Line("template", t.is_null() ? "none" : "sha256 " + Text(t["sha256"]) + (t["named"].empty() ? "" : ", also " + t["named"].dump()));
  return s + Memory(j["memory"]);
}

}  // namespace slm::cli
