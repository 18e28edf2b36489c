// What this machine can do right now: the ceilings that speeds are given as a share of.
//
// Measured, never looked up: a guest does not know its neighbours, and clocks change. Takes about a second a thread count.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace slm::cli {

struct Roofline {
  int n_threads = 0;
  int64_t memory_bytes = 0, cache_bytes = 0;  // sizes of the two buffers; cache_bytes 0: no cache size known
  double memory_gbps = 0, cache_gbps = 0;     // all threads together reading a buffer beyond the last cache, and half of that cache
  struct Peak {
    std::string isa;  // tier whose integer product was run from registers
    double gops = 0;  // 1e9 operations per second, all threads together; a multiply-add is two
  };
  std::vector<Peak> int8;  // every tier that this CPU runs, slowest instruction set first
};

// Best of several windows of some 10 ms. Errors: kLimit when the machine lacks the memory (512 MB to 2 GB) or the threads.
Result<Roofline> MeasureRoofline(int n_threads);

// Bytes of the last-level cache of CPU 0 as `sys` (/sys) tells it; 0 when it does not.
int64_t LastCacheBytes(const std::string& sys);

}  // namespace slm::cli
