// Compiles an ONNX file with OpenVINO's compiler for Intel NPUs, no device needed: a small Windows program on OpenVINO's C interface,
// which Wine runs too. `./dev openvino-npu` builds it with MinGW; `slm compile --target openvino-npu-…` starts it through npu_compile.sh.
//
//   npu_compile MODEL PLATFORM BLOB      writes the compiled blob; exit code 1 when the compiler refuses
//
// Lines that begin with "npu_compile" are for the program that started it: `openvino`, `compiler`, `error STEP`, `compiled`. Whatever
// else stands on its output is the compiler's own log.
#include <openvino/c/openvino.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void Say(const char* key, const char* text) {
  printf("npu_compile %s: ", key);
  for (; *text; ++text) putchar(*text == '\n' || *text == '\r' ? ' ' : *text);
  putchar('\n');
  fflush(stdout);
}

// Ends the program when the step failed.
static void Must(const char* step, ov_status_e status) {
  if (status == OK) return;
  const char* why = ov_get_last_err_msg();
  char key[64];
  snprintf(key, sizeof key, "error %s", step);
  Say(key, why ? why : ov_get_error_info(status));
  exit(1);
}

int main(int argc, char** argv) {
  static const char kDevice[] = "NPU";
  if (argc != 4) {
    fputs("npu_compile MODEL PLATFORM BLOB\n", stderr);
    return 2;
  }
  ov_version_t version;
  Must("version", ov_get_openvino_version(&version));
  Say("openvino", version.buildNumber);
  ov_core_t* core = NULL;
  Must("start", ov_core_create(&core));
  // The compiler of the package, and not a driver's.
  Must("options", ov_core_set_property(core, kDevice, "NPU_COMPILER_TYPE", "PLUGIN"));
  Must("options", ov_core_set_property(core, kDevice, "NPU_PLATFORM", argv[2]));
  Must("options", ov_core_set_property(core, kDevice, "LOG_LEVEL", "LOG_INFO"));
  char* number = NULL;
  Must("compiler", ov_core_get_property(core, kDevice, "NPU_COMPILER_VERSION", &number));
  const unsigned long packed = strtoul(number, NULL, 10);  // major in the upper half
  char text[32];
  snprintf(text, sizeof text, "%lu.%lu", packed >> 16, packed & 0xffff);
  Say("compiler", text);
  ov_model_t* model = NULL;
  Must("read", ov_core_read_model(core, argv[1], NULL, &model));
  ov_compiled_model_t* compiled = NULL;
  Must("compile", ov_core_compile_model(core, model, kDevice, 0, &compiled));
  Must("export", ov_compiled_model_export_model(compiled, argv[3]));
  Say("compiled", argv[3]);
  return 0;
}
