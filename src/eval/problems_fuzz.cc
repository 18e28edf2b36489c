// Any bytes as a file of problems and as an answer: an error or problems of one kind, numbers that are normal, scores that are shares.
#include <cstdint>
#include <cstdlib>

#include "eval/problems.h"
#include "eval/text_scores.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace slm::eval;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto problems = ReadProblems(text); problems.ok())
    for (const Problem& p : problems.value())
      if (p.kind != problems.value().front().kind || (p.kind != ProblemKind::kCode && p.answers.empty())) std::abort();
  for (const std::string& n : {MarkedNumber(text), LastNumber(text), Normalised(text)})
    if (Normalised(n) != n) std::abort();
  const auto share = [](double x) {
    if (!(x >= 0 && x <= 1)) std::abort();
  };
  const std::string half(text.substr(0, size / 2)), rest(text.substr(size / 2));
  share(TokenF1(half, rest));
  share(RougeL(half, rest));
  const double bleu = BleuOf(CountBleu(half, std::vector<std::string>{rest, half}));
  if (!(bleu >= 0 && bleu <= 100.000001)) std::abort();
  return 0;
}
