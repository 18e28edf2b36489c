// Two buffers read by all threads, and the products of every tier from registers; see roofline.h.
#include "roofline.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/mmap.h"
#include "base/threads.h"
#include "kernels/probe/contract.h"
#include "telemetry/telemetry.h"

namespace slm::cli {
namespace {

constexpr int kWindows = 8;
constexpr int64_t kGrain = 512;  // what a read loop takes at a time
constexpr int64_t kMega = int64_t{1} << 20, kHugePage = 2 * kMega;

// Highest of the rates of kWindows runs of `job` on the whole team; `work` is what one run does. The first run warms up.
template <class Job>
double BestRate(ThreadTeam& team, double work, Job& job) {
  double best = 0;
  for (int i = 0; i <= kWindows; ++i) {
    const int64_t start_ns = NowNs();
    team.Run(job);
    if (i > 0) best = std::max(best, work / static_cast<double>(std::max<int64_t>(1, NowNs() - start_ns)));
  }
  return best;  // per nanosecond: 1e9 a second
}

double ReadGbps(ThreadTeam& team, const kernels::ProbeKernels& k, const uint8_t* p, int64_t bytes, int passes) {
  std::vector<int> seen(static_cast<size_t>(team.size()) * 16);  // a cache line a thread
  auto job = [&](int t, int n) {
    const Range mine = SplitRange(bytes, kGrain, t, n);
    for (int i = 0; i < passes; ++i) seen[static_cast<size_t>(t) * 16] |= k.read(p + mine.begin, mine.end - mine.begin);
  };
  return BestRate(team, static_cast<double>(bytes) * passes, job);
}

double Gops(ThreadTeam& team, const kernels::ProbeKernels& k) {
  constexpr int64_t kTryRounds = 1 << 16;
  constexpr double kWindowNs = 10e6;
  const int64_t start_ns = NowNs();
  const double ops_per_round = k.multiply(kTryRounds) / kTryRounds;
  const double ns_per_round = static_cast<double>(std::max<int64_t>(1, NowNs() - start_ns)) / kTryRounds;
  const auto rounds = static_cast<int64_t>(std::clamp(kWindowNs / ns_per_round, 1e4, 1e9));
  auto job = [&](int, int) { k.multiply(rounds); };
  return BestRate(team, ops_per_round * static_cast<double>(rounds) * team.size(), job);
}

}  // namespace

int64_t LastCacheBytes(const std::string& sys) {
  int64_t bytes = 0;
  for (int index = 0; index < 16; ++index) {
    std::ifstream file(sys + "/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    int64_t n = 0;
    char unit = 0;
    if (!(file >> n) || n <= 0 || n > (int64_t{1} << 31)) continue;
    file >> unit;
    bytes = std::max(bytes, unit == 'K' ? n << 10 : unit == 'M' ? n << 20 : n);
  }
  return bytes;
}

Result<Roofline> MeasureRoofline(int n_threads) {
  SLM_ASSIGN_OR_RETURN(const telemetry::SystemMemory memory, telemetry::ReadSystemMemory());
  const int64_t cache = LastCacheBytes("/sys");
  Roofline r;
  r.n_threads = n_threads;
  r.memory_bytes = std::clamp(4 * cache, 512 * kMega, 2048 * kMega) / kHugePage * kHugePage;
  r.cache_bytes = std::min(cache / 2, r.memory_bytes) / kGrain * kGrain;
  const uint64_t room = std::min(memory.available_bytes, memory.cgroup_limit_bytes.value_or(memory.available_bytes));
  if (room < 2 * static_cast<uint64_t>(r.memory_bytes))
    return Error(Code::kLimit,
                 "the probe reads " + std::to_string(r.memory_bytes / kMega) + " MB and " +
                     std::to_string(static_cast<int64_t>(room) / kMega) + " MB are free",
                 "free twice what it reads");
  SLM_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadTeam> team, ThreadTeam::Create(n_threads));
  SLM_ASSIGN_OR_RETURN(const Buffer pages, Buffer::Allocate(static_cast<size_t>(r.memory_bytes)));
  std::memset(pages.data(), 1, pages.size());  // pages that were never written are all the same zero page
  const CpuFeatures features = DetectCpu();
  kernels::ProbeKernels reader{};
  for (const Isa isa : TiersOfThisBuild()) {
    const kernels::ProbeKernels k = kernels::Probe(isa);
    if (!Supports(features, isa)) continue;
    if (k.read != nullptr) reader = k;
    if (k.multiply == nullptr || (isa == Isa::kAvx512Amx && !features.amx_int8)) continue;
    r.int8.push_back({IsaName(isa), Gops(*team, k)});
  }
  r.memory_gbps = ReadGbps(*team, reader, pages.as<uint8_t>(), r.memory_bytes, 1);
  if (r.cache_bytes > 0) {
    const auto passes = static_cast<int>(std::max<int64_t>(1, 512 * kMega / r.cache_bytes));
    r.cache_gbps = ReadGbps(*team, reader, pages.as<uint8_t>(), r.cache_bytes, passes);
  }
  return r;
}

}  // namespace slm::cli
