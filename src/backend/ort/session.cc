// See session.h.
#include "backend/ort/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace slm::backend::ort {
namespace {

Result<std::vector<NodePlace>> ReadNodes(const OrtApi& api, const OrtSession* session) {
  const OrtEpAssignedSubgraph* const* parts = nullptr;
  size_t n_parts = 0;
  SLM_RETURN_IF_ERROR(Check(api, api.Session_GetEpGraphAssignmentInfo(session, &parts, &n_parts)));
  std::vector<NodePlace> out;
  for (size_t p = 0; p < n_parts; ++p) {
    const char* provider = "";
    const OrtEpAssignedNode* const* nodes = nullptr;
    size_t n_nodes = 0;
    SLM_RETURN_IF_ERROR(Check(api, api.EpAssignedSubgraph_GetEpName(parts[p], &provider)));
    SLM_RETURN_IF_ERROR(Check(api, api.EpAssignedSubgraph_GetNodes(parts[p], &nodes, &n_nodes)));
    for (size_t i = 0; i < n_nodes; ++i) {
      const char *op = "", *domain = "", *name = "";
      SLM_RETURN_IF_ERROR(Check(api, api.EpAssignedNode_GetOperatorType(nodes[i], &op)));
      SLM_RETURN_IF_ERROR(Check(api, api.EpAssignedNode_GetDomain(nodes[i], &domain)));
      SLM_RETURN_IF_ERROR(Check(api, api.EpAssignedNode_GetName(nodes[i], &name)));
      out.push_back({OneLine(provider), "", OneLine(op), OneLine(domain), OneLine(name)});
    }
  }
  return out;
}

int CountOf(const Placed& placed, const std::string& provider) {
  return static_cast<int>(
      std::count_if(placed.nodes.begin(), placed.nodes.end(), [&](const NodePlace& n) { return n.provider == provider; }));
}

// The nodes on the CPU, by operator with the names of the first: "Erf x1 (planted)".
Status RefuseCpu(const Placed& placed, const Choice& choice) {
  std::map<std::string, std::vector<std::string>> left;
  for (const NodePlace& n : placed.nodes)
    if (n.provider == kCpuProvider) left[n.op].push_back(n.name);
  const bool wanted = choice.devices.empty() || choice.devices[0] == "cpu" || choice.devices[0] == kCpuProvider;
  if (choice.rest == OnCpu::kAllowed || wanted || left.empty()) return Ok();
  std::string list, notes;
  for (const auto& [op, names] : left) {
    list += fmt::format("{}{} x{} (", list.empty() ? "" : ", ", op, names.size());
    for (size_t i = 0; i < std::min<size_t>(names.size(), 3); ++i) list += (i > 0 ? ", " : "") + names[i];
    list += names.size() > 3 ? ", …)" : ")";
  }
  for (const std::string& note : placed.notes) notes += "; " + note;
  return Error(Code::kLimit, "nodes that would run on the CPU and not on " + choice.devices[0] + ": " + list + notes,
               "allow the fall back, or use a model whose operators the device has");
}

}  // namespace

Result<std::vector<Candidate>> Candidates(const Runtime& runtime, const Choice& choice, std::vector<std::string>& notes) {
  SLM_ASSIGN_OR_RETURN(const auto devices, runtime.Devices());
  std::vector<Candidate> out;
  for (const std::string& wanted : choice.devices) {
    if (wanted == "cpu" || wanted == kCpuProvider) break;
    Candidate c;
    for (const Runtime::Device& d : devices) {
      const Provider& p = d.provider;
      const bool fits = wanted == p.name || (wanted == p.device && p.name != kCpuProvider);
      if (!fits || d.is_virtual || (!c.name.empty() && c.name != p.name)) continue;
      c.name = p.name;
      c.device = p.device;
      c.provider = p;
      c.devices.push_back(d.handle);
    }
    const bool known = std::any_of(out.begin(), out.end(), [&](const Candidate& o) { return o.name == c.name; });
    if (c.devices.empty() && choice.absent == Absent::kExpected) continue;
    if (c.devices.empty()) notes.push_back(wanted + ": no execution provider offers it");
    else if (!known) out.push_back(std::move(c));
  }
  return out;
}

namespace {

// Speed against power as providers name it (their own documentation). nullptr: the provider has no such step.
struct PowerRow {
  const char *provider, *key, *burst, *balanced, *low;
};
constexpr PowerRow kPowerRows[] = {
    {"QNNExecutionProvider", "htp_performance_mode", "burst", "balanced", "low_power_saver"},
    {"WebGpuExecutionProvider", "powerPreference", "high-performance", nullptr, "low-power"},  // which of several adapters
};

// The choice with its power as an option of these providers; who has none leaves a note.
Choice WithPower(const Choice& choice, const std::vector<Candidate>& candidates, std::vector<std::string>& notes) {
  if (choice.power == Power::kAsItIs) return choice;
  Choice out = choice;
  for (const Candidate& c : candidates) {
    const auto* row = std::find_if(std::begin(kPowerRows), std::end(kPowerRows), [&](const PowerRow& r) { return c.name == r.provider; });
    if (row == std::end(kPowerRows)) {
      notes.push_back(c.name + ": has no mode of power that is known here");
      continue;
    }
    const char* value = choice.power == Power::kBurst ? row->burst : choice.power == Power::kBalanced ? row->balanced : row->low;
    if (value) out.options.insert(out.options.begin(), {c.name, row->key, value});
    else notes.push_back(c.name + ": has no balanced mode of power; it chooses by itself");
  }
  return out;
}

}  // namespace

Status Append(const Runtime& r, OrtSessionOptions* so, const Candidate& c, const Choice& choice) {
  std::vector<const char*> keys, values;
  for (const ProviderOption& o : choice.options) {
    if (!o.provider.empty() && o.provider != c.name) continue;
    keys.push_back(o.key.c_str());
    values.push_back(o.value.c_str());
  }
  return Check(r.api(), r.api().SessionOptionsAppendExecutionProvider_V2(so, r.env(), c.devices.data(), c.devices.size(), keys.data(),
                                                                         values.data(), keys.size()));
}

Result<SessionOptions> BaseOptions(const Runtime& r, SessionLog& log, const SessionSetup& setup) {
  const OrtApi& api = r.api();
  SLM_ASSIGN_OR_RETURN(SessionOptions so, Make<SessionOptions>(api, [&](auto** out) { return api.CreateSessionOptions(out); }));
  SLM_RETURN_IF_ERROR(Check(api, api.DisablePerSessionThreads(so.get())));
  SLM_RETURN_IF_ERROR(Check(api, api.SetUserLoggingFunction(so.get(), SessionLog::Write, &log)));
  SLM_RETURN_IF_ERROR(Check(api, api.SetSessionLogSeverityLevel(so.get(), ORT_LOGGING_LEVEL_WARNING)));
  // The length of the sequence changes with every call: a pattern of allocations for each would be kept for ever, and
  // lengths that were not there before are no faster with it.
  SLM_RETURN_IF_ERROR(Check(api, api.DisableMemPattern(so.get())));
  SLM_RETURN_IF_ERROR(Check(api, api.AddSessionConfigEntry(so.get(), "session.record_ep_graph_assignment_info", "1")));
  for (const auto& [key, value] : setup.config)
    SLM_RETURN_IF_ERROR(Check(api, api.AddSessionConfigEntry(so.get(), key.c_str(), value.c_str())));
  return so;
}

void SessionLog::Write(void* self, OrtLoggingLevel level, const char*, const char*, const char*, const char* message) {
  constexpr size_t kMost = 32;
  if (level < ORT_LOGGING_LEVEL_WARNING || !message) return;
  SessionLog& log = *static_cast<SessionLog*>(self);
  const std::scoped_lock lock(log.mutex_);
  if (log.lines_.size() < kMost) log.lines_.push_back(OneLine(message));
}

std::vector<std::string> SessionLog::Take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(lines_, {});
}

Result<OpenSession> MakeSession(const std::shared_ptr<Runtime>& runtime, const std::string& path, const Choice& asked,
                                const SessionSetup& setup) {
  const OrtApi& api = runtime->api();
  OpenSession s{runtime, std::make_unique<SessionLog>(), {}, {}, {}};
  SLM_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, Candidates(*runtime, asked, s.placed.notes));
  const Choice choice = WithPower(asked, candidates, s.placed.notes);
  for (;;) {
    SLM_ASSIGN_OR_RETURN(const SessionOptions so, BaseOptions(*runtime, *s.log, setup));
    if (!candidates.empty() && !setup.profile.empty())
      SLM_RETURN_IF_ERROR(Check(api, api.EnableProfiling(so.get(), setup.profile.c_str())));
    Status made = Ok();
    size_t failed = 0;  // the one that failed; when the whole session did, the best one is given up
    for (size_t i = 0; i < candidates.size() && made.ok(); ++i) {
      made = Append(*runtime, so.get(), candidates[i], choice);
      failed = made.ok() ? 0 : i;
    }
    if (made.ok()) {
      auto session = Make<Session>(api, [&](auto** out) { return api.CreateSession(runtime->env(), path.c_str(), so.get(), out); });
      if (session.ok()) {
        s.session = session.Take();
        break;
      }
      made = session.error();
    }
    if (candidates.empty()) return made.error().At(path);
    s.placed.notes.push_back(candidates[failed].name + ": " + made.error().message());
    candidates.erase(candidates.begin() + static_cast<ptrdiff_t>(failed));
  }
  SLM_ASSIGN_OR_RETURN(s.placed.nodes, ReadNodes(api, s.session.get()));
  for (NodePlace& n : s.placed.nodes) {
    const auto c = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& x) { return x.name == n.provider; });
    n.device = c == candidates.end() ? "cpu" : c->device;
  }
  const std::vector<std::string> complaints = s.log->Take();
  for (const Candidate& c : candidates) {
    s.providers.push_back(c.name);
    if (CountOf(s.placed, c.name) > 0) continue;
    s.placed.notes.push_back(c.name + ": took no node" + (complaints.empty() ? "" : ": " + complaints.front()));
  }
  SLM_RETURN_IF_ERROR(RefuseCpu(s.placed, choice));
  return s;
}

Result<Placed> PlaceNodes(const std::shared_ptr<Runtime>& runtime, const std::string& path, const Choice& choice) {
  SLM_ASSIGN_OR_RETURN(OpenSession s, MakeSession(runtime, path, choice, {}));
  return std::move(s.placed);
}

}  // namespace slm::backend::ort
