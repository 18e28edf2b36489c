// Any bytes as a template: first the source, after a zero byte the messages.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view source(reinterpret_cast<const char*>(data), size);
  std::string_view messages = R"([{"role": "user", "content": "hi", "list": [1, {"a": null}]}])";
  if (const size_t zero = source.find('\0'); zero != source.npos) {
    messages = source.substr(zero + 1);
    source = source.substr(0, zero);
  }
  auto made = slm::text::ChatTemplate::FromSource(source);
  if (made.ok()) (void)made.value().Render({messages, {}, R"({"now": "2024-02-29 12:00:00"})"}).ok();
  return 0;
}
