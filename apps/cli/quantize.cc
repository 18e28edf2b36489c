// slm quantize: a float model as a GGUF file of four to eight bits, and what each tensor lost.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "calibration_text.h"
#include "checks.h"
#include "folder_as_gguf.h"
#include "gate/outcome.h"
#include "open_model.h"
#include "output_file.h"
#include "quant/quant.h"
#include "quantize_folder.h"
#include "quantize_json.h"
#include "quantize_losses.h"
#include "quantize_run.h"
#include "rotated_gguf.h"
#include "store.h"
#include "telemetry/telemetry.h"
#include "verb.h"

namespace slm::cli {
namespace {
using nlohmann::ordered_json;

struct QuantizeOptions {
  std::string source, out, recipe = "fast", to = "gguf", type, head, search, fold, weights, codes, inputs, memory, scheme, activations,
                           ranges, rotate;
  std::vector<std::string> types, losses;
  int bits = 0, group = 0, n_threads = 0;
  double bpw = 0, body_bpw = -1, most_energy = -1, damping = 0;
  bool requantize = false, print_recipe = false, symmetric = false;
  CalibrationOptions calibration;
  GateOptions gate;
  std::string report;  // page to write; empty: none
};

struct TypeChoice {
  const char* name;
  DType dtype;
  int group;  // values that share a scale; 0: none do
};
constexpr TypeChoice kTypes[] = {{"q4_0", DType::kQ4_0, 32}, {"q4_1", DType::kQ4_1, 32},   {"q5_0", DType::kQ5_0, 32},
                                 {"q5_1", DType::kQ5_1, 32}, {"q8_0", DType::kQ8_0, 32},   {"q4_k", DType::kQ4_K, 32},
                                 {"q6_k", DType::kQ6_K, 16}, {"mxfp4", DType::kMXFP4, 32}, {"f16", DType::kF16, 0}};
// Types that sensitivity chooses among: even grids, whose errors a measurement with one of them tells for all.
bool IsEven(const TypeChoice& t) { return t.dtype != DType::kMXFP4; }
enum class Listed : uint8_t { kAll, kEven };
std::vector<std::string> TypeNames(Listed listed) {
  std::vector<std::string> names;
  for (const TypeChoice& t : kTypes)
    if (listed == Listed::kAll || IsEven(t)) names.emplace_back(t.name);
  return names;
}
const TypeChoice& TypeNamed(const std::string& name) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeChoice& t) { return name == t.name; });
}
// The recipe with the types that sensitivity chooses among: without --type all, with it those that are no smaller, --types names them. It
// takes a calibrated recipe, and a type that leaves something to choose or a budget.
Result<quant::Recipe> WithTypes(const QuantizeOptions& o, quant::Recipe r) {
  const bool is_named = !o.type.empty() || o.bits != 0, has_budget = o.bpw > 0 || o.body_bpw > 0;
  const bool allocates = r.calibrated() && (has_budget || (!is_named && (o.body_bpw != 0 || o.gate.max_kld)));
  if (!o.types.empty() && !allocates)
    return Error(Code::kInvalidArgument, "--types: nothing chooses among them",
                 "add --recipe default or best, and --bpw, --body-bpw or --max-kld; leave --type out");
  if (!allocates) return r;
  const auto bits = [](DType t) { return static_cast<double>(Info(t).block_bytes) / Info(t).block; };
  for (const TypeChoice& t : kTypes) {
    const bool listed = o.types.empty() || std::find(o.types.begin(), o.types.end(), t.name) != o.types.end();
    if (t.group > 0 && IsEven(t) && listed && (!is_named || bits(t.dtype) >= bits(r.body))) r.types.push_back(t.dtype);
  }
  if (r.types.empty() && !o.types.empty())
    return Error(Code::kInvalidArgument, "--types: none of them is a type of blocks", "name types of 4 to 8 bits");
  if (r.types.empty()) return r;  // --type f16
  if (o.gate.max_kld && !is_named && !has_budget) r.most_kld = o.gate.max_kld;
  if (o.body_bpw < 0 && (o.bpw > 0 || r.most_kld)) r.body_bpw = 0;  // the usual limit is no budget of its own
  r.measures_vocabulary = o.head.empty() && (o.bpw > 0 || r.most_kld);
  return r;
}

// What the options change of the search and of calibration.
void ChangeSteps(const QuantizeOptions& o, quant::Recipe* r) {
  if (!o.search.empty()) r->search = o.search == "rtn" ? quant::Search::kNearest : quant::Search::kRefit;
  if (!o.fold.empty()) r->fold = o.fold == "awq";
  r->smooth = o.fold == "smooth" || (o.fold.empty() && r->fold && (o.activations == "dynamic" || o.activations == "static"));
  if (!o.weights.empty()) r->weighted = o.weights == "inputs";
  if (!o.codes.empty()) r->gptq = o.codes != "nearest";
  if (!o.codes.empty()) r->signround = o.codes == "signround";
  r->rotate = o.rotate == "hadamard";
  if (!o.inputs.empty()) r->inputs = o.inputs == "stored" ? quant::LayerInputs::kStored : quant::LayerInputs::kFloat;
  if (o.damping > 0) r->damping = o.damping;
  if (o.most_energy >= 0) r->most_energy = o.most_energy;
}

FolderRequest RequestOf(const QuantizeOptions& o, const quant::Recipe& recipe, const std::string& source) {
  return {.to = o.to,
          .out = o.out,
          .source = source,
          .memory = o.memory,
          .report = o.report,
          .scheme = o.scheme,
          .activations = o.activations,
          .ranges = o.ranges,
          .bits = o.bits,
          .group = o.group,
          .symmetric = o.symmetric,
          .requantize = o.requantize,
          .recipe = recipe,
          .gate = o.gate};
}

// The recipe with what the options change.
Result<quant::Recipe> RecipeOf(const QuantizeOptions& o) {
  const auto& all = quant::Recipes();
  quant::Recipe r = *std::find_if(all.begin(), all.end(), [&](const quant::Recipe& one) { return one.name == o.recipe; });
  constexpr std::pair<int, const char*> kOfBits[] = {{4, "q4_k"}, {5, "q5_1"}, {6, "q6_k"}, {8, "q8_0"}};
  std::string type = o.type.empty() ? LowerName(r.body) : o.type;
  for (const auto& [bits, name] : kOfBits)
    if (o.bits == bits) type = name;
  const TypeChoice& body = TypeNamed(type);
  if (r.grids == quant::WeightGrids::kNpu && !IsFolderFormat(o.to))
    return Error(Code::kInvalidArgument, "--recipe npu: a GGUF file holds no LPBQ blocks, and no rows of 8 bits beside them",
                 "add --to compressed-tensors for a folder; slm export --to qdq writes graphs with this recipe");
  if (IsFolderFormat(o.to)) {
    if (!o.type.empty() || !o.head.empty() || o.bpw > 0 || o.body_bpw >= 0 || !o.types.empty())
      return Error(Code::kInvalidArgument, "--type, --types, --head, --bpw and --body-bpw are of --to gguf",
                   "folders take --bits, --group and --sym");
    if (!o.scheme.empty() && (o.bits != 0 || o.group != 0 || o.symmetric))
      return Error(Code::kInvalidArgument, "--scheme, and --bits, --group or --sym", "the scheme names them all");
    if (!o.rotate.empty())
      return Error(Code::kInvalidArgument, "--rotate is of --to gguf", "rotate to a float GGUF file: other formats take folders");
    ChangeSteps(o, &r);
    SLM_RETURN_IF_ERROR(CheckFolderRequest(RequestOf(o, r, o.source)));
    return r;
  }
  if (!o.scheme.empty() || !o.activations.empty() || !o.ranges.empty() || o.fold == "smooth")
    return Error(Code::kInvalidArgument, "--scheme, --activations, --ranges and --fold smooth are of folders",
                 "name a folder's format with --to; GGUF files have --type");
  if (o.bits == 2 || o.bits == 3 || o.symmetric)
    return Error(Code::kInvalidArgument, "--sym, 2 and 3 bits are of folders", "name a --type, or a folder's format with --to");
  if (o.group != 0 && o.group != body.group)
    return Error(Code::kInvalidArgument, fmt::format("--group {}: {} has groups of {}", o.group, type, body.group),
                 "GGUF has groups of 16 (q6_k) and of 32 (the others)");
  r.body = body.dtype;
  if (!o.head.empty()) r.head = TypeNamed(o.head).dtype;
  ChangeSteps(o, &r);
  r.bpw = o.bpw;
  if (o.body_bpw >= 0) r.body_bpw = o.body_bpw;
  r.body_bpw_is_wish = o.body_bpw < 0;
  return WithTypes(o, std::move(r));
}

Status CheckMemory(const QuantizeOptions& o, const model::Model& m, const quant::Plan& plan, const quant::WriteOptions& w) {
  if (o.memory.empty()) return Ok();
  SLM_ASSIGN_OR_RETURN(const uint64_t limit, ParseBytes(o.memory));
  const auto memory = telemetry::ReadProcessMemory();
  const uint64_t resident = memory.ok() ? memory.value().rss_bytes : 0, need = resident + quant::NeedBytes(m, plan, w);
  if (need > limit)
    return Error(
        Code::kLimit, fmt::format("--mem {}: {} bytes are needed ({} of them are resident now)", o.memory, need, resident),
        plan.recipe.calibrated() ? "raise --mem, or calibrate on less: --calib-seqs, --calib-tokens" : "raise --mem or use fewer threads");
  if (const uint64_t peak = memory.ok() ? memory.value().peak_rss_bytes : 0; plan.recipe.calibrated() && peak > limit)
    return Error(Code::kLimit, fmt::format("--mem {}: reading the calibration text took {} bytes", o.memory, peak),
                 "raise --mem, or give a shorter text");
  return Ok();
}

// Of the run's point on the chart.
std::string LabelOf(const QuantizeRun& run) {
  const quant::Recipe& r = run.plan.recipe;
  return r.allocates() ? fmt::format("{} {:.2f} bits", r.name, run.plan.body_bpw()) : r.name + " " + LowerName(r.body);
}

Status CheckOutputs(const QuantizeOptions& o, const std::string& source) {
  SLM_RETURN_IF_ERROR(RefuseModelFile(o.out, source, Neighbours::kShards));
  for (const std::string& out : {o.out, o.report})
    for (const std::string& text : {o.calibration.file, o.gate.text}) SLM_RETURN_IF_ERROR(RefuseInput(out, text));
  if (o.report.empty()) return Ok();
  SLM_ASSIGN_OR_RETURN(const std::string page, PlaceOf(o.report));  // before hours of work, not after
  std::error_code failed;
  const auto folder = std::filesystem::absolute(page, failed).parent_path();
  if (!std::filesystem::is_directory(folder, failed))
    return Error(Code::kInvalidArgument, "--report " + o.report + ": there is no folder " + folder.string(),
                 "make it, or give another path");
  if (o.report == o.out) return Error(Code::kInvalidArgument, o.out + ": is the model to be written", "give --report another path");
  return RefuseModelFile(o.report, source, Neighbours::kSameExtension);
}

Result<int> Quantize(const QuantizeOptions& o, Io& io) {
  if (!o.losses.empty()) {
    if (o.source.empty() || !o.out.empty())
      return Error(Code::kInvalidArgument, "--losses measures a SRC and writes nothing", "name the source, and leave -o out");
    return ReportLosses({o.source, o.losses, o.search == "rtn" ? quant::Search::kNearest : quant::Search::kRefit, ThreadsOr(o.n_threads)},
                        io);
  }
  SLM_ASSIGN_OR_RETURN(const quant::Recipe recipe, RecipeOf(o));
  if (!recipe.calibrated() && (o.calibration.is_given || o.damping > 0 || o.most_energy >= 0 || !o.inputs.empty()))
    return Error(Code::kInvalidArgument, "options of calibration, and a run that is not calibrated: " + recipe.name,
                 "add --recipe default or best with one of its steps (--weights inputs, --fold awq, --codes gptq), or leave them out");
  if (o.print_recipe) {
    io.Print((IsFolderFormat(o.to) ? FolderRecipeJson(RequestOf(o, recipe, o.source)) : RecipeJson(recipe)).dump(2) + "\n");
    return int{kExitOk};
  }
  if (o.source.empty() || o.out.empty()) return Error(Code::kInvalidArgument, "a SRC and -o DST are needed", "slm quantize --help");
  const int64_t start = NowNs();
  SLM_ASSIGN_OR_RETURN(const std::string path, ResolveModel(io, o.source));
  SLM_ASSIGN_OR_RETURN(auto m, model::LoadModel(path));
  SLM_RETURN_IF_ERROR(CheckOutputs(o, path));
  if (m->format == "hf" && !IsFolderFormat(o.to)) {
    SLM_ASSIGN_OR_RETURN(m, FolderAsGguf(std::move(m), o.out, io));
  }
  SLM_ASSIGN_OR_RETURN(const Isa isa, IsaOfEnvironment(DetectCpu()));
  std::optional<quant::CalibrationText> text;
  if (recipe.calibrated()) {
    CalibrationOptions calibration = o.calibration;
    if (calibration.sequences == 0) calibration.sequences = recipe.sequences;
    SLM_ASSIGN_OR_RETURN(text, ReadCalibration(io, *m, calibration));
  }
  HeldOut held_out;
  if (!o.gate.off) {
    SLM_ASSIGN_OR_RETURN(held_out, OpenHeldOut(o.gate, *m, text ? text->sha256 : ""));
  }
  if (recipe.rotate) {
    SLM_ASSIGN_OR_RETURN(m, RotatedGguf(*m, o.out, isa, ThreadsOr(o.n_threads), io));
  }
  m->ReleaseVocabulary();
  const quant::WriteOptions w{.n_threads = ThreadsOr(o.n_threads),
                              .progress = {},
                              .layer_done = {},
                              .cancelled = [&io] { return io.cancelled(); },
                              .text = text ? &*text : nullptr,
                              .isa = isa,
                              .work = nullptr};
  if (IsFolderFormat(o.to)) {
    FolderRequest request = RequestOf(o, recipe, path);
    request.text = std::move(held_out);
    return QuantizeToFolder(*m, request, w, start, io);
  }
  const auto source = o.requantize ? quant::SourceTypes::kAny : quant::SourceTypes::kFloatOnly;
  SLM_ASSIGN_OR_RETURN(quant::Plan plan, quant::PlanTensors(*m, recipe, source));
  SLM_RETURN_IF_ERROR(CheckMemory(o, *m, plan, w));
  QuantizeRun run{.out = o.out,
                  .source = path,
                  .memory = o.memory,
                  .gate = o.gate,
                  .m = *m,
                  .plan = std::move(plan),
                  .options = w,
                  .calibration = text,
                  .start_ns = start,
                  .text = std::move(held_out)};
  SLM_RETURN_IF_ERROR(WriteQuantized(run, io));
  const ordered_json result = ResultJson(run);
  if (!o.report.empty()) SLM_RETURN_IF_ERROR(WriteReport(io, {o.report, o.out, path, LabelOf(run), w.n_threads}, result));
  if (io.json) io.PrintJson(result);
  else PrintResult(run, result, io);
  return int{run.verdict && !run.verdict->passed() ? kExitGate : kExitOk};
}

}  // namespace

Body DeclareQuantize(CLI::App& app, Io& io) {
  auto o = std::make_shared<QuantizeOptions>();
  app.add_option("SRC", o->source, "path of a float GGUF file or Hugging Face folder, or a name in the store");
  app.add_option("-o,--out", o->out, "file to write, or folder");
  std::vector<std::string> recipes;
  for (const quant::Recipe& r : quant::Recipes()) recipes.push_back(r.name);
  app.add_option("--recipe", o->recipe,
                 "fast: no calibration; default: calibrated, minutes; best: more steps, longer; npu: folders with what "
                 "accelerators of integers take")
      ->capture_default_str()
      ->check(CLI::IsMember(recipes));
  std::vector<std::string> to = FolderFormats();
  to.insert(to.begin(), "gguf");
  app.add_option("--to", o->to, "gguf: one file that llama.cpp reads too; the others: a Hugging Face folder with packed weights")
      ->capture_default_str()
      ->check(CLI::IsMember(to));
  auto* type =
      app.add_option(
             "--type", o->type,
             "type of the layers' matrices (default: by sensitivity when calibrated; else q4_k, q4_1 where 256 does not divide the width)")
          ->check(CLI::IsMember(TypeNames(Listed::kAll)));
  app.add_option("--bits", o->bits, "the same as a number: 4 q4_k, 5 q5_1, 6 q6_k, 8 q8_0; folders: 4, 8, of gptq also 2 and 3")
      ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}))
      ->excludes(type);
  app.add_option("--group", o->group, "values that share a scale: what the type has; of folders any (default 32), -1: one scale a row")
      ->check(CLI::Range(-1, 1 << 20));
  app.add_option(
      "--scheme", o->scheme,
      "folders: bits, grid and group by name, such as w4-zp-g32, w8-sym-channel; compressed-tensors also lpbq-g32, mxfp4, nvfp4");
  app.add_option(
         "--activations", o->activations,
         "compressed-tensors: inputs of the layers' matrices as 8-bit integers, dynamic: a scale a token; static: one from calibration")
      ->check(CLI::IsMember({"float", "dynamic", "static"}));
  app.add_option(
         "--ranges", o->ranges,
         "of static activations, without tokens that act as sinks (default: minmax); measured: what gives the layer the least error")
      ->check(CLI::IsMember({"minmax", "percentile", "mse", "entropy", "measured"}));
  app.add_option("--head", o->head,
                 "type of embedding and head (default: by sensitivity with --bpw or --max-kld when calibrated; else q8_0)")
      ->check(CLI::IsMember(TypeNames(Listed::kAll)));
  app.add_option("--search", o->search, "rtn: scales from the range; refit: searched for the least square error (default)")
      ->check(CLI::IsMember({"rtn", "refit"}));
  app.add_option("--bpw", o->bpw, "budget, bits per weight of all tensors; when calibrated, types are chosen by sensitivity under it")
      ->check(NumberIn(1, 32));
  app.add_option("--body-bpw", o->body_bpw,
                 "the same of the layers' matrices; not calibrated, only of types that stand in for q4_k; 0: no limit (default: 4.7)")
      ->check(NumberIn(0, 32));
  app.add_option("--types", o->types, "that a calibrated recipe may choose among for each matrix (default: all but f16)")
      ->delimiter(',')
      ->check(CLI::IsMember(TypeNames(Listed::kEven)))
      ->excludes(type);
  app.add_option("--rotate", o->rotate, "hadamard: turn the residual stream and value heads first, which changes no logits; none")
      ->check(CLI::IsMember({"hadamard", "none"}));
  AddCalibration(app, o->calibration);
  const char* group = "Calibration";
  app.add_option("--fold", o->fold,
                 "awq: factors from inputs into what comes before, where the layer gains; smooth: such that rounded activations gain; none")
      ->check(CLI::IsMember({"awq", "smooth", "none"}))
      ->group(group);
  app.add_option("--weights", o->weights, "inputs: errors count as the inputs say; equal: all the same")
      ->check(CLI::IsMember({"inputs", "equal"}))
      ->group(group);
  app.add_option(
         "--codes", o->codes,
         "gptq: that make up for each other's errors, where the products gain; signround: then moved by signed gradients; nearest: each "
         "for itself")
      ->check(CLI::IsMember({"gptq", "signround", "nearest"}))
      ->group(group);
  app.add_option("--inputs", o->inputs, "of layers: float, or stored: as the rounded layers before them compute them")
      ->check(CLI::IsMember({"float", "stored"}))
      ->group(group);
  app.add_option("--damping", o->damping, "of gptq, in means of the diagonal")->check(NumberIn(1e-6, 10))->group(group);
  app.add_option("--most-energy", o->most_energy, "of a token, in medians of its sequence; more counts less; 0: no limit")
      ->check(NumberIn(0, 1e9))
      ->group(group);
  app.add_option("--losses", o->losses,
                 "writes nothing: what each of these types and schemes loses of every float matrix of SRC, whatever its architecture")
      ->delimiter(',');
  AddMemory(app, o->memory);
  AddThreads(app, o->n_threads);
  AddGate(app, o->gate);
  app.add_option("--report", o->report, "page to write (HTML): errors of the tensors, size against divergence, recipe, sums");
  app.add_flag("--sym", o->symmetric, "folders: values symmetric around 0, without zero points");
  app.add_flag("--requantize", o->requantize, "accept a source that is already quantized, and lose again");
  app.add_flag("--print-recipe", o->print_recipe, "prints the recipe with all choices, as JSON, and ends");
  app.footer(
      "Example:\n  slm quantize model-f32.gguf -o model-q4.gguf --max-kld 0.05 --report q4.html\n  slm eval model-q4.gguf ppl --text "
      "wiki.txt");
  return [o, &io] { return Quantize(*o, io); };
}

}  // namespace slm::cli
