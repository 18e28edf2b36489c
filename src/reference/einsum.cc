// Einsum: letters of the equation are dimensions; those that the result lacks are summed over. "..." stands for the dimensions in
// front, which broadcast.
#include <map>

#include "reference/call.h"

namespace slm::reference {
namespace {

constexpr const char* kDots = "...";

// The labels of one term, one a dimension. Dimensions behind dots are called '0', '1', … counted from the right.
Result<std::string> Labels(std::string_view term, size_t rank) {
  const size_t dots = term.find(kDots);
  std::string letters(term);
  if (dots != std::string_view::npos) letters.erase(dots, 3);
  for (const char ch : letters)
    if (!((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z'))) return Refuse("equation with '" + std::string(1, ch) + "'");
  if (letters.size() > rank || (dots == std::string_view::npos && letters.size() != rank))
    return Wrong("a term of the equation does not fit its input");
  const size_t n = rank - letters.size();
  if (n > 10) return Refuse("more than 10 dimensions behind '...'");
  std::string numbers;
  for (size_t k = n; k-- > 0;) numbers += static_cast<char>('0' + k);
  if (dots != std::string_view::npos) letters.insert(dots, numbers);
  return letters;
}

struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

Result<Equation> Parse(const Call& c) {
  std::string text;
  for (const char ch : c.Text("equation", ""))
    if (ch != ' ') text += ch;
  const size_t arrow = text.find("->");
  Equation e;
  std::string left = text.substr(0, arrow) + ",";
  for (size_t at = 0, comma; (comma = left.find(',', at)) != std::string::npos; at = comma + 1) {
    const size_t k = e.terms.size();
    SLM_ASSIGN_OR_RETURN(const Array* x, c.In(k, Accept::kNumber));
    SLM_ASSIGN_OR_RETURN(std::string labels, Labels(std::string_view(left).substr(at, comma - at), x->dims.size()));
    e.terms.push_back(std::move(labels));
  }
  if (e.terms.size() != c.n_inputs()) return Wrong("as many terms as inputs are needed");
  std::map<char, int> seen;
  for (const std::string& t : e.terms)
    for (const char ch : t) ++seen[ch];
  std::string dots;  // the longest run behind dots, from the left
  for (char ch = '9'; ch >= '0'; --ch)
    if (seen.contains(ch)) dots += ch;
  if (arrow == std::string::npos) {  // implicit: what stands once, in order
    e.result = dots;
    for (const auto& [ch, n] : seen)
      if (n == 1 && ch > '9') e.result += ch;
    return e;
  }
  e.result = text.substr(arrow + 2);
  if (const size_t at = e.result.find(kDots); at != std::string::npos) e.result.replace(at, 3, dots);
  std::map<char, int> once;
  for (const char ch : e.result)
    if (!seen.contains(ch) || ++once[ch] > 1) return Wrong("the result of the equation has a letter that no input has, or one twice");
  return e;
}

}  // namespace

Result<Arrays> Einsum(const Call& c) {
  SLM_ASSIGN_OR_RETURN(const Equation e, Parse(c));
  std::map<char, int64_t> sizes;
  for (size_t k = 0; k < e.terms.size(); ++k)
    for (size_t d = 0; d < e.terms[k].size(); ++d) {
      int64_t& size = sizes.emplace(e.terms[k][d], 1).first->second;
      const int64_t own = c.Optional(k)->dims[d];
      if (size != 1 && own != 1 && own != size) return Wrong("dimensions of one letter differ");
      if (size == 1) size = own;
    }
  std::string order = e.result;  // the result's dimensions, then those that are summed over
  for (const auto& [ch, size] : sizes)
    if (order.find(ch) == std::string::npos) order += ch;
  Dims all, out;
  for (const char ch : order) all.push_back(sizes[ch]);
  out.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(e.result.size()));
  SLM_ASSIGN_OR_RETURN(const int64_t steps, Count(all));
  SLM_RETURN_IF_ERROR(c.Count(steps, static_cast<int64_t>(e.terms.size())));
  const ElementType type = c.Optional(0)->type;
  std::vector<Dims> strides;
  for (size_t k = 0; k < e.terms.size(); ++k) {
    const Array& x = *c.Optional(k);
    if (x.type != type) return Wrong("inputs of different types");
    const Dims own = Strides(x.dims);
    Dims s(order.size());
    for (size_t d = 0; d < own.size(); ++d)
      if (x.dims[d] != 1) s[order.find(e.terms[k][d])] += own[d];  // a letter that stands twice walks the diagonal
    strides.push_back(std::move(s));
  }
  SLM_ASSIGN_OR_RETURN(Array y, Zeros(type, out));
  const int64_t summed = y.size() > 0 ? steps / y.size() : 0;
  double sum = 0;
  Walk(all, strides, [&](int64_t at, const Dims& from) {
    double product = 1;
    for (size_t k = 0; k < strides.size(); ++k) product *= Number(*c.Optional(k), from[k]);
    sum += product;
    if (at % summed == summed - 1) {
      Set(y, at / summed, sum);
      sum = 0;
    }
  });
  return One(std::move(y));
}

}  // namespace slm::reference
