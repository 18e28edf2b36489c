// Runs a Python program that nobody has read: what a model wrote. Linux namespaces, a read-only view of the files, no devices, no network,
// a list of system calls that are refused, limits of time, memory, files and processes.
//
// What it keeps from happening: writing anywhere but into a small folder in memory that goes with it, reaching the network or the sockets
// of this machine, signals to other processes, privileges, filling memory or disk, running on. What it does not: reading files that the
// user may read (nothing of them can leave but the answer of one bit), and faults of the kernel.
#pragma once
#include <cstdint>
#include <string>

#include "base/result.h"

namespace slm::cli {

struct SandboxLimits {
  int seconds = 10;                            // of wall time; of CPU time as well
  uint64_t memory_bytes = uint64_t{1} << 30;   // of address space
  uint64_t folder_bytes = uint64_t{16} << 20;  // that its folder may hold, and a file's size
  int processes = 16;
};

enum class RunVerdict : unsigned char { kPassed, kFailed, kTimeout };

// A program passes when it writes `token` to file descriptor 3 and ends with exit code 0; what it prints goes nowhere. The line that
// writes the token, for its end: PassLine. Called from one thread at a time. Errors: kUnavailable when this system does not offer all of
// the isolation, or no python3 (said by CheckSandbox as well), kIo.
Result<RunVerdict> RunPython(const std::string& program, const std::string& token, const SandboxLimits& limits);
std::string PassLine(const std::string& token);

// Runs a program that passes and programs that try what must fail. Errors: kUnavailable, with what is missing.
Status CheckSandbox();

}  // namespace slm::cli
