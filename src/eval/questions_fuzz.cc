// Any bytes as a file of questions: an error or questions whose answer exists, never a crash.
#include <cstdint>
#include <cstdlib>

#include "eval/tasks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  slm::eval::HasChoices(text);
  (void)slm::eval::ReadQuestions(text, 0, text.substr(size / 2));
  const auto questions = slm::eval::ReadQuestions(text);
  if (!questions.ok()) return 0;
  for (const auto& q : questions.value())
    if (q.choices.size() < 2 || q.answer < 0 || static_cast<size_t>(q.answer) >= q.choices.size()) std::abort();
  return 0;
}
