// The descriptions by name; see targets.h.
#include "targets/targets.h"

#include <fmt/format.h>

#include "model/quoted.h"
#include "targets/builtin.h"
#include "targets/read.h"

namespace slm::targets {
namespace {

constexpr int kDeepest = 8;  // files that extend and fall back to each other

Result<std::shared_ptr<const Description>> BuiltInNamed(std::string_view name, int depth) {
  if (depth > kDeepest) return Error(Code::kCorrupt, "descriptions that extend each other without end");
  for (const BuiltIn& file : BuiltInFiles())
    if (file.name == name)
      return ReadDescription(file.text, fmt::format("targets/{}.json", name),
                             [depth](std::string_view other) { return BuiltInNamed(other, depth + 1); });
  std::string known;
  for (const BuiltIn& file : BuiltInFiles()) known += (known.empty() ? "" : ", ") + std::string(file.name);
  return Error(Code::kNotFound, "no target " + model::Quoted(name), "known: " + known + "; or name a .json file");
}

}  // namespace

const std::string& Target::name() const { return d_->name; }
const std::string& Target::title() const { return d_->title; }

std::vector<std::string> TargetNames() {
  std::vector<std::string> out;
  for (const BuiltIn& file : BuiltInFiles()) out.emplace_back(file.name);
  return out;
}

Result<Target> FindTarget(std::string_view name) {
  SLM_ASSIGN_OR_RETURN(auto found, BuiltInNamed(name, 0));
  return Target(std::move(found));
}

Result<Target> ParseTarget(std::string_view text, const std::string& place) {
  SLM_ASSIGN_OR_RETURN(auto found, ReadDescription(text, place, [](std::string_view other) { return BuiltInNamed(other, 1); }));
  return Target(std::move(found));
}

const char* VerdictName(Verdict v) {
  switch (v) {
    case Verdict::kNative: return "native";
    case Verdict::kFallback: return "fallback";
    case Verdict::kBlocked: return "blocked";
    case Verdict::kFolded: return "folded";
  }
  return "";
}

bool Report::blocked() const {
  for (const Bound& b : bounds)
    if (!b.kept()) return true;
  return n_blocked > 0;
}

}  // namespace slm::targets
