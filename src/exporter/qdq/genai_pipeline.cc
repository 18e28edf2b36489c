// See qdq.h: the pipeline's stages and what passes between them, as genai_config.json says it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "exporter/genai/config.h"
#include "exporter/qdq/pipeline_graphs.h"

namespace slm::exporter {
namespace {
using nlohmann::ordered_json;
using Names = std::vector<std::string>;

class PipelineConfig {
 public:
  PipelineConfig(const StaticModel& built, const model::Model& m, const PipelineFacts& facts, const GenAiPipeline& made)
      : built_(built), m_(m), c_(m.config), f_(facts), made_(made) {}

  // The stages without options of their own take the decoder's: Qualcomm's provider, for which the graphs are.
  std::string Text() const {
    ordered_json qnn = {{"backend_type", "htp"}};
    for (const QnnOption& o : kQnnOptions) qnn[o.key] = o.value;
    const ordered_json window = {{"window_size", f_.chunk}, {"pad_value", 0}, {"alignment", "left"}, {"slide_key_value_cache", false}};
    ordered_json decoder = {
        {"session_options", {{"log_id", "onnxruntime-genai"}, {"provider_options", ordered_json::array({{{"QNN", qnn}}})}}},
        {"head_size", c_.head_dim},
        {"hidden_size", c_.d_model},
        {"num_attention_heads", c_.n_heads},
        {"num_hidden_layers", c_.n_layers},
        {"num_key_value_heads", c_.n_kv_heads},
        {"inputs", {{"input_ids", "input_ids"}, {"past_sequence_length", "past_seq_len"}, {"total_sequence_length", "total_seq_len"}}},
        {"outputs", {{"logits", has_prefix() ? "next_logits" : "logits"}}},
        {"sliding_window", window},
        {"pipeline", ordered_json::array({Stages()})}};
    ordered_json model = {{"type", "decoder-pipeline"}, {"vocab_size", c_.vocab_size}, {"context_length", f_.context}};
    model["decoder"] = std::move(decoder);
    AddEnds(m_, model);
    model["pad_token_id"] = f_.pad_token;
    ordered_json search = GreedySearch(f_.context);
    search["past_present_share_buffer"] = false;
    return ordered_json{{"model", std::move(model)}, {"search", std::move(search)}}.dump(2) + "\n";
  }

 private:
  bool has_prefix() const { return !built_.prefix_tokens.empty(); }

  // Names of keys, then of values, of every layer: "past_", "new_", "cache_", or "" for what a graph gives.
  Names Layers(const std::string& before) const {
    Names out;
    for (const char* kind : {"key", "value"})
      for (int layer = 0; layer < c_.n_layers; ++layer) out.push_back(fmt::format("{}{}.{}", before, kind, layer));
    return out;
  }
  static ordered_json Map(const Names& from, const Names& to) {
    ordered_json out = ordered_json::object();
    for (size_t i = 0; i < from.size(); ++i) out[from[i]] = to[i];
    return out;
  }
  static Names NamesOf(const std::vector<onnx::ValueInfo>& values) {
    Names out;
    for (const onnx::ValueInfo& v : values) out.push_back(v.name);
    return out;
  }

  ordered_json Stages() const {
    const ordered_json cpu = {{"provider_options", ordered_json::array()}};
    ordered_json forward = Map(Layers("cache_"), Layers("past_"));
    forward["next_first"] = "new_first";
    ordered_json stages = {{"host",
                            {{"filename", kPipelineHost},
                             {"session_options", cpu},
                             {"inputs", NamesOf(made_.host.graph.inputs)},
                             {"outputs", NamesOf(made_.host.graph.outputs)},
                             {"output_names_forwarder", std::move(forward)}}}};
    for (const auto& [stage, file, graph] :
         {std::tuple{"prompt", kPrefillFile, &built_.prefill.graph}, {"token", kDecodeFile, &built_.decode.graph}}) {
      const bool prompt = graph == &built_.prefill.graph;
      stages[stage] = {{"filename", file},
                       {"inputs", NamesOf(graph->inputs)},
                       {"outputs", NamesOf(graph->outputs)},
                       {"output_names_forwarder", Map(Layers(""), Layers("new_"))},
                       {"run_on_prompt", prompt},
                       {"run_on_token_gen", !prompt}};
    }
    if (has_prefix())
      stages["logits"] = {{"filename", kPipelineLogits},
                          {"session_options", cpu},
                          {"inputs", NamesOf(made_.logits.graph.inputs)},
                          {"outputs", NamesOf(made_.logits.graph.outputs)}};
    return stages;
  }

  const StaticModel& built_;
  const model::Model& m_;
  const model::ModelConfig& c_;
  const PipelineFacts& f_;
  const GenAiPipeline& made_;
};

}  // namespace

GenAiPipeline BuildGenAiPipeline(const StaticModel& built, const model::Model& m, const PipelineFacts& facts) {
  GenAiPipeline out = BuildPipelineGraphs(built, m.config, facts);
  out.config = PipelineConfig(built, m, facts, out).Text();
  return out;
}

}  // namespace slm::exporter
