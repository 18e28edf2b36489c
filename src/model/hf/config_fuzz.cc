// libFuzzer: any text as config.json, and as generation_config.json of a small model.
#include <string_view>

#include "model/hf/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)slm::model::hf::ParseConfig(text);
  slm::model::ModelConfig c;
  c.vocab_size = 100;
  (void)slm::model::hf::AddGenerationConfig(text, &c);
  return 0;
}
