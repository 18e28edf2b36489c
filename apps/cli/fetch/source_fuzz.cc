// Fetch sources from any bytes: nothing breaks, names stay inside the store, and what is accepted reads back as the same source.
#include "fetch/source.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "fetch/http.h"
#include "store.h"
#include "verb.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slm::cli;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto source = ParseFetchSource(text);
  if (source.ok()) {
    if (!IsStoreName(DefaultStoreName(source.value()))) std::abort();
    if (const auto* hub = std::get_if<HubSource>(&source.value())) {
      const auto again = ParseFetchSource(SourceText(source.value()));
      if (!again.ok() || SourceText(again.value()) != SourceText(source.value())) std::abort();
      const auto chosen = ChooseModelFiles(*hub, {text, "config.json", "model.safetensors"});
      if (chosen.ok() && chosen.value().empty()) std::abort();
    }
  } else if (source.error().hint().empty() || ErrorLine(source.error()).find('\n') != std::string::npos) {
    std::abort();
  }
  if (const auto pause = RetryPause(1, text); pause.ok() && !(pause.value() >= 0 && pause.value() <= 120)) std::abort();
  (void)ParseHttpUrl(text).ok();
  (void)MemberMatches(text, ".gguf.part*");
  return 0;
}
