// How close a written answer is to a reference: exact match and F1 over words, BLEU, ROUGE-L; and how sure the mean of such scores is.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slm::eval {

// An answer without what SQuAD's evaluation leaves out (arXiv 1606.05250): small letters, no ASCII punctuation, no articles, single spaces.
// Letters outside ASCII stay as they are.
std::string NormalisedAnswer(std::string_view text);
// Harmonic mean of precision and recall over the words of both, normalised; 1 when neither has a word. In [0, 1].
double TokenF1(std::string_view answer, std::string_view reference);

// F of the longest common subsequence of words (Lin 2004), as the package rouge-score without its stemmer: words are runs of ASCII letters
// and digits, in small letters. Time |answer| * |reference|. In [0, 1]; 0 when one of them has no word.
double RougeL(std::string_view answer, std::string_view reference);

// BLEU (Papineni 2002) over a set of answers, as sacrebleu has it by default: tokens 13a, case kept, up to 4 words, exponential smoothing.
// The counts of answers are added up, then scored.
struct BleuCounts {
  std::array<int64_t, 4> matched{}, possible{};  // word sequences of 1 to 4
  int64_t answer_words = 0, reference_words = 0;
  void Add(const BleuCounts& other);
};
BleuCounts CountBleu(std::string_view answer, std::span<const std::string> references);  // at least 1 reference
double BleuOf(const BleuCounts& counts);                                                 // in [0, 100]

// An interval of 95 % by percentile bootstrap: 1000 draws of n items with replacement, seeded, the same on every machine.
struct Interval {
  double mean = 0, low = 0, high = 0;
};
Interval BootstrapMean(std::span<const double> scores);
Interval BootstrapBleu(std::span<const BleuCounts> answers);  // mean: BLEU of all

}  // namespace slm::eval
