// See text_scores.h for the definitions and their sources; the values are checked against sacrebleu and rouge-score.
#include "eval/text_scores.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/splitmix64.h"

namespace slm::eval {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool IsPunctuation(char c) { return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~'); }
bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    while (at < text.size() && IsSpace(text[at])) ++at;
    size_t end = at;
    while (end < text.size() && !IsSpace(text[end])) ++end;
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

void ReplaceAll(std::string& s, std::string_view from, std::string_view to) {
  for (size_t at = s.find(from); at != std::string::npos; at = s.find(from, at + to.size())) s.replace(at, from.size(), to);
}

// Puts spaces around the second (Side::kBefore) or first character of each pair that `apart` accepts; pairs do not overlap.
enum class Side : unsigned char { kFirst, kSecond };
template <class F>
std::string Split(std::string_view s, Side side, F apart) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (i + 1 < s.size() && apart(s[i], s[i + 1])) {
      if (side == Side::kFirst) out += ' ', out += s[i], out += ' ', out += s[i + 1];
      else out += s[i], out += ' ', out += s[i + 1], out += ' ';
      ++i;
    } else {
      out += s[i];
    }
  }
  return out;
}

// mteval-v13a's tokens: symbols stand alone, full stops and commas unless between digits, and a dash after a digit.
std::vector<std::string> Tokens13a(std::string_view text) {
  std::string s(text);
  ReplaceAll(s, "<skipped>", "");
  ReplaceAll(s, "-\n", "");
  ReplaceAll(s, "\n", " ");
  for (const auto& [from, to] : {std::pair("&quot;", "\""), {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}}) ReplaceAll(s, from, to);
  std::string spaced = " ";
  for (const char c : s) {
    const bool symbol = (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
                        (c >= ':' && c <= '@') || c == '/';
    if (symbol) spaced += ' ', spaced += c, spaced += ' ';
    else spaced += c;
  }
  spaced += ' ';
  const auto stop = [](char c) { return c == '.' || c == ','; };
  spaced = Split(spaced, Side::kSecond, [&](char a, char b) { return !IsDigit(a) && stop(b); });
  spaced = Split(spaced, Side::kFirst, [&](char a, char b) { return stop(a) && !IsDigit(b); });
  spaced = Split(spaced, Side::kSecond, [](char a, char b) { return IsDigit(a) && b == '-'; });
  return Words(spaced);
}

using Grams = std::map<std::vector<std::string>, int64_t>;
Grams GramsOf(const std::vector<std::string>& words, size_t n) {
  Grams grams;
  for (size_t i = 0; i + n <= words.size(); ++i)
    ++grams[{words.begin() + static_cast<std::ptrdiff_t>(i), words.begin() + static_cast<std::ptrdiff_t>(i + n)}];
  return grams;
}

std::vector<std::string> RougeWords(std::string_view text) {
  std::string s;
  for (const char c : text) s += IsLower(Lower(c)) || IsDigit(c) ? Lower(c) : ' ';
  return Words(s);
}

double Harmonic(double precision, double recall) { return precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0; }

constexpr int kDraws = 1000;

// f(indices) for each draw of n of n; the interval of its values.
template <class F>
Interval Bootstrap(size_t n, double mean, F f) {
  if (n == 0) return {};
  SplitMix64 draw(7);
  std::vector<size_t> indices(n);
  std::vector<double> values;
  for (int i = 0; i < kDraws; ++i) {
    for (size_t& index : indices) index = static_cast<size_t>(draw.Next() % n);
    values.push_back(f(indices));
  }
  std::sort(values.begin(), values.end());
  return {mean, values[kDraws / 40], values[kDraws - 1 - kDraws / 40]};
}

}  // namespace

std::string NormalisedAnswer(std::string_view text) {
  std::string s;
  for (const char c : text)
    if (!IsPunctuation(c)) s += Lower(c);
  std::string out;
  for (const std::string& word : Words(s))
    if (word != "a" && word != "an" && word != "the") out += (out.empty() ? "" : " ") + word;
  return out;
}

double TokenF1(std::string_view answer, std::string_view reference) {
  const auto a = Words(NormalisedAnswer(answer)), r = Words(NormalisedAnswer(reference));
  if (a.empty() || r.empty()) return a.empty() && r.empty() ? 1 : 0;
  std::map<std::string, int64_t> left;
  for (const std::string& w : r) ++left[w];
  double same = 0;
  for (const std::string& w : a)
    if (auto it = left.find(w); it != left.end() && it->second-- > 0) ++same;
  return Harmonic(same / static_cast<double>(a.size()), same / static_cast<double>(r.size()));
}

double RougeL(std::string_view answer, std::string_view reference) {
  const auto a = RougeWords(answer), r = RougeWords(reference);
  if (a.empty() || r.empty()) return 0;
  std::vector<int64_t> row(r.size() + 1);  // longest common subsequence of a's words so far and r's first j
  for (const std::string& w : a) {
    int64_t diagonal = 0;
    for (size_t j = 1; j <= r.size(); ++j) {
      const int64_t above = row[j];
      row[j] = w == r[j - 1] ? diagonal + 1 : std::max(above, row[j - 1]);
      diagonal = above;
    }
  }
  const double common = static_cast<double>(row.back());
  return Harmonic(common / static_cast<double>(a.size()), common / static_cast<double>(r.size()));
}

void BleuCounts::Add(const BleuCounts& o) {
  for (size_t n = 0; n < 4; ++n) {
    matched[n] += o.matched[n];
    possible[n] += o.possible[n];
  }
  answer_words += o.answer_words;
  reference_words += o.reference_words;
}

BleuCounts CountBleu(std::string_view answer, std::span<const std::string> references) {
  const auto words = Tokens13a(answer);
  std::vector<std::vector<std::string>> refs;
  for (const std::string& r : references) refs.push_back(Tokens13a(r));
  BleuCounts c;
  c.answer_words = static_cast<int64_t>(words.size());
  int64_t nearest = -1;
  for (const auto& r : refs) {  // the length nearest to the answer's, of two the smaller
    const auto n = static_cast<int64_t>(r.size()), off = std::abs(n - c.answer_words);
    if (nearest < 0 || off < nearest || (off == nearest && n < c.reference_words)) nearest = off, c.reference_words = n;
  }
  for (size_t n = 1; n <= 4; ++n) {
    Grams most;
    for (const auto& r : refs)
      for (const auto& [gram, count] : GramsOf(r, n)) most[gram] = std::max(most[gram], count);
    for (const auto& [gram, count] : GramsOf(words, n)) {
      c.possible[n - 1] += count;
      if (const auto it = most.find(gram); it != most.end()) c.matched[n - 1] += std::min(count, it->second);
    }
  }
  return c;
}

double BleuOf(const BleuCounts& c) {
  double log_sum = 0, smooth = 1;
  if (c.matched == std::array<int64_t, 4>{}) return 0;
  for (size_t n = 0; n < 4; ++n) {
    if (c.possible[n] == 0) return 0;
    double matched = static_cast<double>(c.matched[n]);
    if (c.matched[n] == 0) matched = 1 / (smooth *= 2);
    log_sum += std::log(matched / static_cast<double>(c.possible[n]));
  }
  const double short_by = static_cast<double>(c.reference_words) / static_cast<double>(std::max<int64_t>(1, c.answer_words));
  return 100 * std::exp(log_sum / 4) * (short_by > 1 ? std::exp(1 - short_by) : 1);
}

Interval BootstrapMean(std::span<const double> scores) {
  const auto mean_of = [&](const std::vector<size_t>& indices) {
    double sum = 0;
    for (const size_t i : indices) sum += scores[i];
    return sum / static_cast<double>(indices.size());
  };
  std::vector<size_t> all(scores.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return Bootstrap(scores.size(), all.empty() ? 0 : mean_of(all), mean_of);
}

Interval BootstrapBleu(std::span<const BleuCounts> answers) {
  const auto bleu_of = [&](const std::vector<size_t>& indices) {
    BleuCounts sum;
    for (const size_t i : indices) sum.Add(answers[i]);
    return BleuOf(sum);
  };
  std::vector<size_t> all(answers.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return Bootstrap(answers.size(), bleu_of(all), bleu_of);
}

}  // namespace slm::eval
