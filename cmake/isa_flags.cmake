# Compiler flags of the ISA files: one object a tier, the next tier switched off explicitly.
# A file is an ISA file when its base name is one of these. The *_emulated_test files compile the body of a tier for a CPU that has other
# instructions for the same; they are part of the tests only.
set(SLM_ISA_FILES avx2 avxvnni avx512vnni avx512bf16 amx neon_dotprod neon_i8mm avxvnni_emulated_test amx_emulated_test)
set(SLM_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mno-avx512f)
set(SLM_ISA_FLAGS_avxvnni -mavx2 -mfma -mf16c -mavxvnni -mno-avx512f)
set(SLM_ISA_FLAGS_avxvnni_emulated_test -mavx2 -mfma -mf16c -mavx512f -mavx512vl -mavx512vnni -mno-avxvnni)
set(SLM_ISA_FLAGS_avx512vnni -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mprfchw)
set(SLM_ISA_FLAGS_avx512bf16 ${SLM_ISA_FLAGS_avx512vnni} -mavx512bf16)
set(SLM_ISA_FLAGS_amx ${SLM_ISA_FLAGS_avx512vnni} -mamx-tile -mamx-int8 -mamx-bf16)
if(SLM_AMX_EMULATED)
  list(APPEND SLM_ISA_FLAGS_amx -DSLM_AMX_EMULATED)
endif()
set(SLM_ISA_FLAGS_amx_emulated_test ${SLM_ISA_FLAGS_avx512vnni})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # GCC 12's own AVX-512 headers start from deliberately undefined registers
  list(APPEND SLM_ISA_FLAGS_avx512vnni -Wno-uninitialized -Wno-maybe-uninitialized)
  list(APPEND SLM_ISA_FLAGS_avx512bf16 -Wno-uninitialized -Wno-maybe-uninitialized)
  list(APPEND SLM_ISA_FLAGS_amx -Wno-uninitialized -Wno-maybe-uninitialized)
  list(APPEND SLM_ISA_FLAGS_avxvnni_emulated_test -Wno-uninitialized -Wno-maybe-uninitialized)
  list(APPEND SLM_ISA_FLAGS_amx_emulated_test -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
# Armv8.2 is what every CPU with either extension has; a later base would let the compiler use more than the tier was asked for.
set(SLM_ISA_FLAGS_neon_dotprod -march=armv8.2-a+dotprod)
set(SLM_ISA_FLAGS_neon_i8mm -march=armv8.2-a+dotprod+i8mm)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(SLM_ISA_HERE neon_dotprod neon_i8mm)
  set(SLM_ISA_TIERS ${SLM_ISA_HERE})
else()
  set(SLM_ISA_HERE avx2 avxvnni avx512vnni avx512bf16 amx avxvnni_emulated_test amx_emulated_test)
  set(SLM_ISA_TIERS avx2 avxvnni avx512vnni avx512bf16 amx)  # those with kernels
endif()

# slm_isa_flags(sources...): sets the flags; leaves out of <out> the ISA files of other processors.
function(slm_isa_flags out)
  set(kept "")
  foreach(f IN LISTS ARGN)
    get_filename_component(base "${f}" NAME_WE)
    if(base IN_LIST SLM_ISA_FILES)
      if(NOT base IN_LIST SLM_ISA_HERE)
        continue()
      endif()
      # ISA objects must hold no inline function that a lower tier could pick up: no exceptions, no rtti, no std templates.
      set_source_files_properties("${f}" PROPERTIES COMPILE_OPTIONS
        "${SLM_ISA_FLAGS_${base}};-fno-exceptions;-fno-rtti;-ffp-contract=off;-O3;-fno-math-errno")
    elseif(base STREQUAL "pack")
      set_source_files_properties("${f}" PROPERTIES COMPILE_OPTIONS "-O3")  # a start is mostly packing
    elseif(base STREQUAL "ref")
      set_source_files_properties("${f}" PROPERTIES COMPILE_OPTIONS "-ffp-contract=off;-O2")
    endif()
    list(APPEND kept "${f}")
  endforeach()
  set(${out} "${kept}" PARENT_SCOPE)
endfunction()
