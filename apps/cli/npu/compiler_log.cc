// See compiler_log.h.
#include "npu/compiler_log.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "model/quoted.h"

namespace slm::cli {
namespace {

constexpr size_t kMostText = 2000;      // bytes of a message that are kept
constexpr size_t kMostComplaints = 16;  // lines

// Without colours and control characters.
std::string OneLine(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("\x1b[")) {
      i += 2;
      while (i < text.size() && (text[i] == ';' || (text[i] >= '0' && text[i] <= '9'))) ++i;  // up to the letter that ends it
      continue;
    }
    plain += static_cast<unsigned char>(text[i]) < ' ' ? ' ' : text[i];
  }
  while (plain.ends_with(' ')) plain.pop_back();
  return model::PrintableUtf8(plain, kMostText);
}

// What follows `key` in `line`; nothing when it is not there.
std::optional<std::string_view> After(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + key.size());
}

std::optional<double> NumberAfter(std::string_view line, std::string_view key) {
  const auto rest = After(line, key);
  if (!rest) return std::nullopt;
  double x = 0;
  const auto [end, failed] = std::from_chars(rest->data(), rest->data() + rest->size(), x);
  return failed == std::errc() && x >= 0 && x < 1e15 ? std::optional(x) : std::nullopt;
}

// Without the places in OpenVINO's source that the message came through: "Exception from FILE:LINE: Exception from …".
std::string_view WithoutPlaces(std::string_view text) {
  constexpr std::string_view kFrom = "Exception from ";
  while (text.starts_with(kFrom)) {
    const size_t end = text.find(": ");
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 2);
  }
  return text;
}

void ReadOwnLine(std::string_view line, CompilerLog& log) {
  constexpr std::string_view kError = "error ";
  const size_t colon = line.find(": ");
  if (colon == std::string_view::npos) return;
  const std::string_view key = line.substr(0, colon), text = line.substr(colon + 2);
  if (key == "openvino") log.openvino = OneLine(text);
  if (key == "compiler") log.compiler = OneLine(text);
  if (!key.starts_with(kError) || !log.step.empty()) return;
  log.step = OneLine(key.substr(kError.size()));
  log.error = OneLine(WithoutPlaces(text));
}

// "[ERROR] 15:51:52.146 [vpux-compiler] Failed Pass …" from the name of the part on; without the time the same failure reads the same.
std::optional<std::string_view> Complaint(std::string_view line) {
  const auto rest = After(line, "[ERROR] ");
  if (!rest) return std::nullopt;
  const size_t part = rest->find('[');
  return part == std::string_view::npos ? *rest : rest->substr(part);
}

bool IsSeparator(char c) { return c == '_' || c == '/' || c == '.' || c == '?' || c == ':'; }

}  // namespace

CompilerLog ReadCompilerLog(std::string_view text) {
  CompilerLog log;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    constexpr std::string_view kOwn = "npu_compile ";
    if (line.starts_with(kOwn)) {
      ReadOwnLine(line.substr(kOwn.size()), log);
      continue;
    }
    if (const auto us = NumberAfter(line, "Estimated inference latency: ")) {
      log.latency_us = us;
      log.mhz = NumberAfter(line, "dpu frequency ");
    }
    const auto complaint = Complaint(line);
    if (!complaint || log.complaints.size() == kMostComplaints) continue;
    std::string said = OneLine(*complaint);
    if (std::find(log.complaints.begin(), log.complaints.end(), said) == log.complaints.end()) log.complaints.push_back(std::move(said));
  }
  return log;
}

std::vector<NamedNode> NodesIn(const std::string& message, const onnx::Graph& graph, size_t most) {
  std::map<std::string_view, const onnx::Node*> names;
  for (const onnx::Node& n : graph.nodes) {
    if (!n.name.empty()) names.emplace(n.name, &n);
    for (const std::string& out : n.outputs)
      if (!out.empty()) names.emplace(out, &n);
  }
  std::vector<NamedNode> found;
  std::vector<const onnx::Node*> seen;
  size_t at = 0;
  while ((at = message.find('"', at)) != std::string::npos && found.size() < most) {
    const size_t end = std::min(message.find('"', at + 1), message.size());
    const std::string_view quoted = std::string_view(message).substr(at + 1, end - at - 1);
    at = end + 1;
    // The longest name that the quoted text begins with, up to a character that begins what was put behind it.
    for (size_t n = quoted.size(); n > 0; --n) {
      if (n < quoted.size() && !IsSeparator(quoted[n])) continue;
      const auto it = names.find(quoted.substr(0, n));
      if (it == names.end()) continue;
      const onnx::Node& node = *it->second;
      if (std::find(seen.begin(), seen.end(), &node) == seen.end()) {
        seen.push_back(&node);
        found.push_back({node.name.empty() ? std::string(it->first) : node.name, node.op_type});
      }
      break;
    }
  }
  return found;
}

}  // namespace slm::cli
