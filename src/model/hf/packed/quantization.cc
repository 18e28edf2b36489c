// See quantization.h. Sources: the configuration classes of AutoAWQ, AutoGPTQ, GPTQModel, compressed-tensors, and transformers' BitNet.
#include "model/hf/packed/quantization.h"

#include <algorithm>

#include "model/hf/keys.h"
#include "model/json.h"
#include "model/quoted.h"

namespace slm::model::hf {
namespace {

using Json = nlohmann::json;
constexpr size_t kConfigLimit = size_t{16} << 20;

Error Unsupported(std::string what, const char* hint) { return Error(Code::kUnsupported, std::move(what), hint); }

// -1 (or null) means one group a row.
Status ReadGroup(const Keys& keys, const char* name, int64_t* group) {
  const Json* v = keys.Find(name);
  if (!v) return Ok();
  if (!v->is_number_integer()) return Keys::Wrong(name, "an integer");
  const int64_t n = v->is_number_unsigned() && v->get<uint64_t>() > INT32_MAX ? INT64_MAX : v->get<int64_t>();
  if (n != -1 && (n < 1 || n > INT32_MAX)) return Keys::Wrong(name, "a number of columns: it is " + v->dump());
  *group = n == -1 ? 0 : n;
  return Ok();
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return text;
}

Status ReadAwq(const Keys& keys, Quantization* q) {
  QuantScheme s{4, 128};
  std::string version = "gemm";
  SLM_RETURN_IF_ERROR(keys.Int("bits", &s.bits));
  SLM_RETURN_IF_ERROR(keys.Int("w_bit", &s.bits));
  SLM_RETURN_IF_ERROR(ReadGroup(keys, "group_size", &s.group));
  SLM_RETURN_IF_ERROR(ReadGroup(keys, "q_group_size", &s.group));
  SLM_RETURN_IF_ERROR(keys.Text("version", &version));
  SLM_RETURN_IF_ERROR(keys.Text("format", &version));
  if (Lower(version) != "gemm") return Unsupported("AWQ layout " + Quoted(version), "supported: gemm; save the model again in it");
  if (s.bits != 4) return Unsupported(fmt::format("AWQ of {} bits", s.bits), "supported: 4");
  q->schemes = {s};
  return Ok();
}

Status ReadGptq(const Keys& keys, Quantization* q) {
  QuantScheme s{4, 128};
  std::string format = "gptq";
  SLM_RETURN_IF_ERROR(keys.Int("bits", &s.bits));
  SLM_RETURN_IF_ERROR(ReadGroup(keys, "group_size", &s.group));
  SLM_RETURN_IF_ERROR(keys.Text("checkpoint_format", &format));
  SLM_RETURN_IF_ERROR(keys.Text("format", &format));
  if (format != "gptq" && format != "gptq_v2")
    return Unsupported("GPTQ checkpoint format " + Quoted(format), "supported: gptq, gptq_v2; save the model again in one of them");
  if (s.bits != 2 && s.bits != 3 && s.bits != 4 && s.bits != 8)
    return Unsupported(fmt::format("GPTQ of {} bits", s.bits), "supported: 2, 3, 4, 8");
  SLM_ASSIGN_OR_RETURN(const Json* dynamic, keys.Object("dynamic"));
  q->any_scheme = dynamic && !dynamic->empty();
  q->zero_offset = format == "gptq" ? 1 : 0;
  q->schemes = {s};
  return Ok();
}

Status CheckFormat(const std::string& format) {
  for (const char* known :
       {"pack-quantized", "int-quantized", "naive-quantized", "mixed-precision", "dense", "nvfp4-pack-quantized", "mxfp4-pack-quantized"})
    if (format == known) return Ok();
  return Unsupported("compressed-tensors format " + Quoted(format),
                     "supported: pack-quantized, int-quantized, naive-quantized, nvfp4-pack-quantized, mxfp4-pack-quantized");
}

Result<QuantScheme> ReadWeightScheme(const Keys& weights) {
  QuantScheme s{8, 0};
  std::string type = "int", strategy;
  SLM_RETURN_IF_ERROR(weights.Int("num_bits", &s.bits));
  SLM_RETURN_IF_ERROR(weights.Text("type", &type));
  SLM_RETURN_IF_ERROR(weights.Text("strategy", &strategy));
  SLM_RETURN_IF_ERROR(ReadGroup(weights, "group_size", &s.group));
  if (type == "float" && s.bits == 4 && (s.group == 16 || s.group == 32)) {
    s.codes = s.group == 16 ? CodeType::kNvFp4 : CodeType::kMxFp4;
    return s;
  }
  if (type != "int")
    return Unsupported(fmt::format("compressed-tensors weights of type {} and {} bits", Quoted(type), s.bits),
                       "supported: int, and float of 4 bits in groups of 16 (NVFP4) or 32 (MXFP4)");
  if (s.bits != 2 && s.bits != 4 && s.bits != 8)
    return Unsupported(fmt::format("compressed-tensors weights of {} bits", s.bits), "supported: 2, 4, 8");
  if (strategy.empty()) strategy = s.group > 0 ? "group" : "tensor";
  if (strategy != "group" && strategy != "channel" && strategy != "tensor")
    return Unsupported("compressed-tensors strategy " + Quoted(strategy), "supported: tensor, channel, group");
  if (strategy == "group" && s.group == 0) return Keys::Wrong("group_size", "there, and strategy \"group\" needs it");
  if (strategy != "group") s.group = 0;
  return s;
}

Status ReadCompressed(const Keys& keys, Quantization* q) {
  std::string format = "dense";
  SLM_RETURN_IF_ERROR(keys.Text("format", &format));
  SLM_RETURN_IF_ERROR(CheckFormat(format));
  SLM_ASSIGN_OR_RETURN(const Json* groups, keys.Object("config_groups"));
  if (!groups) return Keys::Wrong("config_groups", "there");
  for (const auto& [name, value] : groups->items()) {
    const Keys group(value);
    std::string own = format;
    SLM_RETURN_IF_ERROR(group.Text("format", &own));
    SLM_RETURN_IF_ERROR(CheckFormat(own));
    SLM_ASSIGN_OR_RETURN(const Json* weights, group.Object("weights"));
    if (!weights) continue;
    auto scheme = ReadWeightScheme(Keys(*weights));
    if (!scheme.ok()) return scheme.error().At("config_groups." + PrintableUtf8(name, 80));
    q->schemes.push_back(scheme.Take());
  }
  return Ok();
}

Status ReadBitNet(const Keys& keys, Quantization* q) {
  std::string layer = "bitlinear", mode = "offline";
  bool norm = false;
  SLM_RETURN_IF_ERROR(keys.Text("linear_class", &layer));
  SLM_RETURN_IF_ERROR(keys.Text("quantization_mode", &mode));
  SLM_RETURN_IF_ERROR(keys.Bool("use_rms_norm", &norm));
  if (layer != "bitlinear" && layer != "autobitlinear")
    return Unsupported("BitNet layers of class " + Quoted(layer), "supported: bitlinear, autobitlinear");
  if (layer == "autobitlinear" && mode != "offline")
    return Unsupported("BitNet weights that are rounded only while the model runs (quantization_mode " + Quoted(mode) + ")",
                       "use the checkpoint with packed weights, or a GGUF file of the model");
  if (norm) return Unsupported("BitNet layers with norms of their own (use_rms_norm)", "use another checkpoint of the model");
  q->scale_divides = layer == "bitlinear";
  q->schemes = {{2, 0}};
  return Ok();
}

Status ReadKeys(const Json& json, Quantization* q) {
  const Keys keys(json);
  SLM_RETURN_IF_ERROR(keys.Text("quant_method", &q->name));
  const std::string method = Lower(q->name);
  q->method = QuantMethod::kOther;
  if (method == "awq") q->method = QuantMethod::kAwq;
  if (method == "gptq") q->method = QuantMethod::kGptq;
  if (method == "bitnet") q->method = QuantMethod::kBitNet;
  if (method == "compressed-tensors" || method == "compressed_tensors") q->method = QuantMethod::kCompressed;
  if (q->method == QuantMethod::kAwq) return ReadAwq(keys, q);
  if (q->method == QuantMethod::kGptq) return ReadGptq(keys, q);
  if (q->method == QuantMethod::kCompressed) return ReadCompressed(keys, q);
  if (q->method == QuantMethod::kBitNet) return ReadBitNet(keys, q);
  return Ok();
}

// The object that describes the quantization in `file`; null when there is none.
Result<Json> FindKeys(const Folder& folder, const char* file) {
  SLM_ASSIGN_OR_RETURN(const std::string text, folder.Text(file, kConfigLimit));
  if (text.empty()) return Json();
  SLM_ASSIGN_OR_RETURN(Json json, ParseJson(text));
  if (std::string_view(file) != "config.json") return json;
  const Keys root(json);
  SLM_ASSIGN_OR_RETURN(const Json* found, root.Object("quantization_config"));
  if (found) return *found;
  SLM_ASSIGN_OR_RETURN(const Json* inner, root.Object("text_config"));
  if (!inner) return Json();
  SLM_ASSIGN_OR_RETURN(found, Keys(*inner).Object("quantization_config"));
  return found ? *found : Json();
}

}  // namespace

Result<Quantization> ReadQuantization(const Folder& folder) {
  for (const char* file : {"config.json", "quantize_config.json", "quant_config.json"}) {
    auto found = FindKeys(folder, file);
    if (!found.ok()) return found.error().At(file);
    Json json = found.Take();
    if (!json.is_object()) continue;
    if (std::string_view(file) != "config.json" && !json.contains("quant_method"))
      json["quant_method"] = std::string_view(file) == "quant_config.json" ? "awq" : "gptq";
    Quantization q;
    if (Status s = ReadKeys(json, &q); !s.ok()) return s.error().At(file);
    return q;
  }
  return Quantization();
}

}  // namespace slm::model::hf
