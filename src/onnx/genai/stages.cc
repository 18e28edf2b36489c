// See stages.h. The key names are those of onnxruntime-genai's src/config.h.
#include "onnx/genai/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/quoted.h"

namespace slm::onnx {
namespace {

using model::Quoted;
using model::hf::Keys;
using nlohmann::json;

constexpr const char* kHint = "the folder is damaged or not made by ONNX Runtime GenAI: export or fetch it again";
constexpr size_t kMostStages = 256;  // a model of 4 billion parameters is split in ten at most
constexpr size_t kMostNames = 65536;

Error Corrupt(std::string message) { return Error(Code::kCorrupt, std::move(message), kHint); }

// The keys of the pipeline's objects as they stand in the text: a parsed object no longer has an order.
std::vector<std::string> StageNames(std::string_view text) {
  constexpr const char* kWay[] = {"model", "decoder", "pipeline"};
  constexpr size_t kDepth = 5;  // of the names: behind the three objects, the list and its object
  std::vector<std::string> at(kDepth + 1), names;
  const auto key = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key || depth < 1 || static_cast<size_t>(depth) > kDepth) return true;
    at[static_cast<size_t>(depth)] = parsed.get<std::string>();
    if (static_cast<size_t>(depth) == kDepth && std::equal(std::begin(kWay), std::end(kWay), at.begin() + 1)) names.push_back(at[kDepth]);
    return true;
  };
  const json whole = json::parse(text, key, /*allow_exceptions=*/false);
  return whole.is_discarded() ? std::vector<std::string>() : names;
}

Status Names(const Keys& part, const char* which, std::vector<std::string>* out) {
  SLM_ASSIGN_OR_RETURN(const json* list, part.List(which));
  if (!list) return Ok();
  if (list->size() > kMostNames) return Error(Code::kLimit, fmt::format("\"{}\" has {} names", which, list->size()), kHint);
  std::set<std::string> known;
  for (const json& name : *list) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty()) return Keys::Wrong(which, "a list of names");
    out->push_back(name.get<std::string>());
    if (!known.insert(out->back()).second) return Corrupt(fmt::format("\"{}\" names {} twice", which, Quoted(out->back())));
  }
  return Ok();
}

Result<GenAiStage> StageOf(const std::string& name, const json& object) {
  if (!object.is_object()) return Keys::Wrong("pipeline", "a list of objects of objects");
  const Keys part(object);
  GenAiStage s;
  s.name = name;
  SLM_RETURN_IF_ERROR(part.Text("filename", &s.file));
  if (s.file.empty()) return Corrupt("no \"filename\"");
  SLM_RETURN_IF_ERROR(Names(part, "inputs", &s.inputs));
  SLM_RETURN_IF_ERROR(Names(part, "outputs", &s.outputs));
  SLM_RETURN_IF_ERROR(part.Bool("run_on_prompt", &s.on_prompt));
  SLM_RETURN_IF_ERROR(part.Bool("run_on_token_gen", &s.on_token));
  SLM_ASSIGN_OR_RETURN(const json* forward, part.Object("output_names_forwarder"));
  if (!forward) return s;
  const std::set<std::string> outputs(s.outputs.begin(), s.outputs.end());
  for (const auto& [from, to] : forward->items()) {
    if (!to.is_string() || to.get_ref<const std::string&>().empty()) return Keys::Wrong("output_names_forwarder", "an object of names");
    if (!outputs.contains(from)) return Corrupt("\"output_names_forwarder\" names " + Quoted(from) + ", which is no output of the stage");
    s.forwarded[from] = to.get<std::string>();
  }
  return s;
}

}  // namespace

Result<std::vector<GenAiStage>> ReadStages(const Keys& decoder, std::string_view text) {
  std::vector<GenAiStage> stages;
  SLM_ASSIGN_OR_RETURN(const json* pipeline, decoder.List("pipeline"));
  if (!pipeline) return stages;
  std::map<std::string, const json*> objects;
  size_t n = 0;
  for (const json& some : *pipeline) {  // [{"context": {…}}, …]
    if (!some.is_object()) return Keys::Wrong("pipeline", "a list of objects");
    n += some.size();
    for (const auto& [name, object] : some.items())
      if (!objects.emplace(name, &object).second) return Corrupt("two stages of the pipeline are called " + Quoted(name));
  }
  if (n > kMostStages) return Error(Code::kLimit, fmt::format("a pipeline of {} stages; {} at most", n, kMostStages), kHint);
  const std::vector<std::string> names = StageNames(text);
  for (const std::string& name : names) {
    const auto object = objects.find(name);
    if (object == objects.end() || names.size() != n)
      return Corrupt("stages of the pipeline that are called the same, or a pipeline that stands twice");
    auto stage = StageOf(name, *object->second);
    if (!stage.ok()) return stage.error().At("stage " + Quoted(name));
    stages.push_back(stage.Take());
  }
  if (stages.size() != n) return Corrupt("stages of the pipeline that are called the same, or a pipeline that stands twice");
  return stages;
}

}  // namespace slm::onnx
