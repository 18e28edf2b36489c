// What a program in the sandbox can and cannot do. Skipped where the system does not offer the isolation.
#include "sandbox/sandbox.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/clock.h"

namespace slm::cli {
namespace {

class Sandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const Status ready = CheckSandbox(); !ready.ok()) GTEST_SKIP() << ready.error().message();
  }
  static RunVerdict Run(const std::string& program, const SandboxLimits& limits = {.seconds = 20}) {
    auto r = RunPython(program + "\n" + PassLine("token") + "\n", "token", limits);
    EXPECT_TRUE(r.ok()) << r.error().message();
    return r.ok() ? r.Take() : RunVerdict::kFailed;
  }
};

TEST_F(Sandbox, PassesWhatRunsToItsEnd) {
  EXPECT_EQ(Run("from typing import List\nimport math\nassert math.sqrt(4) == 2"), RunVerdict::kPassed);
  EXPECT_EQ(Run("open('x', 'w').write('y')\nassert open('x').read() == 'y'"), RunVerdict::kPassed);
  EXPECT_EQ(Run("assert 1 == 2"), RunVerdict::kFailed);
  EXPECT_EQ(Run("this is no Python"), RunVerdict::kFailed);
}

TEST_F(Sandbox, LeavingEarlyIsNoPass) {
  EXPECT_EQ(Run("import sys; sys.exit(0)"), RunVerdict::kFailed);
  EXPECT_EQ(Run("import os; os._exit(0)"), RunVerdict::kFailed);
  EXPECT_EQ(Run("import os; os.write(3, b'to'); os._exit(0)"), RunVerdict::kFailed);
}

TEST_F(Sandbox, EndsWhatDoesNotEnd) {
  const int64_t start = NowNs();
  EXPECT_EQ(Run("import time\nwhile True: time.sleep(1)", {.seconds = 1}), RunVerdict::kTimeout);
  EXPECT_EQ(Run("import os\nif os.fork() == 0:\n  import time; time.sleep(1000)", {.seconds = 3}), RunVerdict::kPassed)
      << "what it leaves behind ends with it";
  EXPECT_LT(NowNs() - start, int64_t{30} * 1'000'000'000);
}

TEST_F(Sandbox, CannotWriteOutside) {
  const auto place = std::filesystem::path(::testing::TempDir()) / ("sandbox_test_" + std::to_string(::getpid()));
  std::ofstream(place) << "before";
  // The folder of temporary files is another one there, and goes away.
  Run("open('" + place.string() + "', 'w').write('after')");
  Run("import os; os.unlink('" + place.string() + "')");
  for (const char* code : {"open('/etc/slm-sandbox', 'w')", "open('/var/tmp/slm-sandbox', 'w')", "import os; os.mkdir('/usr/slm')"})
    EXPECT_NE(Run(code), RunVerdict::kPassed) << code;
  std::string text;
  std::getline(std::ifstream(place), text);
  EXPECT_EQ(text, "before");
  std::filesystem::remove(place);
}

TEST_F(Sandbox, CannotReachOut) {
  for (const char* code : {"import socket; socket.create_connection(('127.0.0.1', 1))", "import socket; socket.socket(socket.AF_UNIX)",
                           "import os; os.kill(os.getppid() or 1 + 1, 9)", "open('/dev/null', 'w')", "open('/dev/mem', 'rb')",
                           "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0", "import os; os.setuid(1); os.setuid(0)",
                           "x = bytearray(3 << 30)", "open('big', 'wb').write(bytes(64 << 20))", "import os\nwhile True: os.fork()"})
    EXPECT_NE(Run(code, {.seconds = 5}), RunVerdict::kPassed) << code;
}

// Also for root, whom the kernel exempts from RLIMIT_NPROC.
TEST_F(Sandbox, LimitsProcesses) {
  const char* code = R"(
import os, time
made = 0
try:
  while made < 64:
    if os.fork() == 0: time.sleep(60)
    made += 1
except BlockingIOError:
  pass
assert 0 < made < 16, made
)";
  EXPECT_EQ(Run(code), RunVerdict::kPassed);
}

}  // namespace
}  // namespace slm::cli
