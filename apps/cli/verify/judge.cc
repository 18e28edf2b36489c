// See judge.h.
#include "verify/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "read_input.h"
#include "verify/golden_file.h"
#include "verify/measure.h"

namespace slm::cli {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

enum class Verdict : unsigned char { kPassed, kFailed, kSkipped };
constexpr const char* kVerdictNames[] = {"passed", "failed", "skipped"};

struct Judged {
  Verdict verdict = Verdict::kPassed;
  std::string reason;
  GoldenRun measured;
  const char* name() const { return kVerdictNames[static_cast<size_t>(verdict)]; }
};

Judged Failed(std::string why, GoldenRun measured = {}) { return {Verdict::kFailed, std::move(why), std::move(measured)}; }

// What was measured against what was recorded.
Judged Compare(const VerifyOptions& o, const GoldenArtefact& a, GoldenRun m, double limit_ms) {
  if (m.match.mean_kld > a.max_kld) return Failed(fmt::format("KLD {:.6f} is more than {:.6f}", m.match.mean_kld, a.max_kld), m);
  if (m.same_top() < a.least_same_top)
    return Failed(fmt::format("same top token {:.1f} %, less than {:.1f} %", 100 * m.same_top(), 100 * a.least_same_top), m);
  if (o.no_latency) return {Verdict::kPassed, "", std::move(m)};
  if (DetectCpu().brand != a.cpu || m.isa != a.isa || m.n_threads != a.n_threads)
    return {Verdict::kPassed, fmt::format("time not judged: recorded on {}, {}, {} threads", a.cpu, a.isa, a.n_threads), std::move(m)};
  if (m.p95_ms > limit_ms)
    return Failed(fmt::format("95 % of the steps in {:.2f} ms, more than {:.2f} ms ({:.2f} recorded, {:.0f} % allowed)", m.p95_ms, limit_ms,
                              a.p95_ms, 100 * o.slack),
                  m);
  return {Verdict::kPassed, "", std::move(m)};
}

// The verdict on one artefact; an error only when the user interrupts.
Result<Judged> JudgeArtefact(Io& io, const VerifyOptions& o, const std::string& folder, const GoldenFile& file, const GoldenArtefact& a) {
  if (a.sha256.empty()) return Failed("was not recorded: slm verify --record");
  const std::string path = folder + "/" + a.path;
  const auto id = IdentityOf(path);
  if (io.cancelled()) return Error(Code::kCancelled, "interrupted");
  if (!id.ok()) return Failed(id.error().message());
  if (id.value().sha256 != a.sha256)
    return Failed(fmt::format("other bytes than recorded: sha256 {}…, not {}…", id.value().sha256.substr(0, 12), a.sha256.substr(0, 12)));
  const double limit_ms = a.p95_ms * (1 + o.slack);
  auto measured = MeasureArtefact(io, o, path, file, o.no_latency ? 1e18 : limit_ms);
  if (measured.ok()) return Compare(o, a, measured.Take(), limit_ms);
  const Error& e = measured.error();
  if (e.code() == Code::kCancelled) return e;
  const bool cannot = e.code() == Code::kUnsupported || e.code() == Code::kUnavailable;
  return Judged{cannot ? Verdict::kSkipped : Verdict::kFailed, e.message(), {}};
}

ordered_json ToJson(const GoldenArtefact& a, const Judged& j) {
  const GoldenRun& m = j.measured;
  ordered_json row = {
      {"path", a.path}, {"verdict", j.name()}, {"reason", j.reason.empty() ? ordered_json(nullptr) : ordered_json(j.reason)}};
  if (m.match.steps == 0) return row;
  row.update({{"device", m.device},
              {"backend", m.backend},
              {"isa", m.isa},
              {"steps", m.match.steps},
              {"kld", m.match.mean_kld},
              {"largest_kld", m.match.max_kld},
              {"max_kld", a.max_kld},
              {"same_top", m.same_top()},
              {"p95_ms", m.p95_ms},
              {"recorded_p95_ms", a.p95_ms}});
  return row;
}

std::string ToText(const GoldenArtefact& a, const Judged& j) {
  const GoldenRun& m = j.measured;
  std::string line = fmt::format("{:<8} {}", j.name(), a.path);
  if (m.match.steps > 0)
    line += fmt::format(": {} steps, KLD {:.6f}, same top token {:.1f} %, 95 % of the steps in {:.2f} ms", m.match.steps, m.match.mean_kld,
                        100 * m.same_top(), m.p95_ms);
  return line + (j.reason.empty() ? "" : "; " + j.reason) + "\n";
}

// Those to judge: of a model that was named its own; of a folder all, and its models that nobody recorded (without a sum).
Result<std::vector<GoldenArtefact>> ArtefactsOf(const Package& package, const GoldenFile& file) {
  std::vector<GoldenArtefact> out;
  for (const GoldenArtefact& a : file.artefacts)
    if (!package.one_model || a.path == package.models[0]) out.push_back(a);
  if (out.empty())
    return Error(Code::kNotFound, package.file + ": no golden answers of " + package.models[0] + " in it",
                 "record them: slm verify MODEL --record");
  for (const std::string& m : package.models)
    if (std::none_of(out.begin(), out.end(), [&](const GoldenArtefact& a) { return a.path == m; })) {
      out.emplace_back();
      out.back().path = m;
    }
  return out;
}

}  // namespace

Result<int> JudgePackage(Io& io, const VerifyOptions& o, const Package& package) {
  std::error_code unknown;
  if (!fs::exists(package.file, unknown))
    return Error(Code::kNotFound, package.file + ": no golden answers", "record them once: slm verify " + o.package + " --record");
  SLM_ASSIGN_OR_RETURN(const std::string text, ReadInputFile(io, package.file));
  auto parsed = ParseGolden(text);
  if (!parsed.ok()) return parsed.error().At(package.file);
  const GoldenFile& file = parsed.value();
  SLM_ASSIGN_OR_RETURN(const std::vector<GoldenArtefact> artefacts, ArtefactsOf(package, file));
  ordered_json list = ordered_json::array();
  int n_failed = 0, n_skipped = 0;
  for (const GoldenArtefact& a : artefacts) {
    SLM_ASSIGN_OR_RETURN(const Judged j, JudgeArtefact(io, o, package.folder, file, a));
    n_failed += j.verdict == Verdict::kFailed ? 1 : 0;
    n_skipped += j.verdict == Verdict::kSkipped ? 1 : 0;
    list.push_back(ToJson(a, j));
    if (!io.json) io.Print(ToText(a, j));
  }
  const bool nothing = n_skipped == static_cast<int>(artefacts.size());
  const bool passed = n_failed == 0 && !nothing && (n_skipped == 0 || !o.no_skip);
  if (io.json)
    io.PrintJson({{"passed", passed}, {"failed", n_failed}, {"skipped", n_skipped}, {"reference", file.reference}, {"artefacts", list}});
  else if (nothing) io.Note("no artefact could run on this machine");
  return passed ? int{kExitOk} : int{kExitGate};
}

}  // namespace slm::cli
