// AMX tiles need more than a CPU that has them: the system must grant this process their 8 KB of state, and a product must come out
// right. Asked once, when the CPU is examined; what is granted then holds for every thread of the process.
#pragma once
#include "base/result.h"

namespace slm {

// Asks Linux for the tile registers (arch_prctl, ARCH_REQ_XCOMP_PERM, for XSAVE component 18) and multiplies one small pair of bf16
// tiles. Call only where CPUID and XCR0 show AMX-TILE and AMX-BF16. May be called any number of times, from any thread, best before
// threads are started (the system refuses while a thread has a signal stack that is too small for the larger frames).
// Errors: kUnsupported: the system refuses (an older kernel, a sandbox), or the product is wrong (an emulator, a broken CPU).
// Source: Linux Documentation/arch/x86/xstate.rst; Intel SDM volume 1, chapter 18.
Status EnableAmx();

}  // namespace slm
