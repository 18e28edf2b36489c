// Zone totals: sites form a lock-free list that only grows; its head is the one piece of process-wide state this room has,
// and it stays empty in a build without SLM_ZONES.
#include <algorithm>
#include <map>

#include "telemetry/telemetry.h"

namespace slm::telemetry {
namespace {

std::atomic<ZoneSite*>& ListHead() {
  static std::atomic<ZoneSite*> head{nullptr};
  return head;
}

}  // namespace

ZoneSite::ZoneSite(const char* name) : name_(name) {
  next_ = ListHead().load(std::memory_order_relaxed);
  while (!ListHead().compare_exchange_weak(next_, this, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void ZoneSite::Add(uint64_t ns) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  total_ns_.fetch_add(ns, std::memory_order_relaxed);
  uint64_t max = max_ns_.load(std::memory_order_relaxed);
  while (ns > max && !max_ns_.compare_exchange_weak(max, ns, std::memory_order_relaxed)) {
  }
}

std::vector<ZoneTotal> ReportZones() {
  std::map<std::string, ZoneTotal> by_name;
  for (const ZoneSite* site = ListHead().load(std::memory_order_acquire); site; site = site->next_) {
    ZoneTotal& total = by_name[site->name_];
    total.name = site->name_;
    total.calls += site->calls_.load(std::memory_order_relaxed);
    total.total_ns += site->total_ns_.load(std::memory_order_relaxed);
    total.max_ns = std::max(total.max_ns, site->max_ns_.load(std::memory_order_relaxed));
  }
  std::vector<ZoneTotal> totals;
  for (auto& [name, total] : by_name)
    if (total.calls > 0) totals.push_back(std::move(total));
  std::sort(totals.begin(), totals.end(), [](const auto& a, const auto& b) { return a.total_ns > b.total_ns; });
  return totals;
}

void ResetZones() {
  for (ZoneSite* site = ListHead().load(std::memory_order_acquire); site; site = site->next_) {
    site->calls_.store(0, std::memory_order_relaxed);
    site->total_ns_.store(0, std::memory_order_relaxed);
    site->max_ns_.store(0, std::memory_order_relaxed);
  }
}

}  // namespace slm::telemetry
