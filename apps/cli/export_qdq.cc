// See export_qdq.h: calibration gives ranges and codes, the exporter the graphs; this file puts them together and writes the folder.
#include "export_qdq.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/threads.h"
#include "export_qdq_manifest.h"
#include "exporter/qdq/qdq.h"
#include "fetch/digest.h"
#include "graph/graph.h"
#include "model/safetensors/writer.h"
#include "onnx/onnx.h"
#include "open_model.h"
#include "output_file.h"
#include "pad_token.h"
#include "progress.h"
#include "quant/static/static.h"
#include "quantize_json.h"
#include "tokenizer_files.h"
#include "work/part_folder.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;

constexpr int kUsualContext = 2048;
constexpr const char* kGenAiFile = "genai_config.json";

// Of a name of kQdqWeights other than f32.
quant::StaticRecipe RecipeOf(const std::string& weights) {
  if (weights == "w8") return quant::NpuRecipe(quant::NpuWeights::kChannel8);
  return quant::NpuRecipe(weights == "w4-channel" ? quant::NpuWeights::kChannel4 : quant::NpuWeights::kBlocks4);
}

// The token that every sequence begins with: the model's begin token, whose keys and values the folder holds. -1: it has none.
int PrefixToken(const model::Model& m) {
  if (!m.config.bos_ids.empty()) return m.config.bos_ids[0];
  return m.tokenizer.bos;
}

class QdqExport {
 public:
  QdqExport(std::shared_ptr<model::Model> m, const QdqRequest& r, Io& io) : m_(std::move(m)), r_(r), io_(io) {}

  Result<int> Run() {
    SLM_RETURN_IF_ERROR(Check());
    SLM_ASSIGN_OR_RETURN(PartFolder part, PartFolder::Create(r_.out));
    SLM_ASSIGN_OR_RETURN(const TokenizerFiles tokenizer, TokenizerFilesOf(*m_));
    if (!tokenizer.note.empty()) notes_.push_back(tokenizer.note);
    SLM_ASSIGN_OR_RETURN(manifest_.source, DigestsOf(*m_, io_));
    if (quantized()) SLM_RETURN_IF_ERROR(Calibrate());
    SLM_ASSIGN_OR_RETURN(const graph::Graph g, graph::BuildDecoder(m_, {.max_context = manifest_.context}));
    SLM_ASSIGN_OR_RETURN(
        const exporter::StaticModel built,
        exporter::BuildStaticModel(g,
                                   {.chunk = r_.chunk,
                                    .decode = r_.decode,
                                    .context = manifest_.context,
                                    .activations = quantized() ? exporter::Activations::kUint16 : exporter::Activations::kFloat,
                                    .keys = r_.keys == "columns" ? exporter::KeyRotation::kColumns : exporter::KeyRotation::kRows,
                                    .range_margin = static_cast<float>(r_.margin)},
                                   calibrated_));
    SLM_RETURN_IF_ERROR(WriteGraphs(built, part));
    SLM_RETURN_IF_ERROR(WriteHost(built, part));
    SLM_RETURN_IF_ERROR(WritePipeline(built, tokenizer, part));
    for (const auto& [name, text] : tokenizer.files) SLM_RETURN_IF_ERROR(WriteTextFile(part.File(name), text, io_));
    manifest_.notes = notes_;
    SLM_RETURN_IF_ERROR(WriteTextFile(
        part.File("manifest.json"),
        ManifestOf(manifest_, *m_, r_, built).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n", io_));
    SLM_RETURN_IF_ERROR(part.Commit());
    Report(built, tokenizer);
    return int{kExitOk};
  }

 private:
  bool quantized() const { return r_.weights != "f32"; }

  Status Check() {
    const int own = m_->config.max_context;
    SLM_RETURN_IF_ERROR(CheckContext(r_.context, own));
    manifest_.context = r_.context > 0 ? r_.context : own > 0 ? std::min(own, kUsualContext) : kUsualContext;
    if (r_.chunk > manifest_.context)
      return Error(Code::kInvalidArgument, fmt::format("--chunk {}: the context is {}", r_.chunk, manifest_.context),
                   "use a smaller chunk");
    if (r_.activation_bits == 8)
      return Error(Code::kUnsupported, "--activations 8: answers of language models do not survive it without training for it",
                   "use 16: accelerators multiply 16-bit activations with 8- and 4-bit weights");
    if (!quantized() && r_.calibration.is_given)
      return Error(Code::kInvalidArgument, "options of calibration, and --weights f32 is not calibrated", "leave them out");
    return Ok();
  }

  Status Calibrate() {
    const quant::StaticRecipe recipe = RecipeOf(r_.weights);
    CalibrationOptions options = r_.calibration;
    if (options.sequences == 0) options.sequences = recipe.how.sequences;
    SLM_ASSIGN_OR_RETURN(quant::CalibrationText text, ReadCalibration(io_, *m_, options));
    const int prefix = PrefixToken(*m_);
    if (prefix >= 0 && prefix < m_->config.vocab_size) {
      for (auto& sequence : text.sequences) BeginWith(prefix, &sequence);
      calibrated_.prefix_tokens = {prefix};
    } else {
      notes_.emplace_back("the model has no begin token: ranges hold what its first tokens make, which can be a thousand times the others");
    }
    SLM_ASSIGN_OR_RETURN(const Isa isa, IsaOfEnvironment(DetectCpu()));
    SLM_ASSIGN_OR_RETURN(const auto team, ThreadTeam::Create(ThreadsOr(r_.n_threads)));
    SLM_RETURN_IF_ERROR(Observe(text, {team.get(), isa}));
    SLM_RETURN_IF_ERROR(Quantize(recipe, text, {team.get(), isa}));
    manifest_.text = std::move(text);
    return Ok();
  }

  quant::StaticWork Work(const quant::Machine& machine, Progress* progress) const {
    return {.machine = machine,
            .cancelled = [this] { return io_.cancelled(); },
            .layer_done = [progress](int layers) { progress->Update(static_cast<uint64_t>(layers)); }};
  }

  Status Observe(const quant::CalibrationText& text, const quant::Machine& machine) {
    Progress progress(io_, "ranges of activations", static_cast<uint64_t>(m_->config.n_layers), Progress::Unit::kSteps);
    SLM_ASSIGN_OR_RETURN(const graph::Graph g, graph::BuildDecoder(m_, {.max_context = static_cast<int>(text.longest())}));
    const int prefix = static_cast<int>(calibrated_.prefix_tokens.size());
    SLM_ASSIGN_OR_RETURN(quant::ActivationSpans spans, quant::ObserveActivations(g, text, prefix, Work(machine, &progress)));
    progress.Finish();
    calibrated_.ranges = std::move(spans.values);
    calibrated_.prefix = std::move(spans.prefix);
    calibrated_.prefix_logits = std::move(spans.prefix_logits);
    return Ok();
  }

  Status Quantize(const quant::StaticRecipe& recipe, const quant::CalibrationText& text, const quant::Machine& machine) {
    Progress progress(io_, "weights", static_cast<uint64_t>(m_->config.n_layers), Progress::Unit::kSteps);
    SLM_ASSIGN_OR_RETURN(quant::StaticMatrices made, quant::QuantizeMatrices(*m_, recipe, &text, Work(machine, &progress)));
    progress.Finish();
    int64_t weights = 0;
    for (const auto& [tensor, m] : made.matrices) weights += m.rows * m.width;
    calibrated_.matrices = std::move(made.matrices);
    notes_.insert(notes_.end(), made.notes.begin(), made.notes.end());
    constexpr int64_t kEnoughForRows = 1'000'000'000, kEnoughForBlocks = 360'000'000;
    if (r_.weights == "w4-channel" && weights < kEnoughForRows)
      notes_.push_back(
          fmt::format("4 bits with one scale a row cost models below a billion weights much of their quality (this one has {} "
                      "million): --weights w8 or w4-g32 cost less",
                      weights / 1'000'000));
    if (r_.weights == "w4-g32" && weights < kEnoughForBlocks)
      notes_.push_back(
          fmt::format("4 bits cost models below 360 million weights a part of their quality (this one has {} million): --weights w8 "
                      "costs less, with almost twice the bytes",
                      weights / 1'000'000));
    return Ok();
  }

  // A file of the folder that `write` gives the bytes of, and its digest.
  template <class F>
  Status WriteFile(const std::string& name, const PartFolder& part, const F& write) {
    const std::string path = part.File(name);
    SLM_ASSIGN_OR_RETURN(OutputFile file, OpenOutput(path, io_));
    Digest digest(DigestKind::kSha256);
    SLM_RETURN_IF_ERROR(write([&](std::span<const std::byte> b) {
      digest.Add({reinterpret_cast<const char*>(b.data()), b.size()});
      return WriteUnlessCancelled(file, b, path, io_);
    }));
    manifest_.files.emplace_back(name, digest.Hex());
    return file.Commit();
  }

  // Both graphs name the same places of one file: their large initializers are the same, in the same order.
  Status WriteGraphs(const exporter::StaticModel& built, const PartFolder& part) {
    const onnx::WriteOptions options{.data_name = kWeightsFile};
    uint64_t first = 0, second = 0;
    SLM_RETURN_IF_ERROR(WriteFile(kWeightsFile, part, [&](const onnx::ByteSink& weights) {
      return WriteFile(exporter::kPrefillFile, part, [&](const onnx::ByteSink& message) {
        return onnx::WriteModel(built.prefill, options, message, [&](std::span<const std::byte> b) {
          first += b.size();
          return weights(b);
        });
      });
    }));
    SLM_RETURN_IF_ERROR(WriteFile(exporter::kDecodeFile, part, [&](const onnx::ByteSink& message) {
      return onnx::WriteModel(built.decode, options, message, [&](std::span<const std::byte> b) {
        second += b.size();
        return Ok();
      });
    }));
    return first == second ? Ok() : Status(Error(Code::kInternal, "prefill and decode have other weights"));
  }

  Status WriteHost(const exporter::StaticModel& built, const PartFolder& part) {
    return WriteFile(kHostFile, part, [&](const onnx::ByteSink& sink) -> Status {
      model::safetensors::FileWriter out;
      for (const exporter::HostTensor& t : built.host) out.Tensor(t.name, t.dtype, t.dims, t.bytes);
      SLM_RETURN_IF_ERROR(out.Begin(sink));
      for (const exporter::HostTensor& t : built.host) {
        host_offsets_[t.name] = out.bytes_written();
        SLM_RETURN_IF_ERROR(t.write([&](std::span<const std::byte> b) { return out.Data(b); }));
      }
      return out.Finish();
    });
  }

  // GenAI evaluates one token of an answer a call.
  Status WritePipeline(const exporter::StaticModel& built, const TokenizerFiles& tokenizer, const PartFolder& part) {
    if (r_.decode != 1) {
      notes_.emplace_back("no genai_config.json: ONNX Runtime GenAI gives a decode graph one token");
      return Ok();
    }
    const exporter::GenAiPipeline made = exporter::BuildGenAiPipeline(built, *m_,
                                                                      {.context = manifest_.context,
                                                                       .chunk = r_.chunk,
                                                                       .pad_token = PadToken(*m_, tokenizer),
                                                                       .host_file = kHostFile,
                                                                       .offsets = host_offsets_});
    const onnx::WriteOptions options{.external_from_bytes = UINT64_MAX, .data_name = kHostFile, .places = made.places};
    const auto none = [](std::span<const std::byte>) { return Ok(); };
    for (const auto& entry : {std::pair{exporter::kPipelineHost, &made.host}, {exporter::kPipelineLogits, &made.logits}}) {
      const onnx::Model& model = *entry.second;
      if (model.graph.nodes.empty()) continue;
      SLM_RETURN_IF_ERROR(
          WriteFile(entry.first, part, [&](const onnx::ByteSink& sink) { return onnx::WriteModel(model, options, sink, none); }));
    }
    return WriteTextFile(part.File(kGenAiFile), made.config, io_);  // without a sum: it is there to be edited
  }

  void Report(const exporter::StaticModel& built, const TokenizerFiles& tokenizer) const {
    ordered_json names = {"manifest.json"};
    for (const auto& [name, sum] : manifest_.files) names.push_back(name);
    if (r_.decode == 1) names.push_back(kGenAiFile);
    for (const auto& file : tokenizer.files) names.push_back(file.first);
    const uint64_t bytes = BytesOf(r_.out);
    const size_t nodes[] = {built.prefill.graph.nodes.size(), built.decode.graph.nodes.size()};
    if (io_.json) {
      io_.PrintJson({{"files", names},
                     {"bytes", bytes},
                     {"nodes", {{"prefill", nodes[0]}, {"decode", nodes[1]}}},
                     {"context", manifest_.context},
                     {"chunk", r_.chunk},
                     {"decode_tokens", r_.decode},
                     {"weights", r_.weights},
                     {"lossless", false},
                     {"notes", notes_}});
      return;
    }
    io_.Note(fmt::format("{}: graphs of {} and {} nodes, {}", r_.out, nodes[0], nodes[1], FormatBytes(bytes)));
    for (const std::string& note : notes_) io_.Note(note);
  }

  const std::shared_ptr<model::Model> m_;
  const QdqRequest& r_;
  Io& io_;
  exporter::Calibrated calibrated_;
  QdqManifest manifest_;
  std::map<std::string, uint64_t> host_offsets_;  // of tensors in the host file
  std::vector<std::string> notes_;
};

}  // namespace

ordered_json QdqRecipeJson(const QdqRequest& r) {
  if (r.weights == "f32")
    return {{"recipe", nullptr}, {"weights", r.weights}, {"key_rotation", r.keys}, {"activations", "float32"}, {"cache", "float32"}};
  const quant::StaticRecipe recipe = RecipeOf(r.weights);
  return {{"recipe", recipe.how.name},
          {"weights", r.weights},
          {"key_rotation", r.keys},
          {"matrices", quant::SchemeName(recipe.body)},
          {"down_projections", quant::SchemeName(recipe.down)},
          {"head", quant::SchemeName(recipe.head)},
          {"codes", recipe.how.gptq ? "gptq" : "refit"},
          {"activations", "uint16"},
          {"cache", "int16"},
          {"ranges", {{"rule", "least and most, prefix left out"}, {"margin", r.margin}}},
          {"sequences", r.calibration.sequences > 0 ? r.calibration.sequences : recipe.how.sequences},
          {"calibration", CalibrationJson(recipe.how)}};
}

Result<int> ExportQdq(std::shared_ptr<model::Model> model, const QdqRequest& request, Io& io) {
  return QdqExport(std::move(model), request, io).Run();
}

}  // namespace slm::cli
