// Detection against what the system says; choice of the tier against made-up CPUs.
#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace slm {
namespace {

CpuFeatures Haswell() {
  CpuFeatures f;
  f.avx2 = f.fma = f.f16c = true;
  return f;
}
#if defined(__x86_64__)
CpuFeatures Skylake() {  // AVX-512 without VNNI
  CpuFeatures f = Haswell();
  f.avx512f = f.avx512bw = f.avx512vl = f.avx512dq = true;
  return f;
}
CpuFeatures IceLake() {
  CpuFeatures f = Skylake();
  f.avx512vnni = true;
  return f;
}
CpuFeatures AlderLake() {
  CpuFeatures f = Haswell();
  f.avx_vnni = true;
  return f;
}
CpuFeatures SapphireRapids() {
  CpuFeatures f = IceLake();
  f.avx_vnni = f.avx512bf16 = f.amx_tile = f.amx_int8 = f.amx_bf16 = f.amx_ready = true;
  return f;
}
#elif defined(__aarch64__)
CpuFeatures CortexA76() {
  CpuFeatures f;
  f.neon_dotprod = true;
  return f;
}
CpuFeatures NeoverseV1() {
  CpuFeatures f = CortexA76();
  f.neon_i8mm = true;
  return f;
}
#endif

TEST(CpuFeatures, AgreeWithTheKernelsList) {
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags;
  while (std::getline(file, line))
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) flags = line + " ";
  if (flags.empty()) GTEST_SKIP() << "no /proc/cpuinfo";
  const CpuFeatures f = DetectCpu();
  auto has = [&](const char* name) { return flags.find(std::string(" ") + name + " ") != std::string::npos; };
#if defined(__x86_64__)
  EXPECT_EQ(f.avx2, has("avx2"));
  EXPECT_EQ(f.fma, has("fma"));
  EXPECT_EQ(f.f16c, has("f16c"));
  EXPECT_EQ(f.avx_vnni, has("avx_vnni"));
  EXPECT_EQ(f.avx512f, has("avx512f"));
  EXPECT_EQ(f.avx512bw, has("avx512bw"));
  EXPECT_EQ(f.avx512vl, has("avx512vl"));
  EXPECT_EQ(f.avx512dq, has("avx512dq"));
  EXPECT_EQ(f.avx512vnni, has("avx512_vnni"));
  EXPECT_EQ(f.avx512bf16, has("avx512_bf16"));
  EXPECT_EQ(f.avx512vbmi, has("avx512vbmi"));
  EXPECT_EQ(f.amx_int8, has("amx_int8"));
  EXPECT_FALSE(f.brand.empty());
#elif defined(__aarch64__)
  if (!has("asimd")) GTEST_SKIP() << "emulated: /proc/cpuinfo is another machine's";
  EXPECT_EQ(f.neon_dotprod, has("asimddp"));
  EXPECT_EQ(f.neon_i8mm, has("i8mm"));
#endif
}

#if defined(__x86_64__)
TEST(CpuFeatures, BestTierNeedsEveryFeatureOfIt) {
  EXPECT_EQ(BestIsa(CpuFeatures{}), Isa::kScalar);
  EXPECT_EQ(BestIsa(Haswell()), Isa::kAvx2);
  EXPECT_EQ(BestIsa(Skylake()), Isa::kAvx2);
  EXPECT_EQ(BestIsa(IceLake()), Isa::kAvx512Vnni);
  EXPECT_EQ(BestIsa(AlderLake()), Isa::kAvxVnni);
  EXPECT_EQ(BestIsa(SapphireRapids()), Isa::kAvx512Amx);
  CpuFeatures zen4 = IceLake();
  zen4.avx512bf16 = true;
  EXPECT_EQ(BestIsa(zen4), Isa::kAvx512Bf16);
  CpuFeatures masked = SapphireRapids();  // a hypervisor may hide what the tier's attention needs
  masked.avx512bf16 = false;
  EXPECT_EQ(BestIsa(masked), Isa::kAvx512Vnni);
  for (bool CpuFeatures::*missing :
       {&CpuFeatures::avx512f, &CpuFeatures::avx512bw, &CpuFeatures::avx512vl, &CpuFeatures::avx512dq, &CpuFeatures::avx512vnni}) {
    CpuFeatures f = IceLake();
    f.*missing = false;
    EXPECT_EQ(BestIsa(f), Isa::kAvx2);
  }
  for (bool CpuFeatures::*missing : {&CpuFeatures::avx2, &CpuFeatures::fma, &CpuFeatures::f16c}) {
    CpuFeatures f = IceLake();
    f.*missing = false;
    EXPECT_EQ(BestIsa(f), Isa::kScalar);
  }
}

TEST(CpuFeatures, ForcedTierIsTakenWhenTheCpuHasIt) {
  EXPECT_EQ(ChooseIsa(IceLake(), "").Take(), Isa::kAvx512Vnni);
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni}) EXPECT_EQ(ChooseIsa(IceLake(), IsaName(isa)).Take(), isa);
  EXPECT_EQ(ChooseIsa(Haswell(), "scalar").Take(), Isa::kScalar);
}

TEST(CpuFeatures, ForcedTierThatIsAbsentOrUnknownIsAnError) {
  const auto absent = ChooseIsa(Haswell(), "avx512vnni");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code(), Code::kUnsupported);
  EXPECT_NE(absent.error().message().find("avx2"), std::string::npos) << absent.error().message();
  const auto unknown = ChooseIsa(IceLake(), "sse9");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code(), Code::kInvalidArgument);
  EXPECT_NE(unknown.error().hint().find("avx512vnni"), std::string::npos);
}
#elif defined(__aarch64__)
TEST(CpuFeatures, BestTierNeedsEveryFeatureOfIt) {
  EXPECT_EQ(BestIsa(CpuFeatures{}), Isa::kScalar);
  EXPECT_EQ(BestIsa(CortexA76()), Isa::kNeonDot);
  EXPECT_EQ(BestIsa(NeoverseV1()), Isa::kNeonI8mm);
  CpuFeatures f = NeoverseV1();
  f.neon_dotprod = false;
  EXPECT_EQ(BestIsa(f), Isa::kScalar);
}

TEST(CpuFeatures, ForcedTierIsTakenWhenTheCpuHasIt) {
  EXPECT_EQ(ChooseIsa(NeoverseV1(), "").Take(), Isa::kNeonI8mm);
  for (const Isa isa : {Isa::kScalar, Isa::kNeonDot, Isa::kNeonI8mm}) EXPECT_EQ(ChooseIsa(NeoverseV1(), IsaName(isa)).Take(), isa);
  EXPECT_EQ(ChooseIsa(CortexA76(), "scalar").Take(), Isa::kScalar);
}

TEST(CpuFeatures, ForcedTierThatIsAbsentOrUnknownIsAnError) {
  const auto absent = ChooseIsa(CortexA76(), "neon_i8mm");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code(), Code::kUnsupported);
  EXPECT_NE(absent.error().message().find("neon_dotprod"), std::string::npos) << absent.error().message();
  const auto unknown = ChooseIsa(NeoverseV1(), "avx2");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code(), Code::kInvalidArgument);
  EXPECT_NE(unknown.error().hint().find("neon_i8mm"), std::string::npos);
}
#endif

TEST(CpuFeatures, TierIncludesThoseWhoseCodeItRuns) {
  EXPECT_TRUE(Includes(Isa::kNeonI8mm, Isa::kNeonDot));
  EXPECT_FALSE(Includes(Isa::kNeonDot, Isa::kNeonI8mm));
  for (const Isa arm : {Isa::kNeonDot, Isa::kNeonI8mm}) {
    EXPECT_TRUE(Includes(arm, Isa::kScalar));
    for (const Isa x86 : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kAvx512Bf16, Isa::kAvx512Amx}) {
      EXPECT_FALSE(Includes(arm, x86));
      EXPECT_FALSE(Includes(x86, arm));
    }
  }
}

#if defined(__x86_64__)
TEST(CpuFeatures, AmxThatTheSystemRefusesIsNotOffered) {
  CpuFeatures f = SapphireRapids();
  f.amx_ready = false;
  f.amx_refusal = "the system refuses the tile registers";
  EXPECT_EQ(BestIsa(f), Isa::kAvx512Bf16);
  const auto forced = ChooseIsa(f, "amx");
  ASSERT_FALSE(forced.ok());
  EXPECT_EQ(forced.error().code(), Code::kUnsupported);
  EXPECT_NE(forced.error().message().find(f.amx_refusal), std::string::npos) << forced.error().message();
  const auto absent = ChooseIsa(IceLake(), "amx");
  ASSERT_FALSE(absent.ok());
  EXPECT_NE(absent.error().message().find("no such instructions"), std::string::npos) << absent.error().message();
}
#endif

// On a CPU with AMX this runs the test product; elsewhere no tile register may be claimed.
TEST(CpuFeatures, AmxIsReadyOnlyWhereThereAreTiles) {
  const CpuFeatures f = DetectCpu();
#if !defined(SLM_AMX_EMULATED)
  if (!f.amx_tile) {
    EXPECT_FALSE(f.amx_ready);
    EXPECT_EQ(f.amx_refusal, "");
  } else {
    EXPECT_NE(f.amx_ready, !f.amx_refusal.empty()) << f.amx_refusal;
    EXPECT_EQ(f.amx_refusal.find("wrong"), std::string::npos) << f.amx_refusal;
  }
#endif
  EXPECT_EQ(f.amx_ready, DetectCpu().amx_ready) << "asking twice gives the same answer";
}

TEST(CpuFeatures, ListNamesWhatIsThere) {
  EXPECT_EQ(FeatureList(CpuFeatures{}), "");
  EXPECT_EQ(FeatureList(Haswell()), "avx2 fma f16c");
  CpuFeatures arm;
  arm.neon_dotprod = arm.neon_i8mm = true;
  EXPECT_EQ(FeatureList(arm), "dotprod i8mm");
}

}  // namespace
}  // namespace slm
