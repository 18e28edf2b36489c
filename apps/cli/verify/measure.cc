// See measure.h.
#include "verify/measure.h"

#include <fmt/format.h>

#include <algorithm>

namespace slm::cli {
namespace {

constexpr int kPasses = 3;  // over the answers for a time

size_t ContextOf(const std::vector<eval::GoldenAnswer>& answers) {
  size_t most = 0;
  for (const auto& a : answers) most = std::max(most, a.prompt.size() + a.answer.size());
  return most;
}

}  // namespace

OpenOptions OpenOptionsFor(const VerifyOptions& o, const std::string& model, size_t context) {
  OpenOptions open;
  open.model = model;
  open.n_threads = o.n_threads;
  open.memory = o.memory;
  open.context = static_cast<int>(context);
  open.context_for = "the prompts and answers";
  open.context_from = o.record ? "--tokens or --prompts" : "the golden answers";
  return open;
}

Result<GoldenRun> MeasureArtefact(Io& io, const VerifyOptions& o, const std::string& model, const GoldenFile& file, double enough_ms) {
  SLM_ASSIGN_OR_RETURN(const OpenedModel m, OpenModel(io, OpenOptionsFor(o, model, ContextOf(file.answers))));
  const auto& c = m.backend->capabilities();
  if (c.vocab_size != file.vocab_size)
    return Error(Code::kInvalidArgument,
                 fmt::format("{} has a vocabulary of {} tokens, the answers one of {}", model, c.vocab_size, file.vocab_size),
                 "record the package again");
  GoldenRun out{.match = {}, .p95_ms = 0, .device = c.device, .backend = c.backend, .isa = c.isa, .n_threads = c.n_threads};
  const auto go_on = [&io] { return !io.cancelled(); };
  SLM_ASSIGN_OR_RETURN(out.match, eval::CompareGolden(*m.backend, std::span(file.answers).first(1), go_on));  // warm-up
  for (int pass = 0; pass < kPasses; ++pass) {
    SLM_ASSIGN_OR_RETURN(out.match, eval::CompareGolden(*m.backend, file.answers, go_on));
    const double ms = static_cast<double>(eval::NearestRank(out.match.step_ns, 0.95)) / 1e6;
    out.p95_ms = pass == 0 ? ms : std::min(out.p95_ms, ms);
    if (out.p95_ms <= enough_ms) break;
  }
  return out;
}

}  // namespace slm::cli
