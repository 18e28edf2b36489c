// See writing.h. Fields of quantization_config: the configuration classes of AutoAWQ, GPTQModel and compressed-tensors.
#include "model/hf/packed/writing.h"

#include <nlohmann/json.hpp>

#include "model/hf/folder.h"
#include "model/json.h"

namespace slm::model::hf {
namespace {

using nlohmann::ordered_json;
constexpr const char* kSmallFiles[] = {
    "config.json", "generation_config.json", "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
    "merges.txt",  "tokenizer.model",        "added_tokens.json", "chat_template.jinja",   "chat_template.json"};
constexpr size_t kFileLimit = size_t{256} << 20;

ordered_json Inputs(const PackedSpec& s) {
  if (s.inputs == PackedInputs::kFloat) return nullptr;
  const bool dynamic = s.inputs == PackedInputs::kDynamic;
  return {{"num_bits", 8},         {"type", "int"},     {"symmetric", true}, {"strategy", dynamic ? "token" : "tensor"},
          {"group_size", nullptr}, {"dynamic", dynamic}};
}

ordered_json Fp4(const PackedSpec& s) {
  const bool nv = s.codes == CodeType::kNvFp4;
  return {{"num_bits", 4},
          {"type", "float"},
          {"symmetric", true},
          {"strategy", nv ? "tensor_group" : "group"},
          {"group_size", s.group},
          {"dynamic", false},
          {"scale_dtype", nv ? "torch.float8_e4m3fn" : "torch.uint8"},
          {"zp_dtype", nv ? "torch.float8_e4m3fn" : "torch.uint8"}};
}

const char* FormatOf(const PackedSpec& s) {
  if (s.codes != CodeType::kInt) return s.codes == CodeType::kNvFp4 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
  return s.inputs == PackedInputs::kFloat ? "pack-quantized" : "int-quantized";
}

ordered_json Integers(const PackedSpec& s, int bits, int64_t group) {
  return {{"num_bits", bits},
          {"type", "int"},
          {"symmetric", s.symmetric},
          {"strategy", group > 0 ? "group" : "channel"},
          {"group_size", group > 0 ? ordered_json(group) : ordered_json(nullptr)},
          {"dynamic", false},
          {"actorder", s.act_order ? ordered_json("group") : ordered_json(nullptr)}};
}

// Names of modules go before their class, whatever the order of the groups.
ordered_json Compressed(const PackedSpec& s) {
  const auto group = [&](ordered_json targets, ordered_json weights) {
    return ordered_json{{"targets", std::move(targets)},
                        {"weights", std::move(weights)},
                        {"input_activations", Inputs(s)},
                        {"output_activations", nullptr},
                        {"format", FormatOf(s)}};
  };
  ordered_json groups = {
      {"group_0", group(ordered_json::array({"Linear"}), s.codes == CodeType::kInt ? Integers(s, s.bits, s.group) : Fp4(s))}};
  if (s.row_bits > 0) groups["group_1"] = group(s.row_modules, Integers(s, s.row_bits, 0));
  return {{"quant_method", "compressed-tensors"}, {"format", FormatOf(s)},  {"quantization_status", "compressed"},
          {"config_groups", std::move(groups)},   {"ignore", s.left_float}, {"kv_cache_scheme", nullptr}};
}

ordered_json Describe(const PackedSpec& s) {
  const int64_t group = s.group > 0 ? s.group : -1;
  switch (s.format) {
    case PackedFormat::kCompressed: return Compressed(s);
    case PackedFormat::kAwq:
      return {{"quant_method", "awq"}, {"bits", s.bits},    {"group_size", group},
              {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", s.left_float}};
    case PackedFormat::kGptq:
    case PackedFormat::kGptqV2: break;
  }
  return {{"quant_method", "gptq"},
          {"bits", s.bits},
          {"group_size", group},
          {"desc_act", s.act_order},
          {"sym", s.symmetric},
          {"lm_head", false},
          {"checkpoint_format", s.format == PackedFormat::kGptq ? "gptq" : "gptq_v2"}};
}

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> SmallFiles(const std::string& path) {
  SLM_ASSIGN_OR_RETURN(const Folder folder, Folder::Open(path));
  std::vector<std::pair<std::string, std::string>> files;
  for (const char* name : kSmallFiles) {
    SLM_ASSIGN_OR_RETURN(std::string text, folder.Text(name, kFileLimit));
    if (!text.empty()) files.emplace_back(name, std::move(text));
  }
  return files;
}

Result<std::string> PackedConfig(const std::string& config_json, const PackedSpec& spec) {
  SLM_RETURN_IF_ERROR(ParseJson(config_json));  // within limits
  ordered_json json = ordered_json::parse(config_json, nullptr, false);
  if (!json.is_object()) return Error(Code::kCorrupt, "config.json: not a JSON object", "fetch the model again");
  json["quantization_config"] = Describe(spec);
  return json.dump(2) + "\n";
}

}  // namespace slm::model::hf
