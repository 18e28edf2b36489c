// The driver: nodes that a target refuses, one after the other, each with the rewrites of its operator in their order. See legalize.h.
#include "legalize/legalize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "legalize/compare.h"
#include "legalize/rewrites.h"
#include "legalize/state.h"

namespace slm::legalize {
namespace {

using targets::Verdict;
using Outcome = Comparison::Outcome;

constexpr int kDeepest = 4;                        // rewrites of what a rewrite made
constexpr int kMostRounds = 8;                     // until nothing changes
constexpr int64_t kMostVisits = int64_t{1} << 24;  // nodes looked at in all
constexpr int64_t kLeastOpset = 13;                // older sets have axes as attributes everywhere

constexpr RewriteEntry kRewrites[] = {
#define SLM_REWRITE(name, domain, op, use, function, summary) {name, domain, op, Use::use, function, summary},
#include "legalize/rewrites.inc"
#undef SLM_REWRITE
};

int Score(Verdict v) { return v == Verdict::kBlocked ? 2 : v == Verdict::kFallback ? 1 : 0; }

int64_t Total(const View& v) {
  int64_t n = 0;
  for (const targets::NodeVerdict& verdict : v.placed.verdicts) n += Score(verdict.verdict);
  return n;
}

Counts CountsOf(const View& v) {
  Counts c;
  for (const targets::NodeVerdict& verdict : v.placed.verdicts) {
    int64_t* counts[] = {&c.native, &c.fallback, &c.blocked, &c.folded};
    ++*counts[static_cast<size_t>(verdict.verdict)];
  }
  return c;
}

struct Found {
  State state;
  View view;
  std::vector<std::string> taken, made, rewrites;  // keys, keys, names
  Piece piece;                                     // of the first rewrite
};

class Driver {
 public:
  explicit Driver(const targets::Target& target) : target_(target) {}

  // By the target's rows alone: the first rewrite of a node, with rewrites of what it makes, that the target takes. `skip`: so many that
  // it takes are passed over.
  std::optional<Found> Try(const State& s, const View& v, const std::string& key, Use use, size_t& skip) {
    tried_[key].clear();
    return Try(s, v, key, use, skip, {}, 0);
  }
  // Of a node: what was tried and did not fit, in words.
  std::string tried(const std::string& key) const {
    const auto at = tried_.find(key);
    return at == tried_.end() ? "" : at->second;
  }
  bool spent() const { return visits_ > kMostVisits; }

 private:
  using Path = std::set<std::string>;  // rewrites that led here

  std::optional<Found> Try(const State& s, const View& v, const std::string& key, Use use, size_t& skip, const Path& path, int depth) {
    const int at = FindNode(s.model.graph, key);
    const int64_t opset = onnx::OpsetVersion(s.model.opsets, "");
    const int flat_node = at < 0 ? -1 : v.FlatNode(s.model.graph.nodes[static_cast<size_t>(at)]);
    if (flat_node < 0 || depth > kDeepest || opset < kLeastOpset || spent()) return std::nullopt;
    const onnx::Node& n = s.model.graph.nodes[static_cast<size_t>(at)];
    if (n.inputs.empty() || n.outputs.empty() || n.outputs[0].empty()) return std::nullopt;
    for (const RewriteEntry& r : kRewrites) {
      if (n.op_type != r.op || n.domain != r.domain || r.use != use || path.contains(r.name)) continue;
      auto piece = r.function({s.model.graph, v.flat, static_cast<size_t>(at), flat_node, opset, zeros_});
      std::string why = !piece ? "is not for this form" : "";
      if (piece && !CanRaise(s.model, piece->least_opset)) why = fmt::format("needs operator set {}", piece->least_opset);
      auto found = why.empty() ? Step(s, v, std::move(*piece), r, path, depth) : std::nullopt;
      if (!found && why.empty()) why = "makes what the target does not take either";
      if (!found && depth == 0) tried_[key] += fmt::format("{}{} {}", tried_[key].empty() ? "" : "; ", r.name, why);
      if (!found) continue;
      if (skip == 0) return found;
      --skip;
    }
    return std::nullopt;
  }

  std::optional<Found> Step(const State& s, const View& v, Piece piece, const RewriteEntry& rewrite, const Path& path, int depth) {
    State next = Apply(s, piece);
    auto seen = Look(next, target_);
    if (!seen.ok()) return std::nullopt;
    visits_ += static_cast<int64_t>(seen.value().flat.nodes.size());
    Found f{std::move(next), seen.Take(), {}, {}, {rewrite.name}, std::move(piece)};
    for (const size_t t : f.piece.takes) f.taken.push_back(Key(s.model.graph.nodes[t]));
    for (const onnx::Node& n : f.piece.nodes) f.made.push_back(Key(n));
    // What is not native of that has rewrites of its own; what was joined is not taken apart again.
    if (f.taken.size() > 1) return Better(s, v, f) ? std::optional<Found>(std::move(f)) : std::nullopt;
    Path deeper = path;
    deeper.insert(rewrite.name);
    for (size_t k = 0; k < f.made.size(); ++k) {
      if (ScoreOf(f.state, f.view, f.made[k]) == 0) continue;
      size_t none = 0;
      auto inner = Try(f.state, f.view, f.made[k], Use::kRefused, none, deeper, depth + 1);
      if (!inner) continue;
      f.state = std::move(inner->state);
      f.view = std::move(inner->view);
      f.rewrites.insert(f.rewrites.end(), inner->rewrites.begin(), inner->rewrites.end());
      std::erase_if(f.made,
                    [&](const std::string& m) { return std::find(inner->taken.begin(), inner->taken.end(), m) != inner->taken.end(); });
      f.made.insert(f.made.begin() + static_cast<std::ptrdiff_t>(std::min(k, f.made.size())), inner->made.begin(), inner->made.end());
      k += inner->made.size();
      --k;
    }
    return Better(s, v, f) ? std::optional<Found>(std::move(f)) : std::nullopt;
  }

  static int ScoreOf(const State& s, const View& v, const std::string& key) {
    const int at = FindNode(s.model.graph, key);
    const int flat = at < 0 ? -1 : v.FlatNode(s.model.graph.nodes[static_cast<size_t>(at)]);
    return flat < 0 ? 0 : Score(v.placed.verdicts[static_cast<size_t>(flat)].verdict);
  }

  // Everything that was made is native, or better than the worst before; and no other node is worse off.
  static bool Better(const State& s, const View& v, const Found& f) {
    int worst_before = 0, worst = 0;
    int64_t own_before = 0, own = 0;
    for (const std::string& key : f.taken) {
      const int score = ScoreOf(s, v, key);
      worst_before = std::max(worst_before, score), own_before += score;
    }
    for (const std::string& key : f.made) {
      const int score = ScoreOf(f.state, f.view, key);
      worst = std::max(worst, score), own += score;
    }
    return (worst == 0 || worst < worst_before) && Total(f.view) - own <= Total(v) - own_before;
  }

  const targets::Target& target_;
  Zeros zeros_;
  int64_t visits_ = 0;
  std::map<std::string, std::string> tried_;
};

struct Candidate {
  std::string key;
  Use use;
};

// Nodes of the main graph to look at: refused ones, and those of forms in pieces.
std::vector<Candidate> Candidates(const State& s, const View& v) {
  std::set<std::string> in_pieces;
  for (const targets::Fusion& f : v.placed.fusions)
    if (f.form == targets::Fusion::Form::kDecomposed && !f.one_kernel) in_pieces.insert(f.nodes.begin(), f.nodes.end());
  std::vector<Candidate> out;
  for (const onnx::Node& n : s.model.graph.nodes) {
    const int flat = v.FlatNode(n);
    if (flat < 0) continue;
    if (Score(v.placed.verdicts[static_cast<size_t>(flat)].verdict) > 0) out.push_back({Key(n), Use::kRefused});
    else if (in_pieces.contains(v.flat.nodes[static_cast<size_t>(flat)].label)) out.push_back({Key(n), Use::kInPieces});
  }
  return out;
}

// The graph with fixed dimensions, and what follows from them computed.
struct Begun {
  State fixed, folded;
  int64_t n_folded = 0;
};
Result<Begun> Begin(const onnx::Model& model, const Options& options) {
  Begun b;
  b.fixed.model = Borrow(model);
  FixDims(b.fixed.model.graph, options.dims);
  b.folded = b.fixed.Copy();
  const Unused unused = UnusedOf(b.folded.model.graph);
  SLM_ASSIGN_OR_RETURN(b.n_folded, Fold(b.folded));
  if (b.n_folded > 0) Prune(b.folded.model.graph, unused);
  return b;
}

std::string LabelOf(const View& v, const onnx::Node& n) {
  const int flat = v.FlatNode(n);
  return flat < 0 ? Key(n) : v.flat.nodes[static_cast<size_t>(flat)].label;
}

// Tries one node until a rewrite stays: it must compute the same.
bool Settle(Driver& driver, const Candidate& c, State& state, View& view, Report& report, std::vector<Piece>& made) {
  for (size_t passed = 0;; ++passed) {
    size_t skip = passed;
    auto found = driver.Try(state, view, c.key, c.use, skip);
    if (!found) return false;
    const onnx::Node& n = state.model.graph.nodes[static_cast<size_t>(FindNode(state.model.graph, c.key))];
    const Comparison same = ComparePieces({state, found->state, view, found->view, found->taken, found->made}, found->piece);
    const std::string label = LabelOf(view, n);
    if (same.outcome == Outcome::kDiffers || same.outcome == Outcome::kNoRun) {
      report.refused.push_back({label, OpName(n), fmt::format("{}", fmt::join(found->rewrites, ", ")),
                                (same.outcome == Outcome::kDiffers ? "computes something else: " : "not verified: ") + same.why});
      continue;
    }
    Rewritten done{label, OpName(n), found->rewrites, {}, same};
    for (const std::string& key : found->made)
      if (const int at = FindNode(found->state.model.graph, key); at >= 0)
        done.made.push_back(OpName(found->state.model.graph.nodes[static_cast<size_t>(at)]));
    report.rewritten.push_back(std::move(done));
    made.push_back(std::move(found->piece));
    state = std::move(found->state);
    view = std::move(found->view);
    return true;
  }
}

// What the tensors of a result point into.
struct Storage {
  std::shared_ptr<const onnx::Model> before;
  std::vector<std::shared_ptr<const std::vector<std::byte>>> owned;
};

}  // namespace

std::span<const RewriteEntry> AllRewrites() { return kRewrites; }

Result<Legalized> Legalize(std::shared_ptr<const onnx::Model> given, const targets::Target& target, const Options& options) {
  const onnx::Model& model = *given;
  Report report;
  report.target = target.name();
  report.title = target.title();
  SLM_ASSIGN_OR_RETURN(const targets::Flat asked, targets::Flatten(model, {.dims = options.dims, .context = 0}));
  if (!asked.unknown_dims.empty())
    return Error(Code::kInvalidArgument, "--dim " + asked.unknown_dims[0] + ": no open dimension of that name",
                 asked.open_dims.empty() ? "the model has none" : fmt::format("open: {}", fmt::join(asked.open_dims, ", ")));
  report.open_dims = asked.open_dims;
  SLM_ASSIGN_OR_RETURN(Begun begun, Begin(model, options));
  SLM_ASSIGN_OR_RETURN(const View first, Look(begun.fixed, target));
  report.before = CountsOf(first);
  report.n_folded = begun.n_folded;
  report.opset_before = onnx::OpsetVersion(model.opsets, "");

  State state = std::move(begun.folded);
  SLM_ASSIGN_OR_RETURN(View view, Look(state, target));
  Driver driver(target);
  bool changed = true;
  std::vector<Piece> made;
  for (int round = 0; changed && round < kMostRounds; ++round) {
    changed = false;
    report.refused.clear();  // asked again, or gone
    for (const Candidate& c : Candidates(state, view)) changed |= Settle(driver, c, state, view, report, made);
  }
  if (driver.spent()) report.notes.push_back(fmt::format("stopped after looking at {} nodes: more may be possible", kMostVisits));

  ShareMade(state.model.graph, model.graph);
  Prune(state.model.graph, UnusedOf(model.graph));
  state.model.storage = std::make_shared<const Storage>(Storage{std::move(given), state.owned});
  SLM_ASSIGN_OR_RETURN(const View last, Look(state, target));
  report.after = CountsOf(last);
  report.opset = onnx::OpsetVersion(state.model.opsets, "");
  for (size_t i = 0; i < last.flat.nodes.size(); ++i)
    if (const targets::NodeVerdict& verdict = last.placed.verdicts[i]; Score(verdict.verdict) > 0)
      report.left.push_back({last.flat.nodes[i].label, OpName(last.flat.nodes[i].node), verdict.verdict, verdict.reason,
                             driver.tried(Key(last.flat.nodes[i].node))});
  report.whole = CompareWhole({begun.fixed.model, first.flat, state.model, last.flat}, made);
  if (report.whole.outcome == Outcome::kDiffers)
    return Error(Code::kInternal, "the rewritten graph computes something else: " + report.whole.why, "report it with the model");
  return Legalized{std::move(state.model), std::move(report)};
}

Result<std::map<std::string, std::string>> Rewritable(const onnx::Model& model, const targets::Target& target, const Options& options,
                                                      const std::vector<std::string>& nodes) {
  std::map<std::string, std::string> out;
  SLM_ASSIGN_OR_RETURN(const Begun begun, Begin(model, options));
  SLM_ASSIGN_OR_RETURN(const View view, Look(begun.folded, target));
  Driver driver(target);
  std::map<std::string, std::string> keys;
  for (const onnx::Node& n : begun.folded.model.graph.nodes) keys[LabelOf(view, n)] = Key(n);
  for (const std::string& label : nodes) {
    const auto at = keys.find(label);
    size_t skip = 0;
    if (at == keys.end()) continue;
    if (const auto found = driver.Try(begun.folded, view, at->second, Use::kRefused, skip))
      out[label] = fmt::format("{}", fmt::join(found->rewrites, ", "));
  }
  return out;
}

}  // namespace slm::legalize
