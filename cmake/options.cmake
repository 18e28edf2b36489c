# Every switch of the build, all of them here.
option(SLM_TESTS "build unit tests and tiny-model tests" ON)
option(SLM_FUZZ "build libFuzzer targets (clang only)" OFF)
option(SLM_BENCH "build micro-benchmarks" ON)
option(SLM_ZONES "compile per-zone timers in; off leaves no trace of them" OFF)
option(SLM_AMX_EMULATED "compute AMX tiles in C++ (slow): runs the whole suite on tier amx where the CPU has only AVX-512 VNNI" OFF)
set(SLM_SANITIZE "" CACHE STRING "sanitizers for every target: address;undefined or thread")
set(SLM_RUST_PROFILE "dev-fast" CACHE STRING "cargo profile of rust/slm_text: dev-fast or release (fat LTO, minutes)")
set(SLM_ROOMS base kernels model text kv telemetry graph onnx backend exporter reference decode quant targets importer legalize eval CACHE STRING
  "rooms of src/ to build, low floors first; a cross build takes fewer")
option(SLM_APPS "build the executable and test it and the tools from outside; a cross build of low floors goes without" ON)
