#include "calibration_text.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <vector>

#include "base/splitmix64.h"
#include "checks.h"
#include "fetch/digest.h"
#include "open_model.h"
#include "read_input.h"
#include "text/text.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;

// The same order with every library, which std::shuffle does not promise.
template <class T>
void Shuffle(SplitMix64& draws, std::vector<T>* v) {
  for (size_t i = v->size(); i > 1; --i) std::swap((*v)[i - 1], (*v)[draws.Next() % i]);
}

class Reader {
 public:
  Reader(const model::Model& m, const text::Tokenizer& tokenizer, const std::string& name) : m_(m), tokenizer_(tokenizer), name_(name) {}

  Result<Tokens> Plain(std::string_view text) const { return tokenizer_.Encode(text, text::SpecialTokens::kPlain, text::AddBosEos::kNo); }

  // The tokens of every line.
  Result<std::vector<Tokens>> Lines(std::string_view text) {
    std::vector<Tokens> all;
    for (int line = 1; !text.empty(); ++line) {
      const size_t end = text.find('\n');
      const std::string_view one = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
      if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      auto tokens = Line(one);
      if (!tokens.ok()) return tokens.error().At(fmt::format("{}: line {}", name_, line));
      all.push_back(tokens.Take());
    }
    return all;
  }

 private:
  Result<Tokens> Line(std::string_view line) {
    const auto json = ordered_json::parse(line, nullptr, false);
    if (json.is_object()) {
      if (const auto text = json.find("text"); text != json.end() && text->is_string()) return Plain(text->get_ref<const std::string&>());
      if (const auto messages = json.find("messages"); messages != json.end() && messages->is_array()) return Chat(*messages);
    }
    return Error(Code::kCorrupt, "not a JSON object with \"text\" or \"messages\"",
                 "write {\"text\": \"…\"} or {\"messages\": [{\"role\": \"user\", \"content\": \"…\"}]}, one a line");
  }

  Result<Tokens> Chat(const ordered_json& messages) {
    for (size_t i = 0; i < messages.size(); ++i)
      for (const char* key : {"role", "content"})
        if (!messages[i].is_object() || !messages[i].contains(key) || !messages[i][key].is_string())
          return Error(Code::kCorrupt, fmt::format("message {}: no object with a string \"{}\"", i, key),
                       "write {\"role\": \"user\", \"content\": \"…\"}");
    if (m_.tokenizer.chat_template.empty()) return WithoutTemplate(messages);
    if (!template_) {
      SLM_ASSIGN_OR_RETURN(template_, text::ChatTemplate::FromSource(m_.tokenizer.chat_template));
    }
    ordered_json vars = {{"add_generation_prompt", false}};
    const std::pair<const char*, text::TokenId> own[] = {{"bos_token", tokenizer_.bos()}, {"eos_token", tokenizer_.eos()}};
    for (const auto& [key, id] : own)
      if (id != text::kNoToken) vars[key] = std::string(tokenizer_.TokenBytes(id));
    const std::string list = messages.dump(), settings = vars.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    SLM_ASSIGN_OR_RETURN(const text::ChatPrompt prompt,
                         template_->RenderPrompt({.messages = list, .tools = {}, .vars = settings}, tokenizer_));
    return tokenizer_.EncodePrompt(prompt.text, prompt.plain, text::AddBosEos::kNo);
  }
  // A base model: the turns as paragraphs.
  Result<Tokens> WithoutTemplate(const ordered_json& messages) const {
    std::string text;
    for (const auto& m : messages) text += m["content"].get<std::string>() + "\n\n";
    return Plain(text);
  }

  const model::Model& m_;
  const text::Tokenizer& tokenizer_;
  const std::string& name_;
  std::optional<text::ChatTemplate> template_;
};

// Cuts `all` into sequences of `length` tokens and draws `sequences` of them at most.
std::vector<Tokens> Cut(const Tokens& all, const Tokens& prefix, int length, int sequences, SplitMix64& draws) {
  constexpr size_t kShortest = 16;
  const size_t body = static_cast<size_t>(length) - std::min(prefix.size(), static_cast<size_t>(length) - 1);
  std::vector<size_t> starts;
  for (size_t at = 0; at + std::min(body, kShortest) <= all.size(); at += body) starts.push_back(at);
  if (starts.size() > 1 && all.size() - starts.back() < body) starts.pop_back();
  Shuffle(draws, &starts);
  starts.resize(std::min(starts.size(), static_cast<size_t>(sequences)));
  std::vector<Tokens> out;
  for (const size_t at : starts) {
    Tokens& s = out.emplace_back(prefix);
    s.insert(s.end(), all.begin() + static_cast<int64_t>(at), all.begin() + static_cast<int64_t>(std::min(at + body, all.size())));
  }
  return out;
}

bool EndsWith(const std::string& s, std::string_view end) {
  return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

void BeginWith(int32_t token, Tokens* sequence) {
  if (!sequence->empty() && sequence->front() == token) return;
  sequence->insert(sequence->begin(), token);
  if (sequence->size() > 2) sequence->pop_back();
}

void AddCalibration(CLI::App& app, CalibrationOptions& o) {
  const auto add = [&](CLI::Option* option) {
    option->group("Calibration")->each([&o](const std::string&) { o.is_given = true; });
    return option;
  };
  add(app.add_option("--calib", o.file,
                     "text to calibrate on: plain text, or .jsonl lines of {\"text\"} or {\"messages\"} (default: built in)"))
      ->check(FileName());
  add(app.add_option("--calib-seqs", o.sequences, "sequences drawn from it at most (default: 32, best: 128)"))
      ->check(CLI::Range(1, 1 << 16));
  add(app.add_option("--calib-tokens", o.length, "tokens of a sequence (default: 512, at most the model's context)"))
      ->check(CLI::Range(16, 1 << 16));
  add(app.add_option("--seed", o.seed, "of the draw"))->check(Seed())->capture_default_str();
}

Result<quant::CalibrationText> CalibrationFrom(std::string_view text, CalibrationForm form, const std::string& name, const model::Model& m,
                                               const CalibrationOptions& options) {
  auto tokenizer = BuildTokenizer(m.tokenizer);
  if (!tokenizer.ok()) return tokenizer.error().At(m.path);
  constexpr int kUsual = 512;
  const int context = m.config.max_context > 0 ? m.config.max_context : kUsual;
  if (options.length > context)
    return Error(Code::kLimit, fmt::format("--calib-tokens {}: the model's context is {}", options.length, context), "ask for fewer");
  const int length = options.length > 0 ? options.length : std::min(kUsual, context);
  quant::CalibrationText out;
  out.source = name;
  out.seed = options.seed;
  out.sha256 = Sha256Of(text);
  SplitMix64 draws(options.seed);
  Reader reader(m, tokenizer.value(), name);
  Tokens all;
  if (form == CalibrationForm::kText) {
    SLM_ASSIGN_OR_RETURN(all, reader.Plain(text));
  } else {
    SLM_ASSIGN_OR_RETURN(auto lines, reader.Lines(text));
    Shuffle(draws, &lines);
    for (const Tokens& line : lines) all.insert(all.end(), line.begin(), line.end());
  }
  const auto prefix = tokenizer.value().prefix();
  out.sequences = Cut(all, Tokens(prefix.begin(), prefix.end()), length, options.sequences, draws);
  // Such a model is prompted with the token and without, and what is fitted to inputs without it can be far off where the token makes
  // massive activations: in 4 bits, Qwen2.5-Coder-0.5B had twice the divergence behind it.
  if (const auto begin = tokenizer.value().bos(); prefix.empty() && begin != text::kNoToken)
    for (size_t i = 0; i < out.sequences.size(); i += 2) BeginWith(begin, &out.sequences[i]);
  if (out.sequences.empty())
    return Error(Code::kInvalidArgument, fmt::format("{}: {} tokens are too few to calibrate on", name, all.size()), "give a longer text");
  return out;
}

Result<quant::CalibrationText> ReadCalibration(const Io& io, const model::Model& m, const CalibrationOptions& options) {
  if (options.file.empty()) return CalibrationFrom(CalibrationMix(), CalibrationForm::kLines, "built-in", m, options);
  SLM_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(io, options.file));
  const auto form = EndsWith(options.file, ".jsonl") ? CalibrationForm::kLines : CalibrationForm::kText;
  return CalibrationFrom(text, form, options.file, m, options);
}

}  // namespace slm::cli
